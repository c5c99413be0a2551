"""TREC runs, ``query Q0 item rank score tag``, and relevance judgements (qrels), ``query 0 item label``.

As in trec_eval, lists are ordered by descending score and the rank column is ignored; ``by="rank"`` uses the rank
column instead. Fields are separated by blanks or tabs; files may be gzipped. Parsing is Arrow's, about 150 ns a line.

Judgements may also be tables with a header, such as BEIR's ``test.tsv``, which name query, item and label in any of the
usual ways; BEIR and MTEB call the label ``score``. ``ir_datasets:ID`` names those of ir_datasets. Labels are whole
grades, as in trec_eval: 2.0 is read as 2, and 0.5 is an error, never rounded, unless the caller takes fractions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from distagg.arrow import as_arrow, as_words, no_rows
from distagg.columns import LABEL_NAMES, label_columns
from distagg.covariates import Covariate
from distagg.errors import InputError, UsageError, unknown
from distagg.sources.cells import ID, Column
from distagg.sources.delimited import FINITE, POSITION, WHOLE, WORD, Layout, find_lines, read_tables
from distagg.sources.published import is_reference, reference_qrels
from distagg.sources.source import Source, SourceTable, refuse_same_names
from distagg.sources.spans import Span, share_files
from distagg.sources.tables import FORMATS, LongTable, match_rows, open_long_table, suffix
from distagg.storage.paths import Place, place
from distagg.types import ITEMS

RUN_FIELDS = ("query", "Q0", "item", "rank", "score", "tag")
RUN = Layout(RUN_FIELDS, {"query": WORD, "item": WORD, "score": FINITE})
QRELS_LINES = Layout(("query", "0", "item", "label"), {"query": WORD, "item": WORD, "label": WHOLE})
GRADE = "a whole number: labels are grades (for halves, multiply all labels by 2)"
QRELS_COLUMNS = (Column("query", "id", ID), Column("item", "id", ID), Column("label", "integer", GRADE))


def read_run(file: Place) -> pa.Table:
    """Query, item and score of every line of a run.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "run1"
    ...     _ = file.write_text("7 Q0 x 1 9.5 bm25\\n")
    ...     read_run(file).to_pylist()
    [{'query': '7', 'item': 'x', 'score': 9.5}]
    """
    schema = pa.schema([("query", pa.string()), ("item", pa.string()), ("score", pa.float64())])
    return pa.concat_tables([no_rows(schema), *(table.cast(schema) for _, table in read_tables([(file, RUN)]))])


class TrecSource:
    """Runs of several systems.

    Parameters
    ----------
    files
        Run files.
    expert
        The expert's name: the run's "file" (without .gz), or its "tag".
    by
        Order lists by "score", larger first, where equal scores share the better rank, or by "rank".

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "run1"
    ...     _ = file.write_text("7 Q0 x 1 9.5 bm25\\n")
    ...     next(TrecSource([file]).tables()).table.to_pylist()
    [{'query': '7', 'expert': 'run1', 'item': 'x', 'rank': None, 'score': 9.5}]
    """

    name = "trec"
    partition: Literal["query", "expert"] = "query"

    def __init__(
        self,
        files: Sequence[str | Place],
        *,
        expert: Literal["file", "tag"] = "file",
        by: Literal["score", "rank"] = "score",
    ) -> None:
        for what, value, choices in (("expert", expert, ("file", "tag")), ("by", by, ("score", "rank"))):
            if value not in choices:
                raise unknown(f"value of '{what}'", value, choices)
        self.files: tuple[Place, ...] = tuple(place(file) for file in files)
        self._span: Span | None = None
        if not self.files:
            raise UsageError("no run files given; give at least one")
        self.expert, self.by = expert, by
        if expert == "file":
            refuse_same_names(self.files, run_name, "rename one of them, or name experts after tags (expert='tag')")

    def tables(self) -> Iterator[SourceTable]:
        """Entries of the runs. Queries span files, so they have no part."""
        layout = self._layout
        for file, table in read_tables(((file, layout) for file in self.files), self._span):
            yield SourceTable("entries", self._entries(file, table), "")

    def split(self, size: int, whole: frozenset[str] = frozenset()) -> list[Source]:
        """Groups of small files, and spans of large ones."""
        pieces: list[Source] = []
        for files, span in share_files(self.files, size):
            piece = copy.copy(self)
            piece.files, piece._span = files, span
            pieces.append(piece)
        return pieces

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """File and line of every mention of the item by the expert; runs have no labels."""
        wanted = {"query": query, "item": item}
        if expert is None:
            return []
        if self.expert == "tag":
            wanted["tag"] = expert
        files = [file for file in self.files if self.expert == "tag" or run_name(file) == expert]
        return [mention for file in files for mention in find_lines(file, self._layout, wanted, self._span)]

    @property
    def _layout(self) -> Layout:
        keep = dict(RUN.keep)
        if self.by == "rank":
            keep["rank"] = POSITION
        if self.expert == "tag":
            keep["tag"] = WORD
        return Layout(RUN_FIELDS, keep)

    def _entries(self, file: Place, table: pa.Table) -> pa.Table:
        n = len(table)
        if self.expert == "tag":
            expert = table["tag"]
        else:
            expert = pa.DictionaryArray.from_arrays(as_arrow(np.zeros(n, np.int8)), as_words([run_name(file)]))
        rank = table["rank"].cast(pa.float64()) if self.by == "rank" else pa.nulls(n)
        columns = {"query": table["query"], "expert": expert, "item": table["item"], "rank": rank}
        return pa.table({**columns, "score": table["score"]})


def run_name(file: Place) -> str:
    """The name of a run: its file name without .gz.

    >>> run_name(place("runs/input.bm25.gz"))
    'input.bm25'
    """
    return file.name.removesuffix(".gz")


def qrels_tables(
    files: Iterable[Place], columns: Mapping[str, str] | None = None, *, fractions: bool = False
) -> Iterator[pa.Table]:
    """Query, item and label of every judgement."""
    for file in files:
        if is_reference(file):
            yield from reference_qrels(file)
            continue
        table = _qrels_table(file, columns, fractions=fractions)
        if table is not None:
            yield from table.batches()
            continue
        layout = Layout(QRELS_LINES.fields, {**QRELS_LINES.keep, "label": FINITE}) if fractions else QRELS_LINES
        for _, plain in read_tables([(file, layout)]):
            yield plain if fractions else plain.set_column(2, "label", plain["label"].cast(pa.int32()))


def read_qrels(
    files: Sequence[Place], columns: Mapping[str, str] | None = None, *, fractions: bool = False
) -> pa.Table:
    """All judgements of the files; with ``fractions``, labels may be any numbers.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "test.tsv"
    ...     _ = file.write_text("query-id\\tcorpus-id\\tscore\\n7\\tx\\t1\\n")
    ...     read_qrels([file]).to_pylist()
    [{'query': '7', 'item': 'x', 'label': 1}]
    """
    schema = pa.schema([*list(ITEMS)[:2], ("label", pa.float64())]) if fractions else ITEMS
    tables = qrels_tables(files, columns, fractions=fractions)
    return pa.concat_tables([no_rows(schema), *(table.cast(schema) for table in tables)])


def find_labels(file: Place, query: str, item: str, columns: Mapping[str, str] | None = None) -> list[tuple[str, int]]:
    """File and line (in Parquet: row) of every judgement of the item."""
    if is_reference(file):
        return []
    table = _qrels_table(file, columns)
    wanted = {"query": query, "item": item}
    if table is None:
        return find_lines(file, QRELS_LINES, wanted)
    rows: list[int] = []
    first = 0
    for batch in table.batches():
        rows += (first + match_rows(batch, wanted)).tolist()
        first += len(batch)
    return [(str(file), line) for line in table.lines(rows)]


def _qrels_table(file: Place, columns: Mapping[str, str] | None, *, fractions: bool = False) -> LongTable | None:
    """The file as a table with a header, or None: lines of TREC."""
    if suffix(file) not in FORMATS:
        return None
    header = open_long_table(file, ()).header
    found = label_columns(header, columns, where=str(file))
    if set(found) >= {"query", "item", "label"}:
        known = (*QRELS_COLUMNS[:2], Column("label", "number", "a finite number")) if fractions else QRELS_COLUMNS
        return open_long_table(file, known, LABEL_NAMES, {name: ours for ours, name in found.items()})
    if found or FORMATS[suffix(file)] in ("parquet", "jsonl"):
        raise InputError(str(file), found=f"columns {', '.join(header)}", expected="query, item and label")
    return None


class JudgedSource:
    """A source with judgements of its items: files of qrels, or a table with the columns query, item and label.

    A judged item in no list and no pair is missed: it counts in recall, but is not ranked.
    """

    def __init__(
        self, source: Source, qrels: Sequence[Place] | pa.Table, columns: Mapping[str, str] | None = None
    ) -> None:
        self._source: Source | None = source  # None in a piece that has only judgements
        self._columns = columns
        self._qrels: tuple[Place, ...] = () if isinstance(qrels, pa.Table) else tuple(qrels)
        self._table = qrels if isinstance(qrels, pa.Table) else None
        self.name, self.partition = source.name, source.partition
        self.files: tuple[Place, ...] = source.files + self._qrels

    @property
    def covariates(self) -> tuple[Covariate, ...]:
        """The covariates of pairs."""
        return getattr(self._source, "covariates", ())

    @property
    def items_once(self) -> bool:
        """Whether the source names every item of a query once."""
        return getattr(self._source, "items_once", False)

    def tables(self) -> Iterator[SourceTable]:
        """The rows of the source, then the judgements."""
        if self._source is not None:
            yield from self._source.tables()
        judged = qrels_tables(self._qrels, self._columns) if self._table is None else iter([self._table])
        yield from (SourceTable("judgements", table, "") for table in judged)

    def split(self, size: int, whole: frozenset[str] = frozenset()) -> list[Source]:
        """The pieces of the source, then groups of files of judgements."""
        assert self._source is not None
        pieces = self._source.split(size, whole)
        shares = [()] if self._table is not None else [s.files for s in share_files(self._qrels, size, lambda _: False)]
        for files in shares:
            piece = copy.copy(self)
            piece._source, piece._qrels, piece.files = None, files, files
            pieces.append(piece)
        return pieces

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """As the source's; labels are also sought in the qrels."""
        mentions = self._source.locate(query, expert, item) if self._source is not None else []
        if expert is None:
            mentions += [mention for file in self._qrels for mention in find_labels(file, query, item, self._columns)]
        if expert is None and self._table is not None:
            rows = match_rows(self._table, {"query": query, "item": item})
            mentions += [("<labels>", int(row) + 1) for row in rows]
        return mentions
