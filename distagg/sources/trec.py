"""TREC runs: ``query Q0 item rank score tag``.

As in trec_eval, lists are ordered by descending score and the rank column is ignored; ``by="rank"`` uses the rank
column instead. Fields are separated by blanks or tabs; files may be gzipped. Parsing is Arrow's, about 150 ns a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from distagg.arrow import as_arrow, as_words, no_rows
from distagg.errors import UsageError, unknown
from distagg.sources.delimited import FINITE, POSITION, WORD, Layout, find_lines, read_tables
from distagg.sources.source import SourceTable, refuse_same_names

RUN_FIELDS = ("query", "Q0", "item", "rank", "score", "tag")
RUN = Layout(RUN_FIELDS, {"query": WORD, "item": WORD, "score": FINITE})


def read_run(file: Path) -> pa.Table:
    """Query, item and score of every line of a run.

    >>> import tempfile
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
        files: Sequence[str | Path],
        *,
        expert: Literal["file", "tag"] = "file",
        by: Literal["score", "rank"] = "score",
    ) -> None:
        for what, value, choices in (("expert", expert, ("file", "tag")), ("by", by, ("score", "rank"))):
            if value not in choices:
                raise unknown(f"value of '{what}'", value, choices)
        self.files: tuple[Path, ...] = tuple(Path(file) for file in files)
        if not self.files:
            raise UsageError("no run files given; give at least one")
        self.expert, self.by = expert, by
        if expert == "file":
            refuse_same_names(self.files, run_name, "rename one of them, or name experts after tags (expert='tag')")

    def tables(self) -> Iterator[SourceTable]:
        """Entries of the runs. Queries span files, so they have no part."""
        layout = self._layout
        for file, table in read_tables((file, layout) for file in self.files):
            yield SourceTable("entries", self._entries(file, table), "")

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """File and line of every mention of the item by the expert; runs have no labels."""
        wanted = {"query": query, "item": item}
        if expert is None:
            return []
        if self.expert == "tag":
            wanted["tag"] = expert
        files = [file for file in self.files if self.expert == "tag" or run_name(file) == expert]
        return [place for file in files for place in find_lines(file, self._layout, wanted)]

    @property
    def _layout(self) -> Layout:
        keep = dict(RUN.keep)
        if self.by == "rank":
            keep["rank"] = POSITION
        if self.expert == "tag":
            keep["tag"] = WORD
        return Layout(RUN_FIELDS, keep)

    def _entries(self, file: Path, table: pa.Table) -> pa.Table:
        n = len(table)
        if self.expert == "tag":
            expert = table["tag"]
        else:
            expert = pa.DictionaryArray.from_arrays(as_arrow(np.zeros(n, np.int8)), as_words([run_name(file)]))
        rank = table["rank"].cast(pa.float64()) if self.by == "rank" else pa.nulls(n)
        columns = {"query": table["query"], "expert": expert, "item": table["item"], "rank": rank}
        return pa.table({**columns, "score": table["score"]})


def run_name(file: Path) -> str:
    """The name of a run: its file name without .gz.

    >>> run_name(Path("runs/input.bm25.gz"))
    'input.bm25'
    """
    return file.name.removesuffix(".gz")
