"""A chunk in the order of its scores: what all metrics share, computed once and only when asked for."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.errors import UsageError
from distagg.kernels.ordering import order_items
from distagg.metrics.metric import Protocol
from distagg.types import LABEL, NO_LABEL, OFFSET, RANK, Bools, Floats, Indices, Labels, Offsets

if TYPE_CHECKING:
    from distagg.dataset.chunk import Chunk

Array = TypeVar("Array", Floats, Offsets)


@dataclass(frozen=True)
class Ranked:
    """Q queries and I items, ranked. Arrays are in ranking order unless said otherwise."""

    chunk: Chunk
    protocol: Protocol
    max_grade: int | None
    scores: Floats  # (I,) as given, in input order
    order: Indices  # (I,)
    grades: Labels  # (I,) in ranking order, 0 where unlabelled, negative, or not retrieved

    @property
    def offsets(self) -> Offsets:
        return self.chunk.item_offsets

    @functools.cached_property
    def sizes(self) -> Offsets:
        return np.diff(self.offsets)

    @functools.cached_property
    def longest(self) -> int:
        """Items of the largest query, missed ones included."""
        return int(np.diff(self.pool[0]).max(initial=0))

    @functools.cached_property
    def ones(self) -> Floats:
        return np.ones(self.longest)

    @functools.cached_property
    def relevant(self) -> Bools:
        return self.grades >= 1

    @functools.cached_property
    def pool(self) -> tuple[Offsets, Labels]:
        """Offsets (Q + 1,) and grades of all items that an ideal ranking could place: with the missed ones in trec."""
        chunk = self.chunk
        if self.protocol == "letor" or not len(chunk.missed_labels):
            return chunk.item_offsets, np.maximum(chunk.labels, 0)
        offsets = read_only(chunk.item_offsets + chunk.missed_offsets)
        grades = np.empty(offsets[-1], dtype=LABEL)
        # An item moves by the missed labels of the queries before its own, a missed label by the items up to its own.
        grades[np.arange(chunk.n_items) + np.repeat(chunk.missed_offsets[:-1], self.sizes)] = chunk.labels
        missed = np.diff(chunk.missed_offsets)
        grades[np.arange(len(chunk.missed_labels)) + np.repeat(chunk.item_offsets[1:], missed)] = chunk.missed_labels
        return offsets, np.maximum(grades, 0)

    @functools.cached_property
    def n_relevant(self) -> Offsets:
        """Relevant items of every query, retrieved or not, shape (Q,)."""
        offsets, grades = self.pool
        return _count(offsets, grades >= 1)

    @functools.cached_property
    def judged(self) -> Offsets:
        """Judged items of every query, shape (Q,)."""
        chunk = self.chunk
        items = _count(chunk.item_offsets, chunk.labels != NO_LABEL)
        return items + _count(chunk.missed_offsets, chunk.missed_labels != NO_LABEL)


def rank_chunk(chunk: Chunk, scores: Floats, protocol: Protocol, max_grade: int | None) -> Ranked:
    """Check the scores and put the chunk in their order."""
    if np.shape(scores) != (chunk.n_items,):
        raise UsageError(f"found scores of shape {np.shape(scores)}, expected one per item: ({chunk.n_items},)")
    if np.isnan(scores).any():
        raise UsageError("found NaN among the scores, expected numbers; give items that are not ranked -inf")
    scores = read_only(np.ascontiguousarray(scores, dtype=RANK))
    grades = np.maximum(chunk.labels, 0)
    if protocol == "letor":
        order = order_items(chunk.item_offsets, scores)
    else:
        order = _trec_order(chunk, scores)
        grades[np.isneginf(scores)] = 0
    return Ranked(chunk, protocol, max_grade, scores, order, grades[rows_of(chunk.item_offsets, order)])


def _trec_order(chunk: Chunk, scores: Floats) -> Indices:
    """By descending score in single precision, ties by descending item id, items that are not retrieved last."""
    if len(chunk.item_ids) != chunk.n_items:
        raise UsageError("the trec protocol breaks ties by item id; load the chunk with its ids")
    limit = float(np.finfo(np.float32).max)
    single = np.clip(scores, -limit, limit).astype(np.float32).astype(RANK)
    single[np.isneginf(scores)] = -np.inf
    return _break_ties(chunk, single, order_items(chunk.item_offsets, read_only(single)))


def _break_ties(chunk: Chunk, scores: Floats, order: Indices) -> Indices:
    """The order with runs of equal scores sorted by descending item id; only ids of tied items are looked at."""
    if not len(order):
        return order
    rows = rows_of(chunk.item_offsets, order)
    ordered = scores[rows]
    follows = np.zeros(len(order) + 1, dtype=bool)  # whether a position ties with the one before it
    follows[1:-1] = (ordered[1:] == ordered[:-1]) & ~np.isneginf(ordered[1:])
    follows[chunk.item_offsets] = False
    tied = np.flatnonzero(follows[:-1] | follows[1:])
    if not len(tied):
        return order
    run = np.cumsum(~follows[:-1])[tied]
    ids = chunk.item_ids.take(rows[tied])
    by_id = pc.sort_indices(pa.table({"run": run, "id": ids}), [("run", "ascending"), ("id", "descending")])
    order[tied] = order[tied][by_id.to_numpy()]
    return order


def rows_of(offsets: Offsets, order: Indices) -> Offsets:
    """Chunk-wide rows of positions inside queries."""
    return np.repeat(offsets[:-1], np.diff(offsets)) + order


def _count(offsets: Offsets, flags: Bools) -> Offsets:
    """True flags inside every span, shape (Q,)."""
    before = np.zeros(len(flags) + 1, dtype=OFFSET)
    np.cumsum(flags, out=before[1:])
    return before[offsets[1:]] - before[offsets[:-1]]


def read_only(array: Array) -> Array:
    """A read-only view: kernels see the one array type of chunks and are compiled once."""
    view = array.view()
    view.setflags(write=False)
    return view
