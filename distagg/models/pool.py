"""Large queries of lists: models that compare items with items take the first ones by reciprocal ranks, a pool.

Retrieval runs of 1,000 documents each make queries of more than 10,000 items, and 100 million pairs of them. What
stands at the end of such a ranking is of no interest, so the pool (``pool`` items) is ranked by the model, and the rest
follows in the order of reciprocal ranks. Ratings and raw pairs are taken whole. ``pool=0`` compares everything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Model, Params, param, reciprocals, sum_entries
from distagg.models.outcome import Outcome
from distagg.ordering import order_items
from distagg.types import Bools, Floats

CONSTANT = 60.0  # of the reciprocal ranks


def pool_param(size: int) -> int:
    return param(
        size,
        "in a query of lists with more items, compare only so many, the first by reciprocal ranks; the rest follows in "
        "that order; 0 compares all",
        least=0,
    )


@dataclass(frozen=True, kw_only=True)
class Pooled(Model):
    """Base of models whose cost grows with the square of a query's items."""

    pool: int = pool_param(1000)

    def pooled(self, chunk: Chunk) -> Chunk:
        """The chunk to learn from; the chunks of a split query stay whole, since each has only some of its lists."""
        return Pool(chunk, self.pool).chunk

    def score_pool(self, chunk: Chunk, params: Params) -> Floats:
        """Scores of a chunk whose large queries are cut."""
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


class Pool:
    """A chunk cut to the pools of its queries, and the way back to all items."""

    def __init__(self, whole: Chunk, size: int) -> None:
        self.whole, self.chunk = whole, whole
        sizes = np.diff(whole.item_offsets)
        if not size or whole.n_pairs or (sizes <= size).all() or whole.entry_rank.min(initial=1.0) <= 0.0:
            return
        start = sum_entries(whole, reciprocals(whole, CONSTANT))
        order = np.repeat(whole.item_offsets[:-1], sizes) + order_items(whole.item_offsets, start)
        place = np.arange(whole.n_items) - np.repeat(whole.item_offsets[:-1], sizes)
        self.kept: Bools = np.zeros(whole.n_items, dtype=np.bool_)
        self.kept[order[place < size]] = True
        self.behind: Floats = np.zeros(whole.n_items)  # places behind the pool
        self.behind[order] = place - size + 1.0
        self.chunk = whole.keep_items(self.kept)

    def extended(self, score: Floats) -> Floats:
        """Scores of all items: those outside of the pool below its least one, in their order."""
        if self.chunk is self.whole:
            return score
        worst = np.full(self.whole.n_queries, np.inf)
        np.minimum.at(worst, self.chunk.item_query(), score)
        worst = np.where(np.isfinite(worst), worst, 0.0)
        scores: Floats = np.repeat(worst, np.diff(self.whole.item_offsets)) - self.behind
        scores[self.kept] = score
        return scores

    def spread(self, column: np.ndarray) -> np.ndarray:
        """A column for all items: nothing is known of those outside of the pool (nan, or 0 in a column of codes)."""
        if self.chunk is self.whole:
            return column
        spread = np.full(self.whole.n_items, np.nan if column.dtype.kind == "f" else 0, dtype=column.dtype)
        spread[self.kept] = column
        return spread
