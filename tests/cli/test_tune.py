"""The command tune: its table, its model, its exports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distagg.cli.main import main
from distagg.dataset import write_dataset
from distagg.sources.synthetic import SyntheticSource

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("lists") / "data"
    write_dataset(SyntheticSource(queries=40, items=10, experts=4, seed=4), target)
    return str(target)


def test_the_table_and_the_model(lists: str, tmp_path: Path, capsys: Capture) -> None:
    model = str(tmp_path / "model")
    assert main(["tune", lists, "--folds", "3", "-m", "ndcg@5", "-m", "map", "--beside", "bestinput", "-o", model]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["held", "out", "ndcg@5", "map", "ndcg@5", "over", "rrf"]
    assert [line.split("  ")[0] for line in lines[2:7]] == ["rrf", "combsum", "rrf tuned", "combsum tuned", "bestinput"]
    assert lines[-4].startswith("(40 labelled queries, ")
    assert [line.split(":")[0] for line in lines[-3:]] == ["fold 1", "fold 2", "fold 3"]
    assert main(["rank", model, lists, "-o", str(tmp_path / "ranked")]) == 0
    assert main(["tune", lists, "-o", model]) == 2  # nothing is overwritten
    assert "exists already" in capsys.readouterr().err


def test_an_export_goes_to_stdout_and_the_table_to_stderr(lists: str, capsys: Capture) -> None:
    assert main(["tune", lists, "--folds", "3", "--models", "rrf", "--export", "elasticsearch"]) == 0
    shown = capsys.readouterr()
    assert set(json.loads(shown.out)["retriever"]) == {"rrf"}
    assert "rrf tuned" in shown.err
    assert "note: " in shown.err


def test_json_has_everything(lists: str, capsys: Capture) -> None:
    assert main(["tune", lists, "--folds", "3", "--models", "combsum", "--export", "vespa", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert [row["rule"] for row in body["table"]] == ["combsum", "combsum tuned"]
    assert len(body["folds"]) == 3
    assert body["export"]["product"] == "Vespa 8"
    assert body["export"]["notes"]


def test_wrong_usage(lists: str, capsys: Capture) -> None:
    assert main(["tune", lists, "--models", "crf"]) == 2
    assert "crf takes no weights" in capsys.readouterr().err
    assert main(["tune", lists, "--folds", "2"]) == 2
    assert main(["tune", lists, "--export", "solr"]) == 2
