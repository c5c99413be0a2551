"""suggest: the pairs of items whose comparison would tell most, from battles of any kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from distagg.dataset.chunk import Chunk
from distagg.dataset.interchange import in_kind, is_table
from distagg.engine.data import Columns, given
from distagg.errors import UsageError
from distagg.models.pairwise.model import BradleyTerry
from distagg.models.pairwise.suggesting import suggest_pairs

SUGGESTIONS_TABLE = pa.schema(
    [
        ("query", pa.string()),
        ("item_a", pa.string()),
        ("item_b", pa.string()),
        ("bits", pa.float64()),
        ("joins", pa.bool_()),
        ("chance", pa.float64()),
        ("gap", pa.float64()),
        ("error", pa.float64()),
    ]
)


def suggest(data: Any, n: int = 100, *, columns: Columns = None) -> Any:
    """List the pairs of items to compare next, the most informative first.

    Strengths are those of ``bradley_terry``, with a tie parameter where there are ties. Pairs that join groups of items
    which no battle connects come first; then pairs by the information that their answers are expected to add to what
    the answers before them have told, so that the suggestions make a good batch. No pair is suggested twice.

    Parameters
    ----------
    data
        Battles: a ``Dataset`` of pairs, a frame or table (winner, loser, or model_a, model_b, winner), or paths.
    n
        The number of suggestions, over all queries.
    columns
        Our names of columns that a table names otherwise.

    Returns
    -------
    table
        In the type of ``data`` (an Arrow table for a ``Dataset`` and for paths), with columns query, item_a, item_b,
        bits (expected information), joins (whether the pair connects two groups), chance (that item_a wins, plus half
        the chance of a tie), gap (of scores) and error (its standard error so far).

    >>> battles = pa.table({"winner": ["a", "b", "a", "c"], "loser": ["b", "a", "b", "d"]})
    >>> suggest(battles, n=2).select(["item_a", "item_b", "joins"]).to_pylist()[0]["joins"]
    True
    """
    if n < 1:
        raise UsageError(f"n: found {n}, expected a number of at least 1")
    dataset = given(data, columns).dataset
    if dataset.manifest.kind != "pairs":
        raise UsageError(
            "suggest takes pairs (battles), and the data are lists; give winner, loser or model_a, model_b"
        )
    table = pa.concat_tables(
        [SUGGESTIONS_TABLE.empty_table(), *(suggestions(chunk, n) for chunk in dataset.chunks(ids=True))]
    )
    first = np.lexsort((-table["bits"].to_numpy(), ~table["joins"].to_numpy()))[:n]
    table = table.take(pa.array(np.sort(first) if dataset.manifest.queries == 1 else first))
    return in_kind(table, data) if is_table(data) else table


def suggestions(chunk: Chunk, n: int) -> pa.Table:
    """Up to n suggestions for every query of a chunk."""
    queries = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.pair_offsets))
    wins = np.bincount(queries, np.where(chunk.pair_tie, 0.0, chunk.pair_weight), chunk.n_queries)
    # Without any win the tie parameter is infinite, and nothing would be expected of any answer.
    model = BradleyTerry(ties="davidson" if chunk.pair_tie.any() and (wins > 0.0).all() else "half")
    pieces = [SUGGESTIONS_TABLE.empty_table()]
    for q, found in enumerate(suggest_pairs(model, model.counting(chunk).count(chunk), n)):
        names = chunk.item_ids[chunk.item_offsets[q] : chunk.item_offsets[q + 1]]
        columns = [
            pa.array([str(chunk.query_ids[q])] * len(found.one), pa.string()),
            *(names.take(pa.array(side)) for side in (found.one, found.other)),
            *(pa.array(column) for column in (found.gain, found.joins, found.chance, found.gap, found.error)),
        ]
        pieces.append(pa.table(columns, schema=SUGGESTIONS_TABLE))
    return pa.concat_tables(pieces)
