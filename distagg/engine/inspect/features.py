"""Export the features of a dataset as one table or as Parquet files, for use with any other learner."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.fit import split_query
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import InlineRunner, Runner, Work
from distagg.errors import UsageError
from distagg.models.scorers.features import FeatureSettings, feature_table
from distagg.storage.atomic import staged_directory


def features(
    dataset: Dataset,
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
    dataset
        A dataset of lists, with or without labels.
    kind
        ``svd``: the ``rank`` leading singular vectors u and v and singular values s of the expert's pair matrix;
        ``borda``: Borda points; or ``cp``: u and v of the ``rank`` leading components of all experts' pair matrices
        together (Candecomp/Parafac).
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
    work = _work(dataset, FeatureSettings(kind, pairs, rank, combined))
    pieces = list((runner or InlineRunner()).map(work, dataset.plan(), progress))
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
        return sum((runner or InlineRunner()).map(work, dataset.plan(), progress))


def _work(dataset: Dataset, settings: FeatureSettings) -> Work:
    if dataset.manifest.kind != "lists":
        raise UsageError(f"features are computed from lists, but the dataset holds {dataset.manifest.kind}")
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
    pq.write_table(table.replace_schema_metadata(about), staging)
    os.replace(staging, part)
    return table.num_rows
