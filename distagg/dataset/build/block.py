"""Build one block of a dataset from the gathered rows of whole queries, or of whole experts of a single query.

The counts of blocks add up to the counts in the manifest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distagg.arrow import as_arrow, as_numpy, as_scalar, as_words
from distagg.dataset.build.keyed import GroupedRows, KeyedRows, key_major, key_minor
from distagg.dataset.build.positions import Clash, Mentions, NumberedItems, find_repeated, number_items, order_lists
from distagg.types import (
    LISTS_TABLE,
    NO_LABEL,
    PAIR_ORDER,
    PAIR_TIME,
    PAIRS_TABLE,
    QUERIES_TABLE,
    RANK,
    Floats,
    Indices,
    Labels,
)


@dataclass(slots=True)
class BlockCounts:
    """The counts of some blocks; ``add`` merges two."""

    queries: int = 0
    items: int = 0
    lists: int = 0
    entries: int = 0  # or pairs
    ties: int = 0
    positive: bool = True
    labels: Counter[int] = field(default_factory=Counter)
    list_lengths: Counter[int] = field(default_factory=Counter)
    query_sizes: Counter[int] = field(default_factory=Counter)
    times: tuple[int, int] | None = None  # of the first and the last pair

    def add(self, other: BlockCounts) -> None:
        self.queries += other.queries
        self.items += other.items
        self.lists += other.lists
        self.entries += other.entries
        self.ties += other.ties
        self.positive &= other.positive
        self.labels.update(other.labels)
        self.list_lengths.update(other.list_lengths)
        self.query_sizes.update(other.query_sizes)
        if self.times is None or other.times is None:
            self.times = self.times or other.times
        else:
            self.times = (min(self.times[0], other.times[0]), max(self.times[1], other.times[1]))

    def to_dict(self) -> dict[str, Any]:
        """The counts as JSON can hold them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_dict(cls, body: dict[str, Any]) -> BlockCounts:
        """The counts of ``to_dict``."""
        counters = ("labels", "list_lengths", "query_sizes")
        counted = {name: Counter({int(value): n for value, n in body[name].items()}) for name in counters}
        return cls(**{**body, **counted, "times": tuple(body["times"]) if body["times"] else None})

    def label_counts(self) -> dict[str, int]:
        return {str(label): self.labels[label] for label in sorted(self.labels)}


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
    ranked: GroupedRows  # entries: key, item, rank, score; pairs: key, winner, loser, weight, tie, ...
    declared: GroupedRows  # key, item, label
    judged: GroupedRows  # key, item, label
    scores: bool
    moved: bool
    once: bool = False  # whether an item is declared at most once in its query


