"""Tell the kind of source files by their content: which reader of ``SOURCES`` they need, or qrels.

Only the first lines are read. Content that fits several kinds is never guessed: the error names the kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from distagg.columns import LIST_NAMES, folder_columns, is_battles, known_columns
from distagg.errors import InputError, UsageError
from distagg.sources.published import is_reference
from distagg.sources.ranked_lists import PREFLIB_SUFFIXES
from distagg.sources.ratings import NAMES as RATING_NAMES
from distagg.sources.ratings import ratings_columns
from distagg.sources.source import open_bytes
from distagg.sources.tables import FORMATS, open_long_table, suffix
from distagg.storage.paths import Place, place

QRELS = "qrels"
LINES, LINE_BYTES = 50, 1 << 16  # looked at
TABLES = (
    "ranked lists (a row for each expert and item, with the columns expert, item, and rank, 1 for the best, or score; "
    "query where there are several), "
    "ratings (user, item, rating), pairs (winner, loser) or qrels (query, item, label)"
)
BEIR_ITEM = ("corpus-id", "corpus_id")  # BEIR's qrels call the label 'score'
_EPOCH = 100_000_000  # a timestamp in seconds is larger, a label is not


def kind_of(paths: Sequence[str | Place], columns: Mapping[str, str] | None = None) -> str:
    """The one kind of all files: ``letor``, ``trec``, ``ratings``, ``rankings``, ``pairs`` or ``qrels``.

    ``columns`` are our names of columns that tables name otherwise.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "bm25"
    ...     _ = file.write_text("7 Q0 x 1 9.5 bm25\\n")
    ...     kind_of([file])
    'trec'
    """
    kinds = {place(path): kind_of_file(place(path), columns) for path in paths}
    if not kinds:
        raise UsageError("no files given; give at least one")
    first = next(iter(kinds))
    for file, kind in kinds.items():
        if kind != kinds[first]:
            raise UsageError(
                f"{first} looks like {kinds[first]}, but {file} like {kind}; "
                "give files of one kind, or name the kind: --kind on the command line, kind= in Python"
            )
    return kinds[first]


def kind_of_file(file: Place, columns: Mapping[str, str] | None = None) -> str:
    """The kind of one file: a UsageError if its content fits several kinds, an InputError if it fits none."""
    if is_reference(file):
        return QRELS
    if suffix(file) in PREFLIB_SUFFIXES:
        return "rankings"
    kinds: list[str] = []
    header: tuple[str, ...] = ()
    if suffix(file) in FORMATS:
        header = (*open_long_table(file, ()).header, *folder_columns([folder.name for folder in file.parents]))
        kinds = _kinds_of_header(file, header, columns)
    lines = _first_lines(file) if not kinds and FORMATS.get(suffix(file)) not in ("parquet", "jsonl", "json") else []
    kinds = kinds or _kinds_of_lines(lines)
    if len(kinds) == 1:
        return kinds[0]
    if kinds:
        raise UsageError(f"{file} could be {' or '.join(kinds)}; name the kind (--kind, or kind= in Python)")
    if len(header) > 1:
        raise InputError(str(file), found=f"columns {', '.join(header)}", expected=TABLES, remedy=_naming(file, header))
    if header and header[0].count(";") > 1:
        remedy = "replace the semicolons"
        raise InputError(
            str(file), found=f"'{header[0][:60]}'", expected="commas or tabs between columns", remedy=remedy
        )
    raise InputError(
        str(file),
        found=f"'{lines[0][:60]}'" if lines else "no lines",
        expected="LETOR lines, a TREC run, qrels, ratings, ranked lists or pairs",
        remedy="name the kind (--kind, or kind= in Python) or the columns (--columns, or columns= in Python)",
    )


def _naming(file: Place, header: Sequence[str]) -> str:
    """How to say what columns mean, for those that are not understood, with the user's own names."""
    known = known_columns(header, LIST_NAMES, where=str(file))
    needed = [name for name in ("expert", "item") if name not in known]
    needed += [] if "rank" in known or "score" in known else ["rank"]
    others = [name for name in header if name not in known.values()]
    said = ",".join(f"{theirs}={ours}" for theirs, ours in zip(others[-len(needed) :], needed, strict=False))
    return f"say what the columns mean, as in --columns '{said or 'THEIRS=expert'}' (columns= in Python)"


def _kinds_of_header(file: Place, header: Sequence[str], columns: Mapping[str, str] | None) -> list[str]:
    """The kinds of table that have such columns."""
    names = {*map(str.lower, header), *(columns or {}).values()}
    if {"winner", "loser"} <= names or is_battles(header, columns):
        return ["pairs"]
    if len(ratings_columns(header)) == len(RATING_NAMES):
        return ["ratings"]
    known = known_columns(header, LIST_NAMES, columns, where=str(file))
    if "item" not in known:
        return []
    ordered = "rank" in known or "score" in known
    if "expert" in known:
        return ["rankings"] if ordered else []
    if "label" in known:
        return [QRELS] if not ordered else [QRELS, "rankings"]
    if known["item"] in BEIR_ITEM and set(known) == {"query", "item", "score"}:
        return [QRELS]
    return ["rankings"] if ordered and "query" in known else []


def _first_lines(file: Place) -> list[str]:
    lines: list[str] = []
    with open_bytes(file) as stream:
        if stream.peek(4)[:4] == b"PAR1":  # type: ignore[attr-defined]  # buffered, or gzip
            raise InputError(str(file), found="a Parquet file", expected="the suffix .parquet", remedy="rename it")
        while len(lines) < LINES and (line := stream.readline(LINE_BYTES)):
            text = line.decode("utf-8-sig", errors="replace").strip()
            if text:
                lines.append(text)
    return lines


def _kinds_of_lines(lines: Sequence[str]) -> list[str]:
    """The kinds of file without a header that have such lines."""
    if not lines:
        return []
    if all("::" in line for line in lines):
        return ["ratings"]
    rows = [line.split() for line in lines]
    if all(len(row) > 2 and row[1].startswith("qid:") for row in rows):
        return ["letor"]
    widths = {len(row) for row in rows}
    if widths == {6} and all(_is_number(row[3]) and _is_number(row[4]) for row in rows):
        return ["trec"]
    if widths == {4} and all(_is_number(row[3]) for row in rows):
        return _kinds_of_four(rows)
    if widths == {3} and all(_is_number(row[2]) for row in rows):
        return [QRELS, "ratings"]
    return []


def _kinds_of_four(rows: Sequence[Sequence[str]]) -> list[str]:
    """Qrels (query 0 item label) or ratings (user item rating time)."""
    if not all(_is_number(row[2]) for row in rows) or all(row[1] in ("0", "Q0") for row in rows):
        return [QRELS]
    if all(float(row[3]) >= _EPOCH for row in rows):
        return ["ratings"]
    return [QRELS, "ratings"]


def _is_number(word: str) -> bool:
    try:
        return isfinite(float(word))
    except ValueError:
        return False
