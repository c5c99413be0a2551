"""What both ways of regrouping share: names become codes, rows go to groupers, contradictions become errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distagg.arrow import as_arrow, as_numpy
from distagg.dataset.build.block import BlockTables
from distagg.dataset.build.keyed import KeyedRows, run_starts
from distagg.dataset.build.merge import Grouper
from distagg.dataset.build.positions import Clash, Locator, clash_error
from distagg.dataset.manifest import Kind, Partition
from distagg.errors import InputError
from distagg.storage.paths import Place
from distagg.types import INDEX, PAIR_ORDER, PAIR_TIME, PAIRS, Indices, Offsets

log = logging.getLogger("distagg")

Progress = Callable[[int], None]  # called with the number of rows just read, and again when they are written


class RowTable(Protocol):
    """A table of rows of one kind, like ``distagg.sources.SourceTable``."""

    @property
    def kind(self) -> Literal["entries", "items", "judgements", "pairs"]: ...
    @property
    def table(self) -> pa.Table: ...
    @property
    def part(self) -> str: ...


class RowSource(Locator, Protocol):
    """A source of rows, like ``distagg.sources.Source``."""

    @property
    def name(self) -> str: ...
    @property
    def partition(self) -> Partition: ...

    def tables(self) -> Iterator[RowTable]: ...


@dataclass(frozen=True, slots=True, eq=False)
class CodedRuns:
    """The codes of a column's R runs of rows; neighbours may have equal codes."""

    code: Indices  # (R,)
    starts: Indices  # (R + 1,) first row of every run, then the number of rows

    def rows(self) -> Indices:
        """The code of every row."""
        return np.repeat(self.code, np.diff(self.starts))


def keyed(columns: dict[str, pa.Array], major: CodedRuns, minor: CodedRuns | None = None) -> KeyedRows:
    """Rows with the key ``major, minor``."""
    batch = pa.record_batch(columns)
    if minor is None:
        return KeyedRows(major.code.astype(np.int64) << 32, major.starts, batch)
    starts = np.zeros(batch.num_rows + 1, dtype=np.bool_)
    starts[major.starts] = True
    starts[minor.starts] = True
    both = np.flatnonzero(starts).astype(INDEX)
    key = (major.rows()[both[:-1]].astype(np.int64) << 32) | minor.rows()[both[:-1]]
    return KeyedRows(key, both, batch)


class _Numbers(dict[str, int]):
    """A number for every key, in the order in which keys are first looked up."""

    def __missing__(self, key: str) -> int:
        return self.setdefault(key, len(self))


