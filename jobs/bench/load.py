"""A load test: an hour of jobs on two workers that are killed, stopped, leave and join, with all resources watched.

    python jobs/bench/load.py                          an hour
    python jobs/bench/load.py --minutes 2 --json load.json

One driver stays connected to a cluster of processes on this machine, and ranks and fits again and again; now and then a
command of its own does the same. Every output is compared with that of an undisturbed run. Meanwhile workers are killed
(alone, or with the nanny that would start them again), stopped for some seconds, told to leave, and others join.
Memory, open files, sockets, threads and processes of the driver and of the scheduler, and the files that they leave,
are counted every few seconds. At the end the last quarter of the time is compared with the second: more than ``SLACK``
is growth. Exit 1 on growth, on another output, and on a job that failed three times.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

SLACK = {"MB": (1.10, 8.0), "files": (1.0, 3.0), "sockets": (1.0, 3.0), "threads": (1.0, 3.0), "processes": (1.0, 1.0),
         "left": (1.0, 3.0)}  # growth that is none: a factor, and an amount  # fmt: skip
CHUNK = 2000


class Cluster:
    """A scheduler and workers with their nannies, each a process of its own, on loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.scheduler = self._start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        while not self.file.exists() or not self.file.read_text():
            if self.scheduler.poll() is not None:
                raise RuntimeError(f"the scheduler did not start, see {folder / 'cluster.log'}")
            time.sleep(0.1)
        self.address: str = json.loads(self.file.read_text())["address"]
        self.nannies: list[subprocess.Popen[bytes]] = []

    def _start(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        settings = {**os.environ, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with (self.folder / "cluster.log").open("ab") as log:
            command = [sys.executable, "-m", f"distributed.cli.{program}", "--scheduler-file", str(self.file), *options]
            return subprocess.Popen(command, stdout=log, stderr=log, env=settings)

    def join(self) -> None:
        scratch = str(self.folder / "scratch")
        options = ("--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", "--local-directory", scratch)
        self.nannies.append(self._start("dask_worker", *options))

    def tidy(self) -> None:
        """Forget nannies that have ended."""
        self.nannies = [nanny for nanny in self.nannies if nanny.poll() is None]

    def worker(self, nanny: subprocess.Popen[bytes]) -> psutil.Process | None:
        """The worker of a nanny: its child that is not the tracker of its semaphores."""
        with suppress(psutil.Error):
            for child in psutil.Process(nanny.pid).children():
                if "spawn_main" in " ".join(child.cmdline()):
                    return child
        return None

    def close(self) -> None:
        for process in (*self.nannies, self.scheduler):
            process.terminate()
        for process in (*self.nannies, self.scheduler):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Disturbance(threading.Thread):
    """Does something to a worker every now and then, and keeps two of them."""

    def __init__(self, cluster: Cluster, seed: int, every: tuple[float, float]) -> None:
        super().__init__(daemon=True)
        self.cluster, self.draw, self.every = cluster, random.Random(seed), every
        self.done: Counter[str] = Counter()
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(self.draw.uniform(*self.every)):
            self.cluster.tidy()
            while len(self.cluster.nannies) < 2:
                self.cluster.join()
                self.done["joined"] += 1
            kind = self.draw.choice(("worker killed", "worker and nanny killed", "left", "stopped", "joined"))
            if kind == "joined" and len(self.cluster.nannies) > 2:
                kind = "left"
            self.disturb(kind, self.draw.choice(self.cluster.nannies))

    def disturb(self, kind: str, nanny: subprocess.Popen[bytes]) -> None:
        worker = self.cluster.worker(nanny)
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if kind == "joined":
                self.cluster.join()
            elif kind == "left":
                nanny.send_signal(signal.SIGTERM)
            elif kind == "worker and nanny killed":
                nanny.kill()
                if worker:
                    worker.kill()
            elif worker is None:
                return
            elif kind == "worker killed":
                worker.kill()
            else:
                worker.suspend()
                self.over.wait(self.draw.uniform(2.0, 8.0))
                worker.resume()
            self.done[kind] += 1


def digest(path: Path) -> str:
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()


class Jobs:
    """The jobs, each with the digest of its undisturbed output."""

    def __init__(self, folder: Path) -> None:
        from distagg.dataset import Dataset, write_dataset
        from distagg.sources.synthetic import SyntheticSource

        self.folder = folder / "outputs"
        self.folder.mkdir()
        data = folder / "data"
        write_dataset(SyntheticSource(queries=120, shape="mq2008", seed=3), data, block_entries=CHUNK)
        self.path, self.dataset = data, Dataset.open(data)
        self.expected = {name: job(None) for name, job in self.all().items()}
        self.done: Counter[str] = Counter()
        self.failed: list[str] = []

    def all(self) -> dict[str, Callable[[Any], str]]:
        return {"rank borda": self.rank, "fit crf": self.fit}

    def rank(self, runner: Any) -> str:
        import shutil

        from distagg.engine.rank import rank_to
        from distagg.engine.runner import InlineRunner
        from distagg.models import model_named

        target = self.folder / "ranked"
        rank_to(target, model_named("borda", {}), {}, self.dataset, runner=runner or InlineRunner())
        found = digest(target)
        shutil.rmtree(target)
        return found

    def fit(self, runner: Any) -> str:
        from distagg.engine.fitting.fit import fit
        from distagg.models import model_named

        settings = {"mode": "average", "rounds": "4", "patience": "100", "sample": "3"}
        params = fit(model_named("crf", settings), self.dataset, runner=runner)
        return hashlib.sha256(b"".join(name.encode() + params[name].tobytes() for name in sorted(params))).hexdigest()

    def turn(self, name: str, runner: Any) -> None:
        """Run a job; an error of the infrastructure is tried again, as a scheduled job would be."""
        from distagg.errors import InfrastructureError

        for _ in range(3):
            try:
                found = self.all()[name](runner)
            except InfrastructureError as error:
                self.done["refused clearly, tried again"] += 1
                last = str(error)
                continue
            self.done[name] += 1
            if found != self.expected[name]:
                self.failed.append(f"{name}: other bytes")
            return
        self.failed.append(f"{name}: failed three times: {last}")

    def command(self, address: str) -> None:
        """The ranking as a command, which connects and leaves again."""
        target = self.folder / "by-command"
        words = [sys.executable, "-m", "distagg", "rank", "borda", str(self.path), "-o", str(target)]
        ended = subprocess.run([*words, "--scheduler", address], capture_output=True, text=True, timeout=300)
        if ended.returncode == 0:
            self.done["distagg rank"] += 1
            if digest(target) != self.expected["rank borda"]:
                self.failed.append("distagg rank: other bytes")
        elif ended.returncode == 4:
            self.done["refused clearly, tried again"] += 1
        else:
            self.failed.append(f"distagg rank: exit {ended.returncode}: {ended.stderr[-300:]}")
        subprocess.run(["rm", "-rf", str(target)], check=True)


def sample(cluster: Cluster, folder: Path) -> dict[str, float]:
    """What the driver and the scheduler hold, the processes of all, and the files that are left."""
    found: dict[str, float] = {}
    for who, process in (("driver", psutil.Process()), ("scheduler", psutil.Process(cluster.scheduler.pid))):
        found[f"{who} MB"] = process.memory_info().rss / 2**20
        found[f"{who} files"] = process.num_fds()
        found[f"{who} sockets"] = len(process.net_connections())
        found[f"{who} threads"] = process.num_threads()
    found["processes"] = len(psutil.Process().children(recursive=True)) - 3 * len(cluster.nannies)
    found["left in outputs"] = sum(1 for _ in (folder / "outputs").rglob("*"))
    found["left in scratch"] = sum(1 for _ in (folder / "scratch").rglob("*")) - 2 * len(cluster.nannies)
    return found


def growth(samples: list[dict[str, float]]) -> list[dict[str, Any]]:
    """The second quarter of the samples beside the last one, by what was counted."""
    quarter = max(1, len(samples) // 4)
    rows = []
    for name in samples[0]:
        early = statistics.median(row[name] for row in samples[quarter : 2 * quarter])
        late = statistics.median(row[name] for row in samples[-quarter:])
        factor, amount = next(slack for word, slack in SLACK.items() if word in name)
        rows.append({"what": name, "second quarter": early, "last quarter": late,
                     "grew": late > early * factor + amount})  # fmt: skip
    return rows


def run(minutes: float, seed: int, pause: float, every: tuple[float, float]) -> dict[str, Any]:
    from distagg.engine.dask import remote_cluster

    folder = Path(tempfile.mkdtemp(prefix="distagg-load-"))
    jobs, cluster = Jobs(folder), Cluster(folder)
    disturbance = Disturbance(cluster, seed, every)
    samples: list[dict[str, float]] = []
    began = time.monotonic()
    try:
        cluster.join()
        cluster.join()
        with remote_cluster(cluster.address) as runner:
            disturbance.start()
            turn = 0
            while time.monotonic() - began < 60 * minutes:
                jobs.turn(("rank borda", "fit crf")[turn % 2], runner)
                if turn % 20 == 10:
                    jobs.command(cluster.address)
                if turn % 4 == 0:
                    samples.append(sample(cluster, folder))
                turn += 1
                time.sleep(pause)
        disturbance.over.set()
        disturbance.join(30)
    finally:
        cluster.close()
    took = (time.monotonic() - began) / 60
    result = {"minutes": round(took, 1), "jobs": dict(jobs.done), "disturbances": dict(disturbance.done),
              "failed": jobs.failed, "samples": len(samples), "growth": growth(samples)}  # fmt: skip
    if not jobs.failed:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between two jobs")
    parser.add_argument("--every", type=float, nargs=2, default=(15.0, 45.0), help="seconds between two disturbances")
    parser.add_argument("--json", type=Path, help="write the result to a file, too")
    arguments = parser.parse_args()
    result = run(arguments.minutes, arguments.seed, arguments.pause, tuple(arguments.every))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    for name in ("jobs", "disturbances"):
        print(f"{name}: " + ", ".join(f"{count:,} {what}" for what, count in result[name].items()))
    print("\n| what | second quarter | last quarter | grew |\n|---|---|---|---|")
    for row in result["growth"]:
        grew = "yes" if row["grew"] else "no"
        print(f"| {row['what']} | {row['second quarter']:,.0f} | {row['last quarter']:,.0f} | {grew} |")
    print(f"\n{result['minutes']} minutes, {result['samples']} samples; failed: {result['failed'] or 'nothing'}")
    return 1 if result["failed"] or any(row["grew"] for row in result["growth"]) else 0


if __name__ == "__main__":
    sys.exit(main())
