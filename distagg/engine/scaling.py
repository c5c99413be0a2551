"""Scaling experiments: timed passes and rounds on workers, simulated rounds, and the universal scalability law.

Simulated rounds have 10 to 1,000 workers: a real scheduler, driver and workers in one process; only the work is a
timer. A worker answers after the time that was measured for chunks of that size. Timers replace its threads, because a
thousand threads in one process would only compete for the GIL. This process also handles the messages of all workers,
so its coordination time is an upper bound for a driver on its own machine. The workers' background activity (system
monitor, profiler, 50 ticks a second) is off.

The law (Gunther, "A general theory of computational scalability", 2008): n workers have the throughput of one, times
n / (1 + a (n - 1) + b n (n - 1)). ``a`` is the share of work that is serial (contention), ``b`` the cost of
communication between all pairs; with both at 0, n workers do n times as much.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from distagg.dataset import Dataset
from distagg.dataset.chunk_ref import ChunkRef
from distagg.engine.broadcast import share_out
from distagg.engine.dask import SETTINGS, SPANS_PER_THREAD, DaskRunner
from distagg.engine.runner import Round, Work
from distagg.models import Model

STEP = 100  # workers to start at once
QUIET = {
    "distributed.scheduler.worker-ttl": None,
    "distributed.comm.timeouts.connect": "120s",
    "distributed.admin.tick.interval": "1h",
    "distributed.admin.tick.cycle": "1h",
    "distributed.admin.tick.limit": "2h",
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.worker.profile.enabled": False,
    "distributed.worker.use-file-locking": False,
}
DRAWS = 300


def span_pass(payload: tuple[Model, Sequence[ChunkRef]]) -> tuple[float, float]:
    """Seconds spent reading and scoring a span of chunks."""
    model, refs = payload
    read = compute = 0.0
    for ref in refs:
        began = time.perf_counter()
        chunk = ref.load(ids=False)
        loaded = time.perf_counter()
        model.score(chunk, {})
        read, compute = read + loaded - began, compute + time.perf_counter() - loaded
    return read, compute


def one_pass(runner: DaskRunner, model: Model, refs: Sequence[ChunkRef]) -> dict[str, float]:
    """Seconds of a pass, and the mean over worker threads of reading, computing and the rest (coordination)."""
    threads = runner.threads
    began = time.perf_counter()
    spans = share_out(refs, threads * SPANS_PER_THREAD)
    parts = list(runner.each(span_pass, [(model, refs[a:b]) for a, b in spans]))
    wall = time.perf_counter() - began
    read, compute = (sum(part[k] for part in parts) / threads for k in range(2))
    return {
        "seconds": wall,
        "read": read,
        "compute": compute,
        "coordination": wall - read - compute,
        "chunks": float(len(refs)),
        "entries": float(sum(ref.entries for ref in refs)),
    }


def passes(runner: DaskRunner, model: Model, refs: Sequence[ChunkRef], repeats: int) -> list[dict[str, float]]:
    """Several timed passes, after every worker has compiled and one pass has filled the disk cache."""
    runner.client.run(span_pass, (model, refs[:1]))
    one_pass(runner, model, refs)
    return [one_pass(runner, model, refs) for _ in range(repeats)]


def middle(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """The run with the median time."""
    return sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]


def _nothing(chunk: Any, index: int, payload: np.ndarray) -> np.ndarray:
    return payload


def _naive(number: int, weights: np.ndarray) -> np.ndarray:
    return weights


def round_cost(runner: DaskRunner, refs: Sequence[ChunkRef], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of an empty round: one message to all, and a plain client.map over 8 chunks, by turns.

    The message asks to train and to validate, as in training, over chunks in the workers' caches.
    """
    weights = np.zeros((25, 3))
    todo = [Round(Work(_nothing, weights, repeated=True), refs, np.add)] * 2

    def ours() -> None:
        list(runner.rounds(todo))

    def naive() -> None:
        futures = runner.client.map(_naive, range(8), weights=weights, pure=False)
        sum(runner.client.gather(futures))

    taken: dict[str, list[float]] = {"rounds": [], "naive": []}
    for n in range(repeats + 5):
        for name, do in (("rounds", ours), ("naive", naive)):
            began = time.perf_counter()
            do()
            if n >= 5:
                taken[name].append(1e3 * (time.perf_counter() - began))
    return taken


@contextmanager
def crowd(workers: int) -> Iterator[DaskRunner]:
    """A cluster of in-process workers, each with one call at a time."""
    import dask
    from distributed import Client, LocalCluster

    with (
        _silent(),
        dask.config.set({**SETTINGS, **QUIET}),
        LocalCluster(
            n_workers=min(STEP, workers),
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=50,
            executor=Timer(),
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for count in [*range(STEP, workers, STEP), workers]:
            cluster.scale(count)
            client.wait_for_workers(count, timeout=120)
        gc.collect()
        gc.freeze()  # the garbage collector need not scan a thousand workers' objects again
        try:
            yield DaskRunner(client, hold_workers=False)
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


def task_seconds(runner: DaskRunner, tasks: int) -> float:
    """Seconds that scheduler and driver take for each of many tasks that do nothing."""
    list(runner.each(_idle, range(runner.threads)))  # connects
    began = time.perf_counter()
    list(runner.each(_idle, range(tasks)))
    return (time.perf_counter() - began) / tasks


def _idle(payload: int) -> int:
    return payload


def throughput(n: np.ndarray, rate: float, serial: float, talk: float) -> np.ndarray:
    return rate * n / (1.0 + serial * (n - 1.0) + talk * n * (n - 1.0))


def fitted_law(measured: Mapping[int, Sequence[float]], seed: int = 0) -> dict[str, Any]:
    """Fit the universal scalability law to rates by number of workers; 95% intervals by bootstrap over the repeats.

    ``peak`` is the number of workers with the highest throughput; infinite if only serial work limits it.
    """
    draws = np.random.default_rng(seed)
    best = _fitted(measured)
    samples = [
        _fitted({n: draws.choice(np.asarray(rates), len(rates)).tolist() for n, rates in measured.items()})
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(samples, [0.025, 0.975], axis=0)
    peaks = [_peak(*sample[1:]) for sample in samples]
    return {
        **{name: float(value) for name, value in zip(("rate", "serial", "talk"), best, strict=True)},
        "intervals": {name: [float(low[k]), float(high[k])] for k, name in enumerate(("rate", "serial", "talk"))},
        "peak": _peak(*best[1:]),
        "peak_interval": [float(np.quantile(peaks, q, method="nearest")) for q in (0.025, 0.975)],
        "points": len(measured),
    }


def _fitted(measured: Mapping[int, Sequence[float]]) -> np.ndarray:
    """Least squares on logarithms, so that a relative error has the same weight at 1 and at 1,000 workers."""
    from scipy.optimize import least_squares

    n = np.repeat([float(k) for k in measured], [len(rates) for rates in measured.values()])
    rates = np.concatenate([np.asarray(r, dtype=float) for r in measured.values()])
    start = np.log([np.median(rates / n), 1e-3, 1e-6])

    def off(x: np.ndarray) -> np.ndarray:
        return np.log(throughput(n, *np.exp(x))) - np.log(rates)

    best = np.exp(least_squares(off, start, bounds=(np.log([1e-12, 1e-9, 1e-12]), np.log([1e15, 1.0, 1.0]))).x)
    return np.asarray(best)


def _peak(serial: float, talk: float) -> float:
    return float(np.sqrt(max(1.0 - serial, 0.0) / talk)) if talk > 1e-11 else float("inf")
