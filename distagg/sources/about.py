"""Read attributes of users and items: u.user, u.item, users.dat, movies.dat, movies.csv (MovieLens), CSV or Parquet.

The first column is the id, as text. Another column is integer or numeric if all its values are, else text.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distagg.errors import InputError
from distagg.sources.source import open_bytes

GENRES = (
    "unknown", "action", "adventure", "animation", "children", "comedy", "crime", "documentary", "drama", "fantasy",
    "film_noir", "horror", "musical", "mystery", "romance", "sci_fi", "thriller", "war", "western",
)  # fmt: skip
# Files without a header, by delimiter and number of fields.
_KNOWN = {
    ("|", 5): ("id", "age", "gender", "occupation", "zip"),
    ("|", 24): ("id", "title", "released", "video", "url", *GENRES),
    ("::", 5): ("id", "gender", "age", "occupation", "zip"),
    ("::", 3): ("id", "title", "genres"),
}


def read_about(file: Path) -> pa.Table:
    """Read a table of attributes, with the id (string) in the first column.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "u.user"
    ...     _ = file.write_text("1|24|M|technician|85711\\n")
    ...     read_about(file).to_pylist()
    [{'id': '1', 'age': 24, 'gender': 'M', 'occupation': 'technician', 'zip': 85711}]
    """
    if file.suffix in (".parquet", ".pq"):
        with open_bytes(file):
            pass  # raise the error for a missing file, if it is missing
        try:
            table = pq.read_table(file)
        except (OSError, pa.ArrowException) as error:
            raise InputError(str(file), found=f"a damaged file ({error})", expected="a Parquet file") from error
        if not table.num_columns:
            raise InputError(str(file), found="no columns", expected="ids in the first column")
        try:
            table = table.set_column(0, table.column_names[0], table.column(0).cast(pa.string()))
        except pa.ArrowException:
            found = f"{table.column_names[0]} of type {table.column(0).type} as the first column"
            raise InputError(str(file), found=found, expected="ids: text or whole numbers") from None
    else:
        table = _read_text(file)
    ids = table.column(0)
    counts = pc.value_counts(ids)
    twice = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(twice):
        raise InputError(str(file), found=f"id '{twice[0]['values']}' twice", expected="a row for each id")
    return table


def _read_text(file: Path) -> pa.Table:
    with open_bytes(file) as stream:
        body = stream.read()
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = body.decode("latin-1")  # the encoding of MovieLens' older sets
    lines = re.split("\r\n|\r|\n", text)  # not splitlines(), which also splits at some Latin-1 characters
    if not text.strip():
        raise InputError(str(file), found="an empty file", expected="rows about users or items")
    between = next((mark for mark in ("::", "|") if mark in lines[0]), ",")
    names = _KNOWN.get((between, len(lines[0].split(between))))
    if names is not None:
        rows = [(number, line.split(between)) for number, line in enumerate(lines, start=1) if line.strip()]
    elif between == "::":
        expected = " or ".join("::".join(known) for (mark, _), known in _KNOWN.items() if mark == between)
        raise InputError(str(file), line=1, found=f"{len(lines[0].split(between))} fields", expected=expected)
    else:
        names, rows = _read_table(file, text, between)
    for number, cells in rows:
        if len(cells) != len(names):
            raise InputError(
                str(file), line=number, found=f"{len(cells)} fields", expected=f"{len(names)}: {', '.join(names)}"
            )
    columns = {name: pa.array([cells[at] for _, cells in rows], pa.string()) for at, name in enumerate(names)}
    if len(columns) < len(names):
        raise InputError(str(file), line=1, found=f"columns {', '.join(names)}", expected="each column once")
    return pa.table({name: column if at == 0 else typed(column) for at, (name, column) in enumerate(columns.items())})


def _read_table(file: Path, text: str, between: str) -> tuple[tuple[str, ...], list[tuple[int, list[str]]]]:
    """The header, and the line number and cells of every row."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=between)  # a stray carriage return ends a line
    try:
        rows = [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise InputError(
            str(file), line=reader.line_num, found=f"text that does not parse ({error})", expected="a header and rows"
        ) from None
    return tuple(word.strip() for word in rows[0][1]), rows[1:]


def typed(column: pa.Array) -> pa.Array:
    """Convert a column to integers or numbers if all its values are; an empty cell is null."""
    column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    for dtype in (pa.int64(), pa.float64()):
        try:
            return column.cast(dtype)
        except pa.ArrowInvalid:
            continue
    return column
