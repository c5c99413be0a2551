"""Long tables in files: CSV, TSV (both may be .gz), Parquet, JSON lines and JSON arrays, streamed a batch at a time.

Cells of nested objects have names with dots. All formats give the same batches and the same errors. Rows have no line
numbers; ``lines`` counts lines only for errors.
"""

from __future__ import annotations

import difflib
import io
import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from distagg.arrow import no_rows
from distagg.columns import Names, folder_columns, known_columns, not_understood
from distagg.errors import DistaggError, InputError
from distagg.sources.cells import (
    DELIMITER,
    Column,
    csv_rows,
    flat,
    is_utf8,
    json_object,
    json_objects,
    json_records,
    json_text,
)
from distagg.sources.source import BATCH_BYTES, open_bytes, refuse_wide
from distagg.sources.spans import IndivisibleError, LineCount, Span, line_blocks
from distagg.storage.parquet import groups_between, open_parquet
from distagg.storage.paths import Place, error_text, reason

log = logging.getLogger("distagg")
BLOCK_BYTES = BATCH_BYTES // 4
BLOCK_ROWS = 1 << 17
SNIFF_BYTES = 1 << 20  # of a text table, to see whether cells are in quotes
FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
}
_JSON_TYPE = {
    "id": pa.string(),
    "text": pa.string(),
    "number": pa.float64(),
    "integer": pa.float64(),
    "flag": pa.bool_(),
    "time": pa.string(),
}


def suffix(file: Place) -> str:
    """The suffix that determines the format, without a final .gz."""
    return PurePath(file.name.removesuffix(".gz")).suffix.lower()


