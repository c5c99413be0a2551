"""Rankings as long tables (query, expert, item, rank or score, label) and as PrefLib files.

The suffix determines the format: .csv, .tsv, .jsonl, .ndjson (all also .gz), .parquet, and .soc, .soi, .toc, .toi for
PrefLib. Ids stay text as written. With scores and no ranks, an item's rank is 1 + the number of larger scores in
its list; that needs whole lists, so such entries get a null rank here and are ranked after grouping. Folders may name
columns (``expert=bm25/part-0.parquet``), and of several tables without experts each is an expert's, named by its file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa

from distagg.arrow import repeated_word
from distagg.columns import LIST_NAMES
from distagg.errors import InputError
from distagg.sources.cells import Column
from distagg.sources.preflib import PREFLIB_SUFFIXES, locate_preflib, preflib_tables
from distagg.sources.source import SourceTable, refuse_same_names
from distagg.sources.tables import FORMATS, LongTable, match_rows, open_long_table, suffix
from distagg.types import ITEMS

ID = "an id: text that is not empty, or a whole number"
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


class RankingsSource:
    """Rankings in long tables or PrefLib files; every file is a part.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "votes.csv"
    ...     _ = file.write_text("expert,item,rank\\nann,x,1\\nann,y,2\\n")
    ...     next(RankingsSource([file]).tables()).table.to_pylist()[0]
    {'query': 'all', 'expert': 'ann', 'item': 'x', 'rank': 1.0}
    """

    name = "rankings"
    partition: Literal["query", "expert"] = "query"

    def __init__(self, files: Sequence[str | Path], *, columns: Mapping[str, str] | None = None) -> None:
        self.files: tuple[Path, ...] = tuple(Path(file) for file in files)
        tables = [file for file in self.files if suffix(file) not in PREFLIB_SUFFIXES]
        self._tables = {file: _open(file, columns, several=len(tables) > 1) for file in tables}
        named = [file for file in tables if self._tables[file].same.get("expert") == _name(file)]
        refuse_same_names(named, _name, "rename one of them")

    def tables(self) -> Iterator[SourceTable]:
        """Per batch of rows its labels, where there are any, and its entries."""
        for file in self.files:
            if file in self._tables:
                yield from self._long(self._tables[file])
            else:
                yield from preflib_tables(file)

    def _long(self, table: LongTable) -> Iterator[SourceTable]:
        # One query in several files: all queries, or each with one expert.
        shared = len(self.files) > 1 and ("query" not in table.names or bool(table.same))
        part = "" if shared else table.file.name
        for batch in table.batches():
            query = _query(batch)
            if "label" in batch.column_names:
                yield SourceTable("items", _labels(query, batch), part)
            columns = {
                "query": query,
                "expert": batch["expert"].dictionary_encode(),
                "item": batch["item"],
                "rank": batch["rank"] if "rank" in batch.column_names else pa.nulls(len(batch), pa.float64()),
            }
            if "score" in batch.column_names:
                columns["score"] = batch["score"]
            yield SourceTable("entries", pa.table(columns), part)

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


def _open(file: Path, columns: Mapping[str, str] | None, several: bool) -> LongTable:
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


def _name(file: Path) -> str:
    """The expert whose lists a file has: its name without .gz and suffix."""
    return Path(file.name.removesuffix(".gz")).stem


def _query(batch: pa.Table) -> pa.Array | pa.ChunkedArray:
    if "query" in batch.column_names:
        return batch["query"].dictionary_encode()
    return repeated_word(NO_QUERY, len(batch))


def _labels(query: pa.Array | pa.ChunkedArray, batch: pa.Table) -> pa.Table:
    """Each item of the batch in order, once per label; grouping refuses a second label."""
    rows = pa.table({"query": query, "item": batch["item"], "label": batch["label"]})
    return rows.group_by(["query", "item", "label"], use_threads=False).aggregate([]).cast(ITEMS)
