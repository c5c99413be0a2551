"""Group rows by key in bounded memory: buffer, sort, spill to disk, merge.

A key is an int64, ``major << 32 | minor``: rows of one major are gathered together, in the order of their minors.
Sources deliver rows in runs of equal keys (the list of one expert for one query), so the sort orders runs, not rows.
Long runs are copied as slices, the rows of short ones are taken one by one. Each copy reads a window of every batch: if
the batches are in order themselves, as files by query are, only these windows are in memory twice. Spills are read, not
memory-mapped, because mapped pages would count as our memory. Cost: linear in rows; a row is copied once, and once more
if it was spilled or came out of order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distagg.arrow import as_arrow, as_numpy, no_rows
from distagg.types import OFFSET, Offsets

KEY = "key"
LONG_RUN = 256  # rows from which copying a slice is cheaper than taking its rows one by one
WIDE = 4  # if windows have this many times the wanted rows, all batches are joined once instead

Pieces = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]  # batch, first row in it, rows


def run_starts(key: NDArray[np.integer]) -> NDArray[np.intp]:
    """The first rows of runs of equal keys."""
    return np.flatnonzero(np.concatenate([[len(key) > 0], key[1:] != key[:-1]]))


def gather(batches: list[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The rows of all batches in key order (stable), in batches of about ``size`` rows."""
    if not batches:
        return
    batch, start, length = _pieces(batches)
    schema = functools.reduce(merged_schema, (each.schema for each in batches))
    columns = _columns(batches, schema)
    ends = np.cumsum(length)
    sizes = np.array([each.num_rows for each in batches])
    joined: list[pa.Array] = []  # all batches
    at = 0
    while at < len(length):
        stop = int(np.searchsorted(ends, ends[at] - length[at] + size)) + 1
        part = batch[at:stop], start[at:stop], length[at:stop]
        total = int(part[2].sum())
        low, high = _windows(part, len(batches))
        at = stop
        if total >= LONG_RUN * len(part[0]):
            arrays = [_join(column, *part) for column in columns]
        elif (high - low).sum() > WIDE * total:
            joined = joined or [pa.concat_arrays(column) for column in columns]
            rows = as_arrow(_rows_in(part, np.zeros_like(sizes), sizes))
            arrays = [_take(column, rows) for column in joined]
        else:
            used = np.flatnonzero(high)
            rows = as_arrow(_rows_in(part, low, high))
            arrays = [_take(_join(column, used, low[used], (high - low)[used]), rows) for column in columns]
        yield pa.record_batch(arrays, schema=schema)


def _join(
    column: list[pa.Array], batch: NDArray[np.integer], start: NDArray[np.integer], length: NDArray[np.integer]
) -> pa.Array:
    """Concatenate pieces of a column."""
    where = zip(batch.tolist(), start.tolist(), length.tolist(), strict=True)
    return _concat([column[b].slice(s, n) for b, s, n in where])


# The system allocator returns memory after a block; Arrow's own allocator keeps 30 MB.


def _concat(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays, memory_pool=pa.system_memory_pool())


def _take(column: pa.Array, rows: pa.Array | None) -> pa.Array:
    return column if rows is None else pc.take(column, rows, memory_pool=pa.system_memory_pool())


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
    ends = np.cumsum(length)
    return np.repeat(base[batch] + start - (ends - length), length) + np.arange(ends[-1])


def _pieces(batches: list[pa.RecordBatch]) -> Pieces:
    """Batch, start and length of consecutive pieces that make up all rows in key order."""
    keys, starts, lengths = [], [], []
    for each in batches:
        key = as_numpy(each[KEY])
        begin = run_starts(key)
        keys.append(key[begin])
        starts.append(begin.astype(np.int32))  # int32 halves the memory: there may be as many runs as rows
        lengths.append(np.diff(begin, append=len(key)).astype(np.int32))
    batch = np.repeat(np.arange(len(batches), dtype=np.int32), [len(s) for s in starts])
    start, length, key = np.concatenate(starts), np.concatenate(lengths), np.concatenate(keys)
    if (key[1:] < key[:-1]).any():
        order = np.argsort(key, kind="stable")
        batch, start, length = batch[order], start[order], length[order]
    # Join neighbours in one batch into one piece: rows that came in order stay together.
    joined = (batch[1:] == batch[:-1]) & (start[1:] == start[:-1] + length[:-1])
    first = np.flatnonzero(np.concatenate([[True], ~joined]))
    return batch[first], start[first], np.add.reduceat(length, first, dtype=np.int64)


