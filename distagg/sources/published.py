"""Published test collections: BEIR folders, and what ir_datasets knows (its package is loaded when it is asked for).

A BEIR folder has ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv``, but no rankings: runs are given with it,
as TREC files or as the JSON ``{query: {item: score}}`` of BEIR's results. ``ir_datasets:ID`` names a dataset of
ir_datasets: its judgements wherever qrels are read, and as a source its scored documents, if it has some, as one list.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from distagg.errors import InputError, UsageError
from distagg.sources.source import Source, SourceTable, open_bytes, refuse_same_names
from distagg.sources.tables import suffix
from distagg.storage.paths import Place, place
from distagg.types import ITEMS

PREFIX = "ir_datasets:"
ASIDE = ("corpus.jsonl", "queries.jsonl")  # files of a BEIR folder that hold no rankings
MOST_JSON = 4 << 30  # bytes of a file of results, which is parsed as a whole
_ROWS = 1 << 18  # of a table of ir_datasets


class BeirSource:
    """Runs on a BEIR folder.

    Parameters
    ----------
    files
        Run files (TREC lines, or BEIR's results as JSON), and the files of the BEIR folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "dense.json"
    ...     _ = file.write_text('{"q1": {"d1": 0.9}}')
    ...     next(BeirSource([file]).tables()).table.to_pylist()
    [{'query': 'q1', 'expert': 'dense', 'item': 'd1', 'rank': None, 'score': 0.9}]
    """

    name = "beir"
    partition: Literal["query", "expert"] = "query"

    def __init__(self, files: Sequence[str | Place]) -> None:
        self.files: tuple[Place, ...] = tuple(place(file) for file in files if place(file).name not in ASIDE)
        if not self.files:
            raise UsageError(
                "a BEIR folder has queries and judgements, but no rankings; give runs with it: "
                "distagg import beir scifact bm25.run dense.json -o data"
            )
        refuse_same_names(self.files, results_name, "rename one of them")

    def tables(self) -> Iterator[SourceTable]:
        """Entries of the runs. Queries span files, so they have no part."""
        for file in self.files:
            if suffix(file) == ".json":
                yield SourceTable("entries", _results(file), "")
            else:
                yield from _trec(file)

    def split(self, size: int, whole: frozenset[str] = frozenset()) -> list[Source]:
        """One piece for each file."""
        return [BeirSource([file]) for file in self.files]

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """File and line of every mention of the item by the expert in TREC files; JSON names an item once."""
        from distagg.sources.delimited import find_lines
        from distagg.sources.trec import RUN

        runs = [file for file in self.files if suffix(file) != ".json" and results_name(file) == expert]
        return [mention for file in runs for mention in find_lines(file, RUN, {"query": query, "item": item})]


def results_name(file: Place) -> str:
    """The expert of a run file: its name without what says how it is written.

    >>> results_name(place("bm25.run.gz")), results_name(place("dense.json"))
    ('bm25', 'dense')
    """
    name = file.name.removesuffix(".gz")
    for ending in (".json", ".run", ".trec", ".txt"):
        name = name.removesuffix(ending)
    return name


def _trec(file: Place) -> Iterator[SourceTable]:
    from distagg.sources.trec import TrecSource

    for rows in TrecSource([file]).tables():
        expert = pa.array([results_name(file)], pa.string()).dictionary_encode()
        named = pa.DictionaryArray.from_arrays(pa.array([0] * len(rows.table), pa.int8()), expert.dictionary)
        yield SourceTable("entries", rows.table.set_column(1, "expert", named), "")


def _results(file: Place) -> pa.Table:
    """Entries of BEIR's results, ``{query: {item: score}}``."""
    with open_bytes(file, lines=False) as stream:
        text = stream.read(MOST_JSON + 1)
    if len(text) > MOST_JSON:
        raise InputError(str(file), found=f"over {MOST_JSON:,} bytes", expected="less", remedy="use TREC lines")
    wanted = "BEIR's results: {query: {item: score}}"
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(str(file), found=f"no JSON ({error})", expected=wanted) from error
    if not isinstance(body, dict) or not all(isinstance(scores, dict) for scores in body.values()):
        raise InputError(str(file), found="JSON of another form", expected=wanted)
    for query, scores in body.items():
        for item, score in scores.items():
            if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
                found = f"score {score!r} of item '{item}' in query '{query}'"
                raise InputError(str(file), found=found, expected="a finite number")
    queries = [query for query, scores in body.items() for _ in scores]
    items = [item for scores in body.values() for item in scores]
    values = [float(score) for scores in body.values() for score in scores.values()]
    experts = [results_name(file)] * len(values)
    return pa.table(
        {
            "query": pa.array(queries, pa.string()),
            "expert": pa.array(experts, pa.string()),
            "item": pa.array(items, pa.string()),
            "rank": pa.nulls(len(values)),
            "score": pa.array(values, pa.float64()),
        }
    )


def beir_qrels(files: Sequence[Place]) -> list[Place]:
    """The judgements of the BEIR folders among source files: ``qrels/test.tsv``, or the only file there."""
    found: list[Place] = []
    for folder in dict.fromkeys(file.parent for file in files if file.name in ASIDE):
        qrels = sorted((file for file in (folder / "qrels").glob("*.tsv")), key=str) if isinstance(folder, Path) else []
        test = [file for file in qrels if file.name == "test.tsv"] or qrels
        if len(test) > 1:
            names = ", ".join(file.name for file in test)
            raise UsageError(f"{folder}: found judgements {names}, and none is test.tsv; name one by --qrels")
        found += test
    return found


class ScoredSource:
    """The scored documents of a dataset of ir_datasets, as the list of one expert."""

    name = "ir_datasets"
    partition: Literal["query", "expert"] = "query"

    def __init__(self, reference: str) -> None:
        self.reference = reference
        self.files: tuple[Place, ...] = ()
        if not ir_dataset(reference).has_scoreddocs():
            raise UsageError(
                f"{reference} has no scored documents to rank; give runs, and its judgements by --qrels {reference}"
            )

    def tables(self) -> Iterator[SourceTable]:
        """Entries, batch by batch."""
        scored = ir_dataset(self.reference).scoreddocs_iter()
        while rows := list(islice(scored, _ROWS)):
            columns = {
                "query": pa.array([row.query_id for row in rows], pa.string()),
                "expert": pa.array(["scoreddocs"] * len(rows), pa.string()),
                "item": pa.array([row.doc_id for row in rows], pa.string()),
                "rank": pa.nulls(len(rows)),
                "score": pa.array([float(row.score) for row in rows], pa.float64()),
            }
            yield SourceTable("entries", pa.table(columns), "")

    def split(self, size: int, whole: frozenset[str] = frozenset()) -> list[Source]:
        """One piece: the package reads its files from the start."""
        return [self]

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """Nothing: the rows of the package have no lines."""
        return []


def is_reference(where: object) -> bool:
    """Whether a path names a dataset of ir_datasets.

    >>> is_reference("ir_datasets:beir/scifact/test"), is_reference("qrels.txt")
    (True, False)
    """
    return str(where).startswith(PREFIX)


def ir_dataset(reference: object) -> Any:
    """The dataset that ``ir_datasets:ID`` names."""
    name = str(reference).removeprefix(PREFIX)
    try:
        import ir_datasets
    except ImportError:
        raise UsageError(f"{reference} needs the package ir_datasets: python -m pip install ir_datasets") from None
    try:
        return ir_datasets.load(name)
    except KeyError:
        raise UsageError(f"ir_datasets knows no dataset '{name}'; its catalogue has the names") from None


def reference_qrels(reference: object) -> Iterator[pa.Table]:
    """Query, item and label of every judgement of a dataset of ir_datasets."""
    dataset = ir_dataset(reference)
    if not dataset.has_qrels():
        raise UsageError(f"{reference} has no judgements; its subsets may have: {reference}/test")
    judged = dataset.qrels_iter()
    while rows := list(islice(judged, _ROWS)):
        columns = [[row.query_id for row in rows], [row.doc_id for row in rows], [int(row.relevance) for row in rows]]
        yield pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, ITEMS, strict=True)], schema=ITEMS)
