"""Workers with other code, versions or processors are refused, with the difference and what to do."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine import identity as identities
from distagg.engine.broadcast import answer
from distagg.engine.dask import DaskRunner, remote_cluster
from distagg.engine.identity import (
    CODE,
    PROCESSOR,
    VECTORS,
    OtherCode,
    differences,
    identity,
    on_same_code,
    other_code,
    refuse_other_code,
)
from distagg.engine.runner import Work
from distagg.engine.saved import _count_task
from distagg.errors import InfrastructureError, UsageError

PACKAGE = Path(identities.__file__).parents[1]


def test_the_same_code_is_no_difference() -> None:
    assert differences(identity(), dict(identity())) == []
    assert on_same_code(identities.fingerprint(), max, 1, 2) == 2


def test_a_package_that_one_side_does_not_need_is_no_difference() -> None:
    driver = {**identity(), "lightgbm": "4.6.0"}
    assert differences(driver, {**driver, "lightgbm": ""}) == []
    assert differences(driver, {**driver, "lightgbm": "4.5.0"}) != []


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        (CODE, "0123", "install this distagg"),
        ("distagg", "0.0.1", "install this distagg"),
        ("numpy", "1.26.4", "install numpy=="),
        ("numba", "", "install numba=="),
        ("dask", "2020.1", "install dask=="),
        (PROCESSOR, "haswell", "NUMBA_CPU_NAME=generic"),
        (VECTORS, "AVX9", "NPY_DISABLE_CPU_FEATURES='"),
    ],
)
def test_every_difference_is_named_with_its_remedy(name: str, value: str, remedy: str) -> None:
    worker = {**identity(), "host": "node-7", name: value}
    assert [line.partition(":")[0] for line in differences(identity(), worker)] == [name]
    message = str(other_code({"tls://node-7:1": worker}, 4))
    assert "1 of 4 workers differ" in message
    assert "worker tls://node-7:1 on node-7" in message
    assert f"the worker {value or 'none'}" in message
    assert remedy in message


def test_the_processor_that_numba_is_told_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    monkeypatch.delenv("NUMBA_CPU_FEATURES", raising=False)
    assert identities._processor() == "generic"


def test_a_task_that_reaches_other_code_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = on_same_code("another", pytest.fail, "was run")
    assert isinstance(answered, OtherCode)
    assert asyncio.run(answer("another", "", [], None)) == {"other": identity()}
    runner = DaskRunner(_Client(answered))
    monkeypatch.setattr("distagg.engine.ask.start", _done)
    with pytest.raises(InfrastructureError, match="a worker differs from this driver"):
        list(runner.each(abs, [1]))


def _done(client: Any, coroutine: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(asyncio.run(coroutine))
    return future


class _Client:
    """A client whose workers give one answer to everything."""

    def __init__(self, answered: Any) -> None:
        self.answered = answered

    def submit(self, *call: Any, **options: Any) -> Any:
        return self

    async def gather(self, future: Any, asynchronous: bool) -> Any:
        return self.answered

    def cancel(self, waiting: list[Any], force: bool) -> None:
        pass


@contextmanager
def _cluster(code: Path, folder: Path) -> Iterator[str]:
    """A scheduler and a worker that imports distagg from ``code``; gives the address."""
    with (folder / "log").open("w") as log:
        file = folder / "scheduler.json"
        words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
        run = [sys.executable, "-m", "distributed.cli.dask_scheduler", *words]
        processes = [subprocess.Popen(run, stdout=log, stderr=log)]
        words = ["--scheduler-file", str(file), "--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--no-nanny"]
        run = [sys.executable, "-m", "distributed.cli.dask_worker", *words]
        processes.append(subprocess.Popen(run, stdout=log, stderr=log, cwd=code))
        try:
            from distributed import Client

            with Client(scheduler_file=str(file), set_as_default=False, timeout=60) as client:
                yield client.scheduler.address
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait()


@pytest.mark.cluster
def test_an_altered_kernel_on_a_worker_is_refused(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(PACKAGE, tmp_path / "code" / "distagg", ignore=shutil.ignore_patterns("__pycache__"))
    kernels = tmp_path / "code" / "distagg" / "models" / "lists.py"
    kernels.write_text(kernels.read_text(encoding="utf-8") + "\n# altered\n", encoding="utf-8")
    with _cluster(tmp_path / "code", tmp_path) as address:
        rank = ["rank", "rrf", str(planted), "-o", str(tmp_path / "other.csv"), "--scheduler", address]
        assert main(rank) == 4
    told = capsys.readouterr().err
    assert f"code: the driver has {identity()[CODE]}, the worker " in told
    assert "install this distagg" in told
    assert not (tmp_path / "other.csv").exists()


@pytest.mark.cluster
def test_workers_get_absolute_paths_and_say_what_they_cannot_see(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(planted.parent)
    dataset = Dataset.open(planted.name)
    hidden = [replace(ref, path=str(tmp_path / "hidden")) for ref in dataset.plan()]
    (tmp_path / "elsewhere").mkdir()
    with _cluster(tmp_path / "elsewhere", tmp_path) as address, remote_cluster(address) as runner:
        assert sum(sum(runner.map(Work(_count_task, None), dataset.plan()))) == dataset.manifest.entries
        told = rf"cannot read {tmp_path}/hidden: tcp://.* on host {gethostname()}"
        for work in (Work(_count_task, None), Work(_count_task, None, repeated=True)):
            with pytest.raises(InfrastructureError, match=told):
                runner.map_reduce(work, hidden, max)
        runner._seen.add(str(tmp_path / "hidden"))  # as if the worker had joined later
        with pytest.raises(InfrastructureError, match=f"host {gethostname()} cannot read {tmp_path}/hidden"):
            list(runner.map(Work(_count_task, None), hidden))


def test_a_worker_without_distagg_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(client: None, function: Any, on_error: str) -> dict[str, Any]:
        return {"tcp://b:1": function(), "tcp://a:1": ModuleNotFoundError("No module named 'distagg'")}

    monkeypatch.setattr("distagg.engine.identity.ask_workers", answers)
    with pytest.raises(InfrastructureError, match=r"worker tcp://a:1 has no distagg like this driver's \(No module"):
        refuse_other_code(None)


def test_missing_certificates_are_refused_at_once(tmp_path: Path) -> None:
    import dask
    import distributed  # noqa: F401  # before its settings change

    tls = "distributed.comm.tls"
    with (
        dask.config.set({f"{tls}.ca-file": str(tmp_path / "ca.pem"), f"{tls}.client.cert": "cert.pem"}),
        pytest.raises(UsageError, match=r"found no .*ca\.pem.*DASK_CONFIG"),
        remote_cluster("tls://node-1.example:8786"),
    ):
        pass
    for name in ("ca.pem", "cert.pem"):
        (tmp_path / name).write_text("no certificate")
    files = {f"{tls}.ca-file": str(tmp_path / "ca.pem"), f"{tls}.client.cert": str(tmp_path / "cert.pem")}
    with (
        dask.config.set(files),
        pytest.raises(UsageError, match="certificates that cannot be used"),
        remote_cluster("tls://node-1.example:8786"),
    ):
        pass
