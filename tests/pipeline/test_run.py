"""Runs: from a job file to a finished directory, again without work, and refused where something changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_jobs import fingerprints, ranking_job, training_job

from distagg import rank
from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine.read_rankings import read_rankings
from distagg.pipeline.folder import RunFolder
from distagg.pipeline.status import status


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(body: dict[str, Any], name: str = "job.json") -> str:
    Path(name).write_text(json.dumps(body))
    return name


def events(run: Path, event: str) -> list[dict[str, Any]]:
    return [one for one in RunFolder(run).events() if one["event"] == event]


def test_figures_on_training_queries_are_said_to_be_such(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate = {"do": "evaluate", "dataset": str(small), "metrics": ["map"]}
    steps = {
        "model": {"do": "fit", "model": "bestinput", "dataset": str(small)},
        "learned": {"do": "rank", "model": "model", "dataset": str(small)},
        "fused": {"do": "rank", "model": "rrf", "dataset": str(small)},
        "checked": {**evaluate, "rankings": "learned"},
        "other": {**evaluate, "rankings": "fused"},
    }
    assert main(["run", write({"name": "told", "steps": steps})]) == 0
    said = capsys.readouterr().out.splitlines()
    checked, other = (
        said[n + 3] for n, line in enumerate(said) if line.startswith(("checked ", "other ")) and "map" in line
    )
    assert checked.startswith("percent, trec protocol; measured on the queries that the model was trained on")
    assert other == "percent, trec protocol"
    assert (Path("runs/told/latest") / "report.html").read_text().count("the model was trained on") == 1


def test_the_report_draws_how_a_model_was_trained_and_its_weights(small: Path) -> None:
    settings = {"rounds": 3, "validation": "given", "prior": 0.0}
    steps = {"model": {"do": "fit", "model": "crf", "dataset": str(small), "settings": settings}}
    assert main(["run", write({"name": "drawn", "steps": steps})]) == 0
    report = (Path("runs/drawn/latest") / "report.html").read_text()
    for told in ("Model of model: crf", "map after each round", "of 3 are kept", "Weights of experts"):
        assert told in report, told


def test_a_tuned_rule_ranks_and_its_held_out_figures_are_reported(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = {
        "tuned": {
            "do": "tune",
            "dataset": str(small),
            "models": ["rrf"],
            "folds": 3,
            "goal": "ndcg@5",
            "product": "json",
        },
        "ranked": {"do": "rank", "model": "tuned", "dataset": str(small)},
        "checked": {"do": "evaluate", "rankings": "ranked", "dataset": str(small), "metrics": ["map"]},
    }
    assert main(["run", write({"name": "tuning", "steps": steps})]) == 0
    said = capsys.readouterr().out
    assert "rrf tuned" in said
    assert said.count("the model was trained on") == 1
    run = Path("runs/tuning/latest")
    means = json.loads((run / "metrics.json").read_text())["tuned"]
    assert list(means) == ["rrf", "rrf tuned"]
    about = json.loads((run / "output" / "tuned" / "manifest.json").read_text())["about"]
    assert about["export"]["value"]["rule"] == "rrf"
    page = (run / "report.html").read_text()
    assert f"{100 * means['rrf tuned']['ndcg@5']:.2f}" in page
    assert main(["run", write({"name": "tuning", "steps": steps})]) == 0
    assert "done already" in capsys.readouterr().err


def test_a_step_takes_weights_depth_and_top(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Dataset.open(small)
    chosen = {"weights": {data.experts[0]: 5}, "depth": 3}
    steps = {"fused": {"do": "rank", "model": "RRF", "dataset": str(small), "settings": chosen, "top": 2}}
    job = write({"name": "fusion", "steps": steps})
    assert main(["run", job]) == 0
    output = Path("runs/fusion/latest/output/fused")
    assert read_rankings(output).to_pylist() == rank("rrf", data, top=2, **chosen).to_pylist()
    assert main(["run", job, "steps.fused.top=1"]) == 0
    assert read_rankings(output)["rank"].unique().to_pylist() == [1]
    steps["fused"]["settings"] = {"weights": {"nobody": 2}}
    assert main(["run", write({"name": "fusion", "steps": steps})]) == 2
    assert "steps.fused.dataset: unknown expert in weights 'nobody'" in capsys.readouterr().err


def test_a_run_from_files_to_a_report(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["1 Q0 x 1 3.0 a", "1 Q0 y 2 2.0 a", "2 Q0 x 1 3.0 a"]
    Path("a.run").write_text("\n".join(lines) + "\n")
    Path("b.run").write_text("1 Q0 y 1 3.0 b\n1 Q0 z 2 2.0 b\n")
    Path("qrels").write_text("1 0 y 1\n1 0 x 0\n2 0 x 1\n")
    steps = {
        "runs": {"do": "import", "source": "trec", "files": ["a.run", "b.run"], "qrels": "qrels"},
        "fused": {"do": "rank", "model": "rrf", "dataset": "runs", "format": "trec"},
        "checked": {"do": "evaluate", "rankings": "fused", "dataset": "runs", "metrics": ["map"]},
        "compared": {"do": "compare", "models": ["rrf", "borda"], "dataset": "runs", "metrics": ["map"]},
    }
    assert main(["run", write({"name": "fusion", "steps": steps}), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["metrics"]["checked"] == {"map": 1.0}
    assert set(told["metrics"]["compared"]) == {"rrf", "borda"}
    run = Path("runs/fusion/latest")
    assert Path(told["run"]) == run.resolve()
    first = read_rankings(run / "output" / "fused.trec").slice(0, 1).to_pylist()[0]
    assert (first["query"], first["item"]) == ("1", "y")
    made = {entry.name for entry in run.iterdir()}
    assert made >= {
        "job.json", "key.json", "environment.json", "plan.json", "events.jsonl", "metrics.json", "report.html",
        "manifest.json", "_SUCCESS", "output",
    }  # fmt: skip
    html = (run / "report.html").read_text()
    assert "report-compared.html" in html
    assert (run / "report-compared.html").is_file()
    listed = {one["path"]: one for one in json.loads((run / "manifest.json").read_text())["files"]}
    on_disk = {str(file.relative_to(run)) for file in (run / "output").rglob("*") if file.is_file()}
    assert set(listed) == on_disk | {"metrics.json"}
    assert all((run / path).stat().st_size == one["bytes"] for path, one in listed.items())


def test_a_finished_run_is_left_alone(small: Path) -> None:
    job = write(ranking_job(small))
    assert main(["run", job]) == 0
    run = Path("runs/ranking/latest").resolve()
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*") if file.is_file() and file.name != "lease"}
    assert main(["run", job]) == 0
    assert main(["resume", str(run)]) == 0
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert [entry.name for entry in Path("runs/ranking").iterdir() if not entry.is_symlink()] == [run.name]


def test_another_setting_is_another_run_and_latest_follows(small: Path) -> None:
    job = write(ranking_job(small))
    assert main(["run", job]) == 0
    first = Path("runs/ranking/latest").resolve()
    assert main(["run", job, "steps.ranked.model=borda"]) == 0
    second = Path("runs/ranking/latest").resolve()
    assert first != second
    assert fingerprints(first) != fingerprints(second)


def test_a_changed_input_is_shown_and_refused(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(small, "data")
    job = write(ranking_job(Path("data")))
    assert main(["run", job, "-o", "out"]) == 0
    assert main(["run", job, "-o", "out", "steps.ranked.model=borda"]) == 2
    assert "steps.ranked.model: was rrf, is borda" in capsys.readouterr().err
    shutil.rmtree("data")
    from distagg.dataset import write_dataset
    from distagg.sources.synthetic import SyntheticSource

    write_dataset(SyntheticSource(queries=10, seed=4), Path("data"))
    assert main(["resume", "out"]) == 2
    assert f"inputs.{Path('data').absolute()}: was " in capsys.readouterr().err


def test_a_directory_of_something_else_is_refused(small: Path) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("x")
    assert main(["run", write(ranking_job(small)), "-o", "mine"]) == 2
    assert [entry.name for entry in Path("mine").iterdir()] == ["thesis.tex"]
    assert main(["resume", "mine"]) == 2


def test_a_second_driver_is_kept_out(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write(ranking_job(small))
    Path("out").mkdir()
    with RunFolder(Path("out")).lease():
        assert main(["run", job, "-o", "out"]) == 4
        assert "is locked by process" in capsys.readouterr().err
    assert main(["run", job, "-o", "out"]) == 0
    assert status(Path("out"))["driver"] is None


def test_not_converged_is_said_again_by_whoever_resumes(small: Path) -> None:
    body = ranking_job(small)
    body["steps"]["ranked"] |= {"model": "mpm", "settings": {"steps": 1}}
    job = write(body)
    assert main(["run", job, "-o", "out"]) == 1
    Path("out/_SUCCESS").unlink()  # as if the driver had died just before
    assert main(["resume", "out"]) == 1
    assert json.loads(Path("out/manifest.json").read_text())["notes"]["ranked"]
    assert main(["run", job, "-o", "out"]) == 1


def test_not_converged_is_said_of_what_was_taken_over(small: Path) -> None:
    body = ranking_job(small)
    body["steps"]["ranked"] |= {"model": "mpm", "settings": {"steps": 1}}
    job = write(body)
    assert main(["run", job]) == 1
    assert main(["run", job, "steps.checked.metrics=['p@3']"]) == 1  # the whole step
    run = Path("runs/ranking/latest")
    assert events(run, "step reused")
    (run / "keys" / "ranked.json").write_text("{}")  # now only its parts are the same
    assert main(["run", job, "steps.checked.metrics=['map']"]) == 1
    (counted,) = events(run, "parts reused")
    assert counted["count"] == counted["of"] > 8
    assert json.loads((run / "manifest.json").read_text())["notes"]["ranked"]


def test_plan_status_report_doctor(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write(training_job(small))
    capsys.readouterr()
    assert main(["plan", job, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["do"] for row in rows] == ["fit", "rank"]
    assert rows[1]["chunks"] > 5
    assert rows[0]["seconds"] > 0
    assert rows[0]["memory"] > 0
    assert [entry.name for entry in Path().iterdir()] == ["job.json"]  # nothing is written
    assert main(["plan", job]) == 0
    assert main(["run", job]) == 0
    run = "runs/training/latest"
    capsys.readouterr()
    assert main(["status", run, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], [step["state"] for step in told["steps"]]) == ("finished", ["done", "done"])
    Path(run, "report.html").unlink()
    assert main(["report", run]) == 0
    assert "training" in Path(run, "report.html").read_text()
    assert main(["status", run]) == 0
    assert main(["status", "nowhere"]) == 3
    capsys.readouterr()
    assert main(["doctor", "--no-cluster", "--json"]) == 0
    assert {row["check"]: row["state"] for row in json.loads(capsys.readouterr().out)}["kernels"] == "ok"


def test_every_job_that_is_shipped_is_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from distagg.pipeline import read_job

    for name in (
        "A1.txt",
        "A2.txt",
        "A3.txt",
        "A4.txt",
        "A5.txt",
        "u.data",
        "bm25.run",
        "dense.run",
        "qrels.txt",
        "battles.csv",
        "lists.csv",
    ):
        Path(name).touch()
    found = sorted((Path(__file__).parents[2] / "jobs").glob("*.toml"))
    assert len(found) >= 4
    assert all(read_job(file).name == file.stem for file in found)
    assert read_job(next(file for file in found if file.stem == "nightly")).keep == 14  # as cluster/scheduled says


def test_nothing_on_disk_is_a_pickle(small: Path) -> None:
    body = training_job(small)
    body["steps"]["model"]["settings"]["rounds"] = 3
    assert main(["run", write(body), "-o", "out"]) == 0
    endings = {".json", ".jsonl", ".parquet", ".html", ""}
    files = [file for file in Path("out").rglob("*") if file.is_file()]
    assert {file.suffix for file in files} <= endings
    assert not any(file.read_bytes()[:1] == b"\x80" for file in files)  # how pickles begin
    root = Path(__file__).parents[2] / "distagg"
    readers = ("import pickle", "pickle.load", "cloudpickle", "joblib", "allow_pickle=True", "np.load(")
    found = [file for file in root.rglob("*.py") if any(word in file.read_text() for word in readers)]
    assert found == [root / "jit_cache.py"]  # compiled code, in a folder that is the user's alone


def test_a_cluster_that_does_not_start(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_in(*place: Any) -> Any:
        raise RuntimeError("Nanny failed to start.")

    with monkeypatch.context() as patched:
        patched.setattr("distagg.cli.jobs.run_in", run_in)
        assert main(["run", write(ranking_job(small)), "-o", "out", "--workers", "2"]) == 4
    assert "the cluster did not start: Nanny failed to start." in capsys.readouterr().err
    assert status(Path("out"))["state"] == "stopped"
    assert main(["resume", "out", "--workers", "0"]) == 0
