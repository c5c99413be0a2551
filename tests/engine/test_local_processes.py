"""A local cluster starts and ends within a time limit, also when a worker dies while it starts."""

from __future__ import annotations

import logging
import multiprocessing
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distagg.engine import local_processes
from distagg.engine.dask import local_cluster
from distagg.engine.local_processes import ended, start_workers
from distagg.errors import InfrastructureError


class Stub:
    """A cluster and its client: so many workers start, so many fail, and it does not end."""

    def __init__(self, there: int, failed: int = 0) -> None:
        self.there, self.asked = there, 0
        status = ["running"] * there + ["failed"] * failed
        self.workers = {
            number: SimpleNamespace(status=SimpleNamespace(name=name)) for number, name in enumerate(status)
        }

    def scale(self, count: int) -> None:
        self.asked = count

    def nthreads(self) -> dict[str, int]:
        return {str(worker): 1 for worker in range(self.there)}

    def close(self, timeout: float) -> None:
        raise TimeoutError


def test_a_cluster_without_all_of_its_workers_goes_on_with_those_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local_processes, "NEXT_SECONDS", 0.1)
    stub = Stub(1)
    with caplog.at_level(logging.WARNING, "distagg"):
        start_workers(stub, stub, 2)
    assert stub.asked == 2
    assert "1 of 2 workers started" in caplog.text


def test_a_cluster_without_any_worker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_processes, "START_SECONDS", 0.1)
    with pytest.raises(InfrastructureError, match="none of 2 worker processes started"):
        start_workers(Stub(0), Stub(0), 2)


def test_workers_that_failed_are_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()
    with pytest.raises(InfrastructureError, match="none of 2 worker processes"):
        start_workers(Stub(0, 2), Stub(0, 2), 2)
    with caplog.at_level(logging.WARNING, "distagg"):
        start_workers(Stub(1, 1), Stub(1, 1), 2)
    assert "1 of 2 workers started" in caplog.text
    assert time.monotonic() - began < local_processes.NEXT_SECONDS


@pytest.mark.cluster
def test_a_script_that_starts_workers_when_it_is_imported_is_told_how_to_do_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from distagg.engine.dask import local_cluster\nwith local_cluster(1):\n    pass\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "below 'if __name__ == \"__main__\":'" in done.stderr


def test_processes_of_a_cluster_that_does_not_end_are_killed(caplog: pytest.LogCaptureFixture) -> None:
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,), daemon=True)
    with caplog.at_level(logging.WARNING, "distagg"), ended(Stub(0)):
        process.start()
    assert process.exitcode is not None
    assert process.exitcode < 0
    assert "did not end" in caplog.text


@pytest.mark.cluster
@pytest.mark.parametrize("wait", [0.0, 0.7])
def test_a_worker_that_is_killed_while_it_starts_holds_nothing_up(wait: float) -> None:
    killed: list[Any] = []
    before = set(multiprocessing.active_children())

    def kill() -> None:
        while not killed:
            for process in set(multiprocessing.active_children()) - before:
                time.sleep(wait)
                process.kill()
                killed.append(process.pid)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    began = time.monotonic()
    with local_cluster(2) as runner:
        assert list(runner.each(abs, [-1, -2, -3])) == [1, 2, 3]
    thread.join(10)
    assert killed
    assert time.monotonic() - began < local_processes.START_SECONDS
