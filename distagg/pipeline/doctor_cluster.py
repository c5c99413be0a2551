"""``distagg doctor --scheduler``: check that a cluster can run distagg, and how fast it answers."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.frames import dataset_from_arrow
from distagg.engine.ask import ask_workers, worker_rows
from distagg.engine.dask import DaskRunner
from distagg.engine.identity import OPTIONAL, compare_workers, differences, identity
from distagg.engine.runner import Round, Work
from distagg.engine.worker_memory import size_text
from distagg.pipeline.doctor import BAD, OK, POOR, check_row

CLOCK_SECONDS = 1.0  # a difference that confuses files' times and logs
PAYLOAD = 4 << 20  # bytes to measure the way to a worker with
ROUNDS = 30
SLOW_ROUND_MS = 100.0
SHOWN = 3


def examine_cluster(runner: DaskRunner, path: str | None) -> list[dict[str, Any]]:
    """A row per check of the cluster; ``path`` is that of a dataset that workers should be able to read."""
    checks: tuple[Callable[[], dict[str, Any]], ...] = (
        lambda: _members(runner.client),
        lambda: _versions(runner.client),
        *((lambda: _path(runner.client, path),) if path is not None else ()),
        lambda: _clocks(runner.client),
        lambda: _memory(runner.client),
        lambda: _bandwidth(runner.client),
        lambda: _round(runner),
    )
    return [check() for check in checks]


def _members(client: Any) -> dict[str, Any]:
    rows = worker_rows(client).values()
    hosts, threads = {row["host"] for row in rows}, sum(row["nthreads"] for row in rows)
    many = [row for row in rows if row["nthreads"] > 1]
    found = f"{len(rows)} on {len(hosts)} hosts, {threads} threads"
    return check_row("workers", POOR if many else OK, found, "start workers with --nthreads 1: threads share the GIL")


def _versions(client: Any) -> dict[str, Any]:
    mine, answers = identity(), compare_workers(client)
    wrong = [
        f"{address}: {'; '.join(differences(mine, one)) if isinstance(one, dict) else one}"
        for address, one in answers.items()
        if not isinstance(one, dict) or differences(mine, one)
    ]
    if wrong:
        return check_row("versions", BAD, " | ".join(wrong[:SHOWN]), "install the driver's versions on the workers")
    shown = ("distagg", "python", "numpy", "numba", "pyarrow", "distributed", *OPTIONAL)
    return check_row("versions", OK, ", ".join(f"{name} {mine[name]}" for name in shown if mine.get(name)))


def _path(client: Any, path: str) -> dict[str, Any]:
    answers = ask_workers(client, os.access, path, os.R_OK)
    blind = [address for address, there in answers.items() if not there]
    found = f"{path}: read by {len(answers) - len(blind)} of {len(answers)} workers"
    remedy = f"{', '.join(blind[:SHOWN])} cannot read it: use a shared file system or an object store"
    return check_row("path", BAD if blind else OK, found, remedy)


def _clocks(client: Any) -> dict[str, Any]:
    """How far the clocks of workers are from the driver's, at least: a message takes time, too."""
    before = time.time()
    told = ask_workers(client, time.time)
    after = time.time()
    off = max((max(before - clock, clock - after, 0.0) for clock in told.values()), default=0.0)
    found = f"within {off:.1f} s of the driver's" if off else "agree with the driver's"
    return check_row("clocks", POOR if off > CLOCK_SECONDS else OK, found, "synchronise the hosts' clocks (NTP)")


def _memory(client: Any) -> dict[str, Any]:
    rows = worker_rows(client).values()
    limits = [row["memory_limit"] or 0 for row in rows]
    folders = sorted({str(row["local_directory"]) for row in rows})
    least = min(limits, default=0)
    limit = f"{size_text(least)} or more each" if least else "no limit"
    more = f" and {len(folders) - SHOWN} more" if len(folders) > SHOWN else ""
    return check_row("memory", OK, f"{limit}; spills to {', '.join(folders[:SHOWN])}{more}")


def _bandwidth(client: Any) -> dict[str, Any]:
    """Through the scheduler to one worker and back, the best of three."""
    body, address = os.urandom(PAYLOAD), next(iter(client.nthreads()))
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        client.run(bytes, body, workers=[address])
        taken.append(time.perf_counter() - began)
    return check_row("bandwidth", OK, f"{2 * PAYLOAD / min(taken) / 1e6:.0f} MB/s through the scheduler")


def _round(runner: DaskRunner) -> dict[str, Any]:
    """A round of training in which nothing is computed."""
    import pyarrow as pa

    count = max(2, len(runner.client.nthreads()))
    names = [str(number) for number in range(count)]
    rows = pa.table({"query": names, "expert": ["a"] * count, "item": names, "rank": [1] * count})
    refs = dataset_from_arrow(rows).plan() * count
    todo = [Round(Work(_nothing, None, repeated=True), refs, np.add)]
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        list(runner.rounds(todo))
        taken.append(1e3 * (time.perf_counter() - began))
    middle = statistics.median(taken[1:])
    found = f"{middle:.1f} ms, the median of {ROUNDS - 1}; the least {min(taken):.1f} ms"
    remedy = "a hundred rounds take this long beside the work: train on fewer workers, or nearer to them"
    return check_row("round", POOR if middle > SLOW_ROUND_MS else OK, found, remedy)


def _nothing(chunk: Chunk, index: int, payload: None) -> np.ndarray:
    return np.zeros(1)
