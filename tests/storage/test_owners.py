"""Staging paths of killed processes are told from those of running ones, and removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from distagg.cli.main import main
from distagg.storage.atomic import staged_directory, staged_file
from distagg.storage.owners import _here, _start, abandoned_in, is_abandoned, owner, staging_name, sweep

STAGE = """
import sys
from pathlib import Path
from distagg.storage.atomic import staged_directory, staged_file
with staged_directory(Path(sys.argv[1])) as folder, staged_file(Path(sys.argv[2])) as file:
    (folder / "part").write_text("half")
    file.write_text("half")
    print("staged", flush=True)
    sys.stdin.read()
"""


@contextmanager
def writing(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has staged a directory ``out`` and a file ``out.csv``, and waits."""
    words = [sys.executable, "-c", STAGE, str(folder / "out"), str(folder / "out.csv")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "staged\n"
        try:
            yield process
        finally:
            process.kill()


def staged(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if ".staging-" in path.name)


def test_what_a_killed_process_left_is_removed_by_the_next_attempt(tmp_path: Path) -> None:
    with writing(tmp_path) as process:
        assert len(staged(tmp_path)) == 2
        with staged_directory(tmp_path / "out") as folder:
            assert len(staged(tmp_path)) == 3  # the other process still runs
            (folder / "part").write_text("whole")
        os.rename(tmp_path / "out", tmp_path / "elsewhere")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(staged(tmp_path)) == 2
    with staged_directory(tmp_path / "out") as folder:
        (folder / "part").write_text("whole")
        assert [name.startswith(".out.staging-") for name in staged(tmp_path)] == [False, True]
    assert [name.startswith(".out.csv.staging-") for name in staged(tmp_path)] == [True]
    with staged_file(tmp_path / "out.csv") as file:
        file.write_text("whole")
    assert staged(tmp_path) == []
    assert (tmp_path / "out" / "part").read_text() == "whole"


def test_doctor_removes_what_killed_processes_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    ended = f"{_here()}.{dead.stdout.strip()}.1"
    gone = ["deep/er/.a.json.new-0123abcd." + ended, ".b.staging-0123abcd." + ended, "distagg-a_b4c5d6." + ended]
    other = ["another-host." + ended.partition(".")[2], owner()]
    kept = [f".c.staging-0123abcd.{one}" for one in other] + [".d.staging-0123abcd", "distagg-notes.txt", ".hidden"]
    for name in (*gone, *kept):
        Path(name).mkdir() if "staging" in name else Path(name).touch()
    assert main(["doctor", "--clean"]) == 0
    told = capsys.readouterr()
    assert sorted(told.out.split()) == sorted(str(tmp_path / name) for name in gone)
    assert "removed 3 paths" in told.err
    assert all(Path(name).exists() for name in kept)
    assert not any(Path(name).exists() for name in gone)
    assert list(abandoned_in(tmp_path)) == []


def test_a_number_that_is_used_again_is_another_process() -> None:
    mine = f".x.staging-0123abcd.{owner()}"
    assert not is_abandoned(mine)
    assert is_abandoned(mine + "0")  # the same number, another start
    assert _start(os.getpid()) > 0


def test_long_names_have_staging_paths_too(tmp_path: Path) -> None:
    for name in ("x" * 255, "\u00e9" * 127, "[*]?.csv"):
        assert len(staging_name(name, "staging").encode()) <= 255
        with staged_file(tmp_path / name) as file:
            file.write_text("whole")
            sweep(tmp_path / name)
            assert file.exists()
        assert (tmp_path / name).read_text() == "whole"
