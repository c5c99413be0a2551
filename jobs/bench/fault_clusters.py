"""Of ``faults.py``: clusters that are wrong from the start, or are disturbed while the driver is held still.

Each cluster is a scheduler and one or two workers, processes of their own on loopback. Workers may run other code, not
see the data, have little memory, another time, or a disk without space; a worker may be stopped for good, told to leave
by an adaptive cluster, or the scheduler restarted under its address; the driver may have no way to the workers. Some of
it needs root and namespaces (``unshare``, ``ip``); where these are missing, the row says so.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
HIDE = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')  # a folder, then a command that misses it
LATE = "import time; real = time.time; time.time = lambda: real() + 7 * 86_400\n"
ALTERED = """
_right = order_items
def order_items(*values, **more):  # the wrong way round
    return _right(*values, **more)[::-1]
"""
ADAPTIVE = """
import sys, time
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)
    cluster.adapt(minimum=0, maximum=2, interval="300ms", wait_count=1)
    print(cluster.scheduler_address, flush=True)
    time.sleep(3600)
"""


@dataclass(frozen=True)
class Helper:
    """A worker: words before its command, settings of its environment, options of its command."""

    before: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


@contextmanager
def started(words: list[str], **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(words, **{**QUIET, **more})
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def cluster(folder: Path, *helpers: Helper, port: int = 0) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a scheduler, and its process with those of its workers."""
    file = Path(tempfile.mkdtemp(dir=folder)) / "scheduler.json"
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port)]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--nthreads", "1"]
    with ExitStack() as stack:
        processes = [stack.enter_context(started([*scheduler, "--no-dashboard", "--scheduler-file", str(file)]))]
        while not file.exists() or not file.read_text():
            if processes[0].poll() is not None:
                raise RuntimeError("the scheduler did not start")
            time.sleep(0.1)
        for helper in helpers or (Helper(),):
            words = [*helper.before, *worker, "--no-dashboard", "--death-timeout", "30", *helper.options]
            settings = {**os.environ, **helper.settings}
            processes.append(stack.enter_context(started(words, env=settings, cwd=file.parent)))
        yield json.loads(file.read_text())["address"], processes


def missing(*programs: str) -> str:
    """Why namespaces cannot be made here; empty if they can."""
    if os.geteuid():
        return "not root"
    absent = [program for program in programs if not shutil.which(program)]
    if absent:
        return f"no {', '.join(absent)}"
    return "" if subprocess.run(["unshare", "-m", "true"], **QUIET, check=False).returncode == 0 else "no namespaces"


def wrong_from_the_start(
    matrix: Any, job: str, fault: str, helper: Helper, times: int, run: Path | None = None
) -> None:
    """A job on a cluster whose worker is not as it should be; then the run is resumed without it."""
    for _ in range(times):
        target = run or matrix.run_path()
        with cluster(matrix.folder, helper) as (address, _):
            code = matrix.waited(drive(matrix, job, target, address))
        after(matrix, fault, job, target, code)


def drive(matrix: Any, job: str, run: Path, address: str, *before: str, **more: Any) -> subprocess.Popen[bytes]:
    command = [*before, sys.executable, "-m", "distagg", "run", str(matrix.jobs[job]), "-o", str(run)]
    with (matrix.folder / "log").open("ab") as log:
        return subprocess.Popen([*command, "--scheduler", address], stdout=log, stderr=log, **more)


def after(matrix: Any, fault: str, job: str, run: Path, code: int) -> None:
    """Count a run whose cluster has gone: if it did not finish, it is resumed in one process."""
    if code != 0 and (run / "job.json").is_file():
        body = json.loads((run / "job.json").read_text())
        place = {"place": {"workers": 0}}
        sealed = {name: value for name, value in body.items() if name != "checksum"}
        (run / "job.json").write_text(json.dumps({**sealed, **place}))
    matrix.count(fault, job, run, happened=True, code=code, clean=code == 4, may=(2, 3, 4))


def struck(
    matrix: Any,
    job: str,
    run: Path,
    address: str,
    strike: Callable[[], None],
    mend: Callable[[], None] | None = None,
) -> int | None:
    """The exit code of a driver that is held still in the middle of its run for ``strike``; None if that was late."""
    driver = drive(matrix, job, run, address)
    events = run / "events.jsonl"
    while driver.poll() is None and not (events.exists() and '"step"' in events.read_text()):
        time.sleep(0.01)
    with suppress(ProcessLookupError):
        driver.send_signal(signal.SIGSTOP)
    late = driver.poll() is not None or '"finished"' in events.read_text()
    if not late:
        strike()
    driver.send_signal(signal.SIGCONT)
    try:
        code = matrix.waited(driver)
    finally:
        if mend is not None:
            with suppress(psutil.NoSuchProcess):  # the nanny has started another
                mend()
    return None if late else code


def stopped_for_good(matrix: Any, job: str, times: int) -> None:
    """One of two workers is stopped until the run has ended: the other must do its share."""
    for _ in range(times):
        run = matrix.run_path()
        with cluster(matrix.folder, Helper(), Helper()) as (address, processes):
            workers: list[Any] = []
            while not workers:
                workers = [
                    p for p in psutil.Process(processes[1].pid).children() if "spawn_main" in " ".join(p.cmdline())
                ]
                time.sleep(0.1)
            code = struck(matrix, job, run, address, workers[0].suspend, workers[0].resume)
        if code is not None:
            after(matrix, "a worker stopped for good", job, run, code)


