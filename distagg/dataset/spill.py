"""Rows grouped by key in bounded memory: buffer, order, spill to disk, gather again.

A key is an int64, ``major << 32 | minor``: what is gathered together, and the order inside it. Sources hand rows
over in runs of equal keys (the list of one expert for one query), so runs are ordered, and long ones copied whole.
Spills are read, not memory-mapped: mapped pages would count as ours.
Cost: every row is copied once, and once more where it was spilled or came in no order; sorting touches runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distagg.arrays import as_numpy, no_rows
from distagg.dataset.gather import KEY, gather, merged_schema, run_starts
from distagg.types import OFFSET, Offsets

EMPTY = pa.schema([(KEY, pa.int64())])
SPILL_ROWS = 1 << 14  # rows of a record batch in a spill: what a read of a few rows costs


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
    """Rows of one kind, added in any order, given back by major.

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
            self._schema = merged_schema(self._schema, batch.schema)
            self.nbytes += batch.nbytes
            self.n_rows += batch.num_rows

    def spill(self) -> None:
        """Move the buffer to disk, on a thread; the one before must have arrived there."""
        self._arrived()
        batches, self._buffer, self.nbytes = self._buffer, [], 0
        file = self._directory / f"{self._name}-{len(self._spills):05d}.arrow"
        pool = ThreadPoolExecutor(1, thread_name_prefix="distagg-spill")
        self._writing = pool.submit(_write, batches, file)
        pool.shutdown(wait=False)

    def finish(self) -> None:
        """Order what is left in the buffer; from now on rows can be read."""
        self._arrived()
        if not self._buffer:
            return
        batches, self._buffer, self.nbytes = self._buffer, [], 0
        if all(_in_order(batch) for batch in batches):  # as files by query are: nothing to copy
            for batch in batches:
                self._spills.append(_held([batch]))
        else:
            self._spills.append(_held(list(gather(batches, SPILL_ROWS))))

    def abandon(self) -> None:
        """Wait for what is on its way to disk, so that its directory can be removed."""
        if self._writing is not None:
            wait([self._writing])

    def _arrived(self) -> None:
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
        """All rows whose major is in ``[lo, hi)``: by key, rows of a key in the order they were added."""
        pieces = [piece for spill in self._spills for piece in spill.rows(*spill.span(lo, hi))]
        return GroupedRows(pieces, self._schema or EMPTY)

    def slices(self, major: int, size: int) -> Iterator[GroupedRows]:
        """The rows of one major, ``size`` at a time, for a major too large to hold; as if it had no minors."""
        for spill in self._spills:
            first, last = spill.span(major, major + 1)
            for at in range(first, last, size):
                yield GroupedRows(spill.rows(at, min(at + size, last)), self._schema or EMPTY)


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Rows that have been read; putting them together is left to the thread that needs them."""

    pieces: list[pa.RecordBatch]
    schema: pa.Schema

    def table(self) -> pa.Table:
        batches = list(gather(self.pieces, None))
        return pa.Table.from_batches(batches).cast(self.schema) if batches else no_rows(self.schema)


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
    """Batches in key order, as they are in memory."""
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
