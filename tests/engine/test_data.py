"""Data of every kind in one call, the answer in the same kind, and what is said about wrong data."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import distagg
from distagg.engine.data import as_dataset
from distagg.errors import DistaggError, InputError, UsageError

RUNS = {"bm25": {"7": {"x": 9.0, "y": 8.0}, "8": {"z": 1.0}}, "dense": {"7": {"y": 0.9, "w": 0.5}}}
ROWS = {
    "query": ["7", "7", "8", "7", "7"],
    "expert": ["bm25", "bm25", "bm25", "dense", "dense"],
    "item": ["x", "y", "z", "y", "w"],
    "score": [9.0, 8.0, 1.0, 0.9, 0.5],
}
TABLE = pa.table(ROWS)
QRELS = {"7": {"y": 1, "x": 0}, "9": {"v": 1}}
FUSED = [("7", "y"), ("7", "x"), ("7", "w"), ("8", "z")]


class Capsule:
    """Only the Arrow PyCapsule interface, of a frame with string views and a dictionary of them."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        frame = pl.DataFrame(ROWS).cast({"expert": pl.Categorical})
        return frame.__arrow_c_stream__(requested_schema)


KINDS: dict[str, tuple[Callable[[], Any], type]] = {
    "pandas": (lambda: pd.DataFrame(ROWS), pd.DataFrame),
    "pandas with a named index": (lambda: pd.DataFrame(ROWS).set_index(["query", "item"]), pd.DataFrame),
    "dask": (lambda: dask.dataframe.from_pandas(pd.DataFrame(ROWS), npartitions=2), pd.DataFrame),
    "polars": (lambda: pl.DataFrame(ROWS), pl.DataFrame),
    "lazy polars": (lambda: pl.LazyFrame(ROWS), pl.DataFrame),
    "arrow": (lambda: TABLE, pa.Table),
    "batch": (lambda: TABLE.to_batches()[0], pa.Table),
    "stream": (lambda: TABLE.to_reader(), pa.Table),
    "arrow dataset": (lambda: pa.dataset.dataset(TABLE), pa.Table),
    "duckdb": (lambda: duckdb.from_arrow(TABLE), pa.Table),
    "capsule": (Capsule, pa.Table),
    "dataset": (lambda: as_dataset(TABLE), pa.Table),
}


def told(ranking: Any) -> list[tuple[Any, Any]]:
    """Query and item of every row of a ranking of any kind."""
    table = ranking if isinstance(ranking, pa.Table) else pa.table(ranking)
    return list(zip(table["query"].to_pylist(), table["item"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_one_line_ranks_data_of_every_kind_in_kind(kind: str) -> None:
    make, expected = KINDS[kind]
    ranking = distagg.rank("rrf", make())
    assert type(ranking) is expected
    assert told(ranking) == FUSED


def test_runs_are_answered_by_a_run() -> None:
    run = distagg.rank("rrf", RUNS)
    assert [(query, item) for query, scores in run.items() for item in scores] == FUSED
    assert run["7"]["x"] == 1 / 61


def test_numbers_stay_numbers() -> None:
    runs = {"a": {7: {1: 0.5, 2: np.float32(0.25)}}, "b": {7: {2: 1}, 8: {}}}
    run = distagg.rank("rrf", runs)
    assert {query: list(scores) for query, scores in run.items()} == {7: [2, 1], 8: []}
    frame = pl.DataFrame({"query": [7, 7], "expert": ["a", "a"], "item": [1, 2], "rank": [2, 1]}).cast(
        {"item": pl.Int32}
    )
    ranking = distagg.rank("borda", frame)
    assert ranking.schema["item"] == pl.Int32
    assert ranking["query"].to_list() == [7, 7]
    battles = pd.DataFrame({"winner": [1, 1], "loser": [2, 3]})
    assert distagg.rank("borda", battles)["item"].tolist()[0] == 1


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (("qid", "docno", "score", "run"), None),
        (("query_id", "doc_id", "score", "system"), None),
        (("query-id", "corpus-id", "score", "retriever"), None),
        (("q_id", "doc_id", "score", "tag"), None),
        (("QID", "DocNo", "Score", "Run"), None),
        (("text", "page", "n", "who"), {"text": "query", "page": "item", "n": "score", "who": "expert"}),
    ],
)
def test_names_of_other_tools(names: tuple[str, ...], columns: dict[str, str] | None) -> None:
    ours = ("query", "item", "score", "expert")
    frame = pd.DataFrame(ROWS).rename(columns=dict(zip(ours, names, strict=True)))
    assert told(distagg.rank("rrf", frame, columns=columns)) == FUSED


def test_pyterrier_frames_by_system() -> None:
    """Ranks count from 0, query is the text, docid a number of the index; other columns belong to other stages."""
    frame = pd.DataFrame(
        {"qid": ["7", "7"], "docid": [4, 5], "docno": ["x", "y"], "rank": [0, 1], "score": [2.0, 1.0], "query": "cats",
         "features": [[1.0], [2.0]]}
    )  # fmt: skip
    dataset = as_dataset({"bm25": frame, "dense": frame.assign(docno=["y", "z"])})
    assert dataset.to_arrow()["rank"].to_pylist() == [1.0, 2.0, 1.0, 2.0]
    ranking = distagg.rank("rrf", {"bm25": frame, "dense": frame.assign(docno=["y", "z"])})
    assert type(ranking) is pd.DataFrame
    assert told(ranking) == [("7", "y"), ("7", "x"), ("7", "z")]


def test_a_named_column_makes_its_other_names_ballast() -> None:
    frame = pd.DataFrame({**ROWS, "qid": range(5)})
    assert told(distagg.rank("rrf", frame, columns={"query": "query"})) == FUSED


def test_battles_as_in_files(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "model_a": list("xyxz"),
            "model_b": list("yxzx"),
            "winner": ["model_a", "model_b", "tie", "tie (bothbad)"],
            "judge": list("jjkk"),
            "language": "en",
        }
    )
    frame.to_csv(tmp_path / "battles.csv", index=False)
    from_file = distagg.rank("bradley_terry", tmp_path / "battles.csv")
    assert pa.Table.from_pandas(distagg.rank("bradley_terry", frame), schema=from_file.schema).equals(from_file)
    assert as_dataset(frame.rename(columns=str.upper)).manifest.entries == 4
    with pytest.raises(InputError, match=r"<table>:4: found winner 'x', expected one of model_a, model_b, tie"):
        as_dataset(frame.assign(winner=["model_a", "model_b", "tie", "x"]))


