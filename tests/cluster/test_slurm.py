"""The SLURM recipe as far as it can be tried without SLURM: the scripts, and when the driver comes back."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distagg.cli.main import main

RECIPE = Path(__file__).parents[2] / "cluster" / "slurm"


@pytest.mark.parametrize("script", sorted(Path(__file__).parents[2].glob("cluster/**/*.sh")), ids=lambda p: p.name)
def test_scripts_are_valid_bash(script: Path) -> None:
    checked = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.skipif(importlib.util.find_spec("dask_jobqueue") is None, reason="dask-jobqueue is not installed")
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed: no certificates")
def test_the_generated_worker_script_is_the_stored_one(tmp_path: Path) -> None:
    certificates = tmp_path / "certificates"
    assert main(["certificates", str(certificates)]) == 0
    shutil.copy(RECIPE / "jobqueue.yaml", certificates)
    made = subprocess.run(
        [sys.executable, RECIPE / "workers.py", "--script"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "DASK_CONFIG": str(certificates)},
        timeout=120,
    ).stdout
    plain = made.replace(str(certificates), "CERTIFICATES").replace(sys.executable, "PYTHON")
    assert re.sub(r"tls://[0-9.]+:\d+", "tls://SCHEDULER", plain) == (RECIPE / "worker.sh").read_text()


def driver(folder: Path, body: str) -> subprocess.Popen[str]:
    """driver.sh with a shell script for a Python and a scontrol that writes down what it is asked."""
    (folder / "bin").mkdir()
    for name, text in {"python": body, "scontrol": 'echo "$@" > "$REQUEUED"'}.items():
        (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHON": str(folder / "bin" / "python"),
        "REQUEUED": str(folder / "requeued"),
        "ASKED": str(folder / "asked"),
        "SLURM_JOB_ID": "77",
    }
    return subprocess.Popen([RECIPE / "driver.sh", "job.toml", "/certs", "3"], env=environment, text=True)


@pytest.mark.parametrize(("code", "again"), [(0, False), (1, False), (2, False), (3, False), (4, True), (143, True)])
def test_the_driver_comes_back_when_that_can_help(code: int, again: bool, tmp_path: Path) -> None:
    run = driver(tmp_path, f'echo "$DASK_CONFIG $@" > "$ASKED"; exit {code}')
    assert run.wait(30) == code
    requeued = tmp_path / "requeued"
    assert (requeued.read_text().strip() if requeued.exists() else None) == ("requeue 77" if again else None)
    python = tmp_path / "bin" / "python"
    asked = f"/certs cluster/slurm/workers.py 3 {python} -m distagg run job.toml"
    assert (tmp_path / "asked").read_text().strip() == asked


def test_out_of_time_the_driver_is_told_and_comes_back(tmp_path: Path) -> None:
    run = driver(
        tmp_path,
        'trap \'sleep 0.5; touch "$ASKED.saved"; exit 143\' TERM; touch "$ASKED"; while true; do sleep 0.1; done',
    )
    deadline = time.monotonic() + 30
    while not (tmp_path / "asked").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    assert run.wait(30) == 143
    assert (tmp_path / "asked.saved").exists()  # it was waited for
    assert (tmp_path / "requeued").read_text().strip() == "requeue 77"
