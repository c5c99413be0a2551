"""Parse delimited lines: Arrow's CSV parser for blocks of regular lines, a line parser as fallback.

The line parser accepts valid lines that Arrow refuses (several blanks, "+1.5"), and names the line of an invalid one.
Two threads parse the blocks, which come in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from distagg.arrow import as_numpy
from distagg.errors import InputError
from distagg.sources.spans import Span, line_blocks, lines_before
from distagg.storage.paths import Place
from distagg.threads import ordered_map
from distagg.types import NO_LABEL

BLOCK_BYTES = 2 << 20  # larger blocks take fresh memory from the system each time, which costs as much as parsing them
WORD = pa.string()
REPEATED = pa.dictionary(pa.int32(), pa.string())  # words with few distinct values in a block, in any order
_CHECK_BYTES = 1 << 17  # checked together, so that the masks stay in the processor's cache
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(rb"[+-]?[0-9]{1,18}")
_FIELD = re.compile(rb'[ \t\r]*(?:"((?:[^"]|"")*)"|([^",]*?))[ \t\r]*(,|$)')  # between commas, quoted or not
_AT_EDGE = np.isin(np.arange(256), list(b",\r\n"))  # bytes before and after a field
MARK = b"\xef\xbb\xbf"  # UTF-8's byte order mark
BLANKS = b" \t\r"


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric field: its type, the test of valid values, and the text of ``expected`` in errors."""

    type: pa.DataType
    expected: str
    good: Callable[[np.ndarray], np.ndarray]


FINITE = Number(pa.float64(), "a finite number", np.isfinite)
POSITION = Number(pa.int64(), "a positive whole number", lambda values: values > 0)
WHOLE = Number(pa.int64(), "a whole number of 32 bits", lambda values: (values > NO_LABEL) & (values < 2**31))


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a line, and which of them to keep."""

    fields: tuple[str, ...]
    keep: Mapping[str, pa.DataType | Number] = field(default_factory=dict)
    delimiter: bytes = b""  # empty: blanks and tabs, any number of them
    header: bool = False  # whether the first line of a file names its fields

    def split(self, line: bytes) -> list[bytes]:
        if not self.delimiter:
            return [word for word in line.replace(b"\t", b" ").split(b" ") if word]
        return csv_cells(line) if self.delimiter == b"," else line.split(self.delimiter)

    @property
    def shape(self) -> str:
        between = self.delimiter.decode() or " "
        return f"{len(self.fields)} fields: {between.join(self.fields)}"


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines of a file, from ``offset`` on."""

    file: Place
    offset: int  # in the unpacked file
    text: bytes


def read_tables(files: Iterable[tuple[Place, Layout]], span: Span | None = None) -> Iterator[tuple[Place, pa.Table]]:
    """The kept fields of all files (or of a span of one) in order, a table per block of lines."""

    def parse(work: tuple[Lines, Layout]) -> tuple[Place, pa.Table]:
        return work[0].file, parse_lines(*work)

    blocks = ((lines, layout) for file, layout in files for lines in read_lines(file, layout.header, span))
    return ordered_map(parse, blocks)


def read_lines(file: Place, header: bool, span: Span | None = None) -> Iterator[Lines]:
    """Blocks of whole lines, without the byte order mark and the header."""
    for offset, text in line_blocks(file, BLOCK_BYTES, span, header=header):
        if offset == 0 and text.startswith(MARK):
            offset, text = 3, text[3:]
            if text.startswith(MARK):
                raise InputError(str(file), line=1, found="two byte order marks", expected="one, or none")
        yield Lines(file, offset, text)


def parse_lines(lines: Lines, layout: Layout) -> pa.Table:
    """The kept fields of a block of lines."""
    table = _parse_fast(lines.text, layout)
    return table if table is not None else _parse_exact(lines, layout)


