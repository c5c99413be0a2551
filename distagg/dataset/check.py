"""Check what was read from disk before kernels rely on it: types, ranges, order.

Kernels index by these numbers without looking: a number out of range would read or write other memory. Each chunk is
checked once, when it is loaded; about a quarter of a nanosecond an entry.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pyarrow as pa

from distagg.arrow import as_numpy, one_array
from distagg.dataset.chunk import Chunk
from distagg.errors import InputError
from distagg.storage.verified import AGAIN, list_lengths
from distagg.types import (
    LISTS_TABLE,
    PAIR_ORDER,
    PAIR_TIME,
    PAIRS_TABLE,
    QUERIES_TABLE,
    Floats,
    Indices,
    Offsets,
)

OPTIONAL = {"queries": ("item",), "lists": ("score",), "pairs": ()}
BLOCK = 1 << 15  # ranks compared at once
NULLABLE = ("label", "missed")  # lists whose elements may be null


def check_tables(queries: pa.Table, rows: pa.Table, kind: str, where: str) -> None:
    """Refuse tables whose columns are missing, have other types, or have nulls where numbers must be."""
    check_columns(queries, QUERIES_TABLE, OPTIONAL["queries"], where)
    check_columns(rows, LISTS_TABLE if kind == "lists" else PAIRS_TABLE, OPTIONAL[kind], where)
    if kind == "lists":
        for name in ("rank", "score"):
            if name in rows.column_names and len(rows):
                _check_same_lengths(rows, "item", name, where, may_be_empty=name == "score")
    else:
        known = {PAIR_TIME.name: PAIR_TIME.type, PAIR_ORDER.name: PAIR_ORDER.type}
        for name in rows.column_names[len(PAIRS_TABLE) :]:
            _check_column(rows, name, known.get(name, pa.float64()), where)
    if "item" in queries.column_names and len(queries):
        _check_same_lengths(queries, "label", "item", where)


def check_columns(table: pa.Table, schema: pa.Schema, optional: tuple[str, ...], where: str) -> None:
    """Refuse a table whose columns are missing, have other types than the schema, or have nulls."""
    for field in schema:
        if field.name in table.column_names:
            _check_column(table, field.name, field.type, where)
        elif field.name not in optional:
            _damaged(where, f"no column {field.name}", f"columns {', '.join(schema.names)}")


def _check_column(table: pa.Table, name: str, expected: pa.DataType, where: str) -> None:
    column = table[name]
    same = column.type == expected or (
        pa.types.is_list(column.type) and pa.types.is_list(expected) and column.type.value_type == expected.value_type
    )
    if not same:
        _damaged(where, f"column {name} of type {column.type}", str(expected))
    nulls = column.null_count
    if pa.types.is_list(expected) and name not in NULLABLE and not nulls:
        nulls = sum(piece.values.null_count for piece in column.chunks)
    if nulls:
        _damaged(where, f"{nulls} missing values in column {name}", "none")


def _check_same_lengths(table: pa.Table, one: str, other: str, where: str, *, may_be_empty: bool = False) -> None:
    """Refuse lists of different lengths in two columns; lists of the second may all be empty."""
    first, second = (list_lengths(table[name]) for name in (one, other))
    differing = np.flatnonzero(first != second)
    if len(differing) and not (may_be_empty and not second.any()):
        row = int(differing[0])
        _damaged(where, f"{first[row]} values of {one} and {second[row]} of {other} in row {row}", "as many of both")


def check_chunk(chunk: Chunk, query: pa.ChunkedArray, where: str) -> None:
    """Refuse a chunk whose positions, experts or ranks are out of range or out of order.

    ``query`` is the column of lists or pairs from which the offsets of queries were made.
    """
    rows = as_numpy(one_array(query))
    if len(rows):
        first, last = int(chunk.positions[0]) if chunk.n_queries else 0, int(chunk.positions[0]) + chunk.n_queries - 1
        if (np.diff(rows) < 0).any() or rows[0] < first or rows[-1] > last:
            _damaged(where, "rows out of the order of queries, or of other queries", f"queries {first} to {last}")
    sizes = np.diff(chunk.item_offsets)
    for experts in (chunk.list_expert, chunk.pair_expert):
        if len(experts) and int(experts.view(np.uint32).max()) >= chunk.n_experts:
            bad = experts[(experts < 0) | (experts >= chunk.n_experts)][0]
            _damaged(where, f"expert {bad}", f"0 to {chunk.n_experts - 1}")
    if chunk.n_lists:
        _check_lists(chunk, sizes, where)
    for items in (chunk.pair_winner, chunk.pair_loser):
        _check_positions(chunk, items, chunk.pair_offsets, sizes, where)
    if len(chunk.pair_weight) and not np.isfinite(chunk.pair_weight.sum()):
        _check_finite(chunk.pair_weight, "weight", where)


def _check_lists(chunk: Chunk, sizes: Offsets, where: str) -> None:
    query_of_list = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
    _check_positions(chunk, chunk.entry_item, chunk.entry_offsets, sizes[query_of_list], where, query_of_list)
    _check_ranks(chunk.entry_rank, chunk.entry_offsets, where)


def _check_ranks(ranks: Floats, offsets: Offsets, where: str) -> None:
    """Refuse ranks that are not finite, or descend inside a list."""
    spans = np.flatnonzero(np.diff(offsets))  # those that are not empty
    starts, ends = offsets[:-1][spans], offsets[1:][spans] - 1
    # Only the ends of an ascending list can be infinite.
    if not (np.isfinite(ranks[starts]).all() and np.isfinite(ranks[ends]).all()):
        _check_finite(ranks, "rank", where)
    first = starts[1:]  # the first of a list may be smaller than the last of the list before it
    if _count_descents(ranks) != len(first) - np.count_nonzero(ranks[first] >= ranks[first - 1]):
        _check_finite(ranks, "rank", where)
        ascending = ranks[1:] >= ranks[:-1]
        ascending[first - 1] = True
        at = int(np.argmin(ascending)) + 1
        _damaged(where, f"rank {ranks[at]:g} after {ranks[at - 1]:g} in a list", "ascending ranks")


def _count_descents(ranks: Floats) -> int:
    """How many ranks are smaller than the one before, or are beside nan; in blocks that stay in the processor's cache.

    >>> _count_descents(np.array([1.0, 2.0, 1.0, np.nan, 3.0]))
    3
    """
    ascending = np.empty(min(BLOCK, len(ranks)), dtype=np.bool_)
    descents = 0
    for at in range(1, len(ranks), BLOCK):
        block = ranks[at : at + BLOCK]
        here = np.greater_equal(block, ranks[at - 1 : at - 1 + len(block)], out=ascending[: len(block)])
        descents += len(block) - int(np.count_nonzero(here))
    return descents


def _check_positions(
    chunk: Chunk,
    items: Indices,
    offsets: Offsets,
    sizes: Offsets,
    where: str,
    query: Offsets | None = None,
) -> None:
    """Refuse positions of items outside their query: span n of ``offsets`` has positions below ``sizes[n]``.

    ``query`` is the query of each span, by default span n is query n.
    """
    if not len(items):
        return
    spans = np.flatnonzero(np.diff(offsets))  # those that are not empty
    largest = np.maximum.reduceat(items.view(np.uint32), offsets[:-1][spans])  # of a negative one: above 2**31
    wrong = np.flatnonzero(largest >= sizes[spans])
    if len(wrong):
        span = int(spans[wrong[0]])
        own = items[offsets[span] : offsets[span + 1]]
        bad = own[(own < 0) | (own >= sizes[span])][0]
        name = chunk.query_ids[span if query is None else int(query[span])]
        _damaged(where, f"item {bad} in query '{name}' of {sizes[span]} items", f"0 to {sizes[span] - 1}")


def _check_finite(values: Floats, name: str, where: str) -> None:
    bad = values[~np.isfinite(values)]
    if len(bad):
        _damaged(where, f"the {name} {bad[0]}", "finite numbers")


def _damaged(where: str, found: str, expected: str) -> NoReturn:
    raise InputError(where, found=found, expected=expected, remedy=AGAIN)
