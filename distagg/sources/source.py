"""The interface of sources: an iterator of long Arrow tables, and ``locate``, which finds the lines of a clash.

A source parses and checks each row on its own. Clashes between rows (an item twice in a list, two labels of an item)
are found when rows are grouped; ``locate`` then reads the files again to name the lines, so that valid data need no
line numbers.
"""

from __future__ import annotations

import gzip
import io
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Protocol, cast

import pyarrow as pa

from distagg.errors import InputError, UsageError
from distagg.storage.paths import Place, Store, explained

BATCH_BYTES = 32 << 20
# Limits of what any file may cost. A gzip file may unpack to FREE_BYTES, or beyond that to MOST_TIMES the bytes read.
LINE_BYTES = 32 << 20  # of a line
MOST_COLUMNS = 10_000  # of a table
FREE_BYTES, MOST_TIMES, MOST_UNPACKED = 256 << 20, 200, 4 << 40
BUFFER_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class SourceTable:
    """Rows of one source file. Columns as in ``distagg.types``; query and expert may be dictionaries.

    entries
        (ENTRIES) ranks that experts gave; their items are items of the query. ``score`` may be absent.
        A null rank with a score means that regrouping ranks the list by score
        (rank = 1 + number of strictly larger scores).
    items
        (ITEMS) items of the query, in this order, in a list or not; labels may be null.
    judgements
        (ITEMS) labels only: an item that occurs nowhere else is not ranked, but counts as missed.
    pairs
        (PAIRS) winner over loser.
    """

    kind: Literal["entries", "items", "judgements", "pairs"]
    table: pa.Table
    part: str  # the part of its queries: the file's name, or "" if queries span files


class Source(Protocol):
    """A set of files of one format."""

    name: str  # in ``distagg import`` and in the dataset's manifest
    partition: Literal["query", "expert"]  # "expert" if one query has very many experts
    files: tuple[Place, ...]

    def tables(self) -> Iterator[SourceTable]: ...

    def split(self, size: int, whole: frozenset[str] = frozenset()) -> list[Source]:
        """Sources of about ``size`` bytes whose tables, one source after the other, have the same rows in order.

        ``whole`` are files that must not be divided. Each source can be pickled.
        """
        ...

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """File and line (or row) of every mention of the item, by the expert or (None) of its label."""
        ...


def refuse_same_names(files: Sequence[Place], name_of: Callable[[Place], str], remedy: str) -> None:
    """UsageError if two files, each of which is an expert's, give their expert the same name."""
    seen: dict[str, Place] = {}
    for file in files:
        other = seen.setdefault(name_of(file), file)
        if other is not file:
            raise UsageError(f"{other} and {file} give their expert the same name, '{name_of(file)}'; {remedy}")


class Counted(io.RawIOBase):
    """A stream whose bytes are counted as they are read."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self.bytes = raw, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        body = self._raw.read(size)
        self.bytes += len(body)
        return body


class Guarded(io.RawIOBase):
    """The bytes of a file, unpacked if they are gzipped; raises an InputError beyond the limits of this module."""

    def __init__(self, file: Place, raw: IO[bytes], *, lines: bool, start: int = 0) -> None:
        self._file, self._lines = file, lines
        if start:
            raw.seek(start)
        self._packed = Counted(raw) if file.suffix == ".gz" else None
        self._stream = gzip.GzipFile(fileobj=self._packed) if self._packed is not None else raw
        self._total, self._line = start, 0  # bytes unpacked, and of the line that goes on

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with explained(self._file):
            text = self._stream.read(min(len(buffer), BUFFER_BYTES))
        buffer[: len(text)] = text
        if self._lines and len(text):
            self._check_line(text)
        self._total += len(text)
        if self._packed is not None and self._total > FREE_BYTES:
            self._check_size(self._packed.bytes)
        return len(text)

    def _check_size(self, packed: int) -> None:
        if self._total > min(MOST_TIMES * packed, MOST_UNPACKED):
            raise InputError(
                str(self._file),
                found=f"{packed:,} gzipped bytes that unpack to more than {self._total:,}",
                expected=f"at most {MOST_TIMES} times the size, or {FREE_BYTES >> 20} MB, and {MOST_UNPACKED >> 40} TB",
                remedy="if you trust the file, unpack it with gunzip and give the plain file",
            )

    def _check_line(self, text: bytes) -> None:
        """Refuse a line that is too long before a reader keeps all of it."""
        ends = [at for at in (text.find(b"\n"), text.find(b"\r")) if at >= 0]
        whole = self._line + min(ends, default=len(text))
        self._line = len(text) - 1 - max(text.rfind(b"\n"), text.rfind(b"\r")) if ends else whole
        if max(whole, self._line) > LINE_BYTES:
            line = self._number(self._total + len(text) - self._line)
            found = f"a line of over {LINE_BYTES:,} bytes"
            raise InputError(str(self._file), line=line, found=found, expected="text with shorter lines")

    def _number(self, left: int) -> int:
        """The number of the line after so many bytes, counted only for its error."""
        number = 1
        with self._file.open("rb") as raw, gzip.open(raw, "rb") if self._file.suffix == ".gz" else raw as again:
            while left > 0 and (text := again.read(min(left, BUFFER_BYTES))):
                number += text.count(b"\n")
                left -= len(text)
        return number

    def close(self) -> None:
        if not self.closed and self._stream is not None:
            self._stream.close()
        super().close()


@contextmanager
def open_bytes(file: Place, *, lines: bool = True, start: int = 0) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if it ends in .gz; a damaged, missing or endless file is an InputError.

    Reading stops with an InputError at a line of more than ``LINE_BYTES`` (if the file has ``lines``), and where a gzip
    file unpacks to more than this module's limits. ``start`` is the first byte to read of a file that is not packed.
    """
    try:
        if isinstance(file, Path) and not stat.S_ISREG(mode := file.stat().st_mode) and not stat.S_ISDIR(mode):
            raise InputError(
                str(file),
                found="a pipe or device",
                expected="a file on disk, which can be read twice and ends",
                remedy="copy it to a file first",
            )
        with (
            file.open_seekable() if start and isinstance(file, Store) else file.open("rb") as raw,
            Guarded(file, raw, lines=lines, start=start) as guarded,
        ):
            yield cast("IO[bytes]", io.BufferedReader(guarded, BUFFER_BYTES))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            str(file),
            found=f"a broken gzip stream ({error})",
            expected="a complete gzip file",
            remedy="the download or copy was cut short; fetch it again",
        ) from error
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise InputError(str(file), found=str(error.strerror).lower(), expected="a readable file") from error


def refuse_wide(file: Place, columns: int) -> None:
    """Refuse a header of so many columns that it is hardly a table."""
    if columns > MOST_COLUMNS:
        raise InputError(
            str(file),
            line=1,
            found=f"{columns:,} columns",
            expected=f"at most {MOST_COLUMNS:,}",
            remedy="if it is a table, keep only the columns that are needed",
        )
