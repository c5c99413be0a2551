"""Rankings as long tables (query, expert, item, rank or score, label) and as PrefLib files.

The suffix determines the format: .csv, .tsv, .jsonl, .ndjson (all also .gz), .parquet, and .soc, .soi, .toc, .toi for
PrefLib. Ids stay text as written. With scores and no ranks, an item's rank is 1 + the number of larger scores in
its list; that needs whole lists, so such entries get a null rank here and are ranked after grouping. Folders may name
columns (``expert=bm25/part-0.parquet``), and of several tables without experts each is an expert's, named by its file.

PrefLib's ordinal files have rows ``count: 1,2,{3,4},5`` below a header of ``# KEY: value`` lines. A row with count n
becomes n experts with the same list, "v1", "v2", ... in file order, so the entries multiply with the counts; an order
with count 0 is skipped. Alternatives in braces share a rank, as in competitions: 1, 2, 3, 3, 5. The file's stem is the
query; its alternatives are the items, under their names where these are distinct, else under their numbers.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Literal

import numpy as np
import pyarrow as pa

from distagg.arrow import repeated_word
from distagg.columns import LIST_NAMES
from distagg.errors import InputError
from distagg.sources.cells import ID, Column
from distagg.sources.source import Source, SourceTable, open_bytes, refuse_same_names
from distagg.sources.spans import share_files
from distagg.sources.tables import FORMATS, LongTable, divisible, match_rows, open_long_table, suffix
from distagg.storage.paths import Place, place
from distagg.types import ITEMS

COLUMNS = (
    Column("query", "id", ID),
    Column("expert", "id", ID),
    Column("item", "id", ID),
    Column(
        "rank", "number", "a finite number above 0 (leave the row out if the expert does not list the item)", above=0
    ),
    Column("score", "number", "a finite number"),
    Column("label", "integer", "a whole number of at least 0, or nothing", least=0, blank=True),
)
NO_QUERY = "all"  # the one query of a table without a query column
log = logging.getLogger("distagg")
PREFLIB_SUFFIXES = (".soc", ".soi", ".toc", ".toi")
BATCH_ENTRIES = 1 << 20
LIMITS = {"alternatives": 1_000_000, "voters": 10_000_000}  # of a PrefLib file, each of whose voters is an expert
ROW_SHAPE = "'COUNT: ORDER' such as '3: 1,2,{3,4}'"
_ROW = re.compile(r"([0-9]{1,12})\s*:\s*(.+)")
_ORDER = re.compile(r"(\d+|\{\s*\d+(\s*,\s*\d+)*\s*\})(\s*,\s*(\d+|\{\s*\d+(\s*,\s*\d+)*\s*\}))*", re.ASCII)
_NAME = re.compile(r"ALTERNATIVE NAME\s+([0-9]+)\s*:\s*(.*)", re.IGNORECASE)
_COUNT = re.compile(r"NUMBER (ALTERNATIVES|VOTERS)\s*:\s*([0-9]+)\s*", re.IGNORECASE)


class RankingsSource:
    """Rankings in long tables or PrefLib files; every file is a part.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "votes.csv"
    ...     _ = file.write_text("expert,item,rank\\nann,x,1\\nann,y,2\\n")
    ...     next(RankingsSource([file]).tables()).table.to_pylist()[0]
    {'query': 'all', 'expert': 'ann', 'item': 'x', 'rank': 1.0}
    """

    name = "rankings"
    partition: Literal["query", "expert"] = "query"

    def __init__(self, files: Sequence[str | Place], *, columns: Mapping[str, str] | None = None) -> None:
        self.files: tuple[Place, ...] = tuple(place(file) for file in files)
        self._several = len(self.files) > 1
        tables = [file for file in self.files if suffix(file) not in PREFLIB_SUFFIXES]
        self._tables = {file: _open(file, columns, several=len(tables) > 1) for file in tables}
        named = [file for file in tables if self._tables[file].same.get("expert") == _name(file)]
        refuse_same_names(named, _name, "rename one of them")

    def tables(self) -> Iterator[SourceTable]:
        """For each batch of rows, a table of its entries and a table of its labels (if it has any).

        Labels are judgements of listed items, so that the order of items does not depend on whether there are labels.
        """
        for file in self.files:
            if file in self._tables:
                yield from self._long(self._tables[file])
            else:
                yield from preflib_tables(file)

    def split(self, size: int, whole: frozenset[str] = frozenset()) -> list[Source]:
        """Groups of small files, and spans of large tables."""
        pieces: list[Source] = []
        for files, span in share_files(self.files, size, lambda file: str(file) not in whole and divisible(file)):
            piece = copy.copy(self)
            piece.files = files
            piece._tables = {f: replace(self._tables[f], span=span) for f in files if f in self._tables}
            pieces.append(piece)
        return pieces

    def _long(self, table: LongTable) -> Iterator[SourceTable]:
        # One query in several files: all queries, or each with one expert.
        shared = self._several and ("query" not in table.names or bool(table.same))
        part = "" if shared else table.file.name
        for batch in table.batches():
            query = _query(batch)
            columns = {
                "query": query,
                "expert": batch["expert"].dictionary_encode(),
                "item": batch["item"],
                "rank": batch["rank"] if "rank" in batch.column_names else pa.nulls(len(batch), pa.float64()),
            }
            if "score" in batch.column_names:
                columns["score"] = batch["score"]
            yield SourceTable("entries", pa.table(columns), part)
            if "label" in batch.column_names:
                yield SourceTable("judgements", _labels(query, batch), part)

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """File and line (in Parquet: row) of every mention of the item, by the expert or (None) of its label."""
        mentions: list[tuple[str, int]] = []
        wanted = {"query": query, "item": item} | ({} if expert is None else {"expert": expert})
        for file in self.files:
            table = self._tables.get(file)
            if table is None:
                mentions += locate_preflib(file, query, expert, item)
            elif ("query" in table.names or query == NO_QUERY) and (expert is not None or "label" in table.names):
                rows: list[int] = []
                first = 0
                for batch in table.batches():
                    here = match_rows(batch, wanted)
                    if expert is None:
                        here = here[batch["label"].take(pa.array(here)).is_valid().to_numpy()]
                    rows += (first + here).tolist()
                    first += len(batch)
                mentions += [(str(file), line) for line in table.lines(rows)]
        return mentions


def _open(file: Place, columns: Mapping[str, str] | None, several: bool) -> LongTable:
    """Open a table; of several tables with queries and without experts, each is an expert's, named after the file."""
    if suffix(file) not in FORMATS:
        known = [*FORMATS, *PREFLIB_SUFFIXES]
        raise InputError(str(file), found=f"suffix '{suffix(file)}'", expected=f"one of {', '.join(known)}")
    table = open_long_table(file, COLUMNS, LIST_NAMES, columns)
    if several and "expert" not in table.names and "query" in table.names:
        table = open_long_table(file, COLUMNS, LIST_NAMES, columns, same={**table.same, "expert": _name(file)})
    table.refuse_others(COLUMNS)
    for name in ("expert", "item"):
        if name not in table.names:
            several_files = "; without it, give several files, one by expert" if name == "expert" else ""
            expected = f"columns expert, item, and rank or score{several_files}"
            raise table.error(f"no column '{name}'", expected, line=1)
    if "rank" not in table.names and "score" not in table.names:
        raise table.error("neither rank nor score", "columns expert, item, and rank or score", line=1)
    table.tell_columns()
    return table


