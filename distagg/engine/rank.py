"""Ranking: every chunk scored, ordered and written by whoever holds it, then published whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.dataset.arrays import as_arrow
from distagg.dataset.chunk import Chunk
from distagg.dataset.commit import refuse_existing, staged_directory, staged_file
from distagg.dataset.rankings import Format, RankedPart, publish_directory, publish_file, write_part
from distagg.dataset.reader import ChunkRef, Dataset
from distagg.engine.fit import check_fits, gather, split_query
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import InlineRunner, Runner, Work
from distagg.errors import InputError
from distagg.kernels.ordering import order_items
from distagg.models import Model, Params
from distagg.types import RANKINGS_TABLE


def rank_table(model: Model, params: Params, dataset: Dataset, runner: Runner | None = None) -> pa.Table:
    """Rankings of all queries as one Arrow table: query, item, rank, score."""
    params, refs = _prepared(model, params, dataset, runner)
    pieces = (runner or InlineRunner()).map(Work(_rank_task, (model, params), ids=True), refs)
    return pa.concat_tables([RANKINGS_TABLE.empty_table(), *pieces])


def rank_to(
    target: Path,
    model: Model,
    params: Params,
    dataset: Dataset,
    *,
    fmt: Format = "parquet",
    runner: Runner | None = None,
    progress: Progress = silent,
) -> int:
    """Write rankings to ``target``, all or nothing; gives the number of rows."""
    refuse_existing(target)
    params, refs = _prepared(model, params, dataset, runner)
    runner = runner or InlineRunner()
    target.parent.mkdir(parents=True, exist_ok=True)
    if fmt == "parquet":
        with staged_directory(target) as folder:
            parts = _write_parts(folder, model, params, refs, fmt, runner, progress)
            publish_directory(folder, parts, {"model": model.name, "queries": _queries(dataset)})
        return sum(part.rows for part in parts)
    with staged_file(target) as staging:
        folder = staging.with_name(staging.name + ".parts")
        folder.mkdir()
        try:
            parts = _write_parts(folder, model, params, refs, fmt, runner, progress)
            publish_file(folder, parts, staging, fmt)
        finally:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
    return sum(part.rows for part in parts)


def ranking_of(chunk: Chunk, scores: np.ndarray) -> pa.Table:
    """Rows of a chunk's rankings, best item of each query first."""
    order = order_items(chunk.item_offsets, scores)
    sizes = np.diff(chunk.item_offsets)
    rows = np.repeat(chunk.item_offsets[:-1], sizes) + order
    rank = np.arange(chunk.n_items) - np.repeat(chunk.item_offsets[:-1], sizes) + 1
    queries = chunk.query_ids.take(as_arrow(chunk.item_query()))
    columns = [queries, chunk.item_ids.take(as_arrow(rows)), as_arrow(rank.astype(np.int32)), as_arrow(scores[rows])]
    return pa.Table.from_arrays(columns, schema=RANKINGS_TABLE)


def score(model: Model, chunk: Chunk, params: Params) -> np.ndarray:
    """A model's scores, checked: a number for every item."""
    scores = np.asarray(model.score(chunk, params))
    if np.isnan(scores).any():
        item = int(np.flatnonzero(np.isnan(scores))[0])
        query = chunk.query_ids[int(np.searchsorted(chunk.item_offsets, item, side="right")) - 1]
        raise InputError(f"query {query}", found=f"a NaN score from {model.name}", expected="a number for every item")
    return scores


def _prepared(
    model: Model, params: Params, dataset: Dataset, runner: Runner | None
) -> tuple[Params, tuple[ChunkRef, ...]]:
    check_fits(model, dataset)
    params = gather(model, params, dataset, runner)
    refs = dataset.plan()
    return params, refs[:1] if split_query(dataset) else refs  # one chunk holds all items of a split query


def _queries(dataset: Dataset) -> int:
    return dataset.manifest.queries


def _write_parts(
    folder: Path,
    model: Model,
    params: Params,
    refs: tuple[ChunkRef, ...],
    fmt: Format,
    runner: Runner,
    progress: Progress,
) -> list[RankedPart]:
    work = Work(_write_task, (model, params, str(folder.resolve()), fmt), ids=True)
    return list(runner.map(work, refs, progress))


def _rank_task(chunk: Chunk, index: int, payload: tuple[Model, Params]) -> pa.Table:
    model, params = payload
    return ranking_of(chunk, score(model, chunk, params))


def _write_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> RankedPart:
    model, params, folder, fmt = payload
    table = ranking_of(chunk, score(model, chunk, params))
    return write_part(table, Path(folder), index, fmt, model.name)
