"""partial_mallows: Mallows' distribution from partial orders, as sets of pairs (Lu & Boutilier 2011).

Every expert has an unknown order of all items of a query, scattered around the centre; its list, or its raw pairs,
are a part of that order. Expectation maximisation: complete every expert's order by draws that agree with what it said,
then take the likeliest centre and dispersion of the completed orders. Cost: items^2 x experts x draws a round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Solver, param
from distagg.models.distances.kemeny_kernels import solve_order
from distagg.models.distances.mallows_kernels import fit_theta, log_likelihood, stream
from distagg.models.distances.model import LARGEST_THETA, NO_TRACE, expected_behind
from distagg.models.distances.partial_kernels import close, complete
from distagg.models.distances.triangles import Search
from distagg.models.majority.model import start_scores
from distagg.models.outcome import Outcome
from distagg.models.pool import Pooled, pool_param
from distagg.models.rounds import Params
from distagg.optimise.convergence import FIT_COLUMNS, not_begun
from distagg.rankings.ordering import order_items
from distagg.types import Bools, Floats, Offsets

VOTERS_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class PartialMallows(Pooled, Solver):
    """The likeliest centre and dispersion, given that lists and pairs are parts of unknown full orders.

    Scores are the expected number of items behind an item, every pair decided by itself with the posterior odds
    phi^-margin of the completed orders. ``phi`` is the dispersion, ``contradicted`` how many pairs experts contradict
    themselves about, directly or round a cycle; these say nothing.
    """

    square_bytes: ClassVar[int] = 24

    name: ClassVar[str] = "partial_mallows"
    summary: ClassVar[str] = "Mallows from partial orders and pairs, completed by sampling"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Lu & Boutilier 2011"
    cost: ClassVar[str] = "items^2 x experts x draws x rounds"
    inputs: ClassVar[tuple[str, ...]] = ("lists", "pairs")
    criterion: ClassVar[str] = "change of theta in a round at most tolerance of theta"
    remedy: ClassVar[str] = "raise rounds or draws"

    pool: int = pool_param(200)
    unlisted: str = param(
        "ignore",
        "how to read a list that leaves an item out: ignore (the list says nothing about it) or last (the item ranks "
        "behind all listed ones)",
        choices=("last", "ignore"),
    )
    draws: int = param(5, "completed orders of every expert in a round", least=1)
    rounds: int = param(60, "rounds; the second half of them is averaged", least=2)
    tolerance: float = param(0.05, "a fit has converged when the last round changes theta by no larger part", above=0.0)
    seed: int = param(0, "seed of the draws; every query has its own stream, by its position in the dataset", least=0)

    @property
    def query_columns(self) -> tuple[str, ...]:
        return (*FIT_COLUMNS, "phi", "contradicted")

    def score_pool(self, chunk: Chunk, params: Params) -> Floats:
        return self.solve(chunk, params).score

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        score, ended = np.zeros(chunk.n_items), not_begun(chunk.n_queries, self.rounds if trace else 0)
        phi, contradicted = np.ones(chunk.n_queries), np.zeros(chunk.n_queries, dtype=np.int64)
        starts, search = order_items(chunk.item_offsets, start_scores(chunk, params)), Search()
        for q in range(chunk.n_queries):
            span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
            before, contradicted[q] = self._partial_orders(chunk, q)
            if not len(before):
                continue
            fit = _Fit(before, starts[span].astype(np.int64), search)
            state, change = np.uint64(stream(self.seed, int(chunk.positions[q]))), 0.0
            for turn in range(self.rounds):
                state, change = fit.round(state, self.draws, max(turn - self.rounds // 2, 0))
                if trace:
                    ended.trace[q, turn] = fit.value
            ended.iterations[q], ended.gradient[q], ended.objective[q] = self.rounds, change, fit.value
            phi[q] = np.exp(-fit.theta) if fit.theta < LARGEST_THETA else 0.0
            score[span] = expected_behind(fit.theta * (fit.chance - fit.chance.T))
        queries = {**ended.columns(self.tolerance), "phi": phi, "contradicted": contradicted}
        return Outcome(score, {}, queries, ended.trace if trace else None)

    def _partial_orders(self, chunk: Chunk, q: int) -> tuple[Bools, int]:  # (voters, size, size)
        """What each list, and each expert by its raw pairs, says of a query; and the pairs that are contradicted."""
        size = int(chunk.item_offsets[q + 1] - chunk.item_offsets[q])
        pairs = slice(int(chunk.pair_offsets[q]), int(chunk.pair_offsets[q + 1]))
        experts = np.unique(chunk.pair_expert[pairs])
        lists = range(int(chunk.list_offsets[q]), int(chunk.list_offsets[q + 1]))
        voters = len(lists) + len(experts)
        if voters * size**2 > VOTERS_BYTES:
            raise UsageError(
                f"{self.name}: query {chunk.query_ids[q]} has {size:,} items and {voters:,} experts, too many to "
                "complete their orders; choose mallows, or a smaller pool"
            )
        orders = [self._of_list(chunk, a, size) for a in lists]
        contradicted = 0
        for expert in experts:
            told = (chunk.pair_expert[pairs] == expert) & ~chunk.pair_tie[pairs] & (chunk.pair_weight[pairs] > 0.0)
            relation = np.zeros((size, size), dtype=np.bool_)
            relation[chunk.pair_winner[pairs][told], chunk.pair_loser[pairs][told]] = True
            contradicted += close(relation)
            orders.append(relation)
        said = [order for order in orders if order.any()]
        return np.array(said, dtype=np.bool_).reshape(len(said), size, size), contradicted

    def _of_list(self, chunk: Chunk, a: int, size: int) -> Bools:
        rows = slice(int(chunk.entry_offsets[a]), int(chunk.entry_offsets[a + 1]))
        rank = np.full(size, np.inf if self.unlisted == "last" else np.nan)
        rank[chunk.entry_item[rows]] = chunk.entry_rank[rows]
        return np.asarray(rank[:, None] < rank)


class _Fit:
    """Rounds of expectation maximisation on one query."""

    def __init__(self, before: Bools, centre: Offsets, search: Search) -> None:
        size = len(centre)
        self.before, self.centre, self.search, self.theta, self.value = before, centre, search, 0.5, 0.0
        self.chance, self.drawn = np.zeros((size, size)), np.empty((size, size))
        self.stages = np.full(size, float(len(before)))  # a completed order has one stage of each size
        told = before.sum(axis=0, dtype=np.float64)
        self._move(told - told.T)  # completed orders lean on the centre: it has to begin near what was said

    def round(self, state: np.uint64, draws: int, averaged: int) -> tuple[np.uint64, float]:
        """Complete, then take the likeliest centre and theta; chances are averaged over the last ``averaged`` rounds.

        Returns the state of the stream and by which part theta changed.
        """
        state = np.uint64(complete(self.before, self.centre, self.theta, draws, state, self.drawn))
        self.chance += (self.drawn - self.chance) / (averaged + 1.0)
        self._move(self.chance - self.chance.T)
        turned = self.chance[np.ix_(self.centre, self.centre)]
        distance, earlier = float(np.tril(turned, -1).sum()), self.theta
        self.theta, _, _ = fit_theta(distance, self.stages, 1e-10, 100, LARGEST_THETA, NO_TRACE)
        self.value = log_likelihood(self.theta, distance, self.stages)
        return state, abs(self.theta - earlier) / max(self.theta, 1e-3)

    def _move(self, margins: Floats) -> None:
        """The centre that agrees most with margins, by local search."""
        solution = solve_order(np.ascontiguousarray(margins[np.ix_(self.centre, self.centre)]), 0, self.search)
        self.centre = self.centre[solution.order].astype(np.int64)
