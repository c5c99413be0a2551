"""Statistics of a dataset for its report: histograms and coverage, by map-reduce over chunks."""

from __future__ import annotations

from typing import Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.runner import InlineRunner, Runner, Work

BINS = 24
MOST_EXPERTS = 60  # with more, a chart of each expert's coverage is unreadable


def describe(dataset: Dataset, runner: Runner | None = None) -> dict[str, Any]:
    """``Dataset.info`` with histograms of list lengths and query sizes, and each expert's coverage."""
    info: dict[str, Any] = {"path": dataset.path, **dataset.info()}
    if dataset.manifest.kind != "lists":
        return info
    edges = {
        "list_length": _edges(dataset.manifest.list_lengths),
        "query_size": _edges(dataset.manifest.query_sizes),
    }
    sums = (runner or InlineRunner()).map_reduce(Work(_describe_task, edges), dataset.plan(), _add)
    if sums is None:
        return info
    info["histograms"] = {
        name: {"edges": edges[name].tolist(), "counts": sums[name].tolist()}
        for name in edges
        if not (name == "query_size" and dataset.manifest.partition == "expert")
    }
    if dataset.manifest.experts <= MOST_EXPERTS:
        share = sums["listed"] / max(dataset.manifest.items, 1)
        info["coverage"] = dict(zip(dataset.experts, share.tolist(), strict=True))
    return info


def _edges(extremes: dict[str, int]) -> np.ndarray:
    """Integer bin edges from the smallest to the largest value."""
    low, high = extremes["min"], extremes["max"] + 1
    return np.unique(np.linspace(low, max(high, low + 1), BINS + 1).round())


def _describe_task(chunk: Chunk, index: int, edges: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    length = np.diff(chunk.entry_offsets)
    listed = np.bincount(chunk.list_expert, weights=length, minlength=chunk.n_experts)
    return {
        "list_length": np.histogram(length, edges["list_length"])[0],
        "query_size": np.histogram(np.diff(chunk.item_offsets), edges["query_size"])[0],
        "listed": listed.astype(np.int64),
    }


def _add(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: a[name] + b[name] for name in a}