def _name(file: Place) -> str:
    """The expert or the query of a file: its name without .gz and suffix."""
    return PurePath(file.name.removesuffix(".gz")).stem


def _query(batch: pa.Table) -> pa.Array | pa.ChunkedArray:
    if "query" in batch.column_names:
        return batch["query"].dictionary_encode()
    return repeated_word(NO_QUERY, len(batch))


def _labels(query: pa.Array | pa.ChunkedArray, batch: pa.Table) -> pa.Table:
    """Each item of the batch in order, once per label; grouping refuses a second label."""
    rows = pa.table({"query": query, "item": batch["item"], "label": batch["label"]})
    return rows.group_by(["query", "item", "label"], use_threads=False).aggregate([]).cast(ITEMS)


@dataclass(slots=True)
class Header:
    """The content of the ``#`` lines."""

    names: dict[int, str] = field(default_factory=dict)
    alternatives: int = 0
    voters: int | None = None

    def read(self, text: str) -> None:
        """Read one line, without its ``#``; a number beyond ``LIMITS`` is a ValueError."""
        if match := _NAME.fullmatch(text):
            self.names[_within(match[1], "alternatives")] = match[2].strip()
        elif match := _COUNT.fullmatch(text):
            if match[1].upper() == "VOTERS":
                self.voters = _within(match[2], "voters")
            else:
                self.alternatives = _within(match[2], "alternatives")

    def items(self) -> list[str]:
        """Item ids of alternatives 1, 2, ..."""
        n = self.alternatives or max(self.names, default=0)
        names = [self.names.get(number, "") for number in range(1, n + 1)]
        return names if len({*names} - {""}) == n else [str(number) for number in range(1, n + 1)]


def _within(digits: str, what: str) -> int:
    """A number of the header; a ValueError says that it is too large to believe."""
    if len(digits) > 18 or int(digits) > LIMITS[what]:
        raise ValueError(f"{digits[:30]} {what}")
    return int(digits)


