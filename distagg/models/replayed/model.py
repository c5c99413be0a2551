"""elo and glicko2: ratings replayed battle by battle, for comparison with boards that are kept up online.

Both depend on the order of battles, which is that of their times, then of the rows of the source. A replay is serial:
queries run in parallel, the battles of a query do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Model, Params, param
from distagg.models.intervals import between
from distagg.models.outcome import Outcome
from distagg.models.replayed.kernels import GLICKO, Battles, Players, replay_elo, replay_glicko, rest_all
from distagg.times import span_of
from distagg.types import Floats, Offsets


@dataclass(frozen=True, kw_only=True)
class Replayed(Model):
    """Base of ratings that go through the battles of a query in order. Split data have no order, and are refused."""

    cost: ClassVar[str] = "battles, one after the other"
    inputs: ClassVar[tuple[str, ...]] = ("pairs",)


def battles_of(chunk: Chunk) -> tuple[Battles, Offsets]:
    """The battles that have a weight, in order, and their positions in the chunk."""
    order = chunk.sequence()
    order = order[chunk.pair_weight[order] > 0.0]
    base = np.repeat(chunk.item_offsets[:-1], np.diff(chunk.pair_offsets))[order]
    battles = Battles(
        base + chunk.pair_winner[order],
        base + chunk.pair_loser[order],
        chunk.pair_weight[order],
        chunk.pair_tie[order],
    )
    return battles, order


@dataclass(frozen=True, kw_only=True)
class Elo(Replayed):
    """After every battle the winner takes points from the loser: k times how surprising the result was.

    A tie is half a win; the weight of a battle multiplies k. The last battles count most, and other orders of the same
    battles give other ratings; ``bradley_terry`` with scale=elo has no order.
    """

    name: ClassVar[str] = "elo"
    summary: ClassVar[str] = "Elo ratings, updated battle by battle: they depend on the order of battles"
    paper: ClassVar[str] = "Elo 1978"

    k: float = param(32.0, "points that a wholly surprising win moves", above=0.0)
    base: float = param(1000.0, "rating of an item before its first battle (chess: 1500)")
    scale: float = param(400.0, "gap of ratings at which the odds to win are 10 to 1", above=0.0)

    def score(self, chunk: Chunk, params: Params) -> Floats:
        rating = np.full(chunk.n_items, float(self.base))
        replay_elo(battles_of(chunk)[0], float(self.k), float(self.scale), rating)
        return rating


@dataclass(frozen=True, kw_only=True)
class Glicko2(Replayed):
    """A rating, its deviation and its volatility for every item, updated after each rating period (Glickman 2013).

    All battles of a period count as simultaneous. The deviation of an item that does not fight grows, up to that of a
    new item. ``uncertainty`` is the deviation after the last period, ``low`` to ``high`` an interval.
    """

    name: ClassVar[str] = "glicko2"
    summary: ClassVar[str] = "Glicko-2 ratings and deviations, period by period: they depend on the order of battles"
    paper: ClassVar[str] = "Glickman 2013"

    period: str = param(
        "auto",
        "rating period: a span of time such as 7d (the battles need times), a number of battles, all (one period), or "
        "auto (7d where battles have times, else all)",
        text=True,
    )
    base: float = param(1500.0, "rating of a new item")
    deviation: float = param(350.0, "rating deviation of a new item", above=0.0)
    volatility: float = param(0.06, "volatility of a new item", above=0.0)
    tau: float = param(0.5, "how much volatility may change: 0.3 to 1.2", above=0.0)
    level: float = param(0.95, "confidence of the interval low to high", above=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.level >= 1:
            raise UsageError(f"parameter level of {self.name}: found {self.level!r}, expected a number below 1")
        if self.period not in ("auto", "all") and not self._count:
            span_of(str(self.period), f"parameter period of {self.name}")

    @property
    def _count(self) -> int:
        """The number of battles of a period, 0 if it is not given so."""
        return int(self.period) if str(self.period).isdecimal() else 0

    @property
    def item_columns(self) -> tuple[str, ...]:
        return ("uncertainty", "low", "high")

    def score(self, chunk: Chunk, params: Params) -> Floats:
        return self.solve(chunk, params).score

    def solve(self, chunk: Chunk, params: Params, *, trace: bool = False) -> Outcome:
        battles, order = battles_of(chunk)
        players, period = self.start(chunk.n_items), self.periods(chunk, order)
        replay_glicko(battles, period, float(self.tau), self.widest, players)
        last = np.zeros(chunk.n_queries, dtype=np.int64)
        np.maximum.at(last, chunk.item_query()[battles.winner], period)
        rest_all(players, last[chunk.item_query()], self.widest)
        score = self.base + GLICKO * players.rating
        return Outcome(score, between(score, GLICKO * players.deviation, self.level))

    @property
    def widest(self) -> float:
        """The deviation of a new item on Glicko-2's own scale."""
        return self.deviation / GLICKO

    def start(self, items: int) -> Players:
        """New items."""
        rating, information, gain = (np.zeros(items) for _ in range(3))
        deviation, volatility = np.full(items, self.widest), np.full(items, float(self.volatility))
        return Players(rating, deviation, volatility, np.full(items, -1), information, gain)

    def periods(self, chunk: Chunk, order: Offsets) -> Offsets:  # (P,)
        """The period of every battle in order; periods of a query count from its first battle."""
        query = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.pair_offsets))[order]
        first = np.searchsorted(query, np.arange(chunk.n_queries))
        if self._count:
            return (np.arange(len(order)) - first[query]) // self._count
        timed = len(chunk.pair_time) > 0
        if self.period == "all" or (self.period == "auto" and not timed) or not len(order):
            return np.zeros(len(order), dtype=np.int64)
        if not timed:
            raise UsageError(
                f"{self.name}: period={self.period} needs times of battles, and the data have none; choose a number of "
                "battles, or period=all"
            )
        time = chunk.pair_time[order]
        return (time - time[first[query]]) // span_of("7d" if self.period == "auto" else self.period, "period")
