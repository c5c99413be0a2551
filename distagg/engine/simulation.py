"""Rounds at 10 to 1,000 workers: the real scheduler, driver and workers, all in this process; chunks only take time.

A worker answers when the time is up that measured chunks of that size take; a timer stands for its thread, because a
thousand threads that wake at once do nothing but wait for each other in one process. All workers' own messages are
handled by this process too, so what is called coordination here is more than a driver on its own machine would see.
What workers do beside their work (looking at the machine, profiling themselves, ticking 50 times a second) is off.
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

STEP = 100  # workers that are started at once
QUIET = {
    "distributed.scheduler.worker-ttl": None, "distributed.comm.timeouts.connect": "120s",
    "distributed.admin.tick.interval": "1h", "distributed.admin.tick.cycle": "1h",
    "distributed.admin.tick.limit": "2h", "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.system-monitor.disk": False, "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.worker.profile.enabled": False, "distributed.worker.use-file-locking": False,
}  # fmt: skip


@contextmanager
def crowd(workers: int) -> Iterator[DaskRunner]:
    """In-process workers, one call at a time each."""
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
        gc.freeze()  # what a thousand workers hold is not looked through again at every turn
        try:
            yield DaskRunner(client)
        finally:
            gc.unfreeze()


@contextmanager
def _silent() -> Iterator[None]:
    """No log: every worker in this process would keep a copy of every other's lines."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(level)


class Timer(Executor):
    """Makes a call at once, and gives its result when the seconds are over that the call says it takes."""

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


_taken: list[float] = []  # by the chunks of the call that is being made; only the event loop makes calls


def _give(future: Future[Any], value: Any) -> None:
    if not future.cancelled():
        future.set_result(value)


def _busy(chunk: Any, index: int, seconds: float) -> np.ndarray:
    _taken.append(seconds)
    return np.zeros((25, 3))


def simulated_refs(dataset: Dataset, entries: int, chunk_entries: int) -> tuple[ChunkRef, ...]:
    """So many chunks as ``entries`` make; what they hold is one small chunk."""
    ref = dataset.plan(1 << 10)[0]
    held = ref.load(ids=False)
    small = held.select(np.arange(held.n_queries) < 1)
    block = replace(ref.blocks[0], entries=chunk_entries)
    one = replace(ref, path="", blocks=(block,), held=small)
    return (one,) * max(1, entries // chunk_entries)


def rounds_at(
    runner: DaskRunner, refs: Sequence[ChunkRef], entry_seconds: float, repeats: int
) -> list[dict[str, float]]:
    """Seconds of a round, of the largest worker's computing in it, and of the rest."""
    workers = runner.threads
    seconds = entry_seconds * refs[0].entries
    share = max(b - a for a, b in share_out(refs, workers))
    runner.map_reduce(Work(_busy, 0.0, repeated=True), refs, np.add)  # connects, sends spans
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        runner.map_reduce(Work(_busy, seconds, repeated=True), refs, np.add)
        wall = time.perf_counter() - began
        found.append({"seconds": wall, "compute": share * seconds, "coordination": wall - share * seconds})
    return found
