"""Rows with keys, and their copies in key order.

A key is an int64, ``major << 32 | minor``: rows of one major belong together, in the order of their minors. Sources
deliver rows in runs of equal keys (the list of one expert for one query), so a key is stored once for each run, and
sorting orders runs, not rows. Long runs are copied as slices, the rows of short ones are taken one by one. Cost: linear
in rows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distagg.arrow import as_arrow, as_numpy
from distagg.types import OFFSET, Indices, Offsets

KEY = "key"  # the column in spills
LONG_RUN = 256  # rows from which copying a slice is cheaper than taking its rows one by one
WIDE = 4  # if windows hold more than this many times the rows to copy, all batches are joined first


class Pieces(NamedTuple):
    """Consecutive rows of batches: the batch of every piece, its first row there, and its number of rows."""

    batch: NDArray[np.integer]
    start: NDArray[np.integer]
    length: NDArray[np.integer]

    def part(self, at: int, stop: int) -> Pieces:
        return Pieces(self.batch[at:stop], self.start[at:stop], self.length[at:stop])

    def joined(self) -> Pieces:
        """Join pieces that follow each other in one batch, so that rows in order are copied together."""
        apart = (self.batch[1:] != self.batch[:-1]) | (self.start[1:] != self.start[:-1] + self.length[:-1])
        first = np.flatnonzero(np.concatenate([[True], apart]))
        return Pieces(self.batch[first], self.start[first], np.add.reduceat(self.length, first, dtype=np.int64))


def run_starts(values: NDArray[np.integer]) -> NDArray[np.intp]:
    """The first rows of runs of equal values."""
    return np.flatnonzero(np.concatenate([[len(values) > 0], values[1:] != values[:-1]]))


def key_major(key: NDArray[np.int64]) -> NDArray[np.int64]:
    return key >> 32


def key_minor(key: NDArray[np.int64]) -> Indices:
    return (key & 0xFFFFFFFF).astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class KeyedRows:
    """Rows and their keys: R runs of rows with equal keys."""

    key: NDArray[np.int64]  # (R,)
    starts: NDArray[np.integer]  # (R + 1,) first row of every run, then the number of rows
    columns: pa.RecordBatch

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> KeyedRows:
        """Rows of a spill."""
        key = as_numpy(batch[KEY])
        starts = run_starts(key)
        return cls(key[starts], np.append(starts, len(key)), batch.drop_columns([KEY]))

    def batch(self) -> pa.RecordBatch:
        """Rows for a spill."""
        return self.columns.add_column(0, KEY, as_arrow(np.repeat(self.key, self.lengths)))

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def lengths(self) -> NDArray[np.integer]:
        """Rows of every run, shape (R,)."""
        return np.diff(self.starts)

    @property
    def nbytes(self) -> int:
        return int(self.columns.nbytes) + self.key.nbytes + self.starts.nbytes

    @property
    def in_order(self) -> bool:
        return not (self.key[1:] < self.key[:-1]).any()

    def slice(self, first: int, last: int) -> KeyedRows:
        """Rows ``first`` to ``last`` (exclusive)."""
        lo, hi = np.searchsorted(self.starts, [first + 1, last])
        starts = np.clip(self.starts[lo - 1 : hi + 1], first, last) - first
        return KeyedRows(self.key[lo - 1 : hi], starts, self.columns.slice(first, last - first))

    def copied(self) -> KeyedRows:
        """The same rows, without a hold on the batch of which they are a slice."""
        return KeyedRows(self.key.copy(), self.starts, self.columns.take(as_arrow(np.arange(len(self)))))

    def run_of(self, row: int) -> int:
        return int(np.searchsorted(self.starts, row, side="right")) - 1


def gather(batches: list[KeyedRows], size: int) -> Iterator[KeyedRows]:
    """The rows of all batches in key order (stable), in batches of about ``size`` rows."""
    schema = functools.reduce(merged_schema, (each.columns.schema for each in batches))
    columns = _columns(batches, schema)
    key, pieces, _ = _sorted_runs(batches)
    ends = np.cumsum(pieces.length)
    sizes = np.array([len(each) for each in batches])
    joined: list[pa.Array] = []  # all batches
    at = 0
    while at < len(key):
        stop = int(np.searchsorted(ends, ends[at] - pieces.length[at] + size)) + 1
        part = pieces.part(at, stop).joined()
        low, high = _windows(part, len(batches))
        total = int(part.length.sum())
        if total >= LONG_RUN * len(part.length):
            arrays = [_join(column, *part) for column in columns]
        elif (high - low).sum() > WIDE * total:
            joined = joined or [pa.concat_arrays(column) for column in columns]
            rows = as_arrow(_rows_in(part, np.zeros_like(sizes), sizes))
            arrays = [_take(column, rows) for column in joined]
        else:
            used = np.flatnonzero(high)
            rows = as_arrow(_rows_in(part, low, high))
            arrays = [_take(_join(column, used, low[used], (high - low)[used]), rows) for column in columns]
        yield KeyedRows(*_runs_joined(key[at:stop], pieces.length[at:stop]), pa.record_batch(arrays, schema=schema))
        at = stop


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Rows that have been read; the thread that needs them joins them."""

    pieces: list[KeyedRows]
    schema: pa.Schema

    def joined(self, words: Sequence[str] = ()) -> KeyedRows:
        """All rows in key order; the columns in ``words`` share one dictionary: numbers are cheaper to move."""
        if not self.pieces:
            empty = np.zeros(0, dtype=np.int64)
            return KeyedRows(empty, np.zeros(1, dtype=OFFSET), pa.RecordBatch.from_pylist([], schema=self.schema))
        columns = dict(zip(self.schema.names, _columns(self.pieces, self.schema), strict=True))
        coded = pa.chunked_array([array for name in words for array in columns[name]], pa.string()).dictionary_encode()
        for at, name in enumerate(words):
            own = coded.chunks[at * len(self.pieces) : (at + 1) * len(self.pieces)]
            columns[name] = [array.indices for array in own]
        arrays = {name: _concat(column) for name, column in columns.items()}
        key, runs, moved = _sorted_runs(self.pieces)
        if moved:
            sizes = np.array([len(piece) for piece in self.pieces])
            rows = as_arrow(_rows_in(runs, np.zeros_like(sizes), sizes))
            arrays = {name: _take(column, rows) for name, column in arrays.items()}
        for name in words:
            arrays[name] = pa.DictionaryArray.from_arrays(arrays[name], coded.chunk(0).dictionary)
        return KeyedRows(*_runs_joined(key, runs.length), pa.record_batch(arrays))


