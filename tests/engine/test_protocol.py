"""The protocol follows the data: LETOR files are counted as LETOR's scripts do, all else as trec_eval does."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import distagg
from distagg.cli.main import main
from distagg.dataset import Dataset, expanded
from distagg.dataset.expand import expand_dataset
from distagg.engine.fitting.train import Goal
from distagg.reports import compare_report
from distagg.storage.sealed import MANIFEST

METRICS = ["ndcg@10", "map"]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TREC runs of three items, the relevant one first: trec_eval's NDCG@10 is 1, that of LETOR's scripts 0."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(f"{name}.run").write_text(f"1 Q0 x 1 3.0 {name}\n1 Q0 y 2 2.0 {name}\n1 Q0 z 3 1.0 {name}\n")
    Path("qrels").write_text("1 0 x 1\n1 0 y 0\n")
    distagg.import_dataset("trec", ["a.run", "b.run"], "runs", qrels="qrels")
    return Path("runs")


@pytest.fixture
def letor(tmp_path: Path) -> Dataset:
    file = tmp_path / "A1.txt"
    file.write_text("1 qid:7 1:1 2:2 #docid = x\n0 qid:7 1:2 2:1 #docid = y\n")
    return distagg.import_dataset("letor", [file])


def test_a_trec_run_with_the_relevant_item_first_is_worth_1(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "a.run", str(runs), "-m", "ndcg@10", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["means"], told["protocol"]) == ({"ndcg@10": 1.0}, "trec")
    assert main(["evaluate", "a.run", str(runs), "-m", "ndcg@10"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "percent, trec protocol"


def test_an_explicit_protocol_wins(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "a.run", str(runs), "-m", "ndcg@10", "--protocol", "letor"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["ndcg@10     0.00", "percent, letor protocol"]


def test_compare_says_the_protocol_in_table_report_and_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = distagg.compare(Dataset.open(runs), ["rrf", "borda"], metrics=METRICS)
    assert result["protocol"] == "trec"
    assert result["means"]["rrf"] == {"ndcg@10": 1.0, "map": 1.0}
    assert "protocol trec" in compare_report(result)
    assert main(["compare", str(runs), "--models", "rrf,borda", "-m", "map"]) == 0
    assert "percent, trec protocol" in capsys.readouterr().out


def test_models_choose_by_the_protocol_of_the_data(runs: Path) -> None:
    dataset = Dataset.open(runs)
    assert Goal("ndcg@10").on(dataset) == Goal("ndcg@10", "trec")
    assert Goal("ndcg@10", "letor").on(dataset).protocol == "letor"


def test_letor_files_are_counted_as_letor_does(letor: Dataset, tmp_path: Path) -> None:
    assert (letor.manifest.source, letor.manifest.protocol) == ("letor", "letor")
    ranking = distagg.rank("rrf", letor)
    assert distagg.evaluate(ranking, letor, ["ndcg@10"]).means == {"ndcg@10": 0.0}
    assert distagg.evaluate(ranking, letor, ["ndcg@10"], protocol="trec").protocol == "trec"


def test_copies_of_a_dataset_remember_where_it_came_from(runs: Path, letor: Dataset, tmp_path: Path) -> None:
    expand_dataset(Dataset.open(runs), tmp_path / "wide", experts=2)
    assert Dataset.open(tmp_path / "wide").manifest.source == "trec"
    assert expanded(Dataset.open(runs), experts=2).manifest.source == "trec"
    assert letor.select(parts=["A1.txt"]).manifest.source == "letor"


def test_tables_in_memory_are_counted_as_trec_eval_does() -> None:
    lists = pa.table({"expert": ["a", "a"], "item": ["x", "y"], "rank": [1, 2], "label": [1, 0]})
    dataset = Dataset.from_arrow(lists)
    assert (dataset.manifest.source, dataset.info()["source"]) == ("table", "table")
    assert distagg.evaluate(distagg.rank("rrf", dataset), dataset, ["ndcg@10"]).means == {"ndcg@10": 1.0}


def test_a_dataset_that_does_not_say_is_counted_as_when_it_was_made(runs: Path) -> None:
    body = json.loads((runs / MANIFEST).read_text())
    del body["source"], body["checksum"]  # as 0.1 wrote it
    (runs / MANIFEST).write_text(json.dumps(body))
    dataset = Dataset.open(runs)
    assert (dataset.info()["source"], dataset.manifest.protocol) == ("unknown", "letor")
