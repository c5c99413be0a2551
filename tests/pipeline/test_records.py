"""Outputs are recorded by hash when they are made, and checked when they are relied on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_jobs import CHUNK, fingerprints

from distagg.cli.main import main
from distagg.errors import InputError
from distagg.pipeline.folder import Kept, RunFolder
from distagg.pipeline.records import damage_of_run
from distagg.pipeline.status import job_of
from distagg.pipeline.steps import metrics_of

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def finished(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with an output of every kind: model, rankings in a directory and in a file, results."""
    folder = tmp_path_factory.mktemp("finished")
    ranked = {"do": "rank", "dataset": str(small), "chunk_entries": CHUNK}
    steps: dict[str, dict[str, Any]] = {
        "model": {"do": "fit", "model": "bestinput", "dataset": str(small)},
        "parts": {**ranked, "model": "model"},
        "lines": {**ranked, "model": "rrf", "format": "csv"},
        "runs": {**ranked, "model": "mc4", "settings": {"steps": 1}, "format": "trec"},
        "checked": {"do": "evaluate", "rankings": "lines", "dataset": str(small), "metrics": ["map"]},
    }
    (folder / "job.json").write_text(json.dumps({"name": "kinds", "runs": str(folder), "steps": steps}))
    assert main(["run", str(folder / "job.json"), "-o", str(folder / "run")]) == 1  # mc4 does not converge
    return folder / "run"


def flip(file: Path) -> None:
    """Flip a bit in the middle of a file; in text it is a digit if there is one, so that the file can still be read."""
    body = bytearray(file.read_bytes())
    digits = [n for n, byte in enumerate(body) if chr(byte).isdigit()]
    at = digits[len(digits) // 2] if file.suffix != ".parquet" and digits else len(body) // 2
    body[at] ^= 1
    file.write_bytes(body)


OUTPUTS = [
    "output/lines.csv",
    "output/runs.trec",
    "output/checked.json",
    "output/parts/part-00001.parquet",
    "output/parts/_manifest.json",
    "output/model/params.parquet",
    "output/model/manifest.json",
    "notes/runs.json",
    "made/checked.json",
]


@pytest.mark.parametrize("name", OUTPUTS)
def test_resume_makes_damaged_outputs_again(name: str, finished: Path, tmp_path: Path, capsys: Capture) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    expected = fingerprints(run)
    for end in ("_SUCCESS", "manifest.json", "metrics.json"):  # a driver that was killed before the end
        (run / end).unlink()
    flip(run / name)
    assert main(["status", str(run), "--verify"]) == 3
    assert "damaged: " in capsys.readouterr().out
    assert main(["resume", str(run)]) == 1
    assert fingerprints(run) == expected
    assert any(event["event"] == "output damaged" for event in RunFolder(run).events())
    assert main(["status", str(run), "--verify"]) == 0


@pytest.mark.parametrize(
    "name",
    [*OUTPUTS, "metrics.json", "manifest.json", "report.html", "pages.json", "environment.json", "plan.json"],
)
def test_a_finished_run_with_damage_is_not_done_already(
    name: str, finished: Path, tmp_path: Path, capsys: Capture
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    expected = fingerprints(run)
    flip(run / name)
    assert main(["verify", str(run)]) == 3
    assert name in capsys.readouterr().err
    assert main(["resume", str(run)]) == 1
    told = capsys.readouterr().err
    assert "damaged since the run finished, and made again: " in told
    assert name in told
    assert "done already" not in told
    assert fingerprints(run) == expected
    assert main(["resume", str(run)]) == 1
    assert "done already" in capsys.readouterr().err
    assert main(["verify", str(run)]) == 0


@pytest.mark.parametrize("name", ["job.json", "key.json"])
def test_a_damaged_job_is_not_run(name: str, finished: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(finished, tmp_path / "run")
    flip(tmp_path / "run" / name)
    assert main(["resume", str(tmp_path / "run")]) == 3
    assert name in capsys.readouterr().err


def test_an_output_without_its_record_is_made_again_unless_its_manifest_vouches_for_it(
    finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    expected = fingerprints(run)
    for end in ("_SUCCESS", "manifest.json", "metrics.json"):
        (run / end).unlink()
    shutil.rmtree(run / "made")
    before = len(RunFolder(run).events())
    assert main(["resume", str(run)]) == 1
    again = [event["step"] for event in RunFolder(run).events()[before:] if event["event"] == "step"]
    assert again == ["lines", "runs", "checked"]
    assert fingerprints(run) == expected


def test_a_new_report_is_not_damage(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    assert main(["report", str(tmp_path / "run")]) == 0
    assert damage_of_run(RunFolder(tmp_path / "run"), job_of(RunFolder(tmp_path / "run")).steps) == []


def test_metrics_come_from_results_as_they_were_made(finished: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(finished, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert metrics_of(job_of(folder), folder) == json.loads((folder.path / "metrics.json").read_text())
    flip(folder.path / "output" / "checked.json")
    json.loads((folder.path / "output" / "checked.json").read_text())  # only another number
    with pytest.raises(InputError, match=r"checked\.json: found another content than that of its record"):
        metrics_of(job_of(folder), folder)
    assert main(["report", str(folder.path)]) == 3
    assert f"distagg resume {folder.path}" in capsys.readouterr().err


def test_damaged_measurements_are_made_again(tmp_path: Path) -> None:
    said: list[str] = []
    kept = Kept(tmp_path, lambda event, what: said.append(what))
    assert kept("one", lambda: [1.5, {"b": 2}]) == [1.5, {"b": 2}]
    assert kept("one", lambda: pytest.fail("measured again")) == [1.5, {"b": 2}]
    flip(tmp_path / "one.json")
    assert kept("one", lambda: 3) == 3
    assert said == ["one", "one"]


@pytest.mark.parametrize("kind", ["output/model", "output/parts"])
def test_verify_checks_directories_and_info_says_when(kind: str, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / kind, tmp_path / "it")
    assert main(["verify", str(tmp_path / "it")]) == 0
    assert (tmp_path / "it" / "_verified.json").is_file()
    flip(next(iter(sorted((tmp_path / "it").glob("*.parquet")))))
    assert main(["verify", str(tmp_path / "it")]) == 3
    assert not (tmp_path / "it" / "_verified.json").exists()


def test_verify_checks_a_dataset_and_info_says_when(small: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(small, tmp_path / "data")
    assert main(["info", str(tmp_path / "data"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] == "never"
    assert main(["verify", str(tmp_path / "data")]) == 0
    assert "all as they were written" in capsys.readouterr().out
    assert main(["info", str(tmp_path / "data"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"].endswith(" UTC")
    flip(tmp_path / "data" / "lists-00000.parquet")
    assert main(["verify", str(tmp_path / "data"), "--json"]) == 3
    told = capsys.readouterr()
    assert json.loads(told.out)["damage"] == [f"{tmp_path / 'data' / 'lists-00000.parquet'}: another SHA-256"]
    assert "make it again" in told.err
    (tmp_path / "data" / "lists-00000.parquet").unlink()
    assert main(["verify", str(tmp_path / "data")]) == 3
    assert "no such file" in capsys.readouterr().err


def test_verify_says_what_it_takes(tmp_path: Path, capsys: Capture) -> None:
    assert main(["verify", str(tmp_path / "nothing")]) == 3
    (tmp_path / "file.csv").write_text("query,item,rank\n")
    assert main(["verify", str(tmp_path / "file.csv")]) == 2
    assert main(["verify", str(tmp_path)]) == 3
    assert capsys.readouterr().err.count("a dataset, a model, rankings or a run") == 3
