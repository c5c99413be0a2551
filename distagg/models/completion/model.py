"""Completing the rating matrix: every user's rating of every item, observed or predicted, a few users at a time.

A completion learns in rounds as a model does and, once fitted, gives dense rows of ratings. The whole matrix is never
held. Cost of rows: users x items.

pmf is probabilistic matrix factorisation (Salakhutdinov & Mnih 2008), with offsets of users and items: the maximum of
the posterior under Gaussian priors, by alternating least squares. Each chunk fits its own users, and sums for the items
add up over chunks, so only the items' factors are sent to workers. Cost of a round: entries x factors^2; statistics:
items x factors^2.

neighbours predicts ratings from the most similar users. It compares deviations from a baseline, mean + c_u + b_i, whose
offsets are shrunk. Neighbours come from a pool of users, a random sample if there are many. Only the pool is sent to
workers, which bounds memory. Cost: users x ratings of the pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Model, not_converged, param
from distagg.models.completion.kernels import Ratings, fit_items, fit_users, item_sums, nearest, predict_all
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


@dataclass(frozen=True, kw_only=True)
class Pmf(Completion):
    """The model of a rating is mean + c_u + b_i + u . v_i; predictions are clipped to the scale."""

    name: ClassVar[str] = "pmf"
    summary: ClassVar[str] = "probabilistic matrix factorisation, by alternating least squares"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.7; Salakhutdinov & Mnih 2008"

    factors: int = param(10, "number of factors of every user and item", least=1)
    weight: float = param(12.0, "weight of the Gaussian priors on factors, in squared ratings", above=0.0)
    offset: float = param(2.0, "weight of the Gaussian priors on offsets", above=0.0)
    rounds: int = param(100, "largest number of rounds to take", least=1)
    tolerance: float = param(1e-4, "stop when a round lowers the objective by a smaller share", above=0.0)
    seed: int = param(0, "seed of the initial factors", least=0)

    def sent(self, params: Params) -> Params:
        return {name: params[name] for name in ("item", "mean", "scale")}

    def learning(self, n_experts: int, params: Params) -> Stage:
        return FirstFactors(self)

    def predict(self, chunk: Chunk, params: Params) -> Floats:
        out = np.empty((chunk.n_lists, chunk.n_items))
        item = np.ascontiguousarray(params["item"].T)
        predict_all(float(params["mean"][0]), self._users(chunk, float(params["mean"][0]), params["item"]), item, out)
        return out

    @property
    def _ridge(self) -> Floats:
        return np.array([self.offset] + [self.weight] * self.factors, dtype=np.float64)

    def _users(self, chunk: Chunk, mean: float, item: Floats) -> Floats:
        user = np.zeros((chunk.n_lists, item.shape[1]))
        fit_users(mean, self._ridge, chunk.entry_offsets, chunk.entry_item, _ratings(chunk), item, user)
        return user


@dataclass(frozen=True, slots=True, eq=False)
class FirstFactors(RatingSums):
    """The first round: the mean rating, and random factors of items."""

    model: Pmf

    def finish(self, statistics: Statistics) -> LeastSquares:
        draw = np.random.default_rng(np.random.SeedSequence([self.model.seed]))
        item = 0.1 * draw.standard_normal((len(statistics["count"]), 1 + self.model.factors))
        item[:, 0] = 0.0
        return LeastSquares(self.model, self.known(statistics), item, np.zeros(0))


@dataclass(frozen=True, slots=True, eq=False)
class LeastSquares(Stage):
    """One round of alternating least squares: users at the present items, then items."""

    model: Pmf
    known: Params  # scale and mean
    item: Floats  # (items, 1 + factors)
    objectives: Floats  # of the rounds so far

    def map(self, chunk: Chunk) -> Statistics:
        item, mean, ridge = self.item, float(self.known["mean"][0]), self.model._ridge
        user = self.model._users(chunk, mean, item)
        matrix, right = np.zeros((*item.shape, item.shape[1])), np.zeros(item.shape)
        rating = _ratings(chunk)
        squared = item_sums(mean, chunk.entry_offsets, chunk.entry_item, rating, user, item, matrix, right)
        objective = squared + float((ridge * (user**2).sum(axis=0)).sum())
        return {"matrix": matrix, "right": right, "squared": np.array([squared]), "objective": np.array([objective])}

    def finish(self, statistics: Statistics) -> LeastSquares | Params:
        model, ridge = self.model, self.model._ridge
        objective = statistics["objective"] + (ridge * (self.item**2).sum(axis=0)).sum()
        matrix, right = statistics["matrix"].copy(), statistics["right"].copy()
        fit_items(ridge, matrix, right)
        history = np.append(self.objectives, objective)
        settled = len(history) > 1 and history[-2] - history[-1] <= model.tolerance * history[-2]
        if not settled and len(history) <= model.rounds:
            return LeastSquares(model, self.known, right, history)
        if not settled:
            not_converged(f"pmf: the objective still falls after {model.rounds} rounds; raise rounds or tolerance")
        return {**self.known, "item": right, "objectives": history, "squared": statistics["squared"]}


def _ratings(chunk: Chunk) -> Floats:
    rating = -chunk.entry_rank
    rating.setflags(write=False)
    return rating


POOL = ("pool_length", "pool_item", "pool_deviation", "pool_expert")


@dataclass(frozen=True, kw_only=True)
class Neighbours(Completion):
    """The baseline plus the mean deviation of the nearest users who rated the item from their own baseline."""

    name: ClassVar[str] = "neighbours"
    summary: ClassVar[str] = "user-based nearest neighbours on deviations from a baseline"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.7; Koren 2010"

    most: int = param(40, "number of neighbours for each prediction", least=1)
    shrink: float = param(100.0, "similarity is multiplied by n / (n + shrink) for n + 1 items in common", least=0.0)
    damp: float = param(
        0.3, "total similarity at which a prediction lies halfway between neighbours and baseline", least=0.0
    )
    offset: float = param(
        5.0, "number of average ratings to add to those of a user or item before its offset is computed", above=0.0
    )
    pool: int = param(5000, "largest number of users to search for neighbours", least=1)
    seed: int = param(0, "seed for drawing the users to search", least=0)

    def learning(self, n_experts: int, params: Params) -> Stage:
        return Baseline(self)

    def predict(self, chunk: Chunk, params: Params) -> Floats:
        user, deviation = self._baseline(chunk, params)
        offsets = np.concatenate([[0], np.cumsum(params["pool_length"])]).astype(OFFSET)
        item, theirs, expert = (params[name] for name in POOL[1:])
        for array in (deviation, offsets, item, theirs, expert):
            array.setflags(write=False)
        users = Ratings(chunk.entry_offsets, chunk.entry_item, deviation, chunk.list_expert)
        pool = Ratings(offsets, item, theirs, expert)
        predicted = nearest(int(self.most), float(self.shrink), float(self.damp), users, pool, chunk.n_items)
        return predicted + user[:, None] + params["item"] + params["mean"]

    def _baseline(self, chunk: Chunk, params: Params) -> tuple[Floats, Floats]:
        """Offsets of users (L,), and what ratings deviate from the baseline (E,)."""
        length = np.diff(chunk.entry_offsets)
        left = -chunk.entry_rank - params["mean"] - params["item"][chunk.entry_item]
        users = np.repeat(np.arange(chunk.n_lists), length)
        offset = np.bincount(users, left, chunk.n_lists) / (self.offset + length)
        return offset, left - offset[users]


@dataclass(frozen=True, slots=True, eq=False)
class Baseline(RatingSums):
    """The first round: offsets of items."""

    model: Neighbours

    def finish(self, statistics: Statistics) -> Pool:
        known = self.known(statistics)
        left = statistics["total"] - known["mean"] * statistics["count"]
        return Pool(self.model, {**known, "item": left / (self.model.offset + statistics["count"])})


@dataclass(frozen=True, slots=True, eq=False)
class Pool(Stage):
    """The second round: the ratings of the users to search for neighbours."""

    model: Neighbours
    known: Params  # scale, mean and offsets of items

    def map(self, chunk: Chunk) -> Statistics:
        order = np.random.default_rng(np.random.SeedSequence([self.model.seed])).permutation(chunk.n_experts)
        chosen = np.zeros(chunk.n_experts, dtype=np.int64)
        chosen[order[: self.model.pool]] = 1
        some = chunk.repeat_experts(chosen)
        _, deviation = self.model._baseline(some, self.known)
        columns = (np.diff(some.entry_offsets), some.entry_item, deviation, some.list_expert)
        return dict(zip(POOL, columns, strict=True))

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        return {name: np.concatenate([a[name], b[name]]) for name in POOL}

    def finish(self, statistics: Statistics) -> Params:
        return {**self.known, **statistics}
