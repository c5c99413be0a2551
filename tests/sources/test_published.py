"""BEIR folders and datasets of ir_datasets: what they hold becomes lists and labels."""

from __future__ import annotations

import json
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import pytest

import distagg
from distagg.cli.main import main
from distagg.errors import InputError, UsageError

DENSE = {"q1": {"d2": 0.9, "d1": 0.4}, "q2": {"d3": 0.7}}
Qrel = namedtuple("Qrel", "query_id doc_id relevance iteration")
Scored = namedtuple("Scored", "query_id doc_id score")


@pytest.fixture
def beir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as BEIR's downloads are, and two runs beside it."""
    monkeypatch.chdir(tmp_path)
    folder = Path("scifact")
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "title": "t", "text": "x"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "x"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq2\td3\t1\n")
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq9\td1\t1\n")
    Path("bm25.run").write_text("q1 Q0 d1 1 12.5 x\nq1 Q0 d2 2 11 x\nq2 Q0 d3 1 9 x\n")
    Path("dense.json").write_text(json.dumps(DENSE))
    return folder


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part of ir_datasets' interface that is used, with one dataset."""
    judged = [Qrel("q1", "d1", 1, "0"), Qrel("q1", "d2", 0, "0"), Qrel("q2", "d3", 1, "0")]
    scored = [Scored("q1", "d2", 3.0), Scored("q1", "d1", 2.0), Scored("q2", "d3", 1.0)]
    known = {
        "tiny/test": SimpleNamespace(
            has_qrels=lambda: True,
            qrels_iter=lambda: iter(judged),
            has_scoreddocs=lambda: True,
            scoreddocs_iter=lambda: iter(scored),
        ),
        "tiny": SimpleNamespace(has_qrels=lambda: False, has_scoreddocs=lambda: False),
    }
    monkeypatch.setitem(sys.modules, "ir_datasets", SimpleNamespace(load=known.__getitem__))


def test_a_beir_folder_with_runs(beir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "beir", "scifact", "bm25.run", "dense.json", "-o", "data", "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert (info["queries"], info["items"], info["entries"]) == (2, 3, 6)
    assert info["labels"] == {"0": 1, "1": 2}
    data = distagg.Dataset.open("data")
    assert data.experts == ("bm25", "dense")
    ours = {row["item"]: row["score"] for row in distagg.rank("rrf", data).to_pylist()}
    assert ours["d2"] == ours["d1"] == pytest.approx(1 / 61 + 1 / 62)


def test_other_judgements_are_named(beir: Path) -> None:
    (beir / "qrels" / "test.tsv").rename(beir / "qrels" / "dev.tsv")
    with pytest.raises(UsageError, match=r"dev\.tsv, train\.tsv, and none is test\.tsv; name one by --qrels"):
        distagg.import_dataset("beir", ["scifact", "bm25.run"])
    data = distagg.import_dataset("beir", ["scifact", "bm25.run"], qrels="scifact/qrels/dev.tsv")
    assert data.info()["labels"] == {"0": 1, "1": 2}


def test_a_folder_without_runs_is_refused(beir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "beir", "scifact", "-o", "data"]) == 2
    assert "no rankings; give runs with it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "no JSON"),
        ("[1]", "JSON of another form"),
        ('{"q": [1]}', "JSON of another form"),
        ('{"q": {"d": "high"}}', "score 'high' of item 'd' in query 'q'"),
        ('{"q": {"d": NaN}}', "score nan"),
        ('{"q": {"d": true}}', "score True"),
    ],
)
def test_broken_results_are_refused(beir: Path, text: str, found: str) -> None:
    Path("dense.json").write_text(text)
    with pytest.raises(InputError, match=r"dense\.json") as error:
        distagg.import_dataset("beir", ["scifact", "dense.json"])
    assert found in str(error.value)


def test_an_item_twice_in_a_run_is_found(beir: Path) -> None:
    Path("bm25.run").write_text("q1 Q0 d1 1 12.5 x\nq1 Q0 d1 2 11 x\n")
    with pytest.raises(InputError, match=r"bm25\.run:\d"):
        distagg.import_dataset("beir", ["scifact", "bm25.run"])


@pytest.mark.usefixtures("package")
def test_judgements_of_ir_datasets(beir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = "ir_datasets:tiny/test"
    assert main(["import", "trec", "bm25.run", "--qrels", reference, "-o", "data", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == {"0": 1, "1": 2}
    assert main(["evaluate", "bm25.run", reference, "-m", "map", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["means"] == {"map": 1.0}
    assert distagg.evaluate(DENSE, reference, ["mrr"]).means == {"mrr": 0.75}


@pytest.mark.usefixtures("package")
def test_scored_documents_of_ir_datasets(beir: Path) -> None:
    data = distagg.import_dataset(None, "ir_datasets:tiny/test", "data")
    assert data.experts == ("scoreddocs",)
    assert data.info()["labels"] == {"0": 1, "1": 2}
    assert distagg.rank("rrf", data)["item"].to_pylist() == ["d2", "d1", "d3"]
    with pytest.raises(UsageError, match="has no scored documents to rank; give runs"):
        distagg.import_dataset(None, "ir_datasets:tiny")
    with pytest.raises(UsageError, match="has no judgements; its subsets may have"):
        distagg.evaluate(DENSE, "ir_datasets:tiny")
    with pytest.raises(UsageError, match="knows no dataset 'other'"):
        distagg.evaluate(DENSE, "ir_datasets:other")


def test_the_missing_package_is_named(beir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(UsageError, match="pip install ir_datasets"):
        distagg.evaluate(DENSE, "ir_datasets:tiny/test")