def scheduler_restarted(matrix: Any, job: str, times: int) -> None:
    """The scheduler is killed and another started under its address; the run is resumed on it."""
    for _ in range(times):
        run = matrix.run_path()
        with cluster(matrix.folder) as (address, processes):
            code = struck(matrix, job, run, address, processes[0].kill)
        if code is None:
            continue
        with cluster(matrix.folder, port=int(address.rpartition(":")[2])):  # under the address that the job names
            matrix.count("the scheduler restarted", job, run, happened=True, code=code, clean=code == 4, may=(2, 3, 4))


def scaled_down(matrix: Any, job: str, times: int) -> None:
    """An adaptive cluster closes workers whenever they seem idle."""
    for _ in range(times):
        run = matrix.run_path()
        script = matrix.folder / "adaptive.py"
        script.write_text(ADAPTIVE)
        with started([sys.executable, str(script)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            address = process.stdout.readline().decode().strip()
            code = matrix.waited(drive(matrix, job, run, address))
        after(matrix, "adaptive scale-down", job, run, code)


def disk_full(matrix: Any, job: str, times: int) -> None:
    """The run's disk has room for its first files only; it gets more before the run is resumed."""
    small = matrix.folder / "small"
    small.mkdir(exist_ok=True)
    for _ in range(times):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(small)], check=True)
        try:
            with cluster(matrix.folder) as (address, _):
                code = matrix.waited(drive(matrix, job, small / "run", address))
            subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
            after(matrix, "disk full under a worker", job, small / "run", code)
        finally:
            subprocess.run(["umount", str(small)], check=True)


def firewalled(matrix: Any, job: str, times: int) -> None:
    """Three hosts: the driver's reaches the scheduler's, but not that of the worker."""

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, **QUIET)

    name = {host: f"faults-{host}-{os.getpid()}" for host in ("driver", "scheduler", "worker")}
    within = {host: ["ip", "netns", "exec", space] for host, space in name.items()}
    certificates = matrix.folder / f"certificates-{job}"
    assert matrix.command("certificates", str(certificates), "--hosts", "10.78.1.1,10.78.2.1,10.78.2.2") == 0
    settings = {**os.environ, "DASK_CONFIG": str(certificates)}
    try:
        for space in name.values():
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        for number, host in ((1, "driver"), (2, "worker")):
            ends = ("link", "add", f"to{number}", "netns", name["scheduler"], "type", "veth", "peer", "name", "cable")
            ip(*ends, "netns", name[host])
            for space, device, last in ((name["scheduler"], f"to{number}", 1), (name[host], "cable", 2)):
                ip("-n", space, "addr", "add", f"10.78.{number}.{last}/24", "dev", device)
                ip("-n", space, "link", "set", device, "up")
        ip("-n", name["driver"], "route", "add", "blackhole", "10.78.2.0/24")
        for _ in range(times):
            run = matrix.run_path()
            dask = [sys.executable, "-m", "dask"]
            serve = [
                *within["scheduler"],
                *dask,
                "scheduler",
                "--protocol",
                "tls",
                "--host",
                "0.0.0.0",
                "--port",
                "8786",
            ]
            work = [
                *within["worker"],
                *dask,
                "worker",
                "tls://10.78.2.1:8786",
                "--host",
                "10.78.2.2",
                "--nthreads",
                "1",
            ]
            with started([*serve, "--no-dashboard"], env=settings), started([*work, "--no-dashboard"], env=settings):
                driver = drive(matrix, job, run, "tls://10.78.1.1:8786", *within["driver"], env=settings)
                code = matrix.waited(driver)
            after(matrix, "a driver without a way to the workers", job, run, code)
    finally:
        for space in name.values():
            subprocess.run(["ip", "netns", "del", space], check=False, **QUIET)


def disturb(matrix: Any, times: int) -> None:
    """All faults of clusters, so many times for each job."""
    folder = matrix.folder
    (folder / "late").mkdir()
    (folder / "late" / "sitecustomize.py").write_text(LATE)
    import distagg

    shutil.copytree(Path(distagg.__file__).parent, folder / "altered" / "distagg")
    with (folder / "altered" / "distagg" / "rankings" / "ordering.py").open("a") as file:
        file.write(ALTERED)
    root = str(Path(distagg.__file__).parents[1])
    late = {"PYTHONPATH": f"{folder / 'late'}:{root}"}
    for job in matrix.jobs:
        wrong_from_the_start(
            matrix, job, "wrong code on a worker", Helper(settings={"PYTHONPATH": str(folder / "altered")}), times
        )
        wrong_from_the_start(matrix, job, "a worker's clock a week ahead", Helper(settings=late), times)
        wrong_from_the_start(matrix, job, "a worker with 200 MB", Helper(options=("--memory-limit", "200MB")), times)
        scheduler_restarted(matrix, job, times)
        scaled_down(matrix, job, times)
        stopped_for_good(matrix, job, times)
        why = missing("unshare", "mount", "ip", "openssl")
        if why:
            print(f"no invisible data, full disks and firewalls: {why}", file=sys.stderr)
            continue
        hidden = Helper(before=(*HIDE, str(folder / "data")))
        wrong_from_the_start(matrix, job, "data that a worker does not see", hidden, times)
        disk_full(matrix, job, times)
        firewalled(matrix, job, times)
