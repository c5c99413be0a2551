"""Simulated rounds at 10 to 1,000 workers: real scheduler, driver and workers in one process; only the work is a timer.

A worker answers after the time that was measured for chunks of that size. Timers replace its threads, because a
thousand threads in one process would only compete for the GIL. This process also handles the messages of all workers,
so its coordination time is an upper bound for a driver on its own machine. The workers' background activity (system
monitor, profiler, 50 ticks a second) is off.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from distagg.dataset import Dataset
from distagg.dataset.dataset import ChunkRef
from distagg.engine.dask import CONNECTIONS, SETTINGS, DaskRunner, share_out
from distagg.engine.runner import Work

STEP = 100  # workers to start at once
QUIET = {
    "distributed.scheduler.worker-ttl": None, "distributed.comm.timeouts.connect": "120s",
    "distributed.admin.tick.interval": "1h", "distributed.admin.tick.cycle": "1h",
    "distributed.admin.tick.limit": "2h", "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.system-monitor.disk": False, "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.worker.profile.enabled": False, "distributed.worker.use-file-locking": False,
}  # fmt: skip


@contextmanager
def crowd(workers: int) -> Iterator[DaskRunner]:
    """A cluster of in-process workers, each with one call at a time."""
    import dask
    from distributed import Client, LocalCluster

    with (
        _silent(),
        dask.config.set({**SETTINGS, **QUIET}),
        LocalCluster(
            n_workers=min(STEP, workers), threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0", memory_limit=0, silence_logs=50, executor=Timer(),
        ) as cluster,
        Client(cluster, set_as_default=False, connection_limit=CONNECTIONS) as client,
    ):  # fmt: skip
        for count in [*range(STEP, workers, STEP), workers]:
            cluster.scale(count)
            client.wait_for_workers(count, timeout=120)
        gc.collect()
        gc.freeze()  # the garbage collector need not scan a thousand workers' objects again
        try:
            yield DaskRunner(client)
        finally:
            gc.unfreeze()


@contextmanager
def _silent() -> Iterator[None]:
    """Turn logging off: every worker in this process would store every line of all others."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(level)


class Timer(Executor):
    """Makes a call at once, and returns its result after the seconds that the call is supposed to take."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        _taken.clear()
        future: Future[Any] = Future()
        try:
            value = fn(*args, **more)
        except Exception as error:
            future.set_exception(error)
        else:
            asyncio.get_running_loop().call_later(sum(_taken), _give, future, value)
        return future


_taken: list[float] = []  # seconds of each chunk of the current call; only the event loop makes calls


def _give(future: Future[Any], value: Any) -> None:
    if not future.cancelled():
        future.set_result(value)


def _busy(chunk: Any, index: int, seconds: float) -> np.ndarray:
    _taken.append(seconds)
    return np.zeros((25, 3))


def simulated_refs(dataset: Dataset, entries: int, chunk_entries: int) -> tuple[ChunkRef, ...]:
    """The chunk references of a dataset with ``entries`` entries; all of them load the same small chunk."""
    ref = dataset.plan(1 << 10)[0]
    held = ref.load(ids=False)
    small = held.select(np.arange(held.n_queries) < 1)
    block = replace(ref.blocks[0], entries=chunk_entries)
    simulated = replace(ref, path="", blocks=(block,), held=small)
    return (simulated,) * max(1, entries // chunk_entries)


def rounds_at(
    runner: DaskRunner, refs: Sequence[ChunkRef], entry_seconds: float, repeats: int
) -> list[dict[str, float]]:
    """Seconds of a round, of computing on the busiest worker, and of the rest (coordination)."""
    workers = runner.threads
    seconds = entry_seconds * refs[0].entries
    share = max(b - a for a, b in share_out(refs, workers))
    runner.map_reduce(Work(_busy, 0.0, repeated=True), refs, np.add)  # connects, sends spans
    measured = []
    for _ in range(repeats):
        began = time.perf_counter()
        runner.map_reduce(Work(_busy, seconds, repeated=True), refs, np.add)
        wall = time.perf_counter() - began
        measured.append({"seconds": wall, "compute": share * seconds, "coordination": wall - share * seconds})
    return measured
