"""Rows of several batches copied into key order.

Runs of equal keys are ordered, not rows; long runs are copied whole, the rows of short ones are taken one by one. What
is copied at a time comes from a window of every batch: where batches are in order themselves, as files by query are,
no more than these windows is held twice. Cost: linear in rows; sorting touches runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from distagg.arrays import as_arrow, as_numpy

KEY = "key"
LONG_RUN = 256  # rows; from here on copying a slice is cheaper than taking its rows one by one
WIDE = 4  # windows that hold so many times the rows wanted: batches are joined once, as they are

Pieces = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]  # batch, first row in it, rows


def run_starts(key: NDArray[np.integer]) -> NDArray[np.intp]:
    """Where runs of equal keys begin."""
    return np.flatnonzero(np.concatenate([[len(key) > 0], key[1:] != key[:-1]]))


def gather(batches: list[pa.RecordBatch], size: int | None) -> Iterator[pa.RecordBatch]:
    """The rows of all batches in key order (stable), in batches of about ``size`` rows."""
    if not batches:
        return
    batch, start, length = _pieces(batches)
    columns = _columns(batches)
    names = batches[0].schema.names
    ends = np.cumsum(length)
    sizes = np.array([one.num_rows for one in batches])
    joined: list[pa.Array] = []  # all batches
    at = 0
    while at < len(length):
        stop = len(length) if size is None else int(np.searchsorted(ends, ends[at] - length[at] + size)) + 1
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
        yield pa.record_batch(arrays, names=names)


def _join(
    column: list[pa.Array], batch: NDArray[np.integer], start: NDArray[np.integer], length: NDArray[np.integer]
) -> pa.Array:
    """Pieces of a column, one after the other."""
    where = zip(batch.tolist(), start.tolist(), length.tolist(), strict=True)
    return pa.concat_arrays([column[b].slice(s, n) for b, s, n in where], memory_pool=pa.system_memory_pool())


def _take(column: pa.Array, rows: pa.Array) -> pa.Array:
    # The system's allocator gives back what a block needed; Arrow's own keeps 30 MB for the next one.
    return pc.take(column, rows, memory_pool=pa.system_memory_pool())


def _windows(pieces: Pieces, n_batches: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of every batch that a piece holds, and the one after the last; 0 and 0 where there is none."""
    batch, start, length = pieces
    low, high = np.full(n_batches, np.iinfo(np.int64).max), np.zeros(n_batches, dtype=np.int64)
    np.minimum.at(low, batch, start)
    np.maximum.at(high, batch, start + length)
    return np.minimum(low, high), high


def _rows_in(pieces: Pieces, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
    """Row numbers of the pieces in the windows, one after the other."""
    batch, start, length = pieces
    base = np.cumsum(high - low) - high  # of the batch's row 0, were it there
    ends = np.cumsum(length)
    return np.repeat(base[batch] + start - (ends - length), length) + np.arange(ends[-1])


def _pieces(batches: list[pa.RecordBatch]) -> Pieces:
    """Batch, start and length of the pieces that, one after the other, are all rows in key order."""
    keys, starts, lengths = [], [], []
    for one in batches:
        key = as_numpy(one[KEY])
        begin = run_starts(key)
        keys.append(key[begin])
        starts.append(begin.astype(np.int32))  # there may be as many runs as rows: half the bytes count
        lengths.append(np.diff(begin, append=len(key)).astype(np.int32))
    batch = np.repeat(np.arange(len(batches), dtype=np.int32), [len(s) for s in starts])
    start, length, key = np.concatenate(starts), np.concatenate(lengths), np.concatenate(keys)
    if (key[1:] < key[:-1]).any():
        order = np.argsort(key, kind="stable")
        batch, start, length = batch[order], start[order], length[order]
    # Neighbours in one batch are one piece: rows that came in order stay whole.
    joined = (batch[1:] == batch[:-1]) & (start[1:] == start[:-1] + length[:-1])
    first = np.flatnonzero(np.concatenate([[True], ~joined]))
    return batch[first], start[first], np.add.reduceat(length, first, dtype=np.int64)


def merged_schema(a: pa.Schema | None, b: pa.Schema) -> pa.Schema:
    """The schema of both, where a column of type null takes the other's type."""
    if a is None or a == b:
        return b
    return pa.schema(
        [pa.field(x.name, y.type if pa.types.is_null(x.type) else x.type) for x, y in zip(a, b, strict=True)]
    )


def _columns(batches: list[pa.RecordBatch]) -> list[list[pa.Array]]:
    """Per column, the arrays of all batches, with one type."""
    schema = None
    for batch in batches:
        schema = merged_schema(schema, batch.schema)
    assert schema is not None
    columns = []
    for at, one in enumerate(schema):
        arrays = [batch.column(at) for batch in batches]
        columns.append([array if array.type == one.type else pa.nulls(len(array), one.type) for array in arrays])
    return columns