@dataclass(frozen=True, slots=True)
class LongTable:
    """One file, or a span of one, whose header has been read."""

    file: Place
    format: Literal["csv", "tsv", "parquet", "jsonl", "json"]
    header: tuple[str, ...]
    columns: tuple[Column, ...]  # known columns in the header, in the order of ``known``
    others: tuple[str, ...]  # columns of the header that are not read
    named: Mapping[str, str] | None = None  # our names of columns, given by the caller
    same: Mapping[str, str] = field(default_factory=dict)  # columns of the header with one value for the whole file
    span: Span | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the known columns in the file."""
        return tuple(column.name for column in self.columns)

    @property
    def _stored(self) -> list[str]:
        """The headings of the known columns that are in the file itself."""
        return [column.heading for column in self.columns if column.heading not in self.same]

    def tell_columns(self) -> None:
        """Log columns that are read under another name, and columns that are ignored."""
        for column in self.columns:
            if column.heading != column.name:
                log.info("%s: column '%s' is read as %s", self.file, column.heading, column.name)
        if self.others:
            log.info("%s: columns that are not read: %s", self.file, ", ".join(self.others))

    def refuse_others(self, known: Sequence[Column]) -> None:
        """Raise an InputError if the header has an unknown column that may mean something."""
        for name in not_understood(self.header, {column.name: column.heading for column in self.columns}, self.named):
            names = [column.name for column in known]
            near = difflib.get_close_matches(name.strip().lower(), names, n=1, cutoff=0.5)
            raise self.error(
                f"unknown column '{name}'",
                f"columns among {', '.join(names)}",
                remedy=f"did you mean '{near[0]}'?" if near else "rename or drop it",
                line=None if self.format == "parquet" else 1,
            )

    def with_columns(self, columns: Sequence[Column]) -> LongTable:
        """The table with more columns that are read, by their names in the file."""
        read = {column.name for column in columns}
        others = tuple(name for name in self.others if name not in read)
        return replace(self, columns=(*self.columns, *columns), others=others)

    def first_cell(self, name: str) -> object:
        """The first cell of a column; None if there are no rows, or if it is empty."""
        if self.format == "parquet":
            with open_parquet(self.file) as parquet:
                first = next(iter(parquet.iter_batches(1, columns=[name])), None)
            return laid_out(pa.Table.from_batches([first]))[name][0].as_py() if first else None
        if self.format == "json":
            return flat(next(json_records(self.file))).get(name)
        if self.format == "jsonl":
            return flat(next(json_objects(self.file))[1]).get(name)
        rows = csv_rows(self.file, self.format)
        next(rows)  # the header
        cells = next(rows, (0, []))[1]
        at = self.header.index(name)
        return cells[at] if at < len(cells) else None

    def batches(self, *, least: int = 1) -> Iterator[pa.Table]:
        """The known columns, converted and checked, a batch at a time; refuses fewer rows than ``least``."""
        row = 0
        for batch in self._raw():
            if not len(batch):
                continue
            yield pa.table({column.name: self._convert(column, batch, row) for column in self.columns})
            row += len(batch)
        if row < least and self.span is None:
            raise self.error("no rows", "at least one row below the header" if "json" not in self.format else "rows")

    def lines(self, rows: Sequence[int]) -> list[int]:
        """The line number (in Parquet and .json: the row, from 1) of these rows, given in ascending order from 0."""
        if self.format in ("parquet", "json"):
            return [row + 1 + self._rows_before() for row in rows]
        wanted = iter(rows)
        mentions: list[int] = []
        row = next(wanted, None)
        for position, line in enumerate(self._line_numbers()):
            while row == position:
                mentions.append(line)
                row = next(wanted, None)
            if row is None:
                break
        return mentions

    def error(self, found: str, expected: str, *, remedy: str = "", line: int | None = None) -> InputError:
        return InputError(str(self.file), line=line, found=found, expected=expected, remedy=remedy)

    def row_error(self, row: int, found: str, expected: str, *, remedy: str = "") -> InputError:
        """The error for a row of the table, counted from 0."""
        return self.error(found, expected, remedy=remedy, line=next(iter(self.lines([row])), None))

    def _convert(self, column: Column, batch: pa.Table, first_row: int) -> pa.ChunkedArray:
        if column.heading in self.same:
            same = pa.repeat(self.same[column.heading], len(batch))
            return column.convert(pa.chunked_array([same]))
        values = batch[column.heading]
        try:
            return column.convert(values)
        except pa.ArrowInvalid:
            bad = column.first_bad(values)
            cell = _cell(values[bad])
            found = f"{column.heading} '{cell}'" if cell else f"an empty {column.heading}"
            raise self.row_error(first_row + bad, found, column.expected) from None

    def _raw(self) -> Iterator[pa.Table]:
        if self.format == "parquet":
            yield from self._parquet()
        elif self.format == "jsonl":
            yield from self._jsonl()
        elif self.format == "json":
            numbered = enumerate(json_records(self.file), start=1)
            while rows := list(itertools.islice(numbered, BLOCK_ROWS)):
                yield self._cells(rows)
        else:
            yield from self._csv()

    def _parquet(self) -> Iterator[pa.Table]:
        names = self._stored
        try:
            with open_parquet(self.file) as parquet:
                groups = None if self.span is None else groups_between(self.file, parquet.metadata, *self.span)[0]
                if groups == []:
                    return
                for batch in parquet.iter_batches(BLOCK_ROWS, row_groups=groups, columns=names, use_threads=False):
                    yield laid_out(pa.Table.from_batches([batch]))
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise _unreadable(self.file, "Parquet file", error) from None

    def _rows_before(self) -> int:
        """Rows of a Parquet file before its span."""
        if self.span is None:
            return 0
        with open_parquet(self.file) as parquet:
            return groups_between(self.file, parquet.metadata, *self.span)[1]

    def _csv_options(self) -> dict[str, object]:
        """How Arrow parses and converts the cells of a text table."""
        return {
            "parse_options": pa.csv.ParseOptions(delimiter=DELIMITER[self.format], newlines_in_values=True),
            "convert_options": pa.csv.ConvertOptions(
                column_types=dict.fromkeys(self.header, pa.string()),
                strings_can_be_null=False,
                include_columns=self._stored,
            ),
        }

    def _csv_span(self, span: Span) -> Iterator[pa.Table]:
        """The rows whose lines begin in the span, if no cell is quoted: a quoted one may contain line ends."""
        names = [name for name in self.header if name not in self.same]
        for _, block in line_blocks(self.file, BLOCK_BYTES, span, header=True):
            if b'"' in block:
                raise IndivisibleError(str(self.file))
            read = pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(block) + 1)
            try:
                yield pa.csv.read_csv(pa.BufferReader(block), read_options=read, **self._csv_options())
            except pa.ArrowInvalid as error:
                raise self._explain_csv(error) from None

    def _csv(self) -> Iterator[pa.Table]:
        if self.span is not None:
            yield from self._csv_span(self.span)
            return
        with open_bytes(self.file) as stream:
            try:
                yield from (
                    pa.Table.from_batches([batch])
                    for batch in pa.csv.open_csv(
                        stream,
                        read_options=pa.csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
                        **self._csv_options(),
                    )
                )
            except pa.ArrowInvalid as error:
                raise self._explain_csv(error) from None

    def _explain_csv(self, error: Exception) -> InputError:
        """The error for a file that Arrow cannot read: the first row with a wrong number of cells or bad text."""
        width = len(self.header) - len(self.same)
        for line, cells in csv_rows(self.file, self.format):
            if len(cells) != width:
                return self.error(f"{len(cells)} values", f"{width} values, as the header has", line=line)
            if any("\udc80" <= letter <= "\udcff" for cell in cells for letter in cell):
                return self.error("bytes that are not UTF-8", "UTF-8 text", line=line)
        return self.error(f"text that does not parse ({error})", f"a {self.format} table")

    def _jsonl(self) -> Iterator[pa.Table]:
        nested = not set(self._stored) <= set(next(json_objects(self.file))[1])
        schema = None if nested else self._json_schema()
        line, count = 1, LineCount(self.file, self.span)
        for _, block in line_blocks(self.file, BLOCK_BYTES, self.span):
            table = None if nested else self._json_block(block, schema)
            if table is None:
                try:
                    table = self._json_rows(block, line)
                except InputError as error:
                    raise count.moved(error) from None
            yield table
            line += block.count(b"\n")

    def _json_block(self, block: bytes, schema: pa.Schema) -> pa.Table | None:
        """The objects of a block, parsed by Arrow; None if it refuses them, or if they are not one to a line."""
        rows = _objects(block)
        if not rows:
            return None
        try:
            block.isascii() or block.decode()  # Arrow looks only at what it reads
            table = pa.json.read_json(
                io.BytesIO(block),
                read_options=pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=pa.json.ParseOptions(
                    explicit_schema=schema,
                    unexpected_field_behavior="ignore" if self.others else "error",
                ),
            )
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        return table if len(table) == rows else None

    def _json_schema(self) -> pa.Schema:
        """Types by column; ids are integers, and times numbers, if they are in the first row."""
        first = next(json_objects(self.file))[1]
        stored = [column for column in self.columns if column.heading in self._stored]
        types = {column.heading: _JSON_TYPE[column.kind] for column in stored}
        for column in stored:
            if column.kind == "id" and type(first[column.heading]) is int:
                types[column.heading] = pa.int64()
            if column.kind == "time" and type(first[column.heading]) in (int, float):
                types[column.heading] = pa.float64()
        return pa.schema(list(types.items()))

    def _json_rows(self, block: bytes, first_line: int) -> pa.Table:
        """Parse a block that Arrow refused, object by object: mixed types are valid, broken JSON is not."""
        lines = enumerate(block.split(b"\n"), start=first_line)
        return self._cells((line, json_object(self.file, raw, line)) for line, raw in lines if raw.strip())

    def _cells(self, rows: Iterable[tuple[int, dict[str, object]]]) -> pa.Table:
        """The stored columns of numbered objects, as text."""
        stored = [column for column in self.columns if column.heading in self._stored]
        cells: dict[str, list[str | None]] = {column.heading: [] for column in stored}
        for line, nested in rows:
            row = flat(nested)
            if not self.others and (extra := next((name for name in row if name not in self.header), None)):
                raise self.error(
                    f"column '{extra}'", f"the columns of the first row: {', '.join(self.header)}", line=line
                )
            for column in stored:
                value = row.get(column.heading)
                if isinstance(value, list | dict) or (column.kind == "id" and isinstance(value, float | bool)):
                    raise self.error(f"{column.heading} {json_text(value)}", column.expected, line=line)
                if isinstance(value, str) and not is_utf8(value):
                    raise self.error(f"{column.heading} {value!a}", "text that UTF-8 can write", line=line)
                cells[column.heading].append(value if isinstance(value, str | None) else str(value))
        return pa.table({name: pa.array(values, pa.string()) for name, values in cells.items()})

    def _line_numbers(self) -> Iterator[int]:
        first = LineCount(self.file, self.span).before + 1
        if self.format == "jsonl":
            with open_bytes(self.file) as stream:
                lines = (line for line, raw in enumerate(stream, start=1) if raw.strip())
                yield from (line for line in lines if line >= first)
        else:
            rows = csv_rows(self.file, self.format)
            next(rows)  # the header
            yield from (line for line, _ in rows if line >= first)


def divisible(file: Place) -> bool:
    """Whether spans of a table can be read: lines and Parquet, but no JSON array, and no cells in quotes at the start.

    A span with a cell in quotes raises an ``IndivisibleError`` later.
    """
    kind = FORMATS.get(suffix(file))
    if kind not in ("csv", "tsv"):
        return kind in ("parquet", "jsonl")
    with open_bytes(file) as stream:
        return b'"' not in stream.read(SNIFF_BYTES)


def open_long_table(
    file: Place,
    known: Sequence[Column],
    names: Names | None = None,
    columns: Mapping[str, str] | None = None,
    *,
    same: Mapping[str, str] | None = None,
) -> LongTable:
    """Open a table and read its header; the suffix determines the format.

    ``names`` are other names of the known columns, ``columns`` what the caller says about this file's columns. Columns
    with one value for the whole file are ``same``, or those that the names of its folders give (``expert=bm25/``).
    """
    kind = FORMATS.get(suffix(file))
    if kind is None or (kind == "parquet" and file.suffix == ".gz"):
        raise InputError(
            str(file), found=f"suffix '{file.suffix}'", expected=f"one of {', '.join(FORMATS)} (text also .gz)"
        )
    stored = _header(file, kind)
    same = {name: value for name, value in (same or _folders(file, names, columns)).items() if name not in stored}
    header = (*stored, *same)
    refuse_wide(file, len(header))
    for name, times in Counter(header).items():
        if times > 1:
            raise InputError(str(file), line=1, found=f"column '{name}' twice", expected="each column once")
        if not is_utf8(name):
            raise InputError(str(file), line=1, found=f"column {name!a}", expected="names in UTF-8")
    if names is None:
        found = {column.name: column.name for column in known if column.name in header}
    else:
        found = known_columns(header, names, columns, where=str(file))
    return LongTable(
        file=file,
        format=kind,  # type: ignore[arg-type]  # a value of FORMATS
        header=header,
        columns=tuple(replace(column, alias=found[column.name]) for column in known if column.name in found),
        others=tuple(name for name in header if name not in found.values()),
        named=columns,
        same=same,
    )


def _folders(file: Place, names: Names | None, columns: Mapping[str, str] | None) -> dict[str, str]:
    """The columns that the file's folder names define (NAME=VALUE), of those that this reader knows."""
    found = folder_columns([folder.name for folder in file.parents])
    known = {*(columns or {}), *(word for name, others in (names or {}).items() for word in (name, *others))}
    for name, value in found.items():
        if value in ("", "__HIVE_DEFAULT_PARTITION__"):
            raise InputError(str(file), found=f"the folder {name}={value}", expected=f"a name of the {name}")
    return {name: value for name, value in found.items() if name in known or name.lower() in known}


