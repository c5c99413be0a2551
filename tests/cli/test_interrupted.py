"""A stopped command leaves nothing half-written and says so by its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_import_leaves_nothing(number: signal.Signals, code: int, tmp_path: Path) -> None:
    fifo = tmp_path / "slow.run"  # a source that never ends: reading it blocks until the signal comes
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "distagg", "import", "trec", str(fifo), "-o", str(tmp_path / "data")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with fifo.open("w") as writer:
        writer.write("1 Q0 a 1 2.0 t\n" * 2)
        writer.flush()
        time.sleep(1.0)
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == code, said
    assert "interrupted" in said
    assert [file.name for file in tmp_path.iterdir()] == ["slow.run"]