def query_block(rows: QueryRows) -> BlockTables:
    """A block of whole queries."""
    pairs = "winner" in rows.ranked.schema.names
    names = ["winner", "loser"] if pairs else ["item"]
    sides = len(names)
    entries = rows.ranked.joined(names)
    item = mentioned(entries.columns, names)
    runs = Runs.of(entries, lambda major: np.searchsorted(rows.codes, major))
    ranked = Mentions(spread(runs.query, runs.lengths * sides), item)
    try:
        declared, judged = (_mentions(some, rows.codes) for some in (rows.declared, rows.judged))
        items = number_items(len(rows.codes), declared, ranked, judged, once=rows.once)
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
            blocked = pair_rows(entries.columns, runs, items.position.reshape(-1, 2), tally, rows.moved)
        else:
            blocked = list_rows(entries.columns, runs, items.position, rows.scores, tally)
    except BadRow as bad:
        run = entries.run_of(bad.row)
        query, expert = int(rows.codes[runs.query[run] - rows.first_query]), int(runs.expert[run])
        raise Clash(bad.kind, query, expert, item[bad.row * sides].as_py()) from None
    queries = queries_table(rows.names, rows.parts, items)
    return BlockTables(rows.first_query, queries, blocked, tuple(dict.fromkeys(rows.parts)), tally)


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """The rows of a block by (query, expert): lists, or the pairs of an expert. L runs."""

    starts: NDArray[np.integer]  # (L,) first row
    lengths: NDArray[np.integer]  # (L,)
    query: NDArray[np.int64]  # (L,)
    expert: Indices  # (L,)

    @classmethod
    def of(cls, rows: KeyedRows, query: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Runs:
        """Runs of equal keys; ``query`` maps the majors of keys to queries."""
        return cls(rows.starts[:-1], rows.lengths, query(key_major(rows.key)), key_minor(rows.key))


class BadRow(Exception):  # noqa: N818  # becomes a Clash where the ids are known
    """An invalid row of a block, by its number."""

    def __init__(self, kind: Literal["entry", "self"], row: int) -> None:
        super().__init__(kind, row)
        self.kind: Literal["entry", "self"] = kind
        self.row = row


def list_rows(entries: pa.RecordBatch, runs: Runs, position: Indices, scores: bool, tally: BlockCounts) -> pa.Table:
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


def pair_rows(
    pairs: pa.RecordBatch, runs: Runs, position: NDArray[np.int32], tally: BlockCounts, moved: bool
) -> pa.Table:
    """PAIRS_TABLE rows, with ``order`` if rows moved; ``position`` has winner and loser of every pair, shape (P, 2)."""
    same = position[:, 0] == position[:, 1]
    if same.any():
        raise BadRow("self", int(np.argmax(same)))
    tie = pc.fill_null(_column(pairs, "tie", pa.bool_()), as_scalar(False))
    weight = None if _absent(pairs, "weight") else pc.fill_null(pairs["weight"], as_scalar(1.0))
    tally.entries += len(position)
    tally.ties += int(pc.sum(tie).as_py() or 0)
    columns = [
        as_arrow(np.repeat(runs.query, runs.lengths)),
        as_arrow(np.repeat(runs.expert, runs.lengths)),
        as_arrow(position[:, 0]),
        as_arrow(position[:, 1]),
        as_arrow(np.ones(len(position))) if weight is None else weight,
        tie,
    ]
    schema = PAIRS_TABLE
    for name in pairs.schema.names:
        if name in PAIRS_TABLE.names or (name == PAIR_ORDER.name and not moved):
            continue
        schema = schema.append(pairs.schema.field(name))
        columns.append(pairs[name])
    if PAIR_TIME.name in schema.names and len(pairs):
        bounds = pc.min_max(pairs[PAIR_TIME.name].cast(pa.int64())).as_py()
        tally.times = (bounds["min"], bounds["max"])
    return pa.table(columns, schema=schema)


def pairs_schema(time: bool, moved: bool, covariates: Sequence[str]) -> pa.Schema:
    """The schema of a dataset's pairs."""
    more = [PAIR_TIME] * time + [PAIR_ORDER] * moved + [pa.field(name, pa.float64()) for name in covariates]
    return pa.schema([*PAIRS_TABLE, *more])


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


def floats(batch: pa.RecordBatch, name: str) -> Floats:
    """A column as float64, NaN where it is null or absent."""
    if _absent(batch, name):
        return np.full(batch.num_rows, np.nan, dtype=RANK)
    return as_numpy(batch[name])


def _scores(entries: pa.RecordBatch) -> Floats | None:
    return None if _absent(entries, "score") else floats(entries, "score")


def _absent(batch: pa.RecordBatch, name: str) -> bool:
    """Whether a column is missing or has no values."""
    return name not in batch.schema.names or pa.types.is_null(batch.schema.field(name).type)


def _mentions(rows: GroupedRows, codes: NDArray[np.int64]) -> Mentions:
    """Labelled rows of the queries to keep."""
    if not rows.pieces:
        return Mentions(np.zeros(0, np.int64), as_words([]), pa.nulls(0, pa.int32()))
    labelled = rows.joined(["item"])
    code = key_major(labelled.key)
    query = np.searchsorted(codes, code)
    stays = codes[np.minimum(query, len(codes) - 1)] == code
    batch, lengths = labelled.columns, labelled.lengths
    if not stays.all():
        batch, query, lengths = batch.filter(as_arrow(np.repeat(stays, lengths))), query[stays], lengths[stays]
    return Mentions(np.repeat(query, lengths), batch["item"], _column(batch, "label", pa.int32()))


def interleaved(winner: pa.Array, loser: pa.Array) -> pa.Array:
    """Winner, loser, winner, loser, ...: the order in which pairs mention items."""
    order = np.arange(2 * len(winner)).reshape(2, -1).T.ravel()
    return pa.concat_arrays([winner, loser]).take(as_arrow(order))


def mentioned(batch: pa.RecordBatch, names: list[str]) -> pa.DictionaryArray:
    """The items of every row, one row after the other."""
    if not batch.num_rows:
        return as_words([]).dictionary_encode()
    if len(names) == 1:
        return batch[names[0]]
    sides = np.stack([as_numpy(batch[name].indices) for name in names], axis=1)
    return pa.DictionaryArray.from_arrays(as_arrow(sides.ravel()), batch[names[0]].dictionary)


def spread(values: NDArray[np.int64], lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """Repeat every value; a single value is broadcast without copies."""
    return np.broadcast_to(values, int(lengths[0])) if len(values) == 1 else np.repeat(values, lengths)


def _column(batch: pa.RecordBatch, name: str, dtype: pa.DataType) -> pa.Array:
    """A column by name; all null if the batch does not have it."""
    return batch[name].cast(dtype) if name in batch.schema.names else pa.nulls(batch.num_rows, dtype)


def list_column(offsets: NDArray[np.integer], values: pa.Array) -> pa.ListArray:
    """A column of lists from flat values."""
    return pa.ListArray.from_arrays(as_arrow(offsets.astype(np.int32)), values)


def nullable(labels: Labels) -> pa.Array:
    """Labels, null for NO_LABEL."""
    return as_arrow(labels, labels != NO_LABEL)


def count_values(values: np.ndarray) -> Counter[int]:
    """How often each value occurs.

    >>> count_values(np.array([3, 1, 3]))
    Counter({3: 2, 1: 1})
    """
    distinct, counts = np.unique(values, return_counts=True)
    return Counter(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))


def count_labels(labels: Labels) -> Counter[int]:
    return count_values(labels[labels != NO_LABEL])