def test_ratings_as_in_files(tmp_path: Path) -> None:
    frame = pd.DataFrame({"userId": [1, 1, 2], "movieId": [10, 20, 10], "rating": [5.0, 0.0, 4.5], "timestamp": 9})
    frame.to_csv(tmp_path / "ratings.csv", index=False)
    rows, in_file = as_dataset(frame).to_arrow(), as_dataset(tmp_path / "ratings.csv").to_arrow()
    assert rows.equals(in_file)
    assert rows["rank"].to_pylist() == [-5.0, 0.0, -4.5]
    assert distagg.rank("borda", frame)["item"].tolist() == [10, 20]
    with pytest.raises(UsageError, match="ratings beside ranks or scores"):
        as_dataset(frame.assign(score=1.0))


def test_paths_in_one_call(tmp_path: Path) -> None:
    for expert, run in RUNS.items():
        lines = [f"{query} Q0 {item} 1 {score} t\n" for query, scores in run.items() for item, score in scores.items()]
        (tmp_path / f"{expert}.run").write_text("".join(lines))
    (tmp_path / "qrels.txt").write_text("7 0 y 1\n7 0 x 0\n9 0 v 1\n")
    files = [tmp_path / "bm25.run", tmp_path / "dense.run"]
    for data in (files, tmp_path, str(tmp_path / "*.run")):
        assert told(distagg.rank("rrf", data)) == FUSED
    labelled = as_dataset(files, labels=tmp_path / "qrels.txt")
    assert labelled.manifest.labels == as_dataset(tmp_path).manifest.labels == {"0": 1, "1": 1}
    assert as_dataset(files, labels=QRELS).manifest.labels == {"0": 1, "1": 1}
    (tmp_path / "twice.txt").write_text("7 0 y 1\n7 0 y 2\n")
    with pytest.raises(InputError, match=r"twice.txt:2: found another label for item 'y'"):
        as_dataset(files, labels=tmp_path / "twice.txt")
    (tmp_path / "twice.txt").unlink()
    assert distagg.evaluate(tmp_path / "bm25.run", tmp_path / "qrels.txt", ["map"]).means == {"map": 0.25}
    distagg.import_dataset("trec", files, tmp_path / "imported")
    assert told(distagg.rank("rrf", tmp_path / "imported")) == FUSED


