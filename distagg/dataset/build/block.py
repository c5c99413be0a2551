"""Build one block of a dataset from the gathered rows of whole queries, or of whole experts of a single query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distagg.arrow import as_arrow, as_numpy, as_words, one_array
from distagg.dataset.build.merge import KEY, GroupedRows, key_major, key_minor, run_starts
from distagg.dataset.build.positions import Clash, Mentions, NumberedItems, find_repeated, number_items, order_lists
from distagg.dataset.build.tally import BlockCounts, count_labels, count_values
from distagg.types import (
    LISTS_TABLE,
    NO_LABEL,
    PAIRS_TABLE,
    QUERIES_TABLE,
    RANK,
    Floats,
    Indices,
    Labels,
    Offsets,
)


@dataclass(frozen=True, slots=True, eq=False)
class BlockTables:
    """A block as rows of the dataset's tables. ``queries`` is None after the first block of a single query."""

    first_query: int
    queries: pa.Table | None
    rows: pa.Table  # LISTS_TABLE or PAIRS_TABLE
    parts: tuple[str, ...]
    tally: BlockCounts = field(default_factory=BlockCounts)  # of this block only


@dataclass(frozen=True, slots=True, eq=False)
class QueryRows:
    """Gathered rows of consecutive queries, keyed ``query code, expert code``."""

    codes: NDArray[np.int64]  # (Q,) ascending codes of the queries to keep
    first_query: int  # dataset position of the first one
    names: list[str]  # (Q,)
    parts: list[str]  # (Q,)
    ranked: GroupedRows  # entries: key, item, rank, score; pairs: key, winner, loser, weight, tie
    declared: GroupedRows  # key, item, label
    judged: GroupedRows  # key, item, label
    scores: bool


