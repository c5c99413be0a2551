"""neighbours: ratings predicted from the users who are most alike (user-based nearest neighbours).

Deviations are from a baseline, mean + c_u + b_i, both offsets shrunk. A pool of users, drawn by the seed where there
are more, is all that travels: memory is bounded by it, cost is users x ratings of the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import param
from distagg.models.completion.kernels import Ratings, nearest
from distagg.models.completion.model import Completion, RatingSums
from distagg.models.rounds import Params, Stage, Statistics
from distagg.types import OFFSET, Floats

POOL = ("pool_length", "pool_item", "pool_deviation", "pool_expert")


@dataclass(frozen=True, kw_only=True)
class Neighbours(Completion):
    """The baseline plus the mean deviation of the nearest users who rated the item from their own baseline."""

    name: ClassVar[str] = "neighbours"
    summary: ClassVar[str] = "user-based nearest neighbours on deviations from a baseline"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.7; Koren 2010"

    most: int = param(40, "neighbours for each prediction", least=1)
    shrink: float = param(100.0, "similarity is multiplied by n / (n + shrink) for n + 1 items in common", least=0.0)
    damp: float = param(
        0.3, "total similarity at which a prediction lies halfway between neighbours and baseline", least=0.0
    )
    offset: float = param(
        5.0, "average ratings added to a user's or item's own before its offset is computed", above=0.0
    )
    pool: int = param(5000, "most users to search for neighbours", least=1)
    seed: int = param(0, "seed of the draw of the pool", least=0)

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
