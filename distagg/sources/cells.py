"""The cells of long tables: converted and checked by column, and read row by row for headers and errors.

A column converts strings (CSV) as well as native types (Parquet, JSON), a batch at a time. If a batch does not convert,
bisection with the same conversion finds the first bad cell, so that no second parser is needed.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_scalar, as_words
from distagg.errors import InputError
from distagg.sources.source import LINE_BYTES, open_bytes
from distagg.storage.paths import Place
from distagg.times import parse_times

DELIMITER = {"csv": ",", "tsv": "\t"}
PIECE = 1 << 20  # characters of a JSON array that are read at once
ID = "an id: text that is not empty, or a whole number"  # what errors expect


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, kind of values, and the text of ``expected`` in errors."""

    name: str
    kind: Literal["id", "text", "number", "integer", "flag", "time"]
    expected: str
    above: float = -np.inf  # numbers must be greater
    least: float = -np.inf  # numbers and integers must be at least this
    blank: bool = False  # whether a cell may be empty
    alias: str = ""  # its name in the file, if different

    @property
    def heading(self) -> str:
        """Its name in the file."""
        return self.alias or self.name

    def convert(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Values as string, float64, int32, bool or timestamp; raises ArrowInvalid for a bad cell."""
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type):
            values = values.cast(pa.string())
        if pa.types.is_null(values.type):
            values = values.cast(pa.string())
        result: pa.ChunkedArray
        if self.kind == "id":
            result = _ids(values)
        elif self.kind == "text":
            result = values.cast(pa.string())
        elif self.kind == "flag":
            result = _flags(values)
        elif self.kind == "time":
            result = pa.chunked_array([parse_times(values)])
        else:
            result = self._numbers(values)
        if result.null_count and not self.blank:
            raise pa.ArrowInvalid("empty cell")
        return result

    def _numbers(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_boolean(values.type) or not (_is_number(values.type) or pa.types.is_string(values.type)):
            raise pa.ArrowInvalid(f"type {values.type}")
        if pa.types.is_string(values.type):
            values = _blank_to_null(pc.ascii_trim_whitespace(values))
        numbers = pc.cast(values, pa.float64())
        if self.blank:  # pandas writes a missing number as NaN
            numbers = pc.if_else(pc.is_nan(numbers), pa.nulls(1, pa.float64())[0], numbers)
        good = pc.and_(pc.is_finite(numbers), pc.greater_equal(numbers, as_scalar(float(self.least))))
        good = pc.and_(good, pc.greater(numbers, as_scalar(float(self.above))))
        if not pc.all(good, min_count=0).as_py():
            raise pa.ArrowInvalid("number out of range")
        return pc.cast(numbers, pa.int32()) if self.kind == "integer" else numbers

    def first_bad(self, values: pa.ChunkedArray) -> int:
        """The row of the first cell that does not convert."""
        first, last = 0, len(values)  # the first bad cell is in this span
        while last - first > 1:
            middle = (first + last) // 2
            try:
                self.convert(values.slice(first, middle - first))
                first = middle
            except pa.ArrowInvalid:
                last = middle
        return first


def _is_number(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))


def _blank_to_null(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(values, as_scalar("")), pa.nulls(1, pa.string())[0], values)


def _ids(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text unchanged ("007" stays "007") or whole numbers; not floats, which can be printed in several ways."""
    if pa.types.is_integer(values.type):
        return pc.cast(values, pa.string())
    if not pa.types.is_string(values.type):
        raise pa.ArrowInvalid(f"type {values.type}")
    values.validate(full=True)  # UTF-8, which the JSON reader does not check
    if pc.any(pc.equal(values, as_scalar("")), min_count=0).as_py():
        raise pa.ArrowInvalid("empty id")
    return values


def _flags(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_boolean(values.type):
        return values
    if _is_number(values.type):
        values = pc.cast(pc.cast(values, pa.int8()), pa.string())
    if not pa.types.is_string(values.type):
        raise pa.ArrowInvalid(f"type {values.type}")
    words = _blank_to_null(pc.utf8_lower(pc.ascii_trim_whitespace(values)))
    true = pc.is_in(words, as_words(["1", "true"]))
    known = pc.or_(true, pc.is_in(words, as_words(["0", "false"])))
    if not pc.all(pc.or_(known, pc.is_null(words)), min_count=0).as_py():
        raise pa.ArrowInvalid("not a truth value")
    return pc.if_else(pc.is_null(words), pa.nulls(1, pa.bool_())[0], true)


def csv_rows(file: Place, kind: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of the header and every row; skips blank lines."""
    with open_bytes(file) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        reader = csv.reader(text, delimiter=DELIMITER[kind])
        line = 1
        try:
            for cells in reader:
                if cells:
                    yield line, cells
                line = reader.line_num + 1
        except csv.Error as error:
            found = f"text that does not parse ({error})"
            raise InputError(str(file), line=line, found=found, expected=f"a {kind} table") from None


def json_objects(file: Place) -> Iterator[tuple[int, dict[str, object]]]:
    """Line number and object of every line that is not blank."""
    with open_bytes(file) as stream:
        for line, raw in enumerate(stream, start=1):
            if raw.strip():
                yield line, json_object(file, raw, line)


def json_records(file: Place) -> Iterator[dict[str, object]]:
    """The objects of a file that is one JSON array, read piece by piece; an InputError if it is anything else."""
    decoder = json.JSONDecoder()
    with open_bytes(file, lines=False) as stream, _not_utf8(file):
        text = io.TextIOWrapper(stream, encoding="utf-8-sig")
        rest, number, ended = text.read(PIECE).lstrip(), 0, False
        if not rest.startswith("["):
            raise InputError(str(file), found=f"'{rest[:20]}'", expected="an array of objects, or the suffix .jsonl")
        rest = rest[1:]
        while True:
            rest = rest.lstrip(" \t\r\n,")
            if rest.startswith("]"):
                return
            try:
                row, end = decoder.raw_decode(rest)
            except (ValueError, RecursionError) as error:
                piece = text.read(max(PIECE, len(rest)))  # the object goes on, or is broken
                ended, rest = not piece or len(rest) > LINE_BYTES, rest + piece
                if ended:
                    found = f"broken JSON in object {number + 1} ({error})"
                    raise InputError(str(file), found=found, expected="an array of objects") from None
                continue
            number += 1
            if not isinstance(row, dict):
                raise InputError(str(file), line=number, found=json_text(row)[:40], expected="one JSON object")
            rest = rest[end:]
            yield row


@contextmanager
def _not_utf8(file: Place) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        found = f"bytes that are not UTF-8 ({error.reason})"
        raise InputError(str(file), found=found, expected="UTF-8 text") from None


def flat(row: dict[str, object]) -> dict[str, object]:
    """The object with nested ones laid out: their names joined by dots.

    >>> flat({"a": 1, "b": {"c": {"d": 2}, "e": 3}})
    {'a': 1, 'b.c.d': 2, 'b.e': 3}
    """
    cells: dict[str, object] = {}
    for name, value in row.items():
        if isinstance(value, dict) and value:
            cells |= {f"{name}.{inner}": cell for inner, cell in flat(value).items()}
        else:
            cells[name] = value
    return cells


def json_object(file: Place, raw: bytes, line: int) -> dict[str, object]:
    """The object of a line; an InputError if it is anything else."""
    try:
        row = json.loads(raw)
    except UnicodeDecodeError:
        raise InputError(str(file), line=line, found="bytes that are not UTF-8", expected="UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # also bytes that are not UTF-8, and brackets nested too deep
        raise InputError(str(file), line=line, found=f"broken JSON ({error})", expected="one JSON object") from None
    if not isinstance(row, dict):
        raise InputError(
            str(file), line=line, found=f"'{raw.decode(errors='replace').strip()[:40]}'", expected="one JSON object"
        )
    return row


def is_utf8(text: str) -> bool:
    """Whether UTF-8 can write the text: JSON and damaged CSV files may have half of a surrogate pair."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def json_text(value: object) -> str:
    """A value as errors show it."""
    try:
        return json.dumps(value)
    except RecursionError:
        return "of too many brackets"


def typed(column: pa.Array) -> pa.Array:
    """Convert a column to integers or numbers if all its values are; an empty cell is null."""
    column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    for dtype in (pa.int64(), pa.float64()):
        try:
            return column.cast(dtype)
        except pa.ArrowInvalid:
            continue
    return column
