"""Rounds at 10 to 1,000 workers: the real scheduler, driver and workers, all in this process; chunks only take time.

Every chunk sleeps as long as a measured one of its size takes. All workers' own messages are handled by this one
process too, so what is called coordination here is more than a driver on its own machine would see.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from distagg.dataset import Dataset
from distagg.dataset.reader import ChunkRef
from distagg.engine.cluster import SETTINGS, DaskRunner, share_out
from distagg.engine.runner import Work

STEP = 100  # workers that are started at once
QUIET = {
    "distributed.scheduler.worker-ttl": None,
    "distributed.comm.timeouts.connect": "120s",
    "distributed.admin.tick.interval": "10s",
    "distributed.admin.tick.limit": "600s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.host-cpu": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.worker.profile.enabled": False,
}


@contextmanager
def crowd(workers: int) -> Iterator[DaskRunner]:
    """In-process workers, one thread each."""
    import dask
    from distributed import Client, LocalCluster

    calm = {**SETTINGS, **QUIET}
    with (
        dask.config.set(calm),
        LocalCluster(
            n_workers=min(STEP, workers), threads_per_worker=1, processes=False, dashboard_address=None,
            memory_limit=0, silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip
        for count in [*range(STEP, workers, STEP), workers]:
            cluster.scale(count)
            client.wait_for_workers(count, timeout=120)
        yield DaskRunner(client)


def _asleep(chunk: Any, index: int, seconds: float) -> np.ndarray:
    time.sleep(seconds)
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
    runner.map_reduce(Work(_asleep, 0.0, repeated=True), refs, np.add)  # connects, sends spans
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        runner.map_reduce(Work(_asleep, seconds, repeated=True), refs, np.add)
        wall = time.perf_counter() - began
        found.append({"seconds": wall, "compute": share * seconds, "coordination": wall - share * seconds})
    return found
