"""Convert Arrow, pandas and polars tables to datasets in memory, and back.

A dataset in memory consists of the blocks that ``write_dataset`` would write, as chunks. Models that learn chunk by
chunk therefore learn the same from data in memory and on disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_arrow, as_scalar, as_words
from distagg.columns import LABEL_NAMES, LIST_NAMES, PAIR_NAMES, Names, known_columns, not_understood
from distagg.covariates import Covariate
from distagg.dataset.build.block import BlockCounts
from distagg.dataset.build.intake import Progress, Regroup, RowSource
from distagg.dataset.build.regroup import no_progress, regroup
from distagg.dataset.build.writer import BLOCK_ENTRIES, layout_of, make_block, make_manifest
from distagg.dataset.chunk import Chunk, chunk_from_tables
from distagg.dataset.dataset import Dataset
from distagg.dataset.manifest import Block, Kind
from distagg.errors import InfrastructureError, InputError, UsageError, unknown
from distagg.times import EXPECTED_TIME, parse_times
from distagg.types import NO_LABEL, PAIR_TIME, PAIRS, TIMESTAMP

ALL = "all"  # name of the query, or of the pairs' expert, if a table has none
HELD_BYTES = 1 << 30  # of rows in memory, which the dataset then replaces block by block
_IDS = frozenset({"query", "expert", "item", "winner", "loser"})
_EMPTY, _ZERO = as_scalar(""), as_scalar(0.0)


@dataclass(frozen=True, slots=True)
class TableRows:
    """A table of checked rows, for regrouping."""

    kind: Literal["entries", "items", "judgements", "pairs"]
    table: pa.Table
    part: str = ""


class TableSource:
    """A source that reads Arrow tables instead of files; in errors, the line is the row, from 1.

    Parameters
    ----------
    table
        Columns query, expert, item, rank or score, and optionally label; or winner, loser, and optionally query,
        expert, weight, tie, time. Without a query column all rows belong to one query, "all". The names
        that other tools have for these columns are understood (``distagg.columns``).
    labels
        Columns query, item, label: the items to rank, in this order, including those in no list.
    judgements
        The same columns, but labels only: an item in no list counts as missed and is not ranked.
    columns
        Our names of columns that the tables name otherwise.
    covariates
        Covariates of pairs, whose columns (``Covariate.columns``) are in the table.
    """

    name = "table"
    partition: Literal["query", "expert"] = "query"

    def __init__(
        self,
        table: pa.Table,
        labels: pa.Table | None = None,
        judgements: pa.Table | None = None,
        columns: Mapping[str, str] | None = None,
        covariates: tuple[Covariate, ...] = (),
    ) -> None:
        self.files: tuple[Path, ...] = ()
        self.covariates = covariates
        more = [name for covariate in covariates for name in covariate.columns]
        self._tables: list[tuple[str, TableRows]] = []
        if labels is not None:
            self._tables.append(("<labels>", TableRows("items", _checked(labels, LABEL_NAMES, "<labels>", columns))))
        pairs = bool({"winner", "loser"} & {*map(str.lower, table.column_names), *(columns or {}).values()})
        rows = _checked(table.drop_columns(more), PAIR_NAMES if pairs else LIST_NAMES, "<table>", columns)
        for name in more:
            rows = rows.append_column(name, _values("<table>", name, table[name]))
        self._tables.append(("<table>", TableRows("pairs" if pairs else "entries", rows)))
        if "label" in rows.column_names:
            self._tables.append(("<table>", TableRows("judgements", rows.select(list(LABEL_NAMES)))))
        if judgements is not None:
            checked = _checked(judgements, LABEL_NAMES, "<judgements>", columns)
            self._tables.append(("<judgements>", TableRows("judgements", checked)))

    def tables(self) -> Iterator[TableRows]:
        """Labels, rows, judgements."""
        return (rows for _, rows in self._tables)

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """Rows that mention the item: by the expert, or (None) with a label."""
        found = []
        for name, rows in self._tables:
            if (expert is None) != (rows.kind in ("items", "judgements")):
                continue
            mask = pc.equal(rows.table["query"], query)
            if expert is not None:
                mask = pc.and_(mask, pc.equal(rows.table["expert"], expert))
            else:
                mask = pc.and_(mask, pc.is_valid(rows.table["label"]))
            # The only possible clash of pairs is an item paired with itself, so both sides must match.
            for column in ("winner", "loser") if rows.kind == "pairs" else ("item",):
                mask = pc.and_(mask, pc.equal(rows.table[column], item))
            found += [(name, int(row) + 1) for row in np.flatnonzero(mask.to_numpy(zero_copy_only=False))]
        return found


def dataset_from_arrow(
    table: pa.Table,
    *,
    labels: pa.Table | None = None,
    judgements: pa.Table | None = None,
    columns: Mapping[str, str] | None = None,
    covariates: tuple[Covariate, ...] = (),
) -> Dataset:
    """A dataset in memory, see ``TableSource``.

    >>> table = pa.table({"expert": ["a", "a"], "item": ["x", "y"], "score": [0.5, 2.0]})
    >>> next(dataset_from_arrow(table).chunks()).entry_rank.tolist()
    [1.0, 2.0]
    """
    pa.default_memory_pool().release_unused()  # of reading the table: building needs as much again
    source = TableSource(table, labels, judgements, columns, covariates)
    return held(regroup(source, Path(), memory_bytes=1 << 62), source, BLOCK_ENTRIES)


def dataset_to_arrow(dataset: Dataset) -> pa.Table:
    """The rows of a dataset with their ids, as ``dataset_from_arrow`` reads them.

    Items in no list, and labels of missed items, are omitted.
    """
    experts = pa.array(dataset.experts, pa.string())
    return pa.concat_tables([chunk_to_arrow(chunk, experts, dataset.manifest.kind) for chunk in dataset.chunks()])


def chunk_to_arrow(chunk: Chunk, experts: pa.StringArray, kind: Kind) -> pa.Table:
    """The rows of a chunk with their ids."""
    return _pairs_table(chunk, experts) if kind == "pairs" else _entries_table(chunk, experts)


def _entries_table(chunk: Chunk, experts: pa.StringArray) -> pa.Table:
    lengths = np.diff(chunk.entry_offsets)
    list_query = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
    row = chunk.entry_row()
    columns = {
        "query": chunk.query_ids.take(as_arrow(np.repeat(list_query, lengths))),
        "expert": experts.take(as_arrow(np.repeat(chunk.list_expert, lengths))),
        "item": chunk.item_ids.take(as_arrow(row)),
        "rank": as_arrow(chunk.entry_rank),
    }
    if len(chunk.entry_score):
        columns["score"] = as_arrow(chunk.entry_score)
    if chunk.has_labels:
        labels = chunk.labels[row]
        columns["label"] = as_arrow(labels, labels != NO_LABEL)
    return pa.table(columns)


def _pairs_table(chunk: Chunk, experts: pa.StringArray) -> pa.Table:
    query = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.pair_offsets))
    first = chunk.item_offsets[query]
    columns = [
        chunk.query_ids.take(as_arrow(query)),
        experts.take(as_arrow(chunk.pair_expert)),
        chunk.item_ids.take(as_arrow(first + chunk.pair_winner)),
        chunk.item_ids.take(as_arrow(first + chunk.pair_loser)),
        as_arrow(chunk.pair_weight),
        as_arrow(chunk.pair_tie),
    ]
    table = pa.table(columns, schema=PAIRS)
    if len(chunk.pair_time):
        table = table.append_column(PAIR_TIME, as_arrow(chunk.pair_time).cast(TIMESTAMP))
    for name, values in zip(chunk.covariate_names, chunk.pair_covariates, strict=True):
        table = table.append_column(name, as_arrow(values))
    return table


def _checked(table: pa.Table, known: Names, name: str, named: Mapping[str, str] | None = None) -> pa.Table:
    """The known columns, converted to their types, with every value checked; ``named`` are columns named by users."""
    names = table.column_names
    found = known_columns(names, known, named, where=f"the {name.strip('<>')}")
    for column in not_understood(names, found, named):
        raise unknown(f"column of {name.strip('<>')}", column, known)
    table = table.select(list(found.values())).rename_columns(list(found))
    needed = {"winner", "loser"} if "winner" in known else {"item"}
    needed |= {"expert"} if "rank" in known else {"label"} if known == LABEL_NAMES else set()
    missing = sorted(needed - set(table.column_names))
    if "rank" in known and not {"rank", "score", "rating"} & set(table.column_names):
        missing.append("rank (or score)")
    if missing:
        raise UsageError(f"{name.strip('<>')} has no column {', '.join(missing)}; it has {', '.join(names) or 'none'}")
    columns = {column: _values(name, column, table[column]) for column in known if column in table.column_names}
    if "rating" in columns and {"rank", "score"} & set(columns):
        raise UsageError(f"{name.strip('<>')} has ratings beside ranks or scores; drop what does not give the order")
    if "rating" in columns:
        columns["rank"] = pc.subtract(_ZERO, columns.pop("rating"))  # as in files: not negate, which gives -0
    for column in ("query", "expert"):
        if column in known and column not in columns:
            columns[column] = pa.DictionaryArray.from_arrays(as_arrow(np.zeros(len(table), np.int8)), as_words([ALL]))
    return pa.table(columns)


def _values(name: str, column: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Check one column: ids are text, ranks positive, scores finite, labels whole or null."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if column in _IDS:
        return _ids(name, column, values)
    try:
        if column == PAIR_TIME.name:
            return _times(name, values)
        if column == "tie":
            return _good(name, column, pc.cast(values, pa.bool_()), pc.is_valid(values), "true or false")
        numbers = pc.cast(values, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(name, found=f"column {column} of type {values.type}", expected="numbers") from None
    if column == "label":
        null = pc.or_(pc.is_null(numbers), pc.fill_null(pc.is_nan(numbers), False))  # pandas uses NaN for no label
        numbers = pc.if_else(null, pa.scalar(None, pa.float64()), numbers)
        whole = pc.and_(pc.equal(pc.round(numbers), numbers), pc.less(pc.abs(numbers), 2.0**31))
        _good(name, column, values, pc.or_(null, pc.fill_null(whole, False)), "a whole number, or none")
        return pc.cast(numbers, pa.int32())
    good, expected = pc.is_finite(numbers), "a finite number"
    if column == "rank":
        good, expected = pc.and_(good, pc.greater(numbers, _ZERO)), "a positive, finite number"
    elif column == "weight":
        good, expected = pc.and_(good, pc.greater_equal(numbers, _ZERO)), "a finite number of at least 0"
    return _good(name, column, numbers, good, expected)


def _times(name: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return pa.chunked_array([parse_times(values)])
    except pa.ArrowInvalid:
        for row, value in enumerate(values):  # find the first bad one
            try:
                parse_times(pa.chunked_array([pa.array([value.as_py()], values.type)]))
            except pa.ArrowInvalid:
                raise InputError(name, line=row + 1, found=f"time {value.as_py()!r}", expected=EXPECTED_TIME) from None
        raise


def _ids(name: str, column: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    dtype = values.type
    text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype)
    if not (text or pa.types.is_integer(dtype) or pa.types.is_null(dtype)):
        raise InputError(
            name, found=f"column {column} of type {dtype}", expected="text or whole numbers", remedy="convert the ids"
        )
    ids = values.cast(pa.string())
    return _good(name, column, ids, pc.not_equal(ids, _EMPTY), "an id: text that is not empty, or a whole number")


def _good(name: str, column: str, values: pa.ChunkedArray, good: pa.ChunkedArray, expected: str) -> pa.ChunkedArray:
    if pc.all(good, skip_nulls=False, min_count=0).as_py() is True:
        return values
    bad = pc.index(pc.fill_null(good, False), False).as_py()
    if bad >= 0:
        value = values[bad].as_py()
        halves = value is not None and column == "label"
        remedy = "labels are grades; for halves, multiply all labels by 2" if halves else ""
        raise InputError(name, line=bad + 1, found=f"{column} {value!r}", expected=expected, remedy=remedy)
    return values


def hold_source(
    source: RowSource,
    *,
    progress: Progress = no_progress,
    memory_bytes: int = HELD_BYTES,
    block_entries: int = BLOCK_ENTRIES,
) -> Dataset:
    """Import a source of whole queries into memory; the parameters are those of ``write_dataset``."""
    try:
        with tempfile.TemporaryDirectory(prefix="distagg-") as spills:
            grouped = regroup(source, Path(spills), memory_bytes=memory_bytes, progress=progress)
            return held(grouped, source, block_entries, progress)
    except OSError as error:
        raise InfrastructureError(
            f"import into memory failed: {error}; check the disk for temporary files, then run again"
        ) from error


def held(grouped: Regroup, source: RowSource, block_entries: int, progress: Progress = no_progress) -> Dataset:
    """A dataset in memory of the regrouped rows."""
    total, blocks, chunks = blocks_in_memory(grouped, block_entries, progress)
    manifest = make_manifest(layout_of(grouped, source), total, blocks, ())
    return Dataset("", manifest, tuple(grouped.experts.names), held=chunks)


def blocks_in_memory(
    grouped: Regroup, block_entries: int, progress: Progress = no_progress
) -> tuple[BlockCounts, tuple[Block, ...], tuple[Chunk, ...]]:
    """A chunk for every block of the regrouped rows, the blocks, and their counts added up."""
    total = BlockCounts()
    blocks: list[Block] = []
    chunks: list[Chunk] = []
    for tables in grouped.blocks(block_entries):
        total.add(tables.tally)
        blocks.append(make_block(tables, total.items, 0, len(blocks)))
        assert tables.queries is not None  # only expert-partitioned blocks come without
        lists, pairs = (tables.rows, None) if grouped.kind == "lists" else (None, tables.rows)
        chunks.append(
            chunk_from_tables(
                tables.queries, lists, pairs, n_experts=len(grouped.experts.names), first_query=tables.first_query
            )
        )
        progress(tables.tally.entries)
    return total, tuple(blocks), tuple(chunks)
