"""The step scale: small, to its report; and again without measuring what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from distagg.cli.main import main
from distagg.engine import scaling
from distagg.pipeline.folder import Kept, RunFolder
from distagg.reports.scaling_page import overtaken

SMALL = {
    "do": "scale", "queries": 20, "workers": [2], "grow": 2, "times": [1, 2], "chunks": [1000, 100000], "repeats": 2,
    "simulated": [2, 3, 4], "simulated_entries": 10000, "simulated_chunks": [1000, 5000],
}  # fmt: skip


@pytest.mark.cluster
def test_a_small_one_from_job_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scaling, "DRAWS", 20)  # for intervals that are not looked at
    Path("job.json").write_text(json.dumps({"name": "scaling", "steps": {"scaled": SMALL}}))
    assert main(["run", "job.json"]) == 0
    run = Path("runs/scaling/latest")
    found: dict[str, Any] = json.loads((run / "output" / "scaled.json").read_text())
    keys = {axis: list(found[axis]) for axis in ("strong", "weak", "experts", "items", "chunk")}
    assert keys == {
        "strong": ["2"],
        "weak": ["2"],
        "experts": ["1", "2"],
        "items": ["1", "2"],
        "chunk": ["1000", "100000"],
    }
    for axis in keys:
        for runs in found[axis].values():
            assert len(runs) == 2
            assert all(r["seconds"] == pytest.approx(r["read"] + r["compute"] + r["coordination"]) for r in runs)
    assert found["weak"]["2"][0]["entries"] == 2 * found["strong"]["2"][0]["entries"] == 4 * found["entries"]
    assert found["items"]["2"][0]["entries"] == 2 * found["entries"]
    assert [list(by) for by in found["simulated"].values()] == [["2", "3", "4"]] * 2
    assert list(found["laws"]) == ["simulated, chunks of 1,000", "simulated, chunks of 5,000"]  # one number of workers
    said = capsys.readouterr().out
    assert "Universal scalability law" in said
    assert "coordination overtakes compute at" in said
    assert (run / "report.html").read_text().count("<svg") == 6
    assert not (run / "staging" / "scaled").exists()
    assert [e["what"] for e in RunFolder(run).events() if e["event"] == "measuring"].count("strong-2") == 1


def test_what_was_measured_is_kept(tmp_path: Path) -> None:
    said: list[str] = []
    kept = Kept(tmp_path, lambda event, what: said.append(what))
    assert kept("strong-1", lambda: [{"seconds": 1.5}]) == [{"seconds": 1.5}]
    assert kept("strong-1", lambda: [{"seconds": 9.0}]) == [{"seconds": 1.5}]
    assert kept("strong-2", lambda: [{"seconds": 0.5}]) == [{"seconds": 0.5}]
    assert said == ["strong-1", "strong-2"]


def test_where_coordination_overtakes() -> None:
    def runs(compute: float, rest: float) -> list[dict[str, float]]:
        return [{"seconds": compute + rest, "compute": compute, "coordination": rest}]

    assert overtaken({"10": runs(5, 1), "30": runs(2, 1), "100": runs(1, 2), "300": runs(1, 9)}) == 100
    assert overtaken({"10": runs(5, 1)}) is None
