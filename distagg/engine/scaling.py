"""Measurements for scaling experiments: the time of whole passes over a dataset, and the cost of a round."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from distagg.dataset.dataset import ChunkRef
from distagg.engine.dask import SPANS_PER_THREAD, DaskRunner, share_out
from distagg.engine.runner import Round, Work
from distagg.models import Model


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
        "seconds": wall, "read": read, "compute": compute, "coordination": wall - read - compute,
        "chunks": float(len(refs)), "entries": float(sum(ref.entries for ref in refs)),
    }  # fmt: skip


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
    """Milliseconds of an empty round: direct calls and, for comparison, a plain client.map over 8 chunks, alternating.

    The direct calls are train and validate in one message, as in training, over chunks in the workers' caches.
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