LABELS = [
    QRELS,
    pd.DataFrame({"qid": ["7", "7", "9"], "docno": ["y", "x", "v"], "label": [1, 0, 1]}),
    pl.DataFrame({"query_id": ["7", "7", "9"], "doc_id": ["y", "x", "v"], "relevance": [1, 0, 1], "iteration": "0"}),
    pa.table({"query-id": ["7", "7", "9"], "corpus-id": ["y", "x", "v"], "score": [1.0, 0.0, 1.0]}),
]


@pytest.mark.parametrize("labels", LABELS, ids=["dictionary", "pyterrier", "ir_datasets", "beir"])
def test_labels_of_every_kind(labels: Any) -> None:
    means = distagg.compare(RUNS, ["rrf", "borda"], labels=labels, metrics=["map"])["means"]
    assert means["rrf"] == {"map": 1.0}
    assert distagg.evaluate(RUNS["bm25"], labels, ["map"]).means == {"map": 0.25}  # query 9 is judged, but not ranked
    assert distagg.evaluate(distagg.rank("rrf", pl.DataFrame(ROWS)), labels, ["map"]).means == {"map": 0.5}
    assert distagg.evaluate_runs(RUNS, labels, ["map"]).means == {"bm25": {"map": 0.25}, "dense": {"map": 0.5}}
    fitted = distagg.fit("bestinput", as_dataset(TABLE), labels=labels)
    assert distagg.rank(fitted, pd.DataFrame(ROWS))["item"].tolist()[0] == "y"


def test_labels_in_the_data_are_replaced() -> None:
    dataset = as_dataset(TABLE.append_column("label", pa.array([0, 0, 1, 0, 1])))
    assert as_dataset(dataset, labels=QRELS).manifest.labels == {"0": 1, "1": 1}
    assert distagg.evaluate(RUNS["bm25"], dataset, ["p@1"]).means == {"p@1": 0.5}


def test_columns_of_data_and_of_labels() -> None:
    frame = pd.DataFrame(ROWS).rename(columns={"item": "page"})
    labels = pd.DataFrame({"query": ["7"], "url": ["y"], "label": [1]})
    assert as_dataset(frame, columns={"page": "item", "url": "item"}, labels=labels).manifest.labels == {"1": 1}


def test_every_function_takes_any_data() -> None:
    assert distagg.solve("rrf", RUNS).converged
    fitted = distagg.fit("bestinput", RUNS, labels=QRELS, valid=pl.DataFrame(ROWS))
    explained = distagg.explain(fitted, pd.DataFrame(ROWS), "7")
    assert explained["items"][0]["item"] == "y"
    assert [quality.expert for quality in distagg.judge_experts(fitted, RUNS)] == ["dense", "bm25"]
    assert distagg.features(RUNS, kind="borda").num_rows == 4
    many = {expert: {str(q): run["7"] for q in range(6)} for expert, run in RUNS.items()}
    tuned = distagg.tune(many, ["rrf"], labels={str(q): {"y": 1, "w": 0} for q in range(6)}, folds=3, metric="map")
    assert tuned.queries == 6


