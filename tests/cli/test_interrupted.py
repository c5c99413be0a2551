"""A stopped command leaves nothing half-written and says so by its exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

HELD = """
import sys
from distagg.cli.main import main
from distagg.sources.trec import TrecSource

tables = TrecSource.tables

def held(self):
    yield from tables(self)
    print("reading", flush=True)
    sys.stdin.read()  # until the signal comes

TrecSource.tables = held
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_import_leaves_nothing(number: signal.Signals, code: int, tmp_path: Path) -> None:
    (tmp_path / "a.run").write_text("1 Q0 a 1 2.0 t\n")
    command = [sys.executable, "-c", HELD, "import", "trec", str(tmp_path / "a.run"), "-o", str(tmp_path / "data")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "interrupted" in said
    assert [file.name for file in tmp_path.iterdir()] == ["a.run"]
