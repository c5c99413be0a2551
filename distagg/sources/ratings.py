"""Ratings, larger is better: MovieLens' u.data (tabs), ratings.dat (``::``), ratings.csv (header), or Parquet.

Every user is an expert of the single query "all", with rank = -rating, so that rank differences equal the papers'
rating differences. Timestamps are ignored. If a user rates an item twice, an error names both lines.

A table of items defines the items of the query and their order, rated or not; a rating of any other item is an error.
So is a rating by a user who is not in the table of users, or a rating outside the scale, if these are given.

``read_about`` reads these tables of users and items: u.user, u.item, users.dat, movies.dat, movies.csv (MovieLens), CSV
or Parquet. The first column is the id, as text. Another column is integer or numeric if all its values are, else text.
"""

from __future__ import annotations

import copy
import csv
import functools
import io
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_scalar, repeated_word
from distagg.errors import InputError, UsageError
from distagg.sources.cells import typed
from distagg.sources.delimited import FINITE, REPEATED, Layout, find_lines, header_cells, read_tables
from distagg.sources.source import Source, SourceTable, open_bytes, refuse_wide
from distagg.sources.spans import Span, share_files
from distagg.storage.parquet import groups_between, open_parquet
from distagg.storage.paths import Place, error_text, place, reason
from distagg.types import ITEMS

QUERY = "all"
NAMES = {
    "user": ("user", "userid", "user_id", "expert"),
    "item": ("item", "itemid", "item_id", "movieid", "movie_id", "movie"),
    "rating": ("rating", "stars"),
}
_KEEP = {"user": REPEATED, "item": REPEATED, "rating": FINITE}
_PLAIN = ("user", "item", "rating", "timestamp")
_PARQUET_ROWS = 1 << 17
ABOUT_BYTES = 256 << 20  # of a table about users or items, which is read at once
GENRES = (
    "unknown", "action", "adventure", "animation", "children", "comedy", "crime", "documentary", "drama", "fantasy",
    "film_noir", "horror", "musical", "mystery", "romance", "sci_fi", "thriller", "war", "western",
)  # fmt: skip
# Files without a header, by delimiter and number of fields.
_ABOUT = {
    ("|", 5): ("id", "age", "gender", "occupation", "zip"),
    ("|", 24): ("id", "title", "released", "video", "url", *GENRES),
    ("::", 5): ("id", "gender", "age", "occupation", "zip"),
    ("::", 3): ("id", "title", "genres"),
}


class RatingsSource:
    """Rating files; the format may differ between files.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "u.data"
    ...     _ = file.write_text("196\\t242\\t3\\t881250949\\n")
    ...     next(RatingsSource([file]).tables()).table.to_pylist()
    [{'query': 'all', 'expert': '196', 'item': '242', 'rank': -3.0}]
    """

    name = "ratings"
    partition: Literal["query", "expert"] = "expert"

    def __init__(
        self,
        files: Sequence[str | Place],
        *,
        users: pa.Table | None = None,
        items: pa.Table | None = None,
        scale: tuple[float, float] | None = None,
    ) -> None:
        self.files: tuple[Place, ...] = tuple(place(file) for file in files)
        self._part = self.files[0].name if len(self.files) == 1 else ""
        self._span: Span | None = None
        self._first = True  # whether this piece has the table of items
        if not self.files:
            raise UsageError("no rating files given; give at least one")
        if scale is not None and not scale[0] < scale[1]:
            raise UsageError(f"scale {scale[0]:g},{scale[1]:g}: expected the smallest and then the largest rating")
        self._known = {
            name: table.column(0).combine_chunks()
            for name, table in (("user", users), ("item", items))
            if table is not None
        }
        self._scale = scale

    def tables(self) -> Iterator[SourceTable]:
        """The entries of each block of rows."""
        part = self._part
        if "item" in self._known and self._first:
            ids = self._known["item"]
            columns = [pa.repeat(QUERY, len(ids)), ids, pa.nulls(len(ids), pa.int32())]
            yield SourceTable("items", pa.Table.from_arrays(columns, schema=ITEMS), part)
        for file in self.files:
            blocks = _parquet_tables(file, self._span) if _is_parquet(file) else _text_tables(file, self._span)
            for table in blocks:
                self._check(file, table)
                yield SourceTable("entries", _entries(table), part)

    def split(self, size: int, whole: frozenset[str] = frozenset()) -> list[Source]:
        """Groups of small files, and spans of large ones."""
        pieces: list[Source] = []
        for files, span in share_files(self.files, size):
            piece = copy.copy(self)
            piece.files, piece._span, piece._first = files, span, not pieces
            pieces.append(piece)
        return pieces

    def _check(self, file: Place, table: pa.Table) -> None:
        """Refuse ids that are not in the tables of users and items, and ratings outside the scale."""
        for name, ids in self._known.items():
            words = pc.unique(table[name])
            words = words.dictionary_decode() if pa.types.is_dictionary(words.type) else words
            unknown_ids = words.filter(pc.invert(pc.is_in(words, ids)))
            if len(unknown_ids):
                word = unknown_ids[0].as_py()
                line = next((line for _, line in self._find(file, {name: word})), None)
                raise InputError(
                    str(file),
                    line=line,
                    found=f"{name} '{word}'",
                    expected=f"one of the {len(ids):,} in the table of {name}s",
                    remedy=f"complete the table, or omit --{name}s",
                )
        if self._scale is None:
            return
        low, high = self._scale
        outside = pc.or_(pc.less(table["rating"], low), pc.greater(table["rating"], high))
        at = pc.index(outside, True).as_py()
        if at >= 0:
            row = {name: table[name][at].as_py() for name in ("user", "item")}
            line = next((line for _, line in self._find(file, row)), None)
            raise InputError(
                str(file),
                line=line,
                found=f"rating {table['rating'][at].as_py():g}",
                expected=f"a rating from {low:g} to {high:g}",
                remedy="correct it, or give another --scale",
            )

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """File and line (in Parquet: row) of every rating of the item by the expert; ratings have no labels."""
        if query != QUERY or expert is None:
            return []
        return [place for file in self.files for place in self._find(file, {"user": expert, "item": item})]

    def _find(self, file: Place, wanted: dict[str, str]) -> list[tuple[str, int]]:
        if not _is_parquet(file):
            return find_lines(file, text_layout(file), wanted, self._span)
        mentions: list[tuple[str, int]] = []
        row = 1 + _rows_before(file, self._span)
        for table in _parquet_tables(file, self._span):
            same = functools.reduce(pc.and_, (pc.equal(table[name], word) for name, word in wanted.items()))
            mentions += [(str(file), row + at.as_py()) for at in pc.indices_nonzero(same)]
            row += len(table)
        return mentions


