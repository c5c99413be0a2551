"""Group rows by key in bounded memory: buffer, sort, spill to disk, merge.

Rows of one major are gathered together (``keyed.py``). Each copy reads a window of every batch: if the batches are in
order themselves, as files by query are, only these windows are in memory twice. Spills are read, not memory-mapped,
because mapped pages would count as our memory. Cost: linear in rows; a row is copied once, and once more if it was
spilled or came out of order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distagg.dataset.build.keyed import GroupedRows, KeyedRows, gather, key_major, merged_schema, run_starts
from distagg.storage.paths import Place, Store
from distagg.types import OFFSET, Offsets

SPILL_ROWS = 1 << 14  # rows of a record batch in a spill, the smallest unit to read
MANY_SPILLS = 256  # from which on no spill keeps its last batch and its file open: slower, but in bounded memory


@dataclass(slots=True)
class Spill:
    """Rows in key order: batches, in memory or in an Arrow file."""

    starts: Offsets  # (batches + 1,) first row of every batch
    majors: NDArray[np.int64]  # (U,) ascending
    bounds: Offsets  # (U + 1,) first row of every major
    batches: list[KeyedRows] = field(default_factory=list)
    file: Place | None = None
    translate: Callable[[KeyedRows], KeyedRows] | None = None  # from the codes in the file
    reader: pa.ipc.RecordBatchFileReader | None = None
    last: tuple[int, KeyedRows] | None = None  # neighbouring reads share a batch

    def rows(self, first: int, last: int) -> list[KeyedRows]:
        """Rows ``first`` to ``last`` (exclusive), as slices of batches."""
        pieces = []
        at = int(np.searchsorted(self.starts, first, side="right")) - 1
        while first < last and at < len(self.starts) - 1 and self.starts[at] < last:
            lo, hi = max(first, int(self.starts[at])), min(last, int(self.starts[at + 1]))
            pieces.append(self._batch(at).slice(lo - int(self.starts[at]), hi - int(self.starts[at])))
            at += 1
        return pieces

    def close(self) -> None:
        """Release the last batch and the file; the next read opens it again."""
        self.last = self.reader = None

    def span(self, lo: int, hi: int) -> tuple[int, int]:
        """The rows whose major is in ``[lo, hi)``."""
        first, last = np.searchsorted(self.majors, [lo, hi])
        return int(self.bounds[first]), int(self.bounds[last])

    def _batch(self, at: int) -> KeyedRows:
        if self.file is None:
            return self.batches[at]
        if self.reader is None:
            self.reader = pa.ipc.open_file(open_rows(self.file))
        if self.last is None or self.last[0] != at:
            rows = KeyedRows.of(self.reader.get_batch(at))
            self.last = (at, self.translate(rows) if self.translate is not None else rows)
        return self.last[1]


def open_rows(file: Place) -> Any:
    """Open an Arrow file for reading at any place."""
    return file.open_seekable() if isinstance(file, Store) else pa.OSFile(str(file))


class Grouper:
    """Rows of one kind, added in any order, read back by major.

    >>> grouper = Grouper("entries", Path("unused"))
    >>> rows = pa.record_batch({"item": ["x", "y"]})
    >>> grouper.add(KeyedRows(np.array([2 << 32, 1 << 32]), np.array([0, 1, 2]), rows))
    >>> grouper.finish()
    >>> grouper.rows(1, 2).joined().columns["item"].to_pylist()
    ['y']
    """

    def __init__(
        self, name: str, directory: Place, *, spills: Iterable[Spill] = (), schema: pa.Schema | None = None
    ) -> None:
        self.nbytes = 0
        self.n_rows = 0
        self.schema = schema  # None: of no rows
        self.name, self._directory = name, directory
        self._buffer: list[KeyedRows] = []
        self._spills = list(spills)
        self._writing: Future[Spill] | None = None

    def add(self, rows: KeyedRows) -> None:
        if len(rows):
            self._buffer.append(rows)
            self.schema = merged_schema(self.schema or rows.columns.schema, rows.columns.schema)
            self.nbytes += rows.nbytes
            self.n_rows += len(rows)

    @property
    def names(self) -> list[str]:
        """The columns of its rows."""
        return [] if self.schema is None else self.schema.names

    def spill(self) -> None:
        """Move the buffer to disk on a thread, after the previous spill has been written."""
        self._collect_spill()
        batches, self._buffer, self.nbytes = self._buffer, [], 0
        file = self._directory / f"{self.name}-{len(self._spills):05d}.arrow"
        pool = ThreadPoolExecutor(1, thread_name_prefix="distagg-spill")
        self._writing = pool.submit(_write, batches, file)
        pool.shutdown(wait=False)

    def finish(self) -> None:
        """Sort the rest of the buffer; after this rows can be read."""
        self._collect_spill()
        if not self._buffer:
            return
        batches, self._buffer, self.nbytes = self._buffer, [], 0
        if all(rows.in_order for rows in batches):  # as with files by query: nothing to copy
            for rows in batches:
                self._spills.append(_held([rows]))
        else:
            self._spills.append(_held(list(gather(batches, SPILL_ROWS))))

    def write_all(self) -> list[Spill]:
        """Move all rows to disk; the files, in the order in which their rows were added."""
        if self._buffer:
            self.spill()
        self._collect_spill()
        return self._spills

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
        many = len(self._spills) > MANY_SPILLS
        pieces = []
        for spill in self._spills:
            if spill.majors[0] < hi:
                own = spill.rows(*spill.span(lo, hi))
                pieces += [piece.copied() for piece in own] if many else own
                if many:
                    spill.close()
        return GroupedRows(pieces, self.schema or pa.schema([]))

    def slice(self, major: int, first: int, last: int) -> GroupedRows:
        """Rows ``first`` to ``last`` (exclusive) of one major, ignoring minors: it may be too large for memory."""
        pieces = []
        for spill in self._spills:
            lo, hi = spill.span(major, major + 1)
            a, b = max(first, 0), min(last, hi - lo)
            if a < b:
                pieces += spill.rows(lo + a, lo + b)
            first, last = first - (hi - lo), last - (hi - lo)
        return GroupedRows(pieces, self.schema or pa.schema([]))


def _write(batches: list[KeyedRows], file: Place) -> Spill:
    """The rows of the batches in an Arrow file, in key order."""
    return write_run(gather(batches, SPILL_ROWS), file)


def write_run(sorted_rows: Iterable[KeyedRows], file: Place) -> Spill:
    """Batches in key order, in an Arrow file."""
    starts, counts = [0], []
    writer = None
    with file.open("wb") if isinstance(file, Store) else pa.OSFile(str(file), "wb") as sink:
        for rows in sorted_rows:
            batch = rows.batch()
            if writer is None:
                writer = pa.ipc.new_file(sink, batch.schema)
            writer.write_batch(batch)
            counts.append(_major_counts(rows))
            starts.append(starts[-1] + len(rows))
        if writer is not None:
            writer.close()
    return _indexed(np.array(starts), counts, file=file)


def _major_counts(rows: KeyedRows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    major = key_major(rows.key)
    begin = run_starts(major)
    return major[begin], np.diff(rows.starts[begin], append=len(rows))


def _held(batches: list[KeyedRows]) -> Spill:
    """A spill in memory, of batches in key order."""
    starts = np.cumsum([0] + [len(rows) for rows in batches])
    return _indexed(starts, [_major_counts(rows) for rows in batches], batches=batches)


def _indexed(
    starts: NDArray[np.int64],
    counts: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    *,
    batches: list[KeyedRows] | None = None,
    file: Place | None = None,
) -> Spill:
    majors = np.concatenate([c[0] for c in counts])
    sizes = np.concatenate([c[1] for c in counts])
    begin = run_starts(majors)
    bounds = np.concatenate([[0], np.cumsum(np.add.reduceat(sizes, begin))]).astype(OFFSET)
    return Spill(starts, majors[begin], bounds, batches=batches or [], file=file)
