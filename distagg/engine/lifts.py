"""What every expert does to the scores: it is left out, and one looks. Paper 000, section 3.7.4 and figure 9.

The lift that an expert gives an item is the item's score, less what it would be without that expert's list, both
beside the query's mean: a number that all items of a query share moves none of them. That works for any model. Where
the score is a sum over experts (crf, linear lambdarank, rrf) the lifts of an item add up to its score above the mean.
Cost: a pass over an expert's queries for each expert.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.reader import Dataset
from distagg.engine.fit import check_fits, split_query
from distagg.engine.rank import solved
from distagg.errors import UsageError
from distagg.models import Model, Params
from distagg.types import Bools, Floats


class Lift(NamedTuple):
    """What one expert does in the queries that it has a list in."""

    expert: int
    queries: Bools  # (Q,) which of the chunk's
    heard: Chunk  # those queries
    without: Floats  # (items of heard,) scores without the expert
    lift: Floats  # (items of heard,)


def chunk_lifts(model: Model, chunk: Chunk, params: Params, score: Floats) -> Iterator[Lift]:
    """Lifts of all experts of a chunk, in their order; ``score`` (I,) is what the model gives with all of them."""
    query = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
    for expert in np.unique(chunk.list_expert):
        there = np.zeros(chunk.n_queries, dtype=np.bool_)
        there[query[chunk.list_expert == expert]] = True
        heard, own = chunk.select(there), score[there[chunk.item_query()]]
        without = solved(model, heard.without([int(expert)]), params).score
        yield Lift(int(expert), there, heard, without, centred(heard, own - without))


def check_whole_lists(model: Model, dataset: Dataset) -> None:
    """Refuse what experts cannot be left out of."""
    check_fits(model, dataset)
    if dataset.manifest.kind != "lists":
        raise UsageError(f"experts are judged by their lists, and the dataset holds {dataset.manifest.kind}")
    if split_query(dataset):
        raise UsageError("experts are judged on whole queries, and the dataset is partitioned by expert")


def centred(chunk: Chunk, values: Floats) -> Floats:
    """Values of items (I,), less the mean of their query."""
    sizes, query = np.diff(chunk.item_offsets), chunk.item_query()
    total = np.bincount(query, values, chunk.n_queries)
    result: Floats = values - (total / np.maximum(sizes, 1))[query]
    return result