def merged_schema(a: pa.Schema, b: pa.Schema) -> pa.Schema:
    """The common schema; a column of type null gets the other schema's type."""
    if a == b:
        return b
    return pa.schema(
        [pa.field(x.name, y.type if pa.types.is_null(x.type) else x.type) for x, y in zip(a, b, strict=True)]
    )


def _columns(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[list[pa.Array]]:
    """Per column, the arrays of all batches, with one type."""
    columns = []
    for at, column in enumerate(schema):
        arrays = [batch.column(at) for batch in batches]
        columns.append([array if array.type == column.type else pa.nulls(len(array), column.type) for array in arrays])
    return columns


EMPTY = pa.schema([(KEY, pa.int64())])
SPILL_ROWS = 1 << 14  # rows of a record batch in a spill, the smallest unit to read


def make_key(major: NDArray[np.int32], minor: NDArray[np.int32] | int) -> NDArray[np.int64]:
    return (major.astype(np.int64) << 32) | minor


def key_major(key: NDArray[np.int64]) -> NDArray[np.int64]:
    return key >> 32


def key_minor(key: NDArray[np.int64]) -> NDArray[np.int32]:
    return (key & 0xFFFFFFFF).astype(np.int32)


@dataclass(slots=True)
class Spill:
    """Rows in key order: record batches, in memory or in an Arrow file."""

    starts: Offsets  # (batches + 1,) first row of every batch
    majors: NDArray[np.int64]  # (U,) ascending
    bounds: Offsets  # (U + 1,) first row of every major
    batches: list[pa.RecordBatch] = field(default_factory=list)
    file: Path | None = None
    reader: pa.ipc.RecordBatchFileReader | None = None
    last: tuple[int, pa.RecordBatch] | None = None  # neighbouring reads share a batch

    def rows(self, first: int, last: int) -> list[pa.RecordBatch]:
        """Rows ``first`` to ``last`` (exclusive), as slices of batches."""
        pieces = []
        at = int(np.searchsorted(self.starts, first, side="right")) - 1
        while first < last and at < len(self.starts) - 1 and self.starts[at] < last:
            lo, hi = max(first, int(self.starts[at])), min(last, int(self.starts[at + 1]))
            pieces.append(self._batch(at).slice(lo - int(self.starts[at]), hi - lo))
            at += 1
        return pieces

    def span(self, lo: int, hi: int) -> tuple[int, int]:
        """The rows whose major is in ``[lo, hi)``."""
        first, last = np.searchsorted(self.majors, [lo, hi])
        return int(self.bounds[first]), int(self.bounds[last])

    def _batch(self, at: int) -> pa.RecordBatch:
        if self.file is None:
            return self.batches[at]
        if self.reader is None:
            self.reader = pa.ipc.open_file(pa.OSFile(str(self.file)))
        if self.last is None or self.last[0] != at:
            self.last = (at, self.reader.get_batch(at))
        return self.last[1]


class Grouper:
    """Rows of one kind, added in any order, read back by major.

    >>> grouper = Grouper("entries", Path("unused"))
    >>> grouper.add(pa.record_batch({"key": [2 << 32, 1 << 32], "item": ["x", "y"]}))
    >>> grouper.finish()
    >>> grouper.rows(1, 2).table()["item"].to_pylist()
    ['y']
    """

    def __init__(self, name: str, directory: Path) -> None:
        self.nbytes = 0
        self.n_rows = 0
        self._name, self._directory = name, directory
        self._buffer: list[pa.RecordBatch] = []
        self._spills: list[Spill] = []
        self._writing: Future[Spill] | None = None
        self._schema: pa.Schema | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._buffer.append(batch)
            self._schema = merged_schema(self._schema or batch.schema, batch.schema)
            self.nbytes += batch.nbytes
            self.n_rows += batch.num_rows

    def spill(self) -> None:
        """Move the buffer to disk on a thread, after the previous spill has been written."""
        self._collect_spill()
        batches, self._buffer, self.nbytes = self._buffer, [], 0
        file = self._directory / f"{self._name}-{len(self._spills):05d}.arrow"
        pool = ThreadPoolExecutor(1, thread_name_prefix="distagg-spill")
        self._writing = pool.submit(_write, batches, file)
        pool.shutdown(wait=False)

    def finish(self) -> None:
        """Sort the rest of the buffer; after this rows can be read."""
        self._collect_spill()
        if not self._buffer:
            return
        batches, self._buffer, self.nbytes = self._buffer, [], 0
        if all(_in_order(batch) for batch in batches):  # as with files by query: nothing to copy
            for batch in batches:
                self._spills.append(_held([batch]))
        else:
            self._spills.append(_held(list(gather(batches, SPILL_ROWS))))

    def abandon(self) -> None:
        """Wait for a spill that is being written, so that its directory can be removed."""
        if self._writing is not None:
            wait([self._writing])

    def _collect_spill(self) -> None:
        if self._writing is not None:
            self._spills.append(self._writing.result())
            self._writing = None

    def counts(self, n_majors: int) -> Offsets:
        """Rows of every major, shape (n_majors,)."""
        total = np.zeros(n_majors, dtype=OFFSET)
        for spill in self._spills:
            total[spill.majors] += np.diff(spill.bounds)
        return total

    def rows(self, lo: int, hi: int) -> GroupedRows:
        """All rows whose major is in ``[lo, hi)``, by key and then in the order in which they were added.

        Calls go upwards: rows before ``lo`` are released.
        """
        self._spills = [spill for spill in self._spills if spill.majors[-1] >= lo]
        near = (spill for spill in self._spills if spill.majors[0] < hi)
        pieces = [piece for spill in near for piece in spill.rows(*spill.span(lo, hi))]
        return GroupedRows(pieces, self._schema or EMPTY)

    def slices(self, major: int, size: int) -> Iterator[GroupedRows]:
        """The rows of one major, ``size`` at a time and ignoring minors, for a major too large for memory."""
        for spill in self._spills:
            first, last = spill.span(major, major + 1)
            for at in range(first, last, size):
                yield GroupedRows(spill.rows(at, min(at + size, last)), self._schema or EMPTY)


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Rows that have been read; the thread that needs them joins them."""

    pieces: list[pa.RecordBatch]
    schema: pa.Schema

    def table(self, words: Sequence[str] = ()) -> pa.Table:
        """All rows in key order; the columns in ``words`` share one dictionary: numbers are cheaper to move."""
        if not self.pieces:
            return no_rows(self.schema)
        columns = dict(zip(self.schema.names, _columns(self.pieces, self.schema), strict=True))
        coded = pa.chunked_array([array for name in words for array in columns[name]], pa.string()).dictionary_encode()
        for at, name in enumerate(words):
            own = coded.chunks[at * len(self.pieces) : (at + 1) * len(self.pieces)]
            columns[name] = [array.indices for array in own]
        rows = _key_order(np.concatenate([as_numpy(array) for array in columns[KEY]]))
        arrays = {name: _take(_concat(column), rows) for name, column in columns.items()}
        for name in words:
            arrays[name] = pa.DictionaryArray.from_arrays(arrays[name], coded.chunk(0).dictionary)
        return pa.table(arrays)


def _key_order(key: NDArray[np.int64]) -> pa.Array | None:
    """The rows in the order of their keys (stable); None if they are in order already."""
    starts = run_starts(key)
    first = key[starts]
    if not (first[1:] < first[:-1]).any():
        return None
    order = np.argsort(first, kind="stable")
    length = np.diff(starts, append=len(key))[order]
    return as_arrow(np.repeat(starts[order] - np.cumsum(length) + length, length) + np.arange(len(key)))


def _write(batches: list[pa.RecordBatch], file: Path) -> Spill:
    """The rows of the batches in an Arrow file, in key order."""
    starts, counts = [0], []
    writer = None
    with pa.OSFile(str(file), "wb") as sink:
        for batch in gather(batches, SPILL_ROWS):
            if writer is None:
                writer = pa.ipc.new_file(sink, batch.schema)
            writer.write_batch(batch)
            counts.append(_major_counts(batch))
            starts.append(starts[-1] + batch.num_rows)
        if writer is not None:
            writer.close()
    return _indexed(np.array(starts), counts, file=file)


def _major_counts(batch: pa.RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    major = key_major(as_numpy(batch[KEY]))
    begin = run_starts(major)
    return major[begin], np.diff(begin, append=len(major))


def _in_order(batch: pa.RecordBatch) -> bool:
    key = as_numpy(batch[KEY])
    return not (key[1:] < key[:-1]).any()


def _held(batches: list[pa.RecordBatch]) -> Spill:
    """A spill in memory, of batches in key order."""
    starts = np.cumsum([0] + [batch.num_rows for batch in batches])
    return _indexed(starts, [_major_counts(batch) for batch in batches], batches=batches)


def _indexed(
    starts: NDArray[np.int64],
    counts: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    *,
    batches: list[pa.RecordBatch] | None = None,
    file: Path | None = None,
) -> Spill:
    majors = np.concatenate([c[0] for c in counts])
    sizes = np.concatenate([c[1] for c in counts])
    begin = run_starts(majors)
    bounds = np.concatenate([[0], np.cumsum(np.add.reduceat(sizes, begin))]).astype(OFFSET)
    return Spill(starts, majors[begin], bounds, batches=batches or [], file=file)
