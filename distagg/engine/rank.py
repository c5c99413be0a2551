"""Rank: workers score, order and write their own chunks; the driver publishes the parts together.

The result is the ranking with all its columns and, for models that iterate, the convergence of every query's fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.arrow import as_arrow, as_lists, as_words, dtype_of, no_rows
from distagg.dataset.chunk import Chunk
from distagg.dataset.chunk_ref import ChunkRef
from distagg.dataset.dataset import CHUNK_ENTRIES, Dataset
from distagg.dataset.interchange import as_pandas, as_polars
from distagg.engine.fitting.fit import Through, cut, gather, tell_pool
from distagg.engine.memory import check_memory
from distagg.engine.progress import Progress, silent
from distagg.engine.rank_options import Shown, prepared
from distagg.engine.runner import Runner, Work, as_runner
from distagg.engine.saved import expert_table
from distagg.errors import InputError, UsageError
from distagg.models import Model, Params
from distagg.models.base import Known
from distagg.models.outcome import STATUS, Outcome
from distagg.models.rounds import Gathered
from distagg.rankings.files import Format, RankedPart, publish_directory, publish_file, write_part
from distagg.rankings.ordering import order_items
from distagg.storage.atomic import refuse_existing, staged_directory, staged_file
from distagg.storage.paths import Place, place
from distagg.types import RANKINGS_TABLE

COLUMN_TYPES = {"status": pa.string(), "component": pa.int32(), "resamples": pa.int64()}  # all others are float64
COEFFICIENTS = pa.schema(
    [
        ("query", pa.string()),
        ("covariate", pa.string()),
        *((name, pa.float64()) for name in ("coefficient", "error", "low", "high", "odds_ratio")),
    ]
)
REACH = NormalDist().inv_cdf(0.975)
NOTHING_MORE = Shown()
FIT_TYPES = {  # all others are float64
    "converged": pa.bool_(),
    "exact": pa.bool_(),
    "iterations": pa.int64(),
    "covariate": pa.list_(pa.string()),
    "coefficient": pa.list_(pa.float64()),
    "error": pa.list_(pa.float64()),
}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of ``solve``: a ranking and the convergence of its fits.

    ``model`` is the model's name. ``ranking`` has the columns query, item, rank, score and those of the model:
    uncertainty, low, high, status, component. ``fits`` has a row per query for models that iterate: converged,
    iterations, gradient, likelihood and columns of the model; with ``trace`` also the log likelihood after every step.
    ``coefficients`` has those of covariates. ``experts`` has a row per expert for models that learn how reliable
    experts are: expert, reliability, error, low, high, votes. ``criterion`` says when a fit counts as converged.
    """

    model: str
    ranking: pa.Table
    fits: pa.Table
    criterion: str
    experts: pa.Table

    @property
    def coefficients(self) -> pa.Table:
        """Coefficients of covariates: query, covariate, coefficient, error, low, high (95%), odds_ratio."""
        return coefficients_of(self.fits)

    @property
    def converged(self) -> bool:
        """Whether every query's fit converged; always true for models that do not iterate."""
        return "converged" not in self.fits.column_names or all(self.fits["converged"].to_pylist())

    def to_pandas(self) -> Any:
        """The ranking as a pandas frame."""
        return as_pandas(self.ranking)

    def to_polars(self) -> Any:
        """The ranking as a polars frame."""
        return as_polars(self.ranking)

    def to_dask(self) -> Any:
        """The ranking as a Dask frame of one partition; ``distagg.rank`` of a Dask frame gives many."""
        from distagg.engine.collections import one_partition

        return one_partition(self.to_pandas())


def ranking_schema(model: Model, shown: Shown = NOTHING_MORE) -> pa.Schema:
    own = (pa.field(name, COLUMN_TYPES.get(name, pa.float64())) for name in model.item_columns)
    return pa.schema([*RANKINGS_TABLE, *own, *(pa.field(name, shown.type_of(name)) for name in shown.columns)])


def fits_schema(model: Model, *, trace: bool = False) -> pa.Schema:
    columns = [pa.field(name, FIT_TYPES.get(name, pa.float64())) for name in model.query_columns]
    traced = [pa.field("trace", pa.list_(pa.float64()))] if trace else []
    return pa.schema([pa.field("query", pa.string()), *columns, *traced])


