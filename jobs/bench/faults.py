"""Faults, counted: drivers and workers are killed, stopped, starved and their files damaged, and the bytes compared.

    python jobs/bench/faults.py             the whole matrix: over a thousand disturbed runs, about an hour on two cores
    python jobs/bench/faults.py --short     a sample of it

Every trial runs a job in a directory of its own, disturbs it, lets ``distagg resume`` (or ``run``) take it up, and
compares all outputs with those of an undisturbed run. Drivers are processes of their own, forked from one that has
compiled the kernels; a kill counts only when the system says that the process died of it. ``fault_files.py`` flips bits
in files, ``fault_clusters.py`` disturbs clusters. A trial may end with the same bytes, at once or after ``resume``, or
with a refusal (exit 2, 3 or 4). Exit 1 when any ends with other bytes, a crash, or not at all.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CHUNK = 2000
MOVES = ("rename", "replace", "link", "symlink", "fsync", "mkdir", "unlink")
SAME, RESUMED, REFUSED, HUNG = "straight to the same bytes", "same bytes after resume", "refused clearly", "hung"
COLUMNS = ("happened", SAME, RESUMED, REFUSED, "clean exits before", "wrong", HUNG)
REFUSALS = (2, 3, 4)  # exit codes that say what is wrong
HANG_SECONDS = 600.0


def make_jobs(folder: Path) -> dict[str, Path]:
    """Job files: ranking in parts, training in rounds."""
    from distagg.dataset import write_dataset
    from distagg.sources.synthetic import SyntheticSource

    data = str(folder / "data")
    write_dataset(SyntheticSource(queries=120, shape="mq2008", seed=3), Path(data), block_entries=CHUNK)
    rank = {"do": "rank", "dataset": data, "chunk_entries": CHUNK}
    check = {"do": "evaluate", "rankings": "ranked", "dataset": data, "metrics": ["ndcg@5"]}
    settings = {"mode": "average", "rounds": 8, "patience": 100, "sample": 3}
    jobs = {
        "ranking": {"ranked": {**rank, "model": "rrf"}, "checked": check},
        "training": {
            "model": {"do": "fit", "model": "crf", "dataset": data, "settings": settings},
            "ranked": {**rank, "model": "model"},
            "checked": check,
        },
    }
    for name, steps in jobs.items():
        body = {"name": name, "checkpoints": {"rounds": 2}, "steps": steps}
        (folder / f"{name}.json").write_text(json.dumps(body))
    return {name: folder / f"{name}.json" for name in jobs}


def fingerprints(run: Path) -> dict[str, str]:
    files = [file for file in (run / "output").rglob("*") if file.is_file()]
    files += [run / name for name in ("metrics.json", "manifest.json", "_SUCCESS")]
    return {str(f.relative_to(run)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files if f.is_file()}


@contextmanager
def at_moves(act: Callable[[int, str, Any], None]) -> Iterator[None]:
    """Call ``act(number, name, torn)`` before every move on the disk; ``torn`` writes half of what is to be written."""
    held: dict[tuple[Any, str], Any] = {}
    count = 0

    def moved(name: str, torn: Any = None) -> None:
        nonlocal count
        act(count, name, torn)
        count += 1

    def patch(home: Any, name: str) -> None:
        real = held[home, name] = getattr(home, name)

        def move(*args: Any, **more: Any) -> Any:
            half = (lambda: real(args[0], args[1][: len(args[1]) // 2])) if name.startswith("write") else None
            moved(name, half)
            return real(*args, **more)

        setattr(home, name, move)

    for name in MOVES:
        patch(os, name)
    for name in ("write_bytes", "write_text"):
        patch(pathlib.Path, name)
    try:
        yield
    finally:
        for (home, name), real in held.items():
            setattr(home, name, real)


def forked(arguments: list[str], log: Path, around: Any = None) -> int:
    """Start ``distagg`` in a process of its own, with the kernels compiled already; gives its id."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        handle = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        from distagg.cli.main import main

        if around is None:
            code = main(arguments)
        else:
            with around:
                code = main(arguments)
    finally:
        os._exit(code)


def ended(child: int) -> tuple[int | None, int | None]:
    """Exit code and signal of a process; the code is -1 if it hangs, and then it is killed."""
    deadline = time.monotonic() + HANG_SECONDS
    while not (found := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -1, None
        time.sleep(0.01)
    status = found[1]
    return (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), None)


