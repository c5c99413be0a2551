"""What ranking gives back: the ranking with all its columns, and how every query's fit ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.dataset.arrays import as_arrow
from distagg.dataset.chunk import Chunk
from distagg.kernels.ordering import order_items
from distagg.models import Model
from distagg.models.outcome import STATUS, Outcome
from distagg.types import RANKINGS_TABLE

COLUMN_TYPES = {"status": pa.string(), "component": pa.int32()}  # others are float64
FIT_TYPES = {"converged": pa.bool_(), "exact": pa.bool_(), "iterations": pa.int64()}  # likewise


@dataclass(frozen=True, slots=True)
class Result:
    """A ranking and how it was reached.

    ``ranking`` has the columns query, item, rank, score and those of the model: uncertainty, low, high, status,
    component. ``fits`` has a row for each query of a model that iterates: converged, iterations, gradient, likelihood
    and the model's own; with ``trace`` the log likelihood after every step. ``criterion`` says when a fit counts as
    converged.
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
        return self.ranking.to_pandas()

    def to_polars(self) -> Any:
        import polars

        return polars.from_arrow(self.ranking)


def ranking_schema(model: Model) -> pa.Schema:
    extra = [pa.field(name, COLUMN_TYPES.get(name, pa.float64())) for name in model.item_columns]
    return pa.schema([*RANKINGS_TABLE, *extra])


def fits_schema(model: Model, *, trace: bool = False) -> pa.Schema:
    columns = [pa.field(name, FIT_TYPES.get(name, pa.float64())) for name in model.query_columns]
    traced = [pa.field("trace", pa.list_(pa.float64()))] if trace else []
    return pa.schema([pa.field("query", pa.string()), *columns, *traced])


def ranking_of(chunk: Chunk, outcome: Outcome, schema: pa.Schema = RANKINGS_TABLE) -> pa.Table:
    """Rows of a chunk's rankings, best item of each query first."""
    order = order_items(chunk.item_offsets, outcome.score)
    sizes = np.diff(chunk.item_offsets)
    rows = np.repeat(chunk.item_offsets[:-1], sizes) + order
    rank = np.arange(chunk.n_items) - np.repeat(chunk.item_offsets[:-1], sizes) + 1
    queries = chunk.query_ids.take(as_arrow(chunk.item_query()))
    columns = [queries, chunk.item_ids.take(as_arrow(rows)), as_arrow(rank.astype(np.int32))]
    columns.append(as_arrow(outcome.score[rows]))
    for name in schema.names[len(columns) :]:
        values = outcome.items[name][rows]
        if name == "status":
            columns.append(pa.array(STATUS, pa.string()).take(as_arrow(values.astype(np.int64))))
        else:
            columns.append(as_arrow(values.astype(np.int32 if name == "component" else np.float64)))
    return pa.Table.from_arrays(columns, schema=schema)


def fits_of(chunk: Chunk, outcome: Outcome, schema: pa.Schema) -> pa.Table:
    """A row for each query: how its fit ended."""
    columns: list[Any] = [chunk.query_ids]
    for field in list(schema)[1:]:
        if field.name == "trace":
            lines = outcome.trace if outcome.trace is not None else np.zeros((chunk.n_queries, 0))
            columns.append(pa.array([line[np.isfinite(line)] for line in lines], field.type))
        else:
            columns.append(pa.array(outcome.queries[field.name], field.type))
    return pa.Table.from_arrays(columns, schema=schema)