def ranking_of(
    chunk: Chunk, outcome: Outcome, schema: pa.Schema = RANKINGS_TABLE, shown: Shown = NOTHING_MORE, index: int = 0
) -> pa.Table:
    """Rows of a chunk's rankings, best item of each query first; ``index`` is the chunk's number in the plan."""
    items = {**outcome.items, **shown.items_of(chunk, index)}
    order = order_items(chunk.item_offsets, outcome.score)
    query = chunk.item_query()
    rows = chunk.item_offsets[query] + order
    if shown.least:
        kept = items[shown.unit][rows] >= shown.least
        rows, query = rows[kept], query[kept]
    rank = np.arange(len(rows)) - np.searchsorted(query, query) + 1
    if shown.top:
        first = rank <= shown.top
        rows, query, rank = rows[first], query[first], rank[first]
    ids = chunk.item_ids.take(as_arrow(rows))
    columns = [chunk.query_ids.take(as_arrow(query)), ids, as_arrow(rank.astype(np.int32))]
    columns.append(as_arrow(outcome.score[rows]))
    for field in list(schema)[len(columns) :]:
        if field.name == "status":
            columns.append(as_words(STATUS).take(as_arrow(items["status"][rows].astype(np.int64))))
        elif field.name == "title":
            columns.append(shown.title_of(ids))
        else:
            columns.append(as_arrow(items[field.name][rows].astype(dtype_of(field.type))))
    return pa.Table.from_arrays(columns, schema=schema)


def fits_of(chunk: Chunk, outcome: Outcome, schema: pa.Schema) -> pa.Table:
    """A row per query: whether and how its fit converged."""
    columns: list[Any] = [chunk.query_ids]
    for field in list(schema)[1:]:
        if field.name == "trace":
            lines = outcome.trace if outcome.trace is not None else np.zeros((chunk.n_queries, 0))
            columns.append(as_lists([line[np.isfinite(line)] for line in lines], np.float64))
        elif pa.types.is_list(field.type):
            columns.append(pa.array(outcome.queries[field.name], field.type))
        else:
            columns.append(as_arrow(outcome.queries[field.name].astype(dtype_of(field.type))))
    return pa.Table.from_arrays(columns, schema=schema)


def coefficients_of(fits: pa.Table) -> pa.Table:
    """The coefficients of covariates that the rows of fits have: a row for each query and covariate.

    ``odds_ratio`` is the factor by which a unit of the covariate changes the odds of winning.
    """
    if "coefficient" not in fits.column_names:
        return no_rows(COEFFICIENTS)
    rows: dict[str, list[Any]] = {name: [] for name in COEFFICIENTS.names}
    for row in fits.to_pylist():
        for name, value, error in zip(row["covariate"], row["coefficient"], row["error"], strict=True):
            low, high = value - REACH * error, value + REACH * error
            found = (row["query"], name, value, error, low, high, math.exp(min(value, 700.0)))
            for column, cell in zip(rows.values(), found, strict=True):
                column.append(cell)
    return pa.table(rows, schema=COEFFICIENTS)


def solve(
    model: Model,
    params: Params,
    dataset: Dataset,
    runner: Runner | None = None,
    *,
    trace: bool = False,
    shown: Shown = NOTHING_MORE,
    through: Through | None = None,
) -> Result:
    """Rank all queries, with all that the model reports and the additional columns of ``shown``.

    ``through`` is a fitted completion: every user's ratings are completed first, then ranked.
    """
    runner = as_runner(runner)
    known, refs, shown = ready(model, params, dataset, runner, shown=shown, through=through)
    pieces = list(runner.map(Work(_solve_task, (model, known, shown, trace), ids=True), refs))
    rankings = [no_rows(ranking_schema(model, shown)), *(ranking for ranking, _ in pieces)]
    fits = [no_rows(fits_schema(model, trace=trace)), *(fit for _, fit in pieces)]
    experts = expert_table(model, params, dataset.experts)
    return Result(model.name, pa.concat_tables(rankings), pa.concat_tables(fits), model.criterion, experts)


def rank_by_chunks(
    model: Model,
    params: Params,
    dataset: Dataset,
    *,
    shown: Shown = NOTHING_MORE,
    through: Through | None = None,
    runner: Runner | None = None,
    progress: Progress = silent,
    learned: list[pa.Table] | None = None,
) -> Iterator[pa.Table]:
    """Rankings in the order of the dataset, chunk by chunk as they are asked for; first a table without rows.

    Coefficients of covariates are added to ``learned``.
    """
    runner = as_runner(runner)
    known, refs, shown = ready(model, params, dataset, runner, shown=shown, through=through)
    yield no_rows(ranking_schema(model, shown))
    for ranking, fits in runner.map(Work(_solve_task, (model, known, shown, False), ids=True), refs, progress):
        if learned is not None:
            learned.append(coefficients_of(fits))
        yield ranking