def waited(process: subprocess.Popen[bytes]) -> int:
    """Exit code of a process; -1 if it hangs, and then it is killed."""
    try:
        return process.wait(HANG_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return -1


class Matrix:
    """Trials and what became of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.jobs = make_jobs(folder)
        self.rows: dict[tuple[str, str], Counter[str]] = {}
        self.kills, self.trials = 0, 0
        self.wrong: list[str] = []
        self.expected: dict[str, dict[str, str]] = {}
        self.moves: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = {}
        from distagg.cli.main import main

        for job, file in self.jobs.items():  # here, so that kernels are compiled once for all
            assert main(["run", str(file), "-o", str(folder / f"undisturbed-{job}")]) == 0
            self.expected[job] = fingerprints(folder / f"undisturbed-{job}")
            names: list[str] = []
            began = time.perf_counter()
            with at_moves(lambda n, name, torn, names=names: names.append(name)):
                assert main(["run", str(file), "-o", str(folder / f"counted-{job}")]) == 0
            self.seconds[job] = time.perf_counter() - began
            self.moves[job] = names
            assert fingerprints(folder / f"counted-{job}") == self.expected[job]

    def run_path(self) -> Path:
        self.trials += 1
        return self.folder / f"trial-{self.trials}"

    def start(self, job: str, run: Path, around: Any = None) -> int:
        return forked(["run", str(self.jobs[job]), "-o", str(run)], self.folder / "log", around)

    def count(
        self,
        fault: str,
        job: str,
        run: Path,
        *,
        happened: bool,
        code: int | None,
        clean: bool,
        may: tuple[int, ...] = (),
    ) -> None:
        """Resume until done, and compare; the first exit code, and that of the resumed run, ``may`` also be these."""
        if not happened:
            shutil.rmtree(run, ignore_errors=True)
            return
        first, straight = code, code == 0
        if not straight and code != -1:
            begun = (run / "key.json").is_file()
            command = ["resume", str(run)] if begun else ["run", str(self.jobs[job]), "-o", str(run)]
            code = ended(forked(command, self.folder / "log"))[0]
        if first in (0, 4, 143, None, *may) and code == 0 and fingerprints(run) == self.expected[job]:
            outcome = SAME if straight else RESUMED
        elif code in may or (code == 0 and may and self.command("verify", str(run)) in REFUSALS):
            outcome = REFUSED
        else:
            outcome = HUNG if code == -1 else "wrong"
        self.note(fault, job, outcome, f"exit {first}, then {code}, see {run}", clean=clean)
        if outcome not in (HUNG, "wrong"):
            shutil.rmtree(run)

    def run(self, job: str, run: Path, around: Any) -> int | None:
        """The exit code of a driver that goes on to its end."""
        return ended(self.start(job, run, around))[0]

    def waited(self, process: subprocess.Popen[bytes]) -> int:
        """The exit code of a process; -1 if it hung."""
        return waited(process)

    def command(self, *words: str) -> int | None:
        """The exit code of a command in a process of its own."""
        return ended(forked(list(words), self.folder / "log"))[0]

    def note(self, fault: str, job: str, outcome: str, detail: str, *, clean: bool = False) -> None:
        """Count what became of a trial."""
        row = self.rows.setdefault((fault, job), Counter())
        row["happened"] += 1
        row["clean exits before"] += clean
        row[outcome] += 1
        if outcome in (HUNG, "wrong"):
            self.wrong.append(f"{fault}, {job}: {outcome}: {detail}")
        told = ", ".join(f"{count} {what}" for what, count in row.items() if count)
        print(f"{fault}, {job}: {told}", file=sys.stderr)

    def killed_at_moves(self, job: str, step: int) -> None:
        """SIGKILL of the driver before a move on the disk, or in the middle of a write; every ``step``-th of them."""
        for number in range(self.draw.randrange(step), len(self.moves[job]), step):
            run = self.run_path()

            def kill(n: int, name: str, torn: Any, number: int = number) -> None:
                if n == number:
                    if torn:
                        torn()
                    os.kill(os.getpid(), signal.SIGKILL)

            code, by = ended(self.start(job, run, at_moves(kill)))
            self.kills += by == signal.SIGKILL
            self.count("driver SIGKILL at a commit step", job, run, happened=by == 9, code=code, clean=False)

    def stopped_at_random(self, job: str, number: signal.Signals, times: int) -> None:
        """A signal to the driver at a random moment; if the driver has ended before, another one starts."""
        wanted, latest = times, self.seconds[job]
        for _ in range(20 * times):
            if not wanted:
                break
            run = self.run_path()
            child = self.start(job, run)
            time.sleep(self.draw.uniform(0.0, latest))
            os.kill(child, number)
            code, by = ended(child)
            happened = by == number or code == 143
            wanted, latest = (wanted - 1, latest) if happened else (wanted, latest / 2)
            self.kills += happened
            self.count(f"driver {number.name} at random", job, run, happened=happened, code=code, clean=code == 143)

    def full_disk(self, job: str, times: int) -> None:
        """No space left, at a random move."""
        for _ in range(times):
            run, number = self.run_path(), self.draw.randrange(1, len(self.moves[job]))
            marked = self.folder / f"full-{self.trials}"

            def refuse(n: int, name: str, torn: Any, number: int = number, marked: Path = marked) -> None:
                if n >= number and name not in ("unlink", "fsync"):
                    marked.touch()
                    raise OSError(errno.ENOSPC, "No space left on device")

            code, _ = ended(self.start(job, run, at_moves(refuse)))
            self.count("disk full", job, run, happened=marked.exists(), code=code, clean=code == 4)

    def no_memory(self, job: str, times: int) -> None:
        """Out of memory in a task."""
        for _ in range(times):
            run, number = self.run_path(), self.draw.randrange(8)
            code, _ = ended(self.start(job, run, _without_memory(number)))
            self.count("out of memory in a task", job, run, happened=code != 0, code=code, clean=code == 4)

    def damaged(self, job: str, what: str, pattern: str, event: str, times: int) -> None:
        """The driver is killed as soon as a file is there, and the file's bytes are changed or cut off."""
        for turn in range(times):
            run = self.run_path()

            def kill(n: int, name: str, torn: Any, run: Path = run) -> None:
                if len(list(run.glob(pattern))) >= 2 and name == "fsync":
                    os.kill(os.getpid(), signal.SIGKILL)

            by = ended(self.start(job, run, at_moves(kill)))[1]
            self.kills += by == signal.SIGKILL
            found = sorted(run.glob(pattern))
            if by == signal.SIGKILL and found:
                file = found[
                    0 if "staging" in pattern else -1
                ]  # the newest part has no sidecar yet, and is not accepted
                body = bytearray(file.read_bytes())
                body[len(body) // 2] ^= 1
                file.write_bytes(body if turn % 2 else body[: len(body) // 2])
            kept = run.with_name(f"{run.name}-events")
            self.count_damage(what, job, run, event, happened=by == 9 and bool(found), kept=kept)

    def count_damage(self, what: str, job: str, run: Path, event: str, *, happened: bool, kept: Path) -> None:
        """As ``count``; the driver must also have said what it found."""
        events = run / "events.jsonl"
        if happened:
            os.link(events, kept)
        self.count(what, job, run, happened=happened, code=None, clean=False)
        if happened and event not in kept.read_text():
            self.wrong.append(f"{what}, {job}: no event '{event}'")
            self.rows[what, job]["wrong"] += 1

    def workers(self, job: str, fault: str, times: int) -> None:
        """Workers of a cluster on this machine are killed or stopped while the driver waits for them."""
        import psutil

        wanted, latest = times, 2.0
        for _ in range(6 * times):
            if not wanted:
                break
            run = self.run_path()
            command = [sys.executable, "-m", "distagg", "run", str(self.jobs[job]), "-o", str(run), "--workers", "2"]
            with (self.folder / "log").open("ab") as log:
                driver = subprocess.Popen(command, stdout=log, stderr=log)
            hit, seen = 0, []
            while driver.poll() is None and len(seen) < 2:
                time.sleep(0.05)
                seen = [p for p in _children(driver.pid) if "spawn_main" in " ".join(_command(p))]
            time.sleep(self.draw.uniform(min(0.5, latest / 2), latest))
            with suppress(ProcessLookupError):
                driver.send_signal(signal.SIGSTOP)  # so that it cannot finish while its workers are struck
            alive = [process for process in seen if process.is_running()]
            if len(alive) < 2 or '"finished"' in (run / "events.jsonl").read_text():  # too late: sooner, next time
                latest /= 2
                driver.send_signal(signal.SIGCONT)
                waited(driver)
                continue
            wanted -= 1
            for process in alive if fault == "all workers killed" else self.draw.sample(alive, 1):
                with suppress(psutil.NoSuchProcess):
                    hit += _strike(process, fault)
            driver.send_signal(signal.SIGCONT)
            code = waited(driver)
            self.kills += hit if "SIGSTOP" not in fault else 0
            self.count(fault, job, run, happened=hit > 0, code=code, clean=code == 4)

    def scheduler(self, job: str, times: int) -> None:
        """A cluster of its own loses its scheduler; the run is resumed without it."""
        from fault_clusters import after, cluster

        for _ in range(times):
            run = self.run_path()
            with cluster(self.folder) as (address, (scheduler, _)), (self.folder / "log").open("ab") as log:
                command = [sys.executable, "-m", "distagg", "run", str(self.jobs[job]), "-o", str(run)]
                driver = subprocess.Popen([*command, "--scheduler", address], stdout=log, stderr=log)
                while driver.poll() is None and not (run / "events.jsonl").exists():
                    time.sleep(0.05)
                time.sleep(self.draw.uniform(1.0, 5.0))
                alive = driver.poll() is None
                scheduler.kill()
                happened = scheduler.wait() == -signal.SIGKILL and alive
                self.kills += happened
                code = waited(driver)
            if happened:
                after(self, "scheduler killed", job, run, code)

    def table(self) -> str:
        lines = [f"| fault | job | {' | '.join(COLUMNS)} |", "|---|---|" + "---|" * len(COLUMNS)]
        for (fault, job), row in self.rows.items():
            lines.append(f"| {fault} | {job} | " + " | ".join(str(row[column]) for column in COLUMNS) + " |")
        return "\n".join(lines)


@contextmanager
def _without_memory(number: int) -> Iterator[None]:
    """The ``number``-th chunk that is loaded does not fit."""
    from distagg.dataset.chunk_ref import ChunkRef

    real, count = ChunkRef.load, 0

    def load(self: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        if count > number:
            raise MemoryError
        return real(self, **more)

    ChunkRef.load = load  # type: ignore[method-assign]
    try:
        yield
    finally:
        ChunkRef.load = real  # type: ignore[method-assign]


def _children(process: int) -> list[Any]:
    import psutil

    with suppress(psutil.NoSuchProcess):
        return psutil.Process(process).children(recursive=True)
    return []


def _command(process: Any) -> list[str]:
    import psutil

    with suppress(psutil.Error):
        return process.cmdline()
    return []


def _strike(process: Any, fault: str) -> bool:
    """Kill a worker, or stop it for two seconds; whether it happened."""
    import psutil

    if "SIGSTOP" in fault:
        process.suspend()
        time.sleep(0.5)
        stopped = process.status() == psutil.STATUS_STOPPED
        time.sleep(2.0)
        process.resume()
        return stopped
    process.kill()
    for _ in range(100):
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def disturb_driver(matrix: Matrix, *, short: bool) -> None:
    few = 2 if short else 10
    for job in matrix.jobs:
        matrix.killed_at_moves(job, 17 if short else 1)
        matrix.stopped_at_random(job, signal.SIGKILL, few)
        matrix.stopped_at_random(job, signal.SIGTERM, few)
        matrix.full_disk(job, few)
        matrix.no_memory(job, few)
        matrix.damaged(job, "a corrupt part in staging", "staging/ranked/part-*[!n]", "part damaged", few)
        matrix.damaged(job, "a corrupt part published", "output/ranked/*", "output damaged", few)
    matrix.damaged("training", "a corrupt checkpoint", "checkpoints/model/round-*", "checkpoint damaged", few)


def disturb_files(matrix: Matrix, *, short: bool) -> None:
    from fault_files import AT_REST, AtRest, flipped_meanwhile

    at_rest = AtRest(matrix)
    for kind in AT_REST:
        at_rest.damage(kind, 2 if short else 30)
    for job in matrix.jobs:
        flipped_meanwhile(matrix, at_moves, job, 2 if short else 60)


def disturb_cluster(matrix: Matrix, *, short: bool, times: int) -> None:
    matrix.workers("ranking", "worker SIGKILL", 1 if short else times)
    if short:
        return
    from fault_clusters import disturb

    disturb(matrix, times)
    matrix.workers("training", "worker SIGKILL", times)
    for job in matrix.jobs:
        matrix.workers(job, "all workers killed", times)
        matrix.workers(job, "worker SIGSTOP", times)
        matrix.scheduler(job, times)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="a sample of the matrix")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--no-cluster", action="store_true", help="only what happens to drivers, disks and files")
    parts.add_argument("--only-cluster", action="store_true", help="only what happens to workers and schedulers")
    parser.add_argument("--times", type=int, default=5, help="of each fault of a cluster, for each job (default: 5)")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="distagg-faults-"))
    real = os.dup(1)
    os.dup2(2, 1)  # what the jobs print is talk
    matrix = Matrix(folder, arguments.seed)
    if not arguments.only_cluster:
        disturb_driver(matrix, short=arguments.short)
        disturb_files(matrix, short=arguments.short)
    if not arguments.no_cluster:
        disturb_cluster(matrix, short=arguments.short, times=arguments.times)
    sys.stdout.flush()
    os.dup2(real, 1)
    rows = [{"fault": fault, "job": job, **row} for (fault, job), row in matrix.rows.items()]
    if arguments.json:
        print(json.dumps({"rows": rows, "kills": matrix.kills, "wrong": matrix.wrong}))
    else:
        print(matrix.table())
        print(f"\n{matrix.kills} kills, each seen by the system; {len(matrix.wrong)} wrong")
        print("\n".join(matrix.wrong))
    if not matrix.wrong:
        shutil.rmtree(folder)
    return 1 if matrix.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
