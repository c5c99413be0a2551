"""Relevance judgements: TREC's ``query 0 item label``, and tables with a header, such as BEIR's ``test.tsv``.

A table names query, item and label in any of the usual ways; BEIR and MTEB call the label ``score``. Labels are whole
grades, as in trec_eval: 2.0 is read as 2, and 0.5 is an error, never rounded, unless the caller takes fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from distagg.arrow import no_rows
from distagg.columns import LABEL_NAMES, label_columns
from distagg.errors import InputError, UsageError
from distagg.sources.cells import Column
from distagg.sources.delimited import FINITE, WHOLE, WORD, Layout, find_lines, read_tables
from distagg.sources.source import Source, SourceTable
from distagg.sources.tables import FORMATS, LongTable, match_rows, open_long_table, suffix
from distagg.types import ITEMS

PLAIN = Layout(("query", "0", "item", "label"), {"query": WORD, "item": WORD, "label": WHOLE})
ID = "an id: text that is not empty, or a whole number"
GRADE = "a whole number: labels are grades (for halves, multiply all labels by 2)"
COLUMNS = (Column("query", "id", ID), Column("item", "id", ID), Column("label", "integer", GRADE))


def qrels_tables(
    files: Iterable[Path], columns: Mapping[str, str] | None = None, *, fractions: bool = False
) -> Iterator[pa.Table]:
    """Query, item and label of every judgement."""
    for file in files:
        table = _table(file, columns, fractions=fractions)
        if table is not None:
            yield from table.batches()
            continue
        layout = Layout(PLAIN.fields, {**PLAIN.keep, "label": FINITE}) if fractions else PLAIN
        for _, plain in read_tables([(file, layout)]):
            yield plain if fractions else plain.set_column(2, "label", plain["label"].cast(pa.int32()))


def read_qrels(files: Sequence[Path], columns: Mapping[str, str] | None = None, *, fractions: bool = False) -> pa.Table:
    """All judgements of the files; with ``fractions``, labels may be any numbers.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "test.tsv"
    ...     _ = file.write_text("query-id\\tcorpus-id\\tscore\\n7\\tx\\t1\\n")
    ...     read_qrels([file]).to_pylist()
    [{'query': '7', 'item': 'x', 'label': 1}]
    """
    schema = pa.schema([*list(ITEMS)[:2], ("label", pa.float64())]) if fractions else ITEMS
    tables = qrels_tables(files, columns, fractions=fractions)
    return pa.concat_tables([no_rows(schema), *(table.cast(schema) for table in tables)])


def find_labels(file: Path, query: str, item: str, columns: Mapping[str, str] | None = None) -> list[tuple[str, int]]:
    """File and line (in Parquet: row) of every judgement of the item."""
    table = _table(file, columns)
    wanted = {"query": query, "item": item}
    if table is None:
        return find_lines(file, PLAIN, wanted)
    rows: list[int] = []
    first = 0
    for batch in table.batches():
        rows += (first + match_rows(batch, wanted)).tolist()
        first += len(batch)
    return [(str(file), line) for line in table.lines(rows)]


def _table(file: Path, columns: Mapping[str, str] | None, *, fractions: bool = False) -> LongTable | None:
    """The file as a table with a header, or None: lines of TREC."""
    if suffix(file) not in FORMATS:
        return None
    header = open_long_table(file, ()).header
    found = label_columns(header, columns, where=str(file))
    if set(found) >= {"query", "item", "label"}:
        known = (*COLUMNS[:2], Column("label", "number", "a finite number")) if fractions else COLUMNS
        return open_long_table(file, known, LABEL_NAMES, {name: ours for ours, name in found.items()})
    if found or FORMATS[suffix(file)] in ("parquet", "jsonl"):
        raise InputError(str(file), found=f"columns {', '.join(header)}", expected="query, item and label")
    return None


class JudgedSource:
    """A source with judgements of its items: files of qrels, or a table with the columns query, item and label.

    A judged item in no list is missed: it counts in recall, but is not ranked.
    """

    def __init__(
        self, source: Source, qrels: Sequence[Path] | pa.Table, columns: Mapping[str, str] | None = None
    ) -> None:
        self._source, self._columns = source, columns
        self._qrels: tuple[Path, ...] = () if isinstance(qrels, pa.Table) else tuple(qrels)
        self._table = qrels if isinstance(qrels, pa.Table) else None
        self.name, self.partition = source.name, source.partition
        self.files: tuple[Path, ...] = source.files + self._qrels
        if source.name == "pairs":
            raise UsageError("labels are given for ranked lists, but these are pairs, which have none")

    def tables(self) -> Iterator[SourceTable]:
        """The rows of the source, then the judgements."""
        yield from self._source.tables()
        judged = qrels_tables(self._qrels, self._columns) if self._table is None else iter([self._table])
        yield from (SourceTable("judgements", table, "") for table in judged)

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """As the source's; labels are also sought in the qrels."""
        mentions = self._source.locate(query, expert, item)
        if expert is None:
            mentions += [place for file in self._qrels for place in find_labels(file, query, item, self._columns)]
        if expert is None and self._table is not None:
            rows = match_rows(self._table, {"query": query, "item": item})
            mentions += [("<labels>", int(row) + 1) for row in rows]
        return mentions