def find_lines(
    file: Place, layout: Layout, wanted: Mapping[str, str], span: Span | None = None
) -> list[tuple[str, int]]:
    """File and number of every line with the wanted fields."""
    needle = max((value.encode() for value in wanted.values()), key=len)
    places = {layout.fields.index(name): value.encode() for name, value in wanted.items()}
    mentions = []
    for lines in read_lines(file, layout.header, span):
        if needle not in lines.text:
            continue
        first = _first_line(lines)
        for number, line in enumerate(lines.text.split(b"\n"), start=first):
            if needle in line:
                try:
                    words = layout.split(line.strip(BLANKS))
                except _WrongLineError:
                    continue
                if all(at < len(words) and words[at] == value for at, value in places.items()):
                    mentions.append((str(file), number))
    return mentions


def _first_line(lines: Lines) -> int:
    """The number of the first line, counted only for errors."""
    return 1 + lines_before(lines.file, lines.offset)


def _parse_fast(text: bytes, layout: Layout) -> pa.Table | None:
    """The lines parsed by Arrow, or None if Arrow might parse them wrongly."""
    delimiter = _plain_delimiter(text, layout)
    if delimiter is None or text.startswith(MARK):  # Arrow would drop a byte order mark
        return None
    if any(delimiter + sign + b"0" + x in text for x in (b"x", b"X") for sign in (b"", b"-")):  # hexadecimal, for Arrow
        return None
    if len(layout.delimiter) > 1:
        text = text.replace(layout.delimiter, delimiter)
    types = {name: kind.type if isinstance(kind, Number) else kind for name, kind in layout.keep.items()}
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(text),
            read_options=pa.csv.ReadOptions(
                column_names=list(layout.fields), use_threads=False, block_size=len(text) + 1
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter.decode(), quote_char='"' if layout.delimiter == b"," else False
            ),
            convert_options=pa.csv.ConvertOptions(
                include_columns=list(types),
                column_types=types,
                null_values=[],
                strings_can_be_null=False,
                check_utf8=not text.isascii(),
            ),
            memory_pool=pa.system_memory_pool(),  # returns memory after each block: 30 MB less than the default pool
        )
    except pa.ArrowInvalid:
        return None
    for name, kind in layout.keep.items():
        if isinstance(kind, Number):
            good = all(kind.good(as_numpy(chunk)).all() for chunk in table[name].chunks)
        else:  # fields between blanks are never empty
            good = not layout.delimiter or not pc.any(pc.equal(table[name].cast(WORD), ""), min_count=0).as_py()
        if not good:
            return None
    return table


def _plain_delimiter(text: bytes, layout: Layout) -> bytes | None:
    """The single byte between fields; None if blanks occur elsewhere or the block is otherwise irregular."""
    if b"\r" in text and text.count(b"\r") != text.count(b"\r\n"):
        return None
    if layout.delimiter and _ends_in(text, layout.delimiter):  # an empty last field: the line may be truncated
        return None
    if layout.delimiter and _blank_at_edges(text, layout.delimiter):
        return None
    if layout.delimiter == b",":
        return b"," if _plain_quotes(text) else None
    if layout.delimiter:
        return b"\t" if b"\t" not in text else None
    delimiter = b"\t" if b"\t" in text else b" "
    if (delimiter == b"\t" and b" " in text) or text[:1] == delimiter:
        return None
    codes = np.frombuffer(text, np.uint8)
    blank = np.empty(_CHECK_BYTES + 1, dtype=np.bool_)
    both = np.empty(_CHECK_BYTES, dtype=np.bool_)
    for at in range(0, len(codes), _CHECK_BYTES):
        some = codes[at : at + _CHECK_BYTES + 1]
        np.less_equal(some, 32, out=blank[: len(some)])
        np.logical_and(blank[1 : len(some)], blank[: len(some) - 1], out=both[: len(some) - 1])
        if both[: len(some) - 1].any():  # only line ends may touch
            touching = np.flatnonzero(both[: len(some) - 1])
            if ((some[touching] == delimiter[0]) | (some[touching + 1] == delimiter[0])).any():
                return None
    return delimiter if text[-1:] != delimiter else None


def _blank_at_edges(text: bytes, delimiter: bytes) -> bool:
    """Whether a field begins or ends with a blank, which one of the parsers might remove."""
    edges = (b"\n", b"\r", b'"', delimiter)
    return any(
        text.startswith(blank)
        or text.endswith(blank)
        or any(edge + blank in text or blank + edge in text for edge in edges)
        for blank in (b" ", b"\t")
        if blank in text
    )