def _entries(table: pa.Table) -> pa.Table:
    query = repeated_word(QUERY, len(table))
    rank = pc.subtract(as_scalar(0.0), table["rating"])  # not negate: a rating of 0 is rank 0, not -0
    return pa.table({"query": query, "expert": table["user"], "item": table["item"], "rank": rank})


def _text_tables(file: Place, span: Span | None) -> Iterator[pa.Table]:
    return (table for _, table in read_tables([(file, text_layout(file))], span))


def text_layout(file: Place) -> Layout:
    """The layout of a text file, determined by its first line."""
    with open_bytes(file) as stream:
        first = stream.readline().removeprefix(b"\xef\xbb\xbf").strip()
    if b"," in first:
        return Layout(_header(file, first), _KEEP, delimiter=b",", header=True)
    delimiter = b"::" if b"::" in first else b""
    width = len(first.split(delimiter or None))
    return Layout(_PLAIN[:3] if width == 3 else _PLAIN, _KEEP, delimiter=delimiter)


def _header(file: Place, first: bytes) -> tuple[str, ...]:
    """Field names of a CSV header, with user, item and rating under these names."""
    refuse_wide(file, first.count(b",") + 1)
    words = [word.decode(errors="replace") for word in header_cells(file, first)]
    known = ratings_columns(words)
    if len(known) < len(NAMES):
        raise InputError(
            str(file),
            line=1,
            found=f"header '{','.join(words)[:80]}'",
            expected="a header that names user (or userId), item (or movieId) and rating",
        )
    return tuple(known.get(at, f"{word} ({at})") for at, word in enumerate(words))


def ratings_columns(words: Sequence[str]) -> dict[int, str]:
    """The columns of user, item and rating; the first if several match."""
    found: dict[str, int] = {}
    for at, word in enumerate(words):
        for name, aliases in NAMES.items():
            if word.lower() in aliases:
                found.setdefault(name, at)
    return {at: name for name, at in found.items()}


def _is_parquet(file: Place) -> bool:
    return file.suffix in (".parquet", ".pq")


def _rows_before(file: Place, span: Span | None) -> int:
    if span is None:
        return 0
    with open_parquet(file) as parquet:
        return groups_between(file, parquet.metadata, *span)[1]


def _parquet_tables(file: Place, span: Span | None) -> Iterator[pa.Table]:
    """User and item as text, rating as a finite number."""
    with open_bytes(file):
        pass  # raise the error for a missing file, if it is missing
    try:
        with open_parquet(file) as parquet:
            known = ratings_columns(parquet.schema_arrow.names)
            if len(known) < len(NAMES):
                raise InputError(
                    str(file),
                    found=f"columns {', '.join(parquet.schema_arrow.names)}",
                    expected="columns user (or userId), item (or movieId) and rating",
                )
            names = {name: parquet.schema_arrow.names[at] for at, name in known.items()}
            groups, before = (None, 0) if span is None else groups_between(file, parquet.metadata, *span)
            if groups == []:
                return
            row = 1 + before
            columns = list(names.values())
            for batch in parquet.iter_batches(_PARQUET_ROWS, row_groups=groups, columns=columns, use_threads=False):
                yield pa.table({name: _checked(file, row, name, batch[column]) for name, column in names.items()})
                row += batch.num_rows
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        found = f"a damaged file ({error_text(file, error)})"
        raise reason(file, error) or InputError(
            str(file), found=found, expected="a Parquet file", remedy="write it again"
        ) from None


