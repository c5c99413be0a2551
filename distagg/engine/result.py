"""What ranking gives back: the ranking with all its columns, and how every query's fit ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.arrays import as_arrow, as_lists, as_words
from distagg.dataset.chunk import Chunk
from distagg.engine.shown import Shown
from distagg.kernels.ordering import order_items
from distagg.models import Model
from distagg.models.outcome import STATUS, Outcome
from distagg.types import RANKINGS_TABLE

COLUMN_TYPES = {"status": pa.string(), "component": pa.int32(), "resamples": pa.int64()}  # others are float64
NOTHING_MORE = Shown()
FIT_TYPES = {"converged": pa.bool_(), "exact": pa.bool_(), "iterations": pa.int64()}  # likewise


@dataclass(frozen=True, slots=True)
class Result:
    """A ranking and how it was reached: what ``solve`` gives.

    ``model`` is its name. ``ranking`` has the columns query, item, rank, score and those of the model: uncertainty,
    low, high, status, component. ``fits`` has a row for each query of a model that iterates: converged, iterations,
    gradient, likelihood and the model's own; with ``trace`` the log likelihood after every step. ``criterion`` says
    when a fit counts as converged.
    """

    model: str
    ranking: pa.Table
    fits: pa.Table
    criterion: str

    @property
    def converged(self) -> bool:
        """Whether every query's fit did; models that do not iterate always have."""
        return "converged" not in self.fits.column_names or all(self.fits["converged"].to_pylist())

    def to_pandas(self) -> Any:
        """The ranking as a pandas frame."""
        return self.ranking.to_pandas()

    def to_polars(self) -> Any:
        """The ranking as a polars frame."""
        import polars

        return polars.from_arrow(self.ranking)


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
    ids = chunk.item_ids.take(as_arrow(rows))
    columns = [chunk.query_ids.take(as_arrow(query)), ids, as_arrow(rank.astype(np.int32))]
    columns.append(as_arrow(outcome.score[rows]))
    for field in list(schema)[len(columns) :]:
        if field.name == "status":
            columns.append(as_words(STATUS).take(as_arrow(items["status"][rows].astype(np.int64))))
        elif field.name == "title":
            columns.append(shown.title_of(ids))
        else:
            columns.append(as_arrow(items[field.name][rows].astype(field.type.to_pandas_dtype())))
    return pa.Table.from_arrays(columns, schema=schema)


def fits_of(chunk: Chunk, outcome: Outcome, schema: pa.Schema) -> pa.Table:
    """A row for each query: how its fit ended."""
    columns: list[Any] = [chunk.query_ids]
    for field in list(schema)[1:]:
        if field.name == "trace":
            lines = outcome.trace if outcome.trace is not None else np.zeros((chunk.n_queries, 0))
            columns.append(as_lists([line[np.isfinite(line)] for line in lines], np.float64))
        else:
            columns.append(as_arrow(outcome.queries[field.name].astype(field.type.to_pandas_dtype())))
    return pa.Table.from_arrays(columns, schema=schema)
