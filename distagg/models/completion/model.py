"""Completing the rating matrix: every user's rating of every item, observed or predicted, a few users at a time.

A completion learns in rounds as a model does and, once fitted, gives dense rows of ratings. The
whole matrix is never held. Cost of rows: users x items.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Model, param
from distagg.models.rounds import Params, Stage, Statistics
from distagg.types import INDEX, OFFSET, Floats

BLOCK_CELLS = 1 << 21  # of a dense block: 16 MB


@dataclass(frozen=True, kw_only=True)
class Completion(Model):
    """Base of completions: subclasses write the rounds, and ``predict``."""

    additive: ClassVar[bool] = True
    learns_from_parts: ClassVar[bool] = True

    def predict(self, chunk: Chunk, params: Params) -> Floats:
        """Ratings that the chunk's users would give, (L, I); observed ones may stand there or not."""
        raise NotImplementedError

    def scale(self, params: Params) -> tuple[float, float]:
        """The smallest and the largest rating that a prediction may be."""
        least, most = params["scale"].tolist()
        return least, most

    def sent(self, params: Params) -> Params:
        """The params that ``predict`` needs."""
        return params

    def rows(self, chunk: Chunk, params: Params, *, observed: bool = True) -> Iterator[tuple[slice, Floats]]:
        """Some lists, and their completed ratings (lists, I): observed ones as they are, others within the scale."""
        size = max(1, BLOCK_CELLS // max(chunk.n_items, 1))
        for first in range(0, chunk.n_lists, size):
            span = slice(first, min(first + size, chunk.n_lists))
            part = some_lists(chunk, span)
            ratings = self.predict(part, params)
            np.clip(ratings, *self.scale(params), out=ratings)
            if observed:
                users = np.repeat(np.arange(part.n_lists), np.diff(part.entry_offsets))
                ratings[users, part.entry_item] = -part.entry_rank
            yield span, ratings

    def chunks(self, chunk: Chunk, params: Params) -> Iterator[Chunk]:
        """The completed lists as chunks, which any model takes."""
        for span, ratings in self.rows(chunk, params):
            order = np.argsort(-ratings, axis=1, kind="stable").astype(INDEX)
            yield replace(
                some_lists(chunk, span),
                entry_offsets=np.arange(len(ratings) + 1, dtype=OFFSET) * chunk.n_items,
                entry_item=order.ravel(),
                entry_rank=-np.take_along_axis(ratings, order, axis=1).ravel(),
                entry_score=np.zeros(0),
            )


def some_lists(chunk: Chunk, span: slice) -> Chunk:
    """The chunk of one query with only these lists."""
    entries = slice(chunk.entry_offsets[span.start], chunk.entry_offsets[span.stop])
    return replace(
        chunk,
        list_offsets=np.array([0, span.stop - span.start], dtype=OFFSET),
        list_expert=chunk.list_expert[span],
        entry_offsets=chunk.entry_offsets[span.start : span.stop + 1] - chunk.entry_offsets[span.start],
        entry_item=chunk.entry_item[entries],
        entry_rank=chunk.entry_rank[entries],
        entry_score=np.zeros(0),
    )


class RatingSums(Stage):
    """The first round: sums and numbers of ratings by item, and the ends of the scale."""

    def map(self, chunk: Chunk) -> Statistics:
        rating = -chunk.entry_rank
        return {
            "total": np.bincount(chunk.entry_item, rating, chunk.n_items),
            "count": np.bincount(chunk.entry_item, minlength=chunk.n_items),
            "least": np.array([rating.min(initial=np.inf)]),
            "most": np.array([rating.max(initial=-np.inf)]),
        }

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        summed = {name: a[name] + b[name] for name in ("total", "count")}
        return summed | {"least": np.minimum(a["least"], b["least"]), "most": np.maximum(a["most"], b["most"])}

    def known(self, sums: Statistics) -> Params:
        """The scale and the mean rating."""
        mean = sums["total"].sum() / max(int(sums["count"].sum()), 1)
        return {"scale": np.concatenate([sums["least"], sums["most"]]), "mean": np.array([mean])}


@dataclass(frozen=True, kw_only=True)
class Constant(Completion):
    """The same rating wherever one is missing."""

    name: ClassVar[str] = "constant"
    summary: ClassVar[str] = "the same rating wherever one is missing"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.7"

    value: float = param(0.0, "the rating")

    def learning(self, n_experts: int, params: Params) -> Stage:
        return Nothing(self)

    def scale(self, params: Params) -> tuple[float, float]:
        return -np.inf, np.inf

    def predict(self, chunk: Chunk, params: Params) -> Floats:
        return np.full((chunk.n_lists, chunk.n_items), float(self.value))


@dataclass(frozen=True, slots=True, eq=False)
class Nothing(Stage):
    """A constant has nothing to learn."""

    repeated: ClassVar[bool] = False

    model: Constant

    def map(self, chunk: Chunk) -> Statistics:
        return {}

    def finish(self, statistics: Statistics) -> Params:
        return {}
