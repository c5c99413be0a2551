"""Whatever is killed, starved or damaged, the same bytes in the end: ``jobs/bench/faults.py``, its short form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GOOD = ("straight to the same bytes", "same bytes after resume", "refused clearly")


def matrix(*options: str) -> dict[str, Any]:
    settings = {**os.environ, "NUMBA_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "jobs" / "bench" / "faults.py"), "--short", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=settings, timeout=900)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def check(found: dict[str, Any], faults: set[str]) -> None:
    assert found["wrong"] == []
    assert {row["fault"] for row in found["rows"] if row.get("happened")} >= faults
    for row in found["rows"]:
        good = sum(
            row.get(how, 0) for how in ("straight to the same bytes", "same bytes after resume", "refused clearly")
        )
        assert good == row.get("happened", 0), row


def test_drivers_disks_and_files() -> None:
    found = matrix("--no-cluster")
    assert found["kills"] >= 30
    check(found, {
        "driver SIGKILL at a commit step", "driver SIGKILL at random", "disk full", "out of memory in a task",
        "a corrupt part in staging", "a corrupt part published", "a corrupt checkpoint",
        "a bit flipped at rest", "a bit flipped meanwhile",
    })  # fmt: skip


@pytest.mark.cluster
def test_workers_and_schedulers() -> None:
    check(matrix("--only-cluster"), {"worker SIGKILL"})
