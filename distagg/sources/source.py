"""The interface of sources: an iterator of long Arrow tables, and ``locate``, which finds the lines of a clash.

A source parses and checks each row on its own. Clashes between rows (an item twice in a list, two labels of an item)
are found when rows are grouped; ``locate`` then reads the files again to name the lines, so that valid data need no
line numbers.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Protocol, cast

import pyarrow as pa

from distagg.errors import InputError, UsageError

BATCH_BYTES = 32 << 20


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
    files: tuple[Path, ...]

    def tables(self) -> Iterator[SourceTable]: ...

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """File and line (or row) of every mention of the item, by the expert or (None) of its label."""
        ...


def refuse_same_names(files: Sequence[Path], name_of: Callable[[Path], str], remedy: str) -> None:
    """UsageError if two files, each of which is an expert's, give their expert the same name."""
    seen: dict[str, Path] = {}
    for file in files:
        other = seen.setdefault(name_of(file), file)
        if other is not file:
            raise UsageError(f"{other} and {file} give their expert the same name, '{name_of(file)}'; {remedy}")


@contextmanager
def open_bytes(file: Path) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if it ends in .gz; a damaged or missing file is an InputError."""
    try:
        with file.open("rb") as raw:
            plain = (
                raw if isinstance(raw, io.BufferedIOBase) else io.BufferedReader(raw)
            )  # Arrow's stream cannot read lines
            with gzip.open(plain, "rb") if file.suffix == ".gz" else plain as stream:
                yield cast("IO[bytes]", stream)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            str(file),
            found=f"a broken gzip stream ({error})",
            expected="a complete gzip file",
            remedy="the download or copy was cut short; fetch it again",
        ) from error
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise InputError(str(file), found=str(error.strerror).lower(), expected="a readable file") from error