def query_block(rows: QueryRows) -> BlockTables:
    """A block of whole queries."""
    pairs = "winner" in rows.ranked.schema.names
    names = ["winner", "loser"] if pairs else ["item"]
    sides = len(names)
    table = rows.ranked.table(names)
    item = mentioned(table, names)
    runs = Runs.of(as_numpy(one_array(table[KEY])), lambda major: np.searchsorted(rows.codes, major))
    table = table.drop_columns([KEY, *names] if len(table) else [KEY])
    ranked = Mentions(spread(runs.query, runs.lengths * sides), item)
    try:
        declared, judged = (_mentions(some, rows.codes) for some in (rows.declared, rows.judged))
        items = number_items(len(rows.codes), declared, ranked, judged)
    except Clash as clash:
        clash.query = int(rows.codes[clash.query])
        raise
    tally = BlockCounts(
        queries=len(rows.codes),
        items=len(items.labels),
        labels=count_labels(items.labels),
        query_sizes=count_values(np.diff(items.offsets)),
    )
    runs = replace(runs, query=runs.query + rows.first_query)
    try:
        if pairs:
            blocked = pair_rows(table, runs, items.position.reshape(-1, 2), tally)
        else:
            blocked = list_rows(table, runs, items.position, rows.scores, tally)
    except BadRow as bad:
        run = int(np.searchsorted(runs.starts, bad.row, side="right")) - 1
        query, expert = int(rows.codes[runs.query[run] - rows.first_query]), int(runs.expert[run])
        raise Clash(bad.kind, query, expert, item[bad.row * sides].as_py()) from None
    queries = queries_table(rows.names, rows.parts, items)
    return BlockTables(rows.first_query, queries, blocked, tuple(dict.fromkeys(rows.parts)), tally)


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """The rows of a block by (query, expert): lists, or the pairs of an expert. L runs."""

    starts: NDArray[np.intp]  # (L,) first row
    lengths: NDArray[np.intp]  # (L,)
    query: NDArray[np.int64]  # (L,)
    expert: Indices  # (L,)

    @classmethod
    def of(cls, key: NDArray[np.int64], query: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Runs:
        """Runs of equal keys; ``query`` maps the majors of keys to queries."""
        starts = run_starts(key)
        first = key[starts]
        return cls(starts, np.diff(starts, append=len(key)), query(key_major(first)), key_minor(first))


class BadRow(Exception):  # noqa: N818  # becomes a Clash where the ids are known
    """An invalid row of a block, by its number."""

    def __init__(self, kind: Literal["entry", "self"], row: int) -> None:
        super().__init__(kind, row)
        self.kind: Literal["entry", "self"] = kind
        self.row = row


def list_rows(entries: pa.Table, runs: Runs, position: Indices, scores: bool, tally: BlockCounts) -> pa.Table:
    """LISTS_TABLE rows of entries, one per run; adds their counts to ``tally``."""
    repeated = find_repeated(runs.starts, position)
    if repeated is not None:
        raise BadRow("entry", repeated)
    lists = order_lists(runs.starts, position, floats(entries, "rank"), _scores(entries))
    offsets = np.append(runs.starts, len(position))
    tally.lists += len(runs.starts)
    tally.entries += len(position)
    tally.ties += lists.ties
    tally.positive &= bool((lists.rank > 0).all())
    tally.list_lengths.update(count_values(runs.lengths))
    columns = {
        "query": as_arrow(runs.query),
        "expert": as_arrow(runs.expert),
        "item": list_column(offsets, as_arrow(lists.position)),
        "rank": list_column(offsets, as_arrow(lists.rank)),
    }
    if scores and lists.score is not None:
        columns["score"] = list_column(offsets, as_arrow(lists.score))
    return pa.table(columns, schema=lists_schema(scores))


def pair_rows(pairs: pa.Table, runs: Runs, position: NDArray[np.int32], tally: BlockCounts) -> pa.Table:
    """PAIRS_TABLE rows; ``position`` has winner and loser of every pair, shape (P, 2)."""
    same = position[:, 0] == position[:, 1]
    if same.any():
        raise BadRow("self", int(np.argmax(same)))
    tie = pc.fill_null(one_array(_column(pairs, "tie", pa.bool_())), False)
    weight = None if _absent(pairs, "weight") else pc.fill_null(one_array(pairs["weight"]), 1.0)
    tally.entries += len(position)
    tally.ties += int(pc.sum(tie).as_py() or 0)
    columns = [
        as_arrow(np.repeat(runs.query, runs.lengths)),
        as_arrow(np.repeat(runs.expert, runs.lengths)),
        as_arrow(position[:, 0]), as_arrow(position[:, 1]),
        as_arrow(np.ones(len(position))) if weight is None else weight, tie,
    ]  # fmt: skip
    return pa.table(columns, schema=PAIRS_TABLE)


def lists_schema(scores: bool) -> pa.Schema:
    return LISTS_TABLE if scores else LISTS_TABLE.remove(LISTS_TABLE.get_field_index("score"))


def queries_table(names: list[str], parts: list[str], items: NumberedItems) -> pa.Table:
    columns = [
        as_words(names),
        as_words(parts),
        list_column(items.offsets, items.ids),
        list_column(items.offsets, nullable(items.labels)),
        list_column(items.missed_offsets, nullable(items.missed_labels)),
    ]
    return pa.table(columns, schema=QUERIES_TABLE)


def floats(table: pa.Table, name: str) -> Floats:
    """A column as float64, NaN where it is null or absent."""
    if _absent(table, name):
        return np.full(len(table), np.nan, dtype=RANK)
    return as_numpy(one_array(table[name]))


def _scores(entries: pa.Table) -> Floats | None:
    return None if _absent(entries, "score") else floats(entries, "score")


def _absent(table: pa.Table, name: str) -> bool:
    """Whether a column is missing or has no values."""
    return name not in table.column_names or pa.types.is_null(table.schema.field(name).type)


def _mentions(rows: GroupedRows, codes: NDArray[np.int64]) -> Mentions:
    """Labelled rows of the queries to keep."""
    if not rows.pieces:
        return Mentions(np.zeros(0, np.int64), as_words([]), pa.nulls(0, pa.int32()))
    table = rows.table()
    code = key_major(as_numpy(one_array(table[KEY])))
    query = np.searchsorted(codes, code)
    stays = codes[np.minimum(query, len(codes) - 1)] == code
    if not stays.all():
        table, query = table.filter(as_arrow(stays)), query[stays]
    return Mentions(
        query, one_array(_column(table, "item", pa.string())), one_array(_column(table, "label", pa.int32()))
    )


def interleaved(winner: pa.Array, loser: pa.Array) -> pa.Array:
    """Winner, loser, winner, loser, ...: the order in which pairs mention items."""
    order = np.arange(2 * len(winner)).reshape(2, -1).T.ravel()
    return pa.concat_arrays([winner, loser]).take(as_arrow(order))


def mentioned(table: pa.Table, names: list[str]) -> pa.DictionaryArray:
    """The items of every row, one row after the other."""
    if not len(table):
        return as_words([]).dictionary_encode()
    columns = [one_array(table[name]) for name in names]
    if len(columns) == 1:
        return columns[0]
    sides = np.stack([as_numpy(column.indices) for column in columns], axis=1)
    return pa.DictionaryArray.from_arrays(as_arrow(sides.ravel()), columns[0].dictionary)


def spread(values: NDArray[np.int64], lengths: NDArray[np.intp]) -> NDArray[np.int64]:
    """Repeat every value; a single value is broadcast without copies."""
    return np.broadcast_to(values, int(lengths[0])) if len(values) == 1 else np.repeat(values, lengths)


def _column(table: pa.Table, name: str, dtype: pa.DataType) -> pa.ChunkedArray:
    """A column by name; all null if the table does not have it."""
    if name not in table.column_names:
        return pa.chunked_array([pa.nulls(len(table), dtype)])
    return table[name].cast(dtype)


def list_column(offsets: Offsets | NDArray[np.intp], values: pa.Array) -> pa.ListArray:
    """A column of lists from flat values."""
    return pa.ListArray.from_arrays(as_arrow(offsets.astype(np.int32)), values)


def nullable(labels: Labels) -> pa.Array:
    """Labels, null for NO_LABEL."""
    return as_arrow(labels, labels != NO_LABEL)