FRAME = pd.DataFrame(ROWS)
WRONG: dict[str, tuple[Any, str]] = {
    "none": (None, r"found None, expected a Dataset, a pandas or polars frame, .* dictionary of runs"),
    "list": ([1, 2], "found a list, expected a Dataset"),
    "empty list": ([], "found a list, expected a Dataset"),
    "number": (5, "found an int, expected a Dataset"),
    "series": (pd.Series([1]), "found a Series, "),
    "no such file": ("nowhere", r"nowhere: found no such file"),
    "no match": ("*.nothing", r"\*.nothing: found no file that matches the pattern"),
    "no item": (FRAME.drop(columns="item"), r"no column item; it has query, expert, score; if a column .* columns="),
    "neither rank nor score": (FRAME.drop(columns="score"), r"no column rank or score; it has query, expert, item"),
    "no expert": (FRAME.drop(columns="expert"), r"no column expert \(for one table by expert, .* \{expert: table\}"),
    "one of several": ({"a": FRAME.drop(columns=["expert", "score"])}, "table of a has no column rank or score"),
    "two queries": (FRAME.assign(qid="1"), r"columns query, qid, each of which could be the query; say which"),
    "two experts": (
        FRAME.drop(columns="expert").assign(run="r", tag="t"),
        r"columns run, tag, each of which could be the expert",
    ),
    "misspelt": (FRAME.assign(lable=1), r"unknown column of the table 'lable'; did you mean 'label'\?.*; drop it"),
    "empty": (FRAME[:0], "found no rows in the data"),
    "nan": (FRAME.assign(score=[1, 2, np.nan, 3, 4]), "<table>:3: found score None, expected a finite number"),
    "twice": (pd.concat([FRAME, FRAME[:1]]), "<table>:6: found item 'x' again in the list of 'bm25' for query '7'"),
    "mixed ids": (FRAME.assign(item=["x", 1, "z", "y", "w"]), "found a column that Arrow cannot take .*item"),
    "no runs": ({}, "found an empty dictionary, expected runs"),
    "one run": (RUNS["bm25"], r"found a float at \['7'\]\['x'\], expected .*name its expert: \{'bm25': run\}"),
    "columns": (ROWS, r"found a list under 'query', expected runs .* pyarrow.table"),
    "too deep": ({"a": RUNS}, r"found \{'x': 9.0, 'y': 8.0\} as the score of '7' in the run\['a'\]"),
    "nan in a run": ({"a": {"7": {"x": float("nan")}}}, r"found nan as the score of 'x' in the run\['a'\]"),
    "text in a run": ({"a": {"7": {"x": "1"}}}, r"found '1' as the score of 'x' in the run\['a'\]"),
    "mixed ids in a run": ({"a": {"7": {"x": 1, 2: 1}}}, r"found the id 2 in the run\['a'\], expected text, or whole"),
    "mixed ids in two runs": ({"a": {"7": {"x": 1}}, "b": {7: {2: 1}}}, "different types"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_data_are_refused_by_name(name: str) -> None:
    data, said = WRONG[name]
    with pytest.raises(DistaggError, match=said):
        distagg.rank("rrf", data)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([1], "found a list as labels, expected a frame or table with the columns query, item and label"),
        ({"x": 1}, r"found an int at \['x'\], expected \{query: \{item: label\}\}"),
        ({"7": {"x": 0.5}}, r"found label 0.5, expected a whole number, or none; .*multiply all labels by 2"),
        (pd.DataFrame({"qid": ["7"], "rel": [1]}), "labels have the columns qid, rel, expected query, item and label"),
    ],
)
def test_wrong_labels_are_refused(labels: Any, said: str) -> None:
    with pytest.raises(DistaggError, match=said):
        distagg.compare(RUNS, ["rrf"], labels=labels)


def test_fractions_are_gains_and_no_grades(tmp_path: Path) -> None:
    """Metrics that are defined on fractions have them, from every source; datasets store whole grades."""
    halves = {"7": {"x": 0.5, "y": 1.0}}
    (tmp_path / "halves.tsv").write_text("query-id\tcorpus-id\tscore\n7\tx\t0.5\n7\ty\t1.0\n")
    for labels in (halves, tmp_path / "halves.tsv"):
        found = distagg.evaluate(RUNS["bm25"], labels, ["ndcg(linear)@2"]).means["ndcg(linear)@2"]
        second = np.log2(3)
        assert found == pytest.approx((0.5 + 1 / second) / (1 + 0.5 / second))
        with pytest.raises(UsageError, match=r"found the label 0.5, but map is defined on whole grades"):
            distagg.evaluate(RUNS["bm25"], labels, ["map"])
    with pytest.raises(
        InputError, match=r"halves.tsv:2: found score '0.5', expected a whole number: labels are grades"
    ):
        as_dataset(RUNS, labels=tmp_path / "halves.tsv")


def test_wrong_columns_are_refused() -> None:
    for columns, said in (
        ({"site": "item"}, "unknown column of the table 'site'"),
        ({"item": "itm"}, "unknown name for a column 'itm'; did you mean 'item'"),
        ({"query": "item", "item": "item"}, "query and item are both named 'item'"),
    ):
        with pytest.raises(UsageError, match=said):
            distagg.rank("rrf", FRAME, columns=columns)
    with pytest.raises(UsageError, match="found columns with a Dataset"):
        distagg.rank("rrf", as_dataset(FRAME), columns={"item": "item"})


def test_rankings_of_wrong_kinds_are_refused() -> None:
    for rankings in (None, [1]):
        with pytest.raises(UsageError, match="as rankings, expected a frame or table with the columns query, item"):
            distagg.evaluate(rankings, QRELS)


def test_a_dictionary_of_runs_loads_no_frames() -> None:
    script = (
        "import sys, distagg; run = distagg.rank('rrf', {'a': {'q': {'x': 2, 'y': 1}}, 'b': {'q': {'y': 1}}});"
        "print(list(run['q']), [m for m in ('pandas', 'polars', 'numba', 'dask') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['y', 'x'] []"