def _checked(file: Place, first_row: int, name: str, column: pa.Array) -> pa.Array:
    dtype = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    number = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)
    text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype)
    expected = FINITE.expected if name == "rating" else "text or a whole number"
    if not (number if name == "rating" else text or pa.types.is_integer(dtype)):
        raise InputError(str(file), found=f"column {name} of type {dtype}", expected=expected)
    column = column.cast(dtype).cast(pa.float64() if name == "rating" else pa.string())
    column.validate(full=True)  # text is UTF-8
    good = pc.is_finite(column) if name == "rating" else pc.not_equal(column, as_scalar(""))
    bad = pc.index(pc.fill_null(good, False), False).as_py()
    if bad >= 0:
        found = f"{name} {column[bad].as_py()}" if column[bad].is_valid else f"no {name}"
        raise InputError(str(file), line=first_row + bad, found=found, expected=expected)
    return column


def read_about(file: Place) -> pa.Table:
    """Read a table of attributes, with the id (string) in the first column.

    >>> import tempfile
    >>> from pathlib import Path
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
            with open_parquet(file) as parquet:
                table = parquet.read()
            table.validate(full=True)  # text is UTF-8
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            found = f"a damaged file ({error_text(file, error)})"
            raise reason(file, error) or InputError(str(file), found=found, expected="a Parquet file") from None
        if not table.num_columns:
            raise InputError(str(file), found="no columns", expected="ids in the first column")
        try:
            table = table.set_column(0, table.column_names[0], table.column(0).cast(pa.string()))
        except pa.ArrowException:
            found = f"{table.column_names[0]} of type {table.column(0).type} as the first column"
            raise InputError(str(file), found=found, expected="ids: text or whole numbers") from None
    else:
        table = _about_text(file)
    ids = table.column(0)
    counts = pc.value_counts(ids)
    twice = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(twice):
        raise InputError(str(file), found=f"id '{twice[0]['values']}' twice", expected="a row for each id")
    return table


def _about_text(file: Place) -> pa.Table:
    with open_bytes(file) as stream:
        body = stream.read(ABOUT_BYTES + 1)
    if len(body) > ABOUT_BYTES:
        found, expected = f"a table of over {ABOUT_BYTES >> 20} MB", "a smaller one, or Parquet"
        raise InputError(str(file), found=found, expected=expected)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = body.decode("latin-1")  # the encoding of MovieLens' older sets
    lines = re.split("\r\n|\r|\n", text)  # not splitlines(), which also splits at some Latin-1 characters
    if not text.strip():
        raise InputError(str(file), found="an empty file", expected="rows about users or items")
    between = next((mark for mark in ("::", "|") if mark in lines[0]), ",")
    names = _ABOUT.get((between, len(lines[0].split(between))))
    if names is not None:
        rows = [(number, line.split(between)) for number, line in enumerate(lines, start=1) if line.strip()]
    elif between == "::":
        expected = " or ".join("::".join(known) for (mark, _), known in _ABOUT.items() if mark == between)
        raise InputError(str(file), line=1, found=f"{len(lines[0].split(between))} fields", expected=expected)
    else:
        names, rows = _about_table(file, text, between)
    for number, cells in rows:
        if len(cells) != len(names):
            raise InputError(
                str(file), line=number, found=f"{len(cells)} fields", expected=f"{len(names)}: {', '.join(names)}"
            )
    columns = {name: pa.array([cells[at] for _, cells in rows], pa.string()) for at, name in enumerate(names)}
    if len(columns) < len(names):
        raise InputError(str(file), line=1, found=f"columns {', '.join(names)}", expected="each column once")
    return pa.table({name: column if at == 0 else typed(column) for at, (name, column) in enumerate(columns.items())})


def _about_table(file: Place, text: str, between: str) -> tuple[tuple[str, ...], list[tuple[int, list[str]]]]:
    """The header, and the line number and cells of every row."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=between)  # a stray carriage return ends a line
    try:
        rows = [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise InputError(
            str(file), line=reader.line_num, found=f"text that does not parse ({error})", expected="a header and rows"
        ) from None
    if not rows:
        raise InputError(str(file), found="no rows", expected="a header and rows")
    refuse_wide(file, len(rows[0][1]))
    return tuple(word.strip() for word in rows[0][1]), rows[1:]
