"""Whatever ends a command has its own exit code and one line on stderr; 1 is 'finished, not converged' alone."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from distagg.cli.main import main
from distagg.cli.models import models_command

Capture = pytest.CaptureFixture[str]
MODELS = [sys.executable, "-m", "distagg", "models"]


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(**values: object) -> None:
        raise error

    monkeypatch.setattr(models_command, "callback", run)


def test_an_unforeseen_error_is_said_to_be_a_bug(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    fail_with(KeyError("two\nlines"), monkeypatch)
    assert main(["models"]) == 70
    said = capsys.readouterr().err
    assert said.startswith("distagg: this is a bug in distagg: KeyError: ")
    assert "--debug" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("words", [["models", "--debug"], ["--debug", "models"]])
def test_debug_prints_the_traceback(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    fail_with(KeyError("x"), monkeypatch)
    assert main(words) == 70
    assert "Traceback" in capsys.readouterr().err


def test_debug_by_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("DISTAGG_DEBUG", "1")
    assert main(["models", "rff"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_debug_after_the_kind_of_an_import(tmp_path: Path, capsys: Capture) -> None:
    nowhere = str(tmp_path / "nowhere.csv")
    assert main(["import", "--debug", "pairs", nowhere, "-o", str(tmp_path / "d")]) == 3
    assert main(["import", "pairs", nowhere, "-o", str(tmp_path / "d"), "--debug"]) == 3
    assert capsys.readouterr().err.count("Traceback (most recent call last):\n") >= 2


def test_json_before_the_kind_of_an_import(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x.csv").write_text("winner,loser\na,b\n")
    assert main(["import", "--json", "pairs", str(tmp_path / "x.csv"), "-o", str(tmp_path / "d")]) == 0
    assert capsys.readouterr().out.startswith("{")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError("Unable to allocate 8 TiB"), 4, "out of memory (Unable to allocate 8 TiB)"),
        (OSError(errno.ENOSPC, "No space left on device"), 4, "No space left on device"),
        (BrokenPipeError(errno.EPIPE, "a worker's pipe"), 4, "a worker's pipe"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_of_the_machine(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    fail_with(error, monkeypatch)
    assert main(["models"]) == code
    assert said in capsys.readouterr().err


def test_an_interruption_that_became_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(**values: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ImportError("a C extension did not load")

    monkeypatch.setattr(models_command, "callback", run)
    assert main(["models"]) == 130


@pytest.mark.parametrize("seed", ["-1", "x", "9" * 30])
def test_a_seed_that_is_none(seed: str, capsys: Capture) -> None:
    assert main(["compare", "DATASET", "--seed", seed]) == 2
    assert "expected a whole number of at least 0" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["models", "--help", "--version"])
def test_closed_standard_streams_are_no_error(words: str) -> None:
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m distagg {words} >&- 2>&- <&-"], capture_output=True)
    assert done.returncode == 0


@pytest.mark.parametrize("words", ["models", "--help", "--version"])
def test_a_reader_that_has_gone_is_no_error(words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*MODELS[:3], words], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_under_stdout() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*MODELS[:3], "models"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 4
    assert done.stderr.startswith("distagg: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["click", "distagg.cli.commands", "distagg.cli.models", "pyarrow", "numpy"])
@pytest.mark.parametrize("entry", ["runpy.run_module('distagg', run_name='__main__')", "sys.exit(main())"])
def test_an_interrupt_while_modules_load(module: str, entry: str) -> None:
    """The signal comes when ``module`` is looked for."""
    body = f"""
import os, signal, runpy, sys
from distagg.cli.main import main  # as the console script does

class Interrupt:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

for name in [name for name in sys.modules if name.split(".")[0] in ("click", "distagg")]:
    del sys.modules[name]
sys.argv[1:] = ["models"]
sys.meta_path.insert(0, Interrupt())
{entry}
"""
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert done.stderr == "distagg: interrupted; no incomplete output was left\n"


def test_brackets_without_end_in_a_file(tmp_path: Path, capsys: Capture) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    (tmp_path / "x.jsonl").write_text('{"expert": "e", "item": "a", "rank": 1}\n{"item": ' + deep + "}\n")
    assert main(["import", "rankings", str(tmp_path / "x.jsonl"), "-o", str(tmp_path / "d")]) == 3
    assert "x.jsonl:2: found broken JSON" in capsys.readouterr().err
    (tmp_path / "job.json").write_text(deep)
    assert main(["run", str(tmp_path / "job.json")]) == 2


@pytest.mark.parametrize("name", ["x.csv", "x.user"])
def test_a_stray_carriage_return_about_users(name: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "u.data").write_text("1\t10\t3\t0\n")
    (tmp_path / name).write_bytes(b"user,age\n1,24\n2,3\r5\n" if name == "x.csv" else b"1|24|M|x|9\n2|5\r3|F|x|9\n")
    words = ["import", "ratings", str(tmp_path / "u.data"), "--users", str(tmp_path / name)]
    assert main([*words, "-o", str(tmp_path / "d")]) == 3
    assert f"{name}:" in capsys.readouterr().err


def test_a_cell_longer_than_the_csv_reader_takes(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x.csv").write_text(f"winner,{'x' * 200_000}\na,b\n")
    assert main(["import", "pairs", str(tmp_path / "x.csv"), "-o", str(tmp_path / "d")]) == 3
    assert "x.csv:1: found text that does not parse" in capsys.readouterr().err
