"""kemeny, and what assumes that lists are scattered around one central order: mallows and cranking.

kemeny is the order with the fewest discordant pairs (Kemeny 1959), proved best wherever the effort allows. mallows adds
the likeliest dispersion of the lists around it (Mallows 1957). cranking gives every expert a weight, learned without
labels (Lebanon & Lafferty 2002); the weights are those of Klementiev, Roth & Small (2008), by expectation maximisation
over queries; lists are partial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Solver, not_converged, param
from distagg.models.distances.integer import Proving
from distagg.models.distances.kemeny_kernels import ordered_pairs, solve_order
from distagg.models.distances.mallows_kernels import Sampling, count_stages, expect_chunk, fit_theta, log_likelihood
from distagg.models.distances.triangles import Search
from distagg.models.lists import sum_by_item
from distagg.models.majority.kernels import chunk_margins
from distagg.models.majority.model import Majority, start_scores
from distagg.models.outcome import Outcome
from distagg.models.pairs import list_arrays
from distagg.models.pool import Pooled, pool_param
from distagg.models.rounds import Gathered, Params, Stage, Statistics
from distagg.models.weights import Weighted, list_weight, pair_weight
from distagg.optimise.convergence import FIT_COLUMNS, not_begun
from distagg.rankings.ordering import order_items
from distagg.types import Floats


@dataclass(frozen=True, kw_only=True)
class NearestOrder(Pooled, Majority, Solver):
    """Base of kemeny and mallows: the strict order of least weighted Kendall distance to all lists and raw pairs.

    A list or pair that puts j over i costs its weight where i stands before j; ties cost nothing. Items between which
    no majority decides stand in the order of reciprocal ranks. Scores are places: the number of items for the first,
    1 for the last.

    ``kemeny`` is the distance reached, ``bound`` what no order can go below, ``exact`` whether the order is proved
    best. A fit that is not proved is still a local optimum: no single item can be moved to gain; that counts as
    converged. ``iterations`` counts the pairs of items looked at, ``gradient`` is the distance less the bound, and
    ``likelihood`` minus the distance.
    """

    square_bytes: ClassVar[int] = 32

    cost: ClassVar[str] = "items^2 x (lists + passes) + effort"
    criterion: ClassVar[str] = "no single item can be moved to gain"

    effort: int = param(
        200,
        "looks at each pair of items, beyond a first local search and bound, before an order is left unproved; with "
        "200 a hard query of 40 items takes about half a millisecond",
        least=0,
    )
    exact: str = param(
        "search",
        "how to prove an order best: search (within the effort), or milp (where the search does not prove it, by "
        "integer programming with HiGHS, for components of at most 400 items)",
        choices=("search", "milp"),
    )
    seconds: float = param(
        10.0,
        "longest time of the integer programs of a query; when it is over, the order is that of the search, unproved",
        above=0.0,
    )

    @property
    def query_columns(self) -> tuple[str, ...]:
        return (*FIT_COLUMNS, "kemeny", "bound", "exact")

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        return {**super().map(chunk, params), "ordered": self._ordered(chunk, params)}

    def score(self, chunk: Chunk, params: Params) -> Floats:
        return self.solve(chunk, params).score

    def score_split(self, chunk: Chunk, gathered: Gathered) -> Floats:
        return self.solve_split(chunk, gathered).score

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        score, solved, search = np.zeros(chunk.n_items), np.zeros((chunk.n_queries, 4)), Search()
        arrays, starts = self._arrays(chunk, params), order_items(chunk.item_offsets, start_scores(chunk, params))
        ordered = self._ordered(chunk, params)
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
        proving = Proving(self.seconds).prove if self.exact == "milp" else None
        solution = solve_order(margins[start[:, None], start], int(self.effort), search, proving)
        score[start[solution.order]] = np.arange(len(start), 0, -1)
        distance, bound = 0.5 * (ordered - solution.worth), 0.5 * (ordered - solution.bound)
        return distance, bound, not solution.open, solution.looked

    def _ordered(self, chunk: Chunk, params: Params) -> Floats:
        """Weight of the strictly ordered pairs of every query, (Q,): those of its lists and its raw pairs."""
        ordered = ordered_pairs(self.unlisted == "last", list_weight(chunk, params), list_arrays(chunk))
        if chunk.n_pairs:
            queries = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.pair_offsets))
            weight = np.where(chunk.pair_tie, 0.0, pair_weight(chunk, params))
            ordered += np.bincount(queries, weight, chunk.n_queries)
        return ordered


@dataclass(frozen=True, kw_only=True)
class Kemeny(NearestOrder, Weighted):
    """The order of least weighted Kendall distance; an expert of weight 2 counts as two with the same lists."""

    name: ClassVar[str] = "kemeny"
    summary: ClassVar[str] = "the order with the fewest discordant pairs, proved where possible"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Kemeny 1959; Dwork et al. 2001"


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


LARGEST_THETA = 50.0  # phi = exp(-theta) is then as good as 0


@dataclass(frozen=True, kw_only=True)
class Mallows(NearestOrder):
    """A list has odds phi^(discordant pairs with the centre); the likeliest centre is Kemeny's order.

    With ``unlisted`` last a list is the top of a full ranking, whose probability has a closed form (Fligner & Verducci
    1986). With ignore a list counts as a draw over the items that it holds, around the centre restricted to them: an
    approximation, because the marginal of a Mallows distribution is not one. A tied pair counts half; a raw pair is a
    list of two with its weight.

    Scores are, for ``scores`` expected, the expected number of items behind an item: every pair is decided by itself
    with the posterior odds phi^-margin, so that the score says how sure the order is; an item in no list gets the mean
    with ignore. ``places`` are those of the centre. ``phi`` is 0 where all lists agree with the centre and 1 where they
    are no nearer to it than chance.
    """

    name: ClassVar[str] = "mallows"
    summary: ClassVar[str] = "lists scattered around one central order, with the likeliest dispersion"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Mallows 1957; Fligner & Verducci 1986"
    criterion: ClassVar[str] = "slope of the log likelihood in theta for each entry at most tolerance"

    scores: str = param("expected", "expected (items behind) or places (in the centre)", choices=("expected", "places"))
    tolerance: float = param(1e-10, "stop when the slope for each entry is no larger", above=0.0)
    steps: int = param(100, "largest number of Newton steps to take", least=1)

    @property
    def query_columns(self) -> tuple[str, ...]:
        return (*super().query_columns, "phi")

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        stages, tied = self._stages(chunk)
        return {**super().map(chunk, params), "stages": stages, "tied": tied}

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        centre, arrays = super().fit_chunk(chunk, params, trace=False), self._arrays(chunk, params)
        return self._dispersed(chunk, centre, *self._stages(chunk), lambda q: chunk_margins(q, *arrays), trace)

    def fit_split(self, chunk: Chunk, gathered: Gathered, *, trace: bool) -> Outcome:
        centre, known = super().fit_split(chunk, gathered, trace=False), gathered.statistics
        return self._dispersed(chunk, centre, known["stages"], known["tied"], lambda q: known["margins"], trace)

    def _dispersed(
        self,
        chunk: Chunk,
        centre: Outcome,
        stages: Floats,  # (Q, longest)
        tied: Floats,  # (Q,)
        margins: Callable[[int], Floats],  # of a query
        trace: bool,
    ) -> Outcome:
        """The likeliest dispersion of every query around its centre."""
        distance, score = centre.queries["kemeny"] + 0.5 * tied, centre.score
        theta, ended = np.zeros(chunk.n_queries), not_begun(chunk.n_queries, self.steps if trace else 0)
        for q in range(chunk.n_queries):
            span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
            theta[q], ended.iterations[q], ended.gradient[q] = fit_theta(
                distance[q], stages[q], self.tolerance, self.steps, LARGEST_THETA, ended.trace[q]
            )
            ended.objective[q] = log_likelihood(theta[q], distance[q], stages[q])
            if self.scores == "expected":
                score[span] = expected_behind(theta[q] * margins(q))
        phi = np.where(theta < LARGEST_THETA, np.exp(-theta), 0.0)
        queries = {**centre.queries, **ended.columns(self.tolerance), "phi": phi}
        return Outcome(score, queries=queries, trace=ended.trace if trace else None)

    def _stages(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """Of every query: stages by the items left, and tied pairs."""
        rows = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
        stages, tied = stages_of(chunk, rows, chunk.n_queries, self.unlisted == "last")
        if chunk.n_pairs:
            rows = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.pair_offsets))
            weight = np.bincount(rows, chunk.pair_weight, chunk.n_queries)
            stages[:, :2] += weight[:, None]
            tied += np.bincount(rows, np.where(chunk.pair_tie, chunk.pair_weight, 0.0), chunk.n_queries)
        return stages, tied


def stages_of(chunk: Chunk, rows: np.ndarray, n_rows: int, unlisted_last: bool) -> tuple[Floats, Floats]:
    """Stages (n_rows, longest query) and tied pairs (n_rows,) of a chunk's lists, list a counted in row rows[a]."""
    stages, tied = np.zeros((n_rows, int(np.diff(chunk.item_offsets).max(initial=0)))), np.zeros(n_rows)
    count_stages(
        unlisted_last,
        chunk.item_offsets,
        chunk.list_offsets,
        chunk.entry_offsets,
        chunk.entry_rank,
        rows.astype(np.int64),
        stages,
        tied,
    )
    return stages, tied