def _sorted_runs(batches: Sequence[KeyedRows]) -> tuple[NDArray[np.int64], Pieces, bool]:
    """The keys of all runs in order; the runs; and whether any had to move."""
    key = np.concatenate([each.key for each in batches])
    batch = np.repeat(np.arange(len(batches), dtype=np.int32), [len(each.key) for each in batches])
    start = np.concatenate([each.starts[:-1] for each in batches])
    length = np.concatenate([each.lengths for each in batches])
    moved = bool((key[1:] < key[:-1]).any())
    if moved:
        order = np.argsort(key, kind="stable")
        key, batch, start, length = key[order], batch[order], start[order], length[order]
    return key, Pieces(batch, start, length), moved


def _runs_joined(key: NDArray[np.int64], length: NDArray[np.integer]) -> tuple[NDArray[np.int64], Offsets]:
    """Keys and starts of consecutive runs, with neighbours of equal keys joined."""
    first = run_starts(key)
    ends = np.concatenate([[0], np.cumsum(length)])
    return key[first], ends[np.append(first, len(key))]


def _windows(pieces: Pieces, n_batches: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For every batch the first row in a piece, and the row after the last; 0 and 0 without a piece."""
    batch, start, length = pieces
    low, high = np.full(n_batches, np.iinfo(np.int64).max), np.zeros(n_batches, dtype=np.int64)
    np.minimum.at(low, batch, start)
    np.maximum.at(high, batch, start + length)
    return np.minimum(low, high), high


def _rows_in(pieces: Pieces, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
    """Row numbers of the pieces in the windows, one after the other."""
    batch, start, length = pieces
    base = np.cumsum(high - low) - high  # of the batch's row 0, even if it is outside the window
    return _expanded(base[batch] + start, length)


def _expanded(start: NDArray[np.integer], length: NDArray[np.integer]) -> NDArray[np.int64]:
    """The rows of the runs, one after the other."""
    ends = np.cumsum(length)
    return np.repeat(start - (ends - length), length) + np.arange(ends[-1])


def _join(
    column: list[pa.Array], batch: NDArray[np.integer], start: NDArray[np.integer], length: NDArray[np.integer]
) -> pa.Array:
    """Concatenate pieces of a column."""
    where = zip(batch.tolist(), start.tolist(), length.tolist(), strict=True)
    return _concat([column[b].slice(s, n) for b, s, n in where])


# The system allocator returns memory after a block; Arrow's own allocator keeps 30 MB.


def _concat(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays, memory_pool=pa.system_memory_pool())


def _take(column: pa.Array, rows: pa.Array) -> pa.Array:
    return pc.take(column, rows, memory_pool=pa.system_memory_pool())


def merged_schema(a: pa.Schema, b: pa.Schema) -> pa.Schema:
    """The common schema; a column of type null gets the other schema's type."""
    if a == b:
        return b
    return pa.schema(
        [pa.field(x.name, y.type if pa.types.is_null(x.type) else x.type) for x, y in zip(a, b, strict=True)]
    )


def _columns(batches: Sequence[KeyedRows], schema: pa.Schema) -> list[list[pa.Array]]:
    """Per column, the arrays of all batches, with one type."""
    columns = []
    for at, column in enumerate(schema):
        arrays = [batch.columns.column(at) for batch in batches]
        columns.append([array if array.type == column.type else pa.nulls(len(array), column.type) for array in arrays])
    return columns
