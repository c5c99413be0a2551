"""Parquet files of datasets, models and rankings, checked when they are read.

No flipped bit of a file goes unnoticed:

- pages have checksums (CRC-32), which Arrow verifies as it reads them;
- the footer has a hash, which the manifest holds;
- headers of pages have neither. A changed header gives an error, or another number of values than the footer says, and
  the numbers are compared.

Files of earlier versions have no checksums and no hash of their footer, and are read without these checks. A file that
is read whole can be checked by the SHA-256 of all its bytes, which the manifest has always held.
"""

from __future__ import annotations

import functools
import hashlib
import socket
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distagg.arrow import as_numpy
from distagg.errors import DistaggError, InfrastructureError, InputError
from distagg.storage.parquet import VERIFY, open_parquet
from distagg.storage.paths import Place, Store, explained, reason
from distagg.types import Offsets

TAIL = 8  # bytes behind the footer: its length, and Parquet's magic number
FIRST_READ = 1 << 16  # bytes of a file's end that are read at once; most footers are shorter
AGAIN = "the dataset is damaged; import it again"
UNREADABLE = (OSError, pa.ArrowException, ValueError, IndexError, KeyError, OverflowError)


class Footer(NamedTuple):
    """A footer: Arrow's metadata, and the number of each column of lists by its name."""

    metadata: Any
    lists: dict[str, int]


def read_groups(
    file: Place, groups: Sequence[int] | None, columns: list[str] | None, footer: str = "", remedy: str = AGAIN
) -> pa.Table:
    """Read row groups (None: all) of a Parquet file; a damaged file is an InputError that names it.

    ``footer`` is the hash of the footer that the manifest holds, or empty; ``remedy`` says what to do about damage.
    """
    try:
        known = known_footer(file, footer) if footer else None
        with open_parquet(file, known.metadata if known is not None else None, pre_buffer=True) as parquet:
            stored = known if known is not None else footer_of(parquet.metadata)
            wanted = list(range(parquet.num_row_groups)) if groups is None else list(groups)
            table = parquet.read_row_groups(wanted, columns=columns, use_threads=False)
            _check_counts(table, stored, wanted)
            return table
    except UNREADABLE as error:
        raise unreadable(file, error, remedy) from error


def read_whole(file: Place, sha256: str, columns: list[str] | None = None, remedy: str = AGAIN) -> pa.Table:
    """Read a Parquet file that has this SHA-256."""
    try:
        body = file.read_bytes()
        if hashlib.sha256(body).hexdigest() != sha256:
            raise InputError(str(file), found="another SHA-256", expected="that of the manifest", remedy=remedy)
        with pq.ParquetFile(pa.BufferReader(body), **VERIFY) as parquet:
            return parquet.read(columns, use_threads=False)
    except UNREADABLE as error:
        raise unreadable(file, error, remedy) from error


def footer_hash(file: Place) -> str:
    """The hash of a file's footer, as the manifest holds it."""
    return _hash(_footer_bytes(file))


@functools.lru_cache(maxsize=16)
def known_footer(file: Place, expected: str) -> Footer:
    """The footer of a file, if it has the expected hash; kept for the file's other row groups."""
    body = _footer_bytes(file)
    if _hash(body) != expected:
        raise OSError("its footer is not the one that was written")
    return footer_of(pq.read_metadata(pa.BufferReader(body)))


def footer_of(metadata: Any) -> Footer:
    paths = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
    return Footer(metadata, {path.partition(".list.")[0]: n for n, path in enumerate(paths) if ".list." in path})


def unreadable(file: Place, error: Exception, remedy: str) -> DistaggError:
    """The error for a file that cannot be read: nothing to see from here, or a damaged file."""
    if isinstance(file, Store):
        known = reason(file, error)
        if known is not None:
            return known
    elif isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
        if isinstance(error, PermissionError) or not file.parent.is_dir():
            return unseen(file.parent)
        return InputError(str(file), found="no such file", expected="the part that the manifest names", remedy=remedy)
    return InputError(
        str(file),
        found=f"an unreadable Parquet file ({error})",
        expected="the part that the manifest names",
        remedy=remedy,
    )


def unseen(folder: Place) -> InfrastructureError:
    """The error for data that this host cannot see."""
    return InfrastructureError(
        f"host {socket.gethostname()} cannot read {folder}; data must be at the same path on every host of a "
        "cluster: put it on a shared file system or in an object store (s3://), then run again"
    )


def _check_counts(table: pa.Table, footer: Footer, numbers: list[int]) -> None:
    """Refuse a table, read from these row groups, with more or fewer values than the footer says."""
    groups = [footer.metadata.row_group(number) for number in numbers]
    rows = sum(group.num_rows for group in groups)
    if len(table) != rows:
        raise ValueError(f"{len(table)} rows, but its footer says {rows}")
    for name, column in zip(table.column_names, table.columns, strict=True):
        at = footer.lists.get(name)
        if at is None or not pa.types.is_list(column.type):
            continue
        values = sum(_count_values(as_numpy(piece.offsets)) for piece in column.chunks)
        expected = sum(group.column(at).num_values for group in groups)  # read above, else Arrow must not be asked
        if values != expected:
            raise ValueError(f"{values} values in column {name}, but its footer says {expected}")


def _count_values(offsets: Offsets) -> int:
    """The values of lists, as footers count them: an empty list is one value.

    >>> _count_values(np.array([2, 5, 5, 6]))
    5
    """
    if not len(offsets):
        return 0
    return int(offsets[-1]) - int(offsets[0]) + int(np.count_nonzero(offsets[1:] == offsets[:-1]))


def list_lengths(column: pa.ChunkedArray) -> Offsets:
    """The lengths of the lists of a column."""
    pieces = [np.diff(as_numpy(piece.offsets)) for piece in column.chunks]
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.zeros(0, np.int32), *pieces])


def _footer_bytes(file: Place) -> bytes:
    if isinstance(file, Store):
        with explained(file):
            stream = file.filesystem.open_input_file(file.inside)
        with stream:  # what it holds is the caller's to judge
            return _from_end(stream, stream.size())
    with file.open("rb") as opened:
        return _from_end(opened, file.stat().st_size)


def _from_end(stream: BinaryIO | Any, size: int) -> bytes:
    """A file's footer, with its length and magic number."""
    stream.seek(max(0, size - FIRST_READ))
    end: bytes = stream.read()
    if len(end) < TAIL or end[-4:] != b"PAR1":
        raise OSError("it does not end as Parquet files do")
    length = int.from_bytes(end[-8:-4], "little") + TAIL
    if length > size:
        raise OSError(f"its footer should have {length} bytes, more than the file")
    if length > len(end):
        stream.seek(size - length)
        end = stream.read()
    return end[-length:]


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]
