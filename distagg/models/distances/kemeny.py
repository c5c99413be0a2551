"""kemeny: the order with the fewest discordant pairs (Kemeny 1959), proved best wherever the effort allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Solver, param
from distagg.models.distances.kemeny_kernels import ordered_pairs, solve_order
from distagg.models.distances.triangles import Search
from distagg.models.majority.kernels import chunk_margins
from distagg.models.majority.model import Majority, start_scores
from distagg.models.outcome import Outcome
from distagg.models.pairs import list_arrays
from distagg.models.pool import Pooled
from distagg.models.rounds import Gathered, Params, Statistics
from distagg.optimise.convergence import FIT_COLUMNS
from distagg.ordering import order_items
from distagg.types import Floats


@dataclass(frozen=True, kw_only=True)
class Kemeny(Pooled, Majority, Solver):
    """The strict order of least weighted Kendall distance to all lists and raw pairs.

    A list or pair that puts j over i costs its weight where i stands before j; ties cost nothing. Items between which
    no majority decides stand in the order of reciprocal ranks. Scores are places: the number of items for the first,
    1 for the last.

    ``kemeny`` is the distance reached, ``bound`` what no order can go below, ``exact`` whether the order is proved
    best. A fit that is not proved is still a local optimum: no single item can be moved to gain; that counts as
    converged. ``iterations`` counts the pairs of items looked at, ``gradient`` is the distance less the bound, and
    ``likelihood`` minus the distance.
    """

    name: ClassVar[str] = "kemeny"
    summary: ClassVar[str] = "the order with the fewest discordant pairs, proved where possible"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Kemeny 1959; Dwork et al. 2001"
    cost: ClassVar[str] = "items^2 x (lists + passes) + effort"
    criterion: ClassVar[str] = "no single item can be moved to gain"

    effort: int = param(
        200,
        "looks at each pair of items, beyond a first local search and bound, before an order is left unproved; with "
        "200 a hard query of 40 items takes about half a millisecond",
        least=0,
    )

    @property
    def query_columns(self) -> tuple[str, ...]:
        return (*FIT_COLUMNS, "kemeny", "bound", "exact")

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        return {**super().map(chunk, params), "ordered": self._ordered(chunk)}

    def score(self, chunk: Chunk, params: Params) -> Floats:
        return self.solve(chunk, params).score

    def score_split(self, chunk: Chunk, gathered: Gathered) -> Floats:
        return self.solve_split(chunk, gathered).score

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        score, solved, search = np.zeros(chunk.n_items), np.zeros((chunk.n_queries, 4)), Search()
        arrays, starts = self._arrays(chunk, params), order_items(chunk.item_offsets, start_scores(chunk, params))
        ordered = self._ordered(chunk)
        for q in range(chunk.n_queries):
            span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
            solved[q] = self._solve(chunk_margins(q, *arrays), starts[span], ordered[q], search, score[span])
        return _outcome(score, solved, trace)

    def fit_split(self, chunk: Chunk, gathered: Gathered, *, trace: bool) -> Outcome:
        known, score = gathered.statistics, np.zeros(chunk.n_items)
        start = np.argsort(-known["start"], kind="stable")
        solved = self._solve(known["margins"], start, known["ordered"][0], Search(), score)
        return _outcome(score, np.array([solved]), trace)

    def _solve(
        self, margins: Floats, start: np.ndarray, ordered: float, search: Search, score: Floats
    ) -> tuple[float, ...]:
        """One query: its places into ``score``; returns distance, bound, proved, pairs looked at."""
        solution = solve_order(margins[start[:, None], start], int(self.effort), search)
        score[start[solution.order]] = np.arange(len(start), 0, -1)
        distance, bound = 0.5 * (ordered - solution.worth), 0.5 * (ordered - solution.bound)
        return distance, bound, not solution.open, solution.looked

    def _ordered(self, chunk: Chunk) -> Floats:
        """Strictly ordered pairs of every query, (Q,): those of its lists and the weight of its raw pairs."""
        ordered = ordered_pairs(self.unlisted == "last", list_arrays(chunk))
        if chunk.n_pairs:
            queries = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.pair_offsets))
            ordered += np.bincount(queries, np.where(chunk.pair_tie, 0.0, chunk.pair_weight), chunk.n_queries)
        return ordered


def _outcome(score: Floats, solved: Floats, trace: bool) -> Outcome:
    """The outcome of queries that ended in (Q, 4) distance, bound, whether proved, pairs looked at."""
    distance, bound = solved[:, 0], solved[:, 1]
    queries = {
        "converged": np.ones(len(solved), dtype=bool),
        "iterations": solved[:, 3].astype(np.int64),
        "gradient": distance - bound,
        "likelihood": -distance,
        "kemeny": distance,
        "bound": bound,
        "exact": solved[:, 2] > 0,
    }
    return Outcome(score, queries=queries, trace=-distance[:, None] if trace else None)