def _header(file: Place, kind: str) -> tuple[str, ...]:
    if kind == "parquet":
        with open_bytes(file):
            pass  # raise the error for a missing file, if it is missing
        try:
            with open_parquet(file) as parquet:
                names = laid_out(no_rows(parquet.schema_arrow)).column_names
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise _unreadable(file, "Parquet file", error) from None
        return tuple(name for name in names if not name.startswith("__index_level_"))  # pandas' row index
    if kind == "json":
        for row in json_records(file):
            return tuple(flat(row))
    elif kind == "jsonl":
        for _, row in json_objects(file):
            return tuple(flat(row))
    else:
        for _, names in csv_rows(file, kind):
            return tuple(names)
    rows = "rows" if kind in ("json", "jsonl") else "a header and rows"
    raise InputError(str(file), found="an empty file", expected=rows)


def laid_out(table: pa.Table) -> pa.Table:
    """The table with a column for each cell of nested objects, their names joined by dots.

    >>> laid_out(pa.table({"a": [1], "b": [{"c": 2}]})).column_names
    ['a', 'b.c']
    """
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def _unreadable(file: Place, what: str, error: Exception) -> DistaggError:
    found = f"a damaged file ({error_text(file, error)})"
    return reason(file, error) or InputError(str(file), found=found, expected=f"a {what}", remedy="write it again")


def _objects(block: bytes) -> int:
    """The number of lines that are not empty if each is an object, else 0: Arrow does not look at the ends of lines."""
    codes = np.frombuffer(block.replace(b"\r\n", b"\n") if b"\r" in block else block, np.uint8)
    ends = np.flatnonzero(codes == 10)
    starts = np.concatenate([[0], ends + 1])
    ends = np.append(ends, len(codes))
    filled = ends > starts
    whole = (codes[starts[filled]] == ord("{")).all() and (codes[ends[filled] - 1] == ord("}")).all()
    return int(filled.sum()) if whole else 0


def _cell(value: pa.Scalar) -> str:
    try:
        word = value.as_py()
    except UnicodeDecodeError:
        return "bytes that are not UTF-8"
    return "" if word is None else str(word)


def match_rows(batch: pa.Table, wanted: dict[str, str]) -> np.ndarray:
    """Positions of the rows with the wanted ids; a missing column matches."""
    mask = np.ones(len(batch), dtype=bool)
    for name, value in wanted.items():
        if name in batch.column_names:
            mask &= pc.equal(batch[name], value).to_numpy(zero_copy_only=False)
    return np.flatnonzero(mask)
