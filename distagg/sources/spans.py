"""Sources in pieces that several processes read: groups of small files, and spans of bytes of large ones.

A line belongs to the span in which its first byte is, and so does, roughly, a row group of a Parquet file
(``storage.parquet.groups_between``). Nobody has to read a file to divide it, and together the spans of a file give each
of its rows once, in order. Compressed files are not divided. The number of a line is counted from the start of its
file, but only for errors.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from distagg.errors import InputError
from distagg.sources.source import open_bytes
from distagg.storage.paths import Place, size_of

COUNT_BYTES = 4 << 20  # read together to count lines


class Span(NamedTuple):
    """Bytes ``start`` to ``stop`` (exclusive) of a file."""

    start: int
    stop: int


class Share(NamedTuple):
    """Some whole files, or a span of one."""

    files: tuple[Place, ...]
    span: Span | None = None


class IndivisibleError(Exception):
    """A span of a file that must be read as a whole, because a line end may be inside a cell."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.file = file


def share_files(
    files: Sequence[Place], size: int, divisible: Callable[[Place], bool] = lambda file: True
) -> Iterator[Share]:
    """Pieces of about ``size`` bytes that cover the files in order.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = [Path(folder) / name for name in "abc"]
    ...     written = [file.write_bytes(bytes(n)) for file, n in zip(files, (2, 3, 11))]
    ...     [(len(share.files), share.span) for share in share_files(files, 6)]
    [(2, None), (1, Span(start=0, stop=5)), (1, Span(start=5, stop=11))]
    """
    small: list[Place] = []
    filled = 0
    for file in files:
        n = size_of(file)
        if small and filled + n > size:
            yield Share(tuple(small))
            small, filled = [], 0
        if n > size and file.suffix != ".gz" and divisible(file):
            pieces = -(-n // size)
            bounds = [at * n // pieces for at in range(pieces + 1)]
            yield from (Share((file,), Span(*both)) for both in itertools.pairwise(bounds))
        else:
            small.append(file)
            filled += n
    if small:
        yield Share(tuple(small))


def line_blocks(
    file: Place, size: int, span: Span | None = None, *, header: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with its first byte's place in the (unpacked) file; without the header, if any."""
    first = 0 if span is None else span.start
    if header and first:
        with open_bytes(file) as stream:
            first = first if first > len(stream.readline()) else 0
    with open_bytes(file, start=max(first - 1, 0)) as stream:
        offset = max(first - 1, 0)
        if header or first:  # of a line that began before the span, the rest is not in it
            offset += len(stream.readline())
        while span is None or offset < span.stop:
            text = stream.read(size if span is None else min(size, span.stop - offset))
            if not text:
                return
            if not text.endswith(b"\n"):
                text += stream.readline()
            yield offset, text
            offset += len(text)


def lines_before(file: Place, offset: int) -> int:
    """The number of line ends before a byte of the (unpacked) file."""
    count = 0
    with open_bytes(file) as stream:
        while offset and (text := stream.read(min(offset, COUNT_BYTES))):
            count += text.count(b"\n")
            offset -= len(text)
    return count


class LineCount:
    """Numbers of the lines of a span, counted from the start of the file when they are first asked for."""

    def __init__(self, file: Place, span: Span | None) -> None:
        self._file, self._span = file, span

    @functools.cached_property
    def before(self) -> int:
        """The number of lines before the first one of the span."""
        if self._span is None or self._span.start == 0:
            return 0
        first = next(line_blocks(self._file, 1, self._span), None)
        return lines_before(self._file, first[0] if first else self._span.start)

    def error(self, line: int, found: str, expected: str) -> InputError:
        """The error of a bad line, whose number was counted from the start of the span."""
        return InputError(str(self._file), line=line + self.before, found=found, expected=expected)

    def moved(self, error: InputError) -> InputError:
        """The error of a line that was counted from the start of the span."""
        line = None if error.line is None else error.line + self.before
        return InputError(error.file, line=line, found=error.found, expected=error.expected, remedy=error.remedy)
