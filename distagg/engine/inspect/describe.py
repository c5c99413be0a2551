"""A dataset described: histograms and coverage for its report, and its features as tables for other learners."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.data import as_dataset
from distagg.engine.fitting.fit import split_query
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import Runner, Work, as_runner
from distagg.errors import UsageError
from distagg.models.scorers.features import FeatureSettings, feature_table
from distagg.storage.atomic import staged_directory
from distagg.storage.parquet import CHECKSUMS

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
    sums = as_runner(runner).map_reduce(Work(_describe_task, edges), dataset.plan(), _add)
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


def features(
    data: Any,
    *,
    kind: str = "svd",
    pairs: str = "log",
    rank: int = 1,
    combined: bool = False,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> pa.Table:
    """Features of every item: columns query, item, ``expert:feature`` and ``expert:missing`` for every expert, label.

    Parameters
    ----------
    data
        Lists of any kind that ``rank`` takes, with or without labels; for ``sums`` also pairs.
    kind
        ``svd``: the ``rank`` leading singular vectors u and v and singular values s of the expert's pair matrix;
        ``borda``: Borda points; ``cp``: u and v of the ``rank`` leading components of all experts' pair matrices
        together (Candecomp/Parafac); or ``sums``: what items won and lost, which raw pairs have too.
    pairs
        How two ranks become a preference: binary, difference, normalised, log, or all (all but difference).
    rank
        The number of singular triplets, or of cp components.
    combined
        One set of features for the sum of all experts, under the name ``all``; cp always has one set.
    runner
        Where to run: None runs in this process; the context managers ``local_cluster(workers)`` and
        ``remote_cluster(address)`` of ``distagg.engine.dask`` give a runner on a cluster.
    progress
        Called with the number of chunks finished since the last call.

    Returns
    -------
    pyarrow.Table
        A row per item of each query.

    Notes
    -----
    For an item that an expert does not list, the features are 0 and ``missing`` is 1. The table takes 8 bytes for every
    item, expert and feature.
    """
    dataset = as_dataset(data)
    work = _work(dataset, FeatureSettings(kind, pairs, rank, combined))
    pieces = list(as_runner(runner).map(work, dataset.plan(), progress))
    if not pieces:
        raise UsageError("no query is selected to compute features of")
    return pa.concat_tables(pieces)


def features_to(
    target: Path, dataset: Dataset, settings: FeatureSettings, runner: Runner | None = None, progress: Progress = silent
) -> int:
    """Write the table of ``features`` as a directory of Parquet files, all or nothing; returns the number of rows.

    Workers write their own chunks, one in memory at a time. The metadata of each file contain the settings.
    """
    work = _work(dataset, settings)
    with staged_directory(target) as folder:
        work = replace(work, task=_write_task, payload=(*work.payload, str(folder.resolve())))
        return sum(as_runner(runner).map(work, dataset.plan(), progress))


def _work(dataset: Dataset, settings: FeatureSettings) -> Work:
    if dataset.manifest.kind != "lists" and settings.kind != "sums":
        raise UsageError(f"features {settings.kind} are those of lists, but the dataset holds pairs; choose kind sums")
    if split_query(dataset):
        raise UsageError("features are computed from whole queries, but the dataset is partitioned by expert")
    return Work(_features_task, (dataset.experts, settings), ids=True)


def _features_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> pa.Table:
    experts, settings = payload
    return feature_table(chunk, experts, settings)


def _write_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> int:
    experts, settings, folder = payload
    table = feature_table(chunk, experts, settings)
    about = {"distagg features": json.dumps(asdict(settings), sort_keys=True)}
    # Two workers may write the same part: a rename leaves a complete one.
    part = Path(folder) / f"part-{index:05d}.parquet"
    staging = part.with_name(f".{part.name}-{uuid.uuid4().hex[:8]}")
    pq.write_table(table.replace_schema_metadata(about), staging, **CHECKSUMS)
    os.replace(staging, part)
    return table.num_rows