def rank_to(
    target: Place,
    model: Model,
    params: Params,
    dataset: Dataset,
    *,
    fmt: Format = "parquet",
    shown: Shown = NOTHING_MORE,
    through: Through | None = None,
    runner: Runner | None = None,
    progress: Progress = silent,
    learned: list[pa.Table] | None = None,
) -> int:
    """Write rankings to ``target``, all or nothing; returns the number of rows.

    Coefficients of covariates are added to ``learned``.
    """
    refuse_existing(target)
    runner = as_runner(runner)
    known, refs, shown = ready(model, params, dataset, runner, shown=shown, through=through)
    target.parent.mkdir(parents=True, exist_ok=True)
    if fmt == "parquet":
        with staged_directory(target) as folder:
            parts = _write_parts(folder, (model, known, shown), refs, fmt, runner, progress)
            converged = not any(part.unfinished for part in parts)
            about = {"model": model.name, "queries": dataset.manifest.queries, "converged": converged}
            publish_directory(folder, parts, about, expert_table(model, params, dataset.experts))
        return _told(parts, learned)
    with staged_file(target) as staging:
        folder = staging.with_name(staging.name + ".parts")
        folder.mkdir()
        try:
            parts = _write_parts(folder, (model, known, shown), refs, fmt, runner, progress)
            publish_file(folder, parts, staging, fmt)
        finally:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
    return _told(parts, learned)


def _told(parts: list[RankedPart], learned: list[pa.Table] | None) -> int:
    """The number of rows of all parts, whose coefficients are added to ``learned``."""
    if learned is not None:
        learned += [pa.Table.from_pylist(list(part.coefficients), COEFFICIENTS) for part in parts if part.coefficients]
    return sum(part.rows for part in parts)


def solved(model: Model, chunk: Chunk, known: Known, *, trace: bool = False) -> Outcome:
    """Solve the queries of a chunk, whole ones or a split one, and check that every item's score is a number."""
    if isinstance(known, Gathered):
        outcome = model.solve_split(chunk, known, trace=trace)
    else:
        outcome = model.solve(chunk, known, trace=trace)
    nan = np.flatnonzero(np.isnan(outcome.score))
    if len(nan):
        query = chunk.query_ids[int(np.searchsorted(chunk.item_offsets, nan[0], side="right")) - 1]
        raise InputError(f"query {query}", found=f"a NaN score from {model.name}", expected="a number for every item")
    return outcome


def ready(
    model: Model,
    params: Params,
    dataset: Dataset,
    runner: Runner,
    *,
    shown: Shown = NOTHING_MORE,
    through: Through | None = None,
    chunk_entries: int = CHUNK_ENTRIES,
) -> tuple[Known, tuple[ChunkRef, ...], Shown]:
    """The inputs of a ranking: parameters (or what was gathered from a split query), chunks, additional columns."""
    dataset = cut(model, dataset)
    check_memory(model, dataset, runner)
    if through is not None and model.depth:
        raise UsageError(f"depth={model.depth} cuts lists, but completed ratings are whole lists; omit one of the two")
    if through is not None and shown.resamples:
        raise UsageError(
            "the bootstrap does not redo the completion of ratings for each draw; use one of the two options"
        )
    if model.learner != "trained":  # whose pool is for training
        tell_pool(model, dataset)
    shown = prepared(shown, model, params, dataset, runner)
    known = gather(model, params, dataset, runner, through=through)
    if dataset.manifest.partition == "expert" or through is not None:
        return known, dataset.plan()[:1], shown  # one chunk holds all items of a split query
    return known, dataset.plan(chunk_entries), shown


def _write_parts(
    folder: Place,
    job: tuple[Model, Known, Shown],
    refs: tuple[ChunkRef, ...],
    fmt: Format,
    runner: Runner,
    progress: Progress,
) -> list[RankedPart]:
    work = Work(write_task, (*job, str(folder.resolve()), fmt), ids=True)
    return list(runner.map(work, refs, progress))


def _solve_task(chunk: Chunk, index: int, payload: tuple[Model, Known, Shown, bool]) -> tuple[pa.Table, pa.Table]:
    model, known, shown, trace = payload
    outcome = solved(model, chunk, known, trace=trace)
    ranking = ranking_of(chunk, outcome, ranking_schema(model, shown), shown, index)
    return ranking, fits_of(chunk, outcome, fits_schema(model, trace=trace))


def write_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> RankedPart:
    """Rank a chunk and write it as an attempt of part ``index``."""
    model, known, shown, folder, fmt = payload
    outcome = solved(model, chunk, known)
    table = ranking_of(chunk, outcome, ranking_schema(model, shown), shown, index)
    fits = fits_of(chunk, outcome, fits_schema(model)) if model.query_columns else None
    unfinished = int((~outcome.queries["converged"]).sum()) if "converged" in outcome.queries else 0
    part = write_part(table, place(folder), index, fmt, model.name, fits=fits, unfinished=unfinished)
    return part if fits is None else replace(part, coefficients=tuple(coefficients_of(fits).to_pylist()))