def preflib_tables(file: Place) -> Iterator[SourceTable]:
    """The items of the file's one query, then its entries in batches of about ``BATCH_ENTRIES``."""
    query = _name(file)
    items: list[str] = []
    voters = nobodys = 0
    batch: list[tuple[int, int, np.ndarray, np.ndarray]] = []  # first voter, voters, alternatives, ranks
    size = 0
    header = Header()
    for line, count, alternatives, ranks in _orders(file, header):
        if not items:
            items = header.items()
            declared = pa.table(
                [pa.array([query] * len(items)), pa.array(items), pa.nulls(len(items), pa.int32())], schema=ITEMS
            )
            yield SourceTable("items", declared, file.name)
        if voters + count > LIMITS["voters"]:
            raise _too_many(file, line, f"{voters + count:,} voters")
        step = max(1, BATCH_ENTRIES // len(alternatives))
        for first in range(0, count, step):
            n = min(step, count - first)
            batch.append((voters + first, n, alternatives, ranks))
            size += n * len(alternatives)
            if size >= BATCH_ENTRIES:
                yield SourceTable("entries", _entries(query, items, batch), file.name)
                batch, size = [], 0
        voters += count
        nobodys += count == 0
    if voters == 0:
        raise InputError(str(file), found="no orders", expected=f"rows like {ROW_SHAPE} below the header")
    if header.voters not in (None, voters):
        raise InputError(
            str(file),
            found=f"orders of {voters} voters",
            expected=f"{header.voters}, as its NUMBER VOTERS says",
            remedy="the file may have been cut short; fetch it again",
        )
    if nobodys:
        log.info("%s: skipped %d orders with a count of 0", file, nobodys)
    if batch:
        yield SourceTable("entries", _entries(query, items, batch), file.name)


def locate_preflib(file: Place, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
    """Line of the expert's order, if it lists the item; there are no labels."""
    if expert is None or query != _name(file) or not re.fullmatch("v[1-9][0-9]*", expert):
        return []
    voter, header, voters = int(expert[1:]), Header(), 0
    for line, count, alternatives, _ in _orders(file, header):
        voters += count
        if voter <= voters:
            listed = [header.items()[alternative] for alternative in alternatives]
            return [(str(file), line)] if item in listed else []
    return []


def _entries(query: str, items: list[str], batch: list[tuple[int, int, np.ndarray, np.ndarray]]) -> pa.Table:
    first = batch[0][0]
    n_voters = batch[-1][0] + batch[-1][1] - first
    voter = np.concatenate([np.repeat(np.arange(at - first, at - first + n), len(ranks)) for at, n, _, ranks in batch])
    names = pa.array([f"v{number + 1}" for number in range(first, first + n_voters)])
    return pa.table(
        {
            "query": pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(voter), np.int32)), pa.array([query])),
            "expert": pa.DictionaryArray.from_arrays(pa.array(voter.astype(np.int32)), names),
            "item": pa.array(items).take(pa.array(np.concatenate([np.tile(which, n) for _, n, which, _ in batch]))),
            "rank": pa.array(np.concatenate([np.tile(ranks, n) for _, n, _, ranks in batch])),
        }
    )


def _orders(file: Place, header: Header) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """Line, count, alternatives (from 0) and ranks of every order; fills the header on the way."""
    known = 0
    with open_bytes(file) as stream:
        for line, raw in enumerate(stream, start=1):
            try:
                text = raw.decode("utf-8-sig" if line == 1 else "utf-8").strip()
            except UnicodeDecodeError:
                raise InputError(
                    str(file), line=line, found="bytes that are not UTF-8", expected="UTF-8 text"
                ) from None
            if text.startswith("#"):
                try:
                    header.read(text[1:].strip())
                except ValueError as error:
                    raise _too_many(file, line, str(error)) from None
            elif text:
                known = known or len(header.items())
                yield (line, *_order(file, line, text, known))


def _too_many(file: Place, line: int, found: str) -> InputError:
    expected = " and ".join(f"at most {most:,} {what}" for what, most in LIMITS.items())
    return InputError(str(file), line=line, found=found, expected=expected, remedy="correct the number")


def _order(file: Place, line: int, text: str, known: int) -> tuple[int, np.ndarray, np.ndarray]:
    def refuse(found: str, expected: str, remedy: str = "") -> InputError:
        return InputError(str(file), line=line, found=found, expected=expected, remedy=remedy)

    if not known:
        remedy = "files from before the 2022 format have no such header; fetch the present one"
        raise refuse(f"'{text[:40]}'", "a header with '# NUMBER ALTERNATIVES: N' first", remedy)
    row = _ROW.fullmatch(text)
    if not row or not _ORDER.fullmatch(row[2]):
        raise refuse(f"'{text[:40]}'", ROW_SHAPE)
    alternatives: list[int] = []
    ranks: list[float] = []
    seen: set[int] = set()
    for group in re.findall(r"\{[^}]*\}|\d+", row[2]):
        rank = len(alternatives) + 1
        for word in re.findall(r"\d+", group):
            number = int(word)
            if not 1 <= number <= known:
                raise refuse(f"alternative {number}", f"a number from 1 to {known}")
            if number in seen:
                raise refuse(f"alternative {number} twice", "each alternative at most once in an order")
            seen.add(number)
            alternatives.append(number - 1)
            ranks.append(float(rank))
    return int(row[1]), np.array(alternatives), np.array(ranks)
