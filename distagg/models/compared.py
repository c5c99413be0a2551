"""Raw pairs by expert: the items that each expert of a query compared, what they won and what they lost.

Observed pairs fill the entries of an expert's pair matrix directly (Volkovs & Zemel 2014, section 3.2). Models that
need nothing but the row and column sums of these matrices take raw pairs like lists. Cost: a sort of the pairs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.rounds import kept
from distagg.types import INDEX, OFFSET, RANK, Floats


class Compared(NamedTuple):
    """Raw pairs as lists with sums."""

    chunk: Chunk  # a list for each expert of a query: the items in its pairs, in the order of items, all at rank 1
    won: Floats  # (E,) the weight of the pairs that the item won
    lost: Floats  # (E,)


def compared(chunk: Chunk) -> Compared:
    """What experts compared. A tie is won and lost by nobody, as in lists; pairs of weight 0 say nothing.

    >>> import pyarrow as pa
    >>> from distagg.dataset import Dataset
    >>> votes = {"expert": ["a", "a", "b"], "winner": ["x", "x", "y"], "loser": ["y", "z", "x"]}
    >>> _, won, lost = compared(next(Dataset.from_arrow(pa.table(votes)).chunks()))
    >>> won.tolist(), lost.tolist()
    ([2.0, 0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0, 0.0])
    """
    return kept(chunk, "compared", _compared)


def by_expert(chunk: Chunk) -> Chunk:
    """The lists of a chunk; of a chunk of raw pairs, the items that each expert compared."""
    return compared(chunk).chunk if chunk.n_pairs else chunk


def _compared(chunk: Chunk) -> Compared:
    some = chunk.pair_weight > 0.0
    query = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.pair_offsets))[some]
    sides = chunk.pair_winner[some], chunk.pair_loser[some]
    weight = np.where(chunk.pair_tie, 0.0, chunk.pair_weight)[some]
    columns = np.stack([np.tile(query, 2), np.tile(chunk.pair_expert[some], 2), np.concatenate(sides)])
    order = np.lexsort(columns[::-1])
    columns = columns[:, order]
    new = np.ones(columns.shape[1], dtype=np.bool_)
    new[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    row = np.cumsum(new) - 1
    nothing = np.zeros_like(weight)
    won, lost = (
        np.bincount(row, np.concatenate(side)[order], int(new.sum())).astype(np.float64, copy=False)
        for side in ((weight, nothing), (nothing, weight))
    )
    entry_query, entry_expert, item = columns[:, new]
    first = np.ones(len(item), dtype=np.bool_)
    first[1:] = (entry_query[1:] != entry_query[:-1]) | (entry_expert[1:] != entry_expert[:-1])
    starts = np.flatnonzero(first)
    lists = replace(
        chunk,
        list_offsets=np.searchsorted(entry_query[starts], np.arange(chunk.n_queries + 1)).astype(OFFSET),
        list_expert=entry_expert[starts].astype(INDEX),
        entry_offsets=np.append(starts, len(item)).astype(OFFSET),
        entry_item=item.astype(INDEX),
        entry_rank=np.ones(len(item), dtype=RANK),
    )
    for sums in (won, lost):
        sums.setflags(write=False)
    return Compared(lists.keep_pairs(np.zeros(chunk.n_pairs, dtype=np.bool_)), won, lost)
