"""keep = N: old finished runs go, and nothing else ever does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from distagg.cli.main import main
from distagg.pipeline.folder import RUN_FORMAT, RunFolder, short
from distagg.pipeline.run import retain
from distagg.storage.atomic import write_whole


def finished(root: Path, n: int, name: str = "nightly") -> Path:
    """A finished run, the n-th oldest."""
    key = {"n": n}
    folder = RunFolder(root / short(key))
    (folder.path / "output").mkdir(parents=True)
    folder.write("key.json", key)
    folder.write("manifest.json", {"format": RUN_FORMAT, "name": name, "key": short(key), "files": []})
    write_whole(folder.path / "_SUCCESS", b"")
    os.utime(folder.path / "_SUCCESS", ns=(n * 10**9, n * 10**9))
    return folder.path


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    root = tmp_path / "runs" / "nightly"
    made = [finished(root, n) for n in range(5)]
    (root / "latest").symlink_to(made[4].name)
    return made


def there(root: Path) -> set[str]:
    return {entry.name for entry in root.iterdir()}


@pytest.mark.parametrize("keep", [1, 3, 5, 9])
def test_the_newest_stay(runs: list[Path], keep: int) -> None:
    root = runs[0].parent
    deleted = retain(root, "nightly", keep, runs[4].name)
    assert set(deleted) == {run.name for run in runs[: max(0, 5 - keep)]}
    assert there(root) == {"latest", *(run.name for run in runs[-keep:])}


def test_the_latest_stays_though_it_is_old(runs: list[Path]) -> None:
    root = runs[0].parent
    (root / "latest").unlink()
    (root / "latest").symlink_to(runs[0].name)
    retain(root, "nightly", 1, runs[3].name)
    assert there(root) == {"latest", runs[0].name, runs[3].name}


def test_unfinished_and_held_runs_stay(runs: list[Path]) -> None:
    root = runs[0].parent
    (runs[0] / "_SUCCESS").unlink()
    with RunFolder(runs[1]).lease():
        retain(root, "nightly", 1, runs[4].name)
    assert there(root) == {"latest", runs[0].name, runs[1].name, runs[4].name}
    assert (runs[1] / "manifest.json").is_file()


def test_what_is_no_run_of_this_job_stays(runs: list[Path], tmp_path: Path) -> None:
    root = runs[0].parent
    outside = finished(tmp_path / "elsewhere", 7)
    other = finished(root, 8, name="weekly")
    renamed = root / "the-good-one"
    runs[0].rename(renamed)
    (root / outside.name).symlink_to(outside)
    (root / "thesis").mkdir()
    (root / "thesis" / "_SUCCESS").touch()
    (root / "thesis" / "thesis.tex").write_text("x")
    (root / "notes.txt").write_text("x")
    RunFolder(runs[1]).write("manifest.json", {"format": "distagg-dataset"})
    RunFolder(runs[2]).write("key.json", {"n": 100})
    assert retain(root, "nightly", 1, runs[4].name) == [runs[3].name]
    kept = {other.name, "the-good-one", outside.name, "thesis", "notes.txt", *(run.name for run in runs[1:3])}
    assert there(root) == {"latest", runs[4].name, *kept}
    assert (outside / "manifest.json").is_file()


def test_a_deletion_that_was_cut_short_is_finished(runs: list[Path]) -> None:
    root = runs[0].parent
    runs[0].rename(root / f".gone-{runs[0].name}")
    (root / f".gone-{runs[0].name}" / "manifest.json").unlink()
    (root / ".gone-with-the-wind").mkdir()
    retain(root, "nightly", 9, runs[4].name)
    assert there(root) == {"latest", ".gone-with-the-wind", *(run.name for run in runs[1:])}


def test_a_job_that_keeps_two(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f'name = "nightly"\nkeep = 2\n[steps.ranked]\ndo = "rank"\nmodel = "rrf"\ndataset = "{small}"\n'
    Path("job.toml").write_text(text)
    seen: list[str] = []
    for seed in range(3):
        assert main(["run", "job.toml", "--seed", str(seed)]) == 0
        seen.append(Path("runs/nightly/latest").resolve().name)
    assert there(Path("runs/nightly")) == {"latest", *seen[1:]}
    told: list[dict[str, Any]] = RunFolder(Path("runs/nightly/latest")).events()
    assert [(one["run"], one["keep"]) for one in told if one["event"] == "run deleted"] == [(seen[0], 2)]
    assert f"{seen[0]}: keep = 2" in capsys.readouterr().err
