"""Trackers are told of every model: by a callback in Python, by JSON lines from commands and jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import distagg
from distagg.cli.main import main
from distagg.engine.tracking import learning_curve
from distagg.examples import write_example


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISTAGG_LOG", raising=False)
    write_example("metasearch", Path("runs"))
    return Path("runs")


def logged(file: str = "log.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


FILES = ["runs/bm25.run", "runs/dense.run"]


def test_compare_tells_of_every_model(runs: Path) -> None:
    rows: list[dict[str, Any]] = []
    given = {"labels": "runs/qrels.txt", "settings": {"rrf": {"c": 10}}, "on_result": rows.append}
    result = distagg.compare(FILES, ["rrf", "borda"], metrics=["map", "mrr"], **given)
    assert [row["model"] for row in rows] == ["rrf", "borda"]
    assert {row["model"]: row["metrics"] for row in rows} == result["means"]
    assert rows[0]["settings"] == {"c": 10.0}
    assert all(row["what"] == "compare" and row["seconds"] >= 0 and row["protocol"] == "trec" for row in rows)


def test_compare_tells_of_a_model_when_it_is_done(runs: Path) -> None:
    told: list[str] = []
    watched = {"watch": lambda name, means, seconds: told.append(f"{name} done")}
    heard = {"on_result": lambda row: told.append(f"{row['model']} told")}
    result = distagg.compare(FILES, ["rrf", "borda"], labels="runs/qrels.txt", folds=3, **watched, **heard)
    assert told == ["rrf done", "rrf told", "borda done", "borda told"]
    assert result["folds"] == "3"
    assert {row["fold"] for row in result["results"]} == {"1", "2", "3"}


def test_fit_and_tune_tell_what_they_found(runs: Path) -> None:
    rows: list[dict[str, Any]] = []
    labels = "runs/qrels.txt"
    fitted = distagg.fit("crf", FILES, labels=labels, rounds=3, validation="given", prior=0.0, on_result=rows.append)
    assert rows[0]["curve"] == fitted.params["curve"].tolist()
    assert rows[0]["metrics"] == {"map": max(rows[0]["curve"])}
    tuned = distagg.tune(FILES, ["rrf"], labels=labels, folds=3, metric="map", on_result=rows.append)
    assert {row["model"]: row["metrics"]["map"] for row in rows[1:]} == {r["rule"]: r["map"] for r in tuned.table}


def test_trees_have_a_curve_too(runs: Path) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    fitted = distagg.fit("lambdamart", FILES, labels="runs/qrels.txt", trees=4)
    curve = learning_curve(fitted)
    assert curve["values"][curve["kept"] - 1] == max(curve["values"])


def test_commands_and_jobs_write_json_lines(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISTAGG_LOG", "log.jsonl")
    qrels = ["--qrels", "runs/qrels.txt"]
    assert main(["evaluate", *FILES, "runs/qrels.txt", "-m", "map", "--json"]) == 0
    means = json.loads(capsys.readouterr().out)["means"]
    assert {row["model"]: row["metrics"] for row in logged()} == means
    assert main(["fit", "bestinput", *FILES, *qrels, "-o", "model"]) == 0
    assert main(["compare", *FILES, *qrels, "--models", "rrf", "-m", "map"]) == 0
    steps = {
        "data": {"do": "import", "source": "trec", "files": FILES, "qrels": "runs/qrels.txt"},
        "model": {"do": "fit", "model": "bestinput", "dataset": "data"},
        "ranked": {"do": "rank", "model": "model", "dataset": "data"},
        "checked": {"do": "evaluate", "rankings": "ranked", "dataset": "data", "metrics": ["map"]},
    }
    Path("job.json").write_text(json.dumps({"name": "logged", "steps": steps}))
    assert main(["run", "job.json"]) == 0
    told = [(row["what"], row["model"]) for row in logged()]
    expected = [("fit", "bestinput"), ("compare", "rrf"), ("fit", "bestinput"), ("evaluate", "checked")]
    assert told[2:] == expected


def test_a_log_that_cannot_be_written_is_said(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISTAGG_LOG", "no/such/folder/log.jsonl")
    assert main(["evaluate", *FILES, "runs/qrels.txt"]) == 4
    assert "DISTAGG_LOG: " in capsys.readouterr().err