class Codes:
    """Names to numbers, in order of first appearance.

    >>> codes = Codes()
    >>> codes.encode(pa.array(["b", "a", "b"])).rows().tolist(), codes.names
    ([0, 1, 0], ['b', 'a'])
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.last: list[int] = []  # the codes in the last call's column
        self._code = _Numbers((name, code) for code, name in enumerate(names))

    @property
    def names(self) -> list[str]:
        return list(self._code)

    def encode(self, column: pa.Array) -> CodedRuns:
        if column.null_count:
            raise InputError("<table>", found="an empty id", expected="every query, expert and item named")
        starts = _word_starts(column)  # sources have many runs: an expert's list, a query's items
        if len(starts) > len(column) // 4:
            return CodedRuns(self._codes(column), np.arange(len(column) + 1, dtype=INDEX))
        ends = np.append(starts, len(column)).astype(INDEX)
        return CodedRuns(self._codes(column.take(as_arrow(starts))), ends)

    def _codes(self, column: pa.Array) -> Indices:
        words = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        index = as_numpy(words.indices)
        used = words.indices.unique()  # a dictionary may contain words that no row uses, in any order
        self.last = [self._code[name] for name in words.dictionary.take(used).to_pylist()]
        local = np.zeros(len(words.dictionary), dtype=INDEX)
        local[as_numpy(used)] = self.last
        return local[index]


def _word_starts(column: pa.Array) -> NDArray[np.intp]:
    """The first rows of runs of equal words."""
    if pa.types.is_dictionary(column.type):
        return run_starts(as_numpy(column.indices))
    changes = as_numpy(pc.not_equal(column.slice(1), column.slice(0, max(len(column) - 1, 0))))
    return np.flatnonzero(np.concatenate([[len(column) > 0], changes]))


def strings(column: pa.Array) -> pa.Array:
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def number_column(batch: pa.RecordBatch, name: str, dtype: pa.DataType) -> pa.Array:
    """A column, of type null if the batch has no values in it: null columns take no space in spills."""
    at = batch.schema.get_field_index(name)
    if at < 0 or batch.column(at).null_count == batch.num_rows:
        return pa.nulls(batch.num_rows)
    column = batch.column(at)
    return column if column.type == dtype else column.cast(dtype)


class Regroup:
    """Base of both ways of regrouping: codes, the grouper of ranked rows, spilling, errors."""

    partition: Partition

    def __init__(self, source: RowSource, directory: Place) -> None:
        self.source = source
        self.queries, self.experts = Codes(), Codes()
        self.first_query = 0  # dataset position of the first one
        self.ranked = Grouper("ranked", directory)
        self.kind: Kind = "lists"
        self.scores = False  # whether every entry has a score; known at the end
        self.moved = False  # whether any pair has moved
        self.pairs_read = 0  # also before this source, if it is appended
        self._last_key = -1
        self.scored = 0  # rows with a score
        self.parts: dict[int, str] = {}

    @property
    def groupers(self) -> list[Grouper]:
        return [self.ranked]

    def read(self, memory_bytes: int, progress: Progress) -> None:
        """Read all rows of the source."""
        try:
            for rows in self.source.tables():
                self._take(rows)
                # One half of the memory fills while the other half is written to disk.
                if 2 * sum(grouper.nbytes for grouper in self.groupers) > memory_bytes:
                    max(self.groupers, key=lambda grouper: grouper.nbytes).spill()
                progress(rows.table.num_rows)
        except BaseException:
            for grouper in self.groupers:
                grouper.abandon()
            raise

    def finish(self) -> None:
        """Make all rows ready to be grouped."""
        for grouper in self.groupers:
            grouper.finish()
        self.moved &= len(self.experts.names) > 1  # rows of one expert keep their order in every query
        self.scores = all_scored(self.scored, self.ranked.n_rows)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to rank."""
        return not self.parts

    def _take(self, rows: RowTable) -> None:
        if rows.kind in ("entries", "pairs"):
            kind: Kind = "lists" if rows.kind == "entries" else "pairs"
            if self.ranked.n_rows and kind != self.kind:
                raise self.bad_source("lists and pairs", "one of the two")
            self.kind = kind
        for batch in rows.table.to_batches():
            if batch.num_rows:
                self.add(rows, batch)

    def add(self, rows: RowTable, batch: pa.RecordBatch) -> None:
        raise NotImplementedError

    def blocks(self, block_entries: int) -> Iterator[BlockTables]:
        """The blocks of the dataset, in order; can be called once."""
        raise NotImplementedError

    def ranks(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Rank and score of entries; an entry must have one of them."""
        rank, score = number_column(batch, "rank", pa.float64()), number_column(batch, "score", pa.float64())
        self.scored += len(score) - score.null_count
        if rank.null_count and score.null_count and not pc.all(pc.or_(rank.is_valid(), score.is_valid())).as_py():
            raise self.bad_source("an entry without rank and score", "one of the two")
        return rank, score

    def note_parts(self, part: str) -> None:
        """Assign the queries of the last batch to this part, unless they belong to an earlier one."""
        self.parts.update(dict.fromkeys(set(self.queries.last).difference(self.parts), part))

    def pair_columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """What pairs have besides winner and loser: weight, tie, time if there is one, order, covariates."""
        columns = {
            "weight": number_column(batch, "weight", pa.float64()),
            "tie": number_column(batch, "tie", pa.bool_()),
        }
        if PAIR_TIME.name in batch.schema.names:
            columns[PAIR_TIME.name] = batch[PAIR_TIME.name]
        first, self.pairs_read = self.pairs_read, self.pairs_read + batch.num_rows
        columns[PAIR_ORDER.name] = as_arrow(np.arange(first, self.pairs_read))
        more = (name for name in batch.schema.names if name not in {*PAIRS.names, PAIR_TIME.name})
        return {**columns, **{name: batch[name] for name in more}}

    def add_pairs(self, rows: KeyedRows) -> None:
        """Hand pairs to the grouper, and note if grouping will move them."""
        self.moved |= not rows.in_order or bool(rows.key[0] < self._last_key)
        self._last_key = int(rows.key[-1])
        self.ranked.add(rows)

    def bad_source(self, found: str, expected: str) -> InputError:
        return InputError(str(self.source.files[0]) if self.source.files else "<table>", found=found, expected=expected)

    def explained(self, blocks: Iterator[BlockTables]) -> Iterator[BlockTables]:
        """The blocks; a clash among their rows becomes an error that names its lines."""
        try:
            yield from blocks
        except Clash as clash:
            expert = None if clash.expert is None else self.experts.names[clash.expert]
            raise clash_error(clash, self.source, self.queries.names[clash.query], expert) from None


def all_scored(scored: int, entries: int) -> bool:
    """Whether every entry has a score; warns if only some have one."""
    if 0 < scored < entries:
        log.warning(
            f"warning: {scored:,} of {entries:,} entries have a score; all scores are left out and "
            "ranks count, because scores are kept only where every entry has one"
        )
    return 0 < entries == scored


def cut(weights: NDArray[np.int64] | Offsets, limit: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges whose weights add up to at most ``limit``, or with a single member.

    >>> list(cut(np.array([2, 2, 9, 1]), 4))
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(weights)
    lo = 0
    while lo < len(weights):
        before = int(ends[lo - 1]) if lo else 0
        hi = max(lo + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield lo, hi
        lo = hi
