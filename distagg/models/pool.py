"""A pool of items for large queries: models that compare every item with every other one rank only the pool.

Retrieval runs of 1,000 documents each can give a query more than 10,000 items, which make 100 million pairs. The end of
such a ranking interests nobody. The pool is therefore the first ``pool`` items by reciprocal rank fusion; the model
ranks these, and the other items follow in the order of the fusion. Queries of ratings and of raw pairs are never cut,
and ``pool=0`` cuts no query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Model, Params, param, reciprocals, sum_entries
from distagg.models.outcome import Outcome
from distagg.rankings.ordering import order_items
from distagg.types import NO_LABEL, OFFSET, Bools, Floats, Offsets

CONSTANT = 60.0  # c of reciprocal rank fusion


def pool_param(size: int) -> int:
    return param(
        size,
        "compare at most this many items of a query of lists, the first ones by reciprocal rank fusion; the others "
        "follow in the order of the fusion; 0 compares all items",
        least=0,
    )


LEARNS_FROM_POOL = (
    "it learns from the labelled items of each and its first {pool:,} by reciprocal ranks (pool=0: from all items)"
)


def training_pool_param(size: int) -> int:
    return param(
        size,
        "learn from the labelled items of a query and from this many of its first items by reciprocal rank fusion; 0 "
        "learns from all items. Ranking scores all items",
        least=0,
    )


@dataclass(frozen=True, kw_only=True)
class Pooled(Model):
    """Base of models whose cost grows with the square of a query's items."""

    pooling: ClassVar[str] = (
        "of each the first {pool:,} by reciprocal ranks are compared, and the rest follows in that order (pool=0 "
        "compares all)"
    )

    pool: int = pool_param(1000)

    def pooled(self, chunk: Chunk) -> Chunk:
        """The chunk to learn from. Chunks of a split query must stay whole, because each has only some of its lists."""
        return Pool(chunk, self.pool).chunk

    def score_pool(self, chunk: Chunk, params: Params) -> Floats:
        """Scores of a chunk whose large queries are cut to their pools."""
        return super().score(chunk, params)

    def score(self, chunk: Chunk, params: Params) -> Floats:
        pool = Pool(chunk, self.pool)
        return pool.extended(self.score_pool(pool.chunk, params))

    def solve(self, chunk: Chunk, params: Params, *, trace: bool = False) -> Outcome:
        pool = Pool(chunk, self.pool)
        outcome = super().solve(pool.chunk, params, trace=trace)
        if pool.chunk is chunk:
            return outcome
        items = {name: pool.spread(column) for name, column in outcome.items.items()}
        return replace(outcome, score=pool.extended(outcome.score), items=items)


def has_places(chunk: Chunk) -> bool:
    """Whether ranks are places in lists: neither ratings nor raw pairs."""
    return not chunk.n_pairs and bool(chunk.entry_rank.min(initial=1.0) > 0.0)


def fused_places(chunk: Chunk) -> Offsets:
    """The place of every item in its query by reciprocal rank fusion, from 0, (I,)."""
    sizes = np.diff(chunk.item_offsets)
    score = sum_entries(chunk, reciprocals(chunk, CONSTANT))
    order = np.repeat(chunk.item_offsets[:-1], sizes) + order_items(chunk.item_offsets, score)
    place = np.empty(chunk.n_items, dtype=OFFSET)
    place[order] = np.arange(chunk.n_items) - np.repeat(chunk.item_offsets[:-1], sizes)
    return place


def first_items(chunk: Chunk, size: int) -> Bools:
    """Which items are among the first ``size`` of their query by reciprocal rank fusion, (I,); of ratings all are."""
    if not has_places(chunk) or (np.diff(chunk.item_offsets) <= size).all():
        return np.ones(chunk.n_items, dtype=np.bool_)
    return fused_places(chunk) < size


def taught_items(chunk: Chunk, pool: int) -> Chunk:
    """The chunk with its labelled items and the first ``pool`` items of each query."""
    return chunk.keep_items((fused_places(chunk) < pool) | (chunk.labels != NO_LABEL))


class Pool:
    """A chunk that is cut to the pools of its queries; it extends results for the pools to all items."""

    def __init__(self, whole: Chunk, size: int) -> None:
        self.whole, self.chunk = whole, whole
        sizes = np.diff(whole.item_offsets)
        if not size or (sizes <= size).all() or not has_places(whole):
            return
        place = fused_places(whole)
        self.kept: Bools = place < size
        # How many places an item is behind the end of the pool.
        self.behind: Floats = (place - size + 1).astype(np.float64)
        self.chunk = whole.keep_items(self.kept)

    def extended(self, score: Floats) -> Floats:
        """Scores of all items: items outside the pool follow its last item, in the order of the fusion."""
        if self.chunk is self.whole:
            return score
        worst = np.full(self.whole.n_queries, np.inf)
        np.minimum.at(worst, self.chunk.item_query(), score)
        worst = np.where(np.isfinite(worst), worst, 0.0)
        scores: Floats = np.repeat(worst, np.diff(self.whole.item_offsets)) - self.behind
        scores[self.kept] = score
        return scores

    def spread(self, column: np.ndarray) -> np.ndarray:
        """A column for all items; items outside the pool have NaN, or 0 in a column of codes."""
        if self.chunk is self.whole:
            return column
        spread = np.full(self.whole.n_items, np.nan if column.dtype.kind == "f" else 0, dtype=column.dtype)
        spread[self.kept] = column
        return spread