def _plain_quotes(text: bytes) -> bool:
    """Whether quotes enclose whole fields of one line, and none is inside; then all parsers agree on what they mean."""
    if b'"' not in text:
        return True
    codes = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(codes == 34)
    opening, closing = quotes[::2], quotes[1::2]
    if len(quotes) % 2 or opening[0] == 0 or closing[-1] == len(text) - 1:  # at the edges of the block: look closely
        return False
    if not _AT_EDGE[codes[opening - 1]].all() or not _AT_EDGE[codes[closing + 1]].all():
        return False
    ends = np.flatnonzero(codes == 10)
    return bool((np.searchsorted(ends, opening) == np.searchsorted(ends, closing)).all())


def csv_cells(line: bytes) -> list[bytes]:
    """The fields of a line between commas, without the quotes around them and the white space at their edges.

    >>> csv_cells(b'1, "a, b" ,3')
    [b'1', b'a, b', b'3']
    """
    if b'"' not in line:
        return [word.strip(BLANKS) for word in line.split(b",")]
    words, rest = [], line
    while True:
        field = _FIELD.match(rest)
        if field is None:
            found = rest[:40].decode(errors="replace")
            raise _WrongLineError(f"a stray quote at '{found}'", "quotes around a whole field, doubled inside it")
        words.append(field[2] if field[1] is None else field[1].replace(b'""', b'"'))
        if not field[3]:
            return words
        rest = rest[field.end() :]


def header_cells(file: Place, line: bytes) -> list[bytes]:
    """The fields of a header between commas."""
    try:
        return csv_cells(line)
    except _WrongLineError as wrong:
        raise InputError(str(file), line=1, found=wrong.found, expected=wrong.expected) from None


def _ends_in(text: bytes, delimiter: bytes) -> bool:
    """Whether a line ends in the delimiter; with a header, only a last line without a line end is checked."""
    if text.endswith(delimiter):
        return True
    return delimiter != b"," and (delimiter + b"\n" in text or delimiter + b"\r\n" in text)


def _parse_exact(lines: Lines, layout: Layout) -> pa.Table:
    """Parse line by line; the first invalid line is an InputError."""
    places = {name: layout.fields.index(name) for name in layout.keep}
    values: dict[str, list[str | float]] = {name: [] for name in layout.keep}
    raws = lines.text.split(b"\n")
    for at, raw in enumerate(raws):
        line = raw.strip(BLANKS)
        if not line:
            continue
        try:
            words = layout.split(line)
            cut = at == len(raws) - 1 and not words[-1]  # the file's last line, without a line end
            # In a table with a header, columns that are not kept may have empty cells.
            needed = words if layout.delimiter != b"," else [words[n] for n in places.values() if n < len(words)]
            if len(words) != len(layout.fields) or b"" in needed or cut:
                raise _WrongLineError(f"{len([w for w in words if w])} fields", layout.shape)
            for name, kind in layout.keep.items():
                values[name].append(_value(name, words[places[name]], kind))
        except _WrongLineError as wrong:
            number = _first_line(lines) + at
            raise InputError(str(lines.file), line=number, found=wrong.found, expected=wrong.expected) from None
    types = {name: kind.type if isinstance(kind, Number) else kind for name, kind in layout.keep.items()}
    return pa.table({name: pa.array(values[name], type=types[name]) for name in layout.keep})


class _WrongLineError(Exception):
    def __init__(self, found: str, expected: str) -> None:
        super().__init__(found, expected)
        self.found, self.expected = found, expected


def _value(name: str, word: bytes, kind: pa.DataType | Number) -> str | float:
    try:
        text = word.decode()
    except UnicodeDecodeError:
        raise _WrongLineError(f"{name} {word!r}, bytes that are not UTF-8", "UTF-8 text") from None
    if not isinstance(kind, Number):
        return text
    whole = pa.types.is_integer(kind.type)
    if (_WHOLE if whole else _NUMBER).fullmatch(word) is None:
        raise _WrongLineError(f"{name} '{text}'", kind.expected)
    value = int(word) if whole else float(word)
    if not kind.good(np.array([value])).all():
        raise _WrongLineError(f"{name} '{text}'", kind.expected)
    return value