def expected_behind(odds: Floats) -> Floats:  # (size, size) -> (size,)
    """Expected items behind each one, when i stands before j with log odds ``odds[i, j]``, every pair by itself."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * odds)).sum(axis=1) - 0.5)


BURN = 5  # sweeps before any counts
PLAIN = 30  # rounds that stand for themselves; later ones are averaged (Delyon, Lavielle & Moulines 1999)
NO_TRACE = np.empty(0)


@dataclass(frozen=True, kw_only=True)
class Cranking(Pooled):
    """An unknown order in every query; an expert's list is a Mallows draw around it, with the expert's own theta.

    A round finds, for each expert, the expected distance between its lists and the unknown orders given all lists and
    the present thetas; then the theta that makes such a distance likeliest. Experts no nearer than chance get 0.

    The expectations run over whole orders, by Gibbs sampling; with every pair decided by itself all thetas would shrink
    to 0. The draws of a query depend on its position in the dataset and the seed alone, and are the same in every
    round; after 30 rounds expected distances are averaged over rounds, so that the noise of few queries dies out.

    Scores need no sampling: they are the expected number of items behind an item when every pair is decided by itself
    with the posterior odds exp(thetas for less thetas against). Not fitted, all experts have the theta ``start``. With
    ignore, an item in no list gets the mean score.
    """

    square_bytes: ClassVar[int] = 24

    name: ClassVar[str] = "cranking"
    summary: ClassVar[str] = "Mallows with expert weights learned without labels"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Lebanon & Lafferty 2002; Klementiev et al. 2008"
    cost: ClassVar[str] = "items^2 x (lists + sweeps) a round"

    pool: int = pool_param(200)
    unlisted: str = param(
        "last",
        "how to read a list that leaves an item out: last (the item ranks behind all listed ones) or ignore (the list "
        "says nothing about it)",
        choices=("last", "ignore"),
    )
    sweeps: int = param(10, "sweeps of Gibbs sampling over a query's items, after five that do not count", least=1)
    largest: float = param(
        0.2,
        "largest theta: it bounds how far experts whose lists are nearly the same confirm each other; of "
        "0.05 to 10 the best on MQ2007 and good on MQ2008",
        above=0.0,
    )
    seed: int = param(0, "seed of the sampling", least=0)
    start: float = param(0.1, "theta of every expert in the first round", above=0.0)
    tolerance: float = param(1e-3, "stop when no theta changes by a larger share of the largest", above=0.0)
    rounds: int = param(100, "largest number of rounds to take", least=1)

    @property
    def learns(self) -> bool:
        return True

    def learning(self, n_experts: int, params: Params) -> Stage:
        return ThetaRound(self, np.full(n_experts, self.start), np.zeros(n_experts), 0)

    def score_pool(self, chunk: Chunk, params: Params) -> Floats:
        theta = np.asarray(params.get("expert_theta", np.full(chunk.n_experts, self.start)), dtype=np.float64)
        return self._expect(chunk, np.where(np.isfinite(theta), theta, 0.0), 0)[0]  # 0: unseen experts

    def _expect(self, chunk: Chunk, theta: Floats, sweeps: int) -> tuple[Floats, Floats]:
        """Scores (I,) and expected distances (experts,)."""
        how = Sampling(self.unlisted == "last", sweeps, BURN, self.seed)
        weight = theta[chunk.list_expert]
        score, distance = expect_chunk(how, list_arrays(chunk), weight, chunk.positions)
        return score, sum_by_item(chunk.list_expert, distance, chunk.n_experts)


@dataclass(frozen=True, slots=True, eq=False)
class ThetaRound(Stage):
    """One round: expected distances at the present thetas, then the thetas that make such distances likeliest."""

    model: Cranking
    theta: Floats  # (experts,)
    distance: Floats  # (experts,) expected, averaged over rounds after the first ones
    round: int  # rounds done

    def map(self, chunk: Chunk) -> Statistics:
        """Expected distance of every expert, and the stages of its lists by the items left."""
        chunk = self.model.pooled(chunk)
        distance = self.model._expect(chunk, self.theta, self.model.sweeps)[1]
        stages, tied = stages_of(chunk, chunk.list_expert, chunk.n_experts, self.model.unlisted == "last")
        return {"distance": distance + 0.5 * tied, "stages": stages}

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        width = max(a["stages"].shape[1], b["stages"].shape[1])
        stages = np.zeros((len(a["stages"]), width))
        for counted in (a["stages"], b["stages"]):
            stages[:, : counted.shape[1]] += counted
        return {"distance": a["distance"] + b["distance"], "stages": stages}

    def finish(self, statistics: Statistics) -> ThetaRound | Params:
        model, turn = self.model, self.round + 1
        distance, stages = statistics["distance"], statistics["stages"]
        if turn > PLAIN:
            distance = self.distance + (distance - self.distance) / (turn - PLAIN + 1)
        pairs = zip(distance, stages, strict=True)
        theta = np.array([fit_theta(d, counts, 1e-10, 100, model.largest, NO_TRACE)[0] for d, counts in pairs])
        change = float(np.abs(theta - self.theta).max() / max(theta.max(), np.finfo(float).tiny))
        if change > model.tolerance and turn < model.rounds:
            return ThetaRound(model, theta, distance, turn)
        if change > model.tolerance:
            not_converged(
                f"{model.name}: thetas still change by {change:.1e} of the largest after {model.rounds} rounds; raise "
                "rounds or tolerance"
            )
        learned = {"expert_theta": theta, "expert_distance": distance}
        return {**learned, "round": np.array(turn), "change": np.array(change)}
