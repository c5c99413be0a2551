"""The Multinomial Preference Model: mpm, and with every expert's adherence theta_mpm and theta_sup_mpm.

Volkovs & Zemel 2014, sections 2.3 to 2.5 and 3.4; Volkovs & Zemel 2012. Adherence is in [0, 1] and shared by all
queries: at 0 an expert's preferences have nothing to do with the consensus, at 1 they follow it like the best expert's.
theta_mpm learns it with the scores, theta_sup_mpm measures it on labels.
Cost: one pass over entries, then O(items) an iteration for every distinct adherence; with variances O(items^2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.agreement import Agreement
from distagg.models.base import Solver, not_converged, param
from distagg.models.lists import BINARY, DIFFERENCE, Sums
from distagg.models.mpm.adherence import adherence_slopes
from distagg.models.mpm.kernels import Fit, fit_queries, fit_query
from distagg.models.outcome import Outcome
from distagg.models.pairs import (
    discounted_function,
    discounted_pairs_param,
    expert_arrays,
    left_out,
    list_arrays,
    list_sums,
    list_values,
    pair_arrays,
    unlisted_last,
    unlisted_param,
)
from distagg.models.pool import Pooled
from distagg.models.projection.kernels import net_differences, net_wins, pair_margins
from distagg.models.reliability import reliability_columns
from distagg.models.rounds import Gathered, Params, Stage, Statistics
from distagg.models.unjudged import unjudged_param
from distagg.optimise.convergence import FIT_COLUMNS, not_begun
from distagg.types import Floats, Offsets

MATRIX_BYTES = 2 << 30
DIGITS = 6  # decimals of a score with variances


@dataclass(frozen=True, kw_only=True)
class Mpm(Solver):
    """Scores by maximum likelihood, from net wins."""

    name: ClassVar[str] = "mpm"
    summary: ClassVar[str] = "Multinomial Preference Model: scores compete for all observed preferences"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.3; Volkovs & Zemel 2012"
    cost: ClassVar[str] = "entries + items x steps"
    inputs: ClassVar[tuple[str, ...]] = ("lists", "pairs")
    additive: ClassVar[bool] = True
    criterion: ClassVar[str] = "largest gradient entry for each observed preference"
    remedy: ClassVar[str] = "raise steps or prior"

    pairs: str = discounted_pairs_param()
    unlisted: str = unlisted_param()
    variance: bool = param(False, "learn every item's variance too (cost: items^2 a step); given as uncertainty")
    caution: float = param(
        0.0,
        "with variance=true, the score is less so many times the variance: items that little is known about go down",
        least=0.0,
    )
    solver: str = param(
        "lbfgs",
        "lbfgs, or gradient: plain steps of length rate (steps=100 as in the papers; what is left of the gradient "
        "is reported)",
        choices=("lbfgs", "gradient"),
    )
    steps: int = param(500, "largest number of steps to take", least=1)
    rate: float = param(1.0, "length of a gradient step", above=0.0)
    tolerance: float = param(1e-10, "stop when no gradient entry is larger, for each observed preference", above=0.0)
    prior: float = param(1e-3, "weight of the Gaussian prior on scores, beside an average item's evidence", above=0.0)
    tightness: float = param(
        0.2,
        "weight of the Gaussian prior on log variances, beside an average item's evidence",
        above=0.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.caution and not self.variance:
            raise UsageError(f"{self.name}: caution={self.caution} needs the variances of items; add variance=true")

    @property
    def item_columns(self) -> tuple[str, ...]:
        return ("uncertainty",) if self.variance else ()

    @property
    def query_columns(self) -> tuple[str, ...]:
        return (*FIT_COLUMNS, "uncertainty") if self.variance else FIT_COLUMNS

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        """Statistics that add up over the chunks of a split query."""
        theta = self._theta(params)
        tally = self._tally(chunk, theta)
        if self.variance:
            tally["margins"] = next(margins for _, margins in self._margins(chunk, theta))
        return tally

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        return self._at(chunk, self._theta(params), trace=trace)

    def fit_split(self, chunk: Chunk, gathered: Gathered, *, trace: bool) -> Outcome:
        tally = gathered.statistics
        margins = iter([(0, tally["margins"])] if self.variance else [])
        return self._fitted(chunk, tally, self._theta(gathered.params), margins, trace=trace)

    def _at(self, chunk: Chunk, theta: Floats | None, *, trace: bool) -> Outcome:
        """The fit of whole queries at some adherence."""
        margins = self._margins(chunk, theta) if self.variance else iter(())
        return self._fitted(chunk, self._tally(chunk, theta), theta, margins, trace=trace)

    def _theta(self, params: Params) -> Floats | None:
        """The adherence of every expert; None where all count alike."""
        return None

    def _tally(self, chunk: Chunk, theta: Floats | None) -> Statistics:
        """Net wins of items, and preferences by adherence."""
        function = discounted_function(self.name, self.pairs, self.unlisted, chunk)
        alike = theta is None and not chunk.n_pairs
        if alike and function == DIFFERENCE and not unlisted_last(self.unlisted, chunk):
            net, seen = np.zeros(chunk.n_items), np.zeros((chunk.n_queries, 1))
            net_differences(list_arrays(chunk), net, seen)
            return {"net": net, "observed": seen}
        theta = np.ones(chunk.n_experts) if theta is None else theta
        levels, level = np.unique(theta, return_inverse=True)
        net, observed = np.zeros(chunk.n_items), np.zeros((chunk.n_queries, len(levels)))
        net_wins(
            list_arrays(chunk),
            pair_arrays(chunk),
            expert_arrays(chunk),
            self._sums(chunk),
            theta,
            level.astype(np.int32),
            net,
            observed,
        )
        return {"net": net, "observed": observed}

    def _fitted(
        self,
        chunk: Chunk,
        tally: Statistics,
        theta: Floats | None,
        margins: Iterator[tuple[int, Floats]],  # positions of queries and their margins, for variances
        *,
        trace: bool,
    ) -> Outcome:
        """The fit of every query from its statistics."""
        levels = np.ones(min(chunk.n_experts, 1)) if theta is None else np.unique(theta)
        score, variance = np.zeros(chunk.n_items), np.ones(chunk.n_items)
        ended = not_begun(chunk.n_queries, self.steps + 1 if trace else 0)
        rate = self.rate if self.solver == "gradient" else 0.0
        how = Fit(False, float(self.prior), float(self.tightness), float(self.tolerance), self.steps, float(rate))
        fit_queries(how, levels, chunk.item_offsets, tally["net"], tally["observed"], score, ended)
        if not self.variance:
            return Outcome(score, {}, ended.columns(self.tolerance), ended.trace if trace else None)
        how = how._replace(spread=True)
        ended.trace.fill(np.nan)
        score *= 2.0  # at variances of 1 differences are halved
        for q, of_query in margins:
            rows = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
            fit_query(how, levels, of_query, tally["observed"][q], score[rows], variance[rows], ended, q)
        score = (
            np.round(score - self.caution * variance, DIGITS) + 0.0
        )  # or the solver's last digits would part items of the same record
        sizes = np.maximum(np.diff(chunk.item_offsets), 1)
        mean = np.bincount(chunk.item_query(), variance, chunk.n_queries) / sizes
        queries = {**ended.columns(self.tolerance), "uncertainty": mean}
        return Outcome(score, {"uncertainty": variance}, queries, ended.trace if trace else None)

    def _sums(self, chunk: Chunk) -> Sums:
        """How much each entry won and lost, and how much the items that a list omits lost."""
        return list_sums(
            chunk, left_out(self.unlisted, chunk), discounted_function(self.name, self.pairs, self.unlisted, chunk)
        )

    def _margins(self, chunk: Chunk, theta: Floats | None) -> Iterator[tuple[int, Floats]]:
        """Every query's position and margins, one after the other."""
        theta = np.ones(chunk.n_experts) if theta is None else theta
        function = discounted_function(self.name, self.pairs, self.unlisted, chunk)
        values = list_values(chunk, left_out(self.unlisted, chunk), function)
        lists, pairs, experts = list_arrays(chunk), pair_arrays(chunk), expert_arrays(chunk)
        for q in range(chunk.n_queries):
            self._check_size(int(chunk.item_offsets[q + 1] - chunk.item_offsets[q]))
            yield q, pair_margins(q, lists, pairs, experts, values, function == BINARY, theta)

    def _check_size(self, size: int) -> None:
        if size * size * 8 > MATRIX_BYTES:
            raise UsageError(
                f"{self.name} with variance=true needs a matrix of {size:,} x {size:,} items "
                f"({size * size * 8 / 2**30:.1f} GiB); leave variance out"
            )


SETTLED = 1e-3  # adherence is known when no expert's moves more in a round
LONGEST = 2.0  # the most that an expert's adherence may grow in a round, in units of the best


@dataclass(frozen=True, kw_only=True)
class Adherent(Pooled, Mpm):
    """Base of models that learn every expert's adherence, ``expert_theta``; before, all experts count alike."""

    adherence: ClassVar[bool] = True

    def _theta(self, params: Params) -> Floats | None:
        theta = params.get("expert_theta")
        return None if theta is None else np.where(np.isfinite(theta), theta, 0.0)  # 0: unseen experts


@dataclass(frozen=True, kw_only=True)
class ThetaMpm(Adherent):
    """Rounds: fit every query's scores at the present adherence, then one Newton step of adherence at those scores.

    The likelihood does not change when adherence is multiplied and scores are divided by the same number, so the
    best expert's adherence is set to 1 after each round. Variances are no part of learning.
    """

    name: ClassVar[str] = "theta_mpm"
    summary: ClassVar[str] = "mpm with each expert's adherence learned, without labels"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.5; Volkovs & Zemel 2012"
    cost: ClassVar[str] = "(entries + items x experts x steps) x rounds"
    rounds: int = param(100, "largest number of rounds of learning adherence", least=1)

    @property
    def learns(self) -> bool:
        return True

    def reliabilities(self, params: Params) -> dict[str, np.ndarray]:
        if params.get("expert_error") is None:  # not fitted, or before errors were kept
            return {}
        theta, error, votes = (params[f"expert_{name}"] for name in ("theta", "error", "votes"))
        return reliability_columns(theta, error, votes, highest=np.inf)

    def learning(self, n_experts: int, params: Params) -> Stage:
        return AdherenceRound(self, np.ones(n_experts), 0)


@dataclass(frozen=True, slots=True, eq=False)
class AdherenceRound(Stage):
    """One Newton step of adherence."""

    model: ThetaMpm
    theta: Floats  # (experts,)
    round: int  # rounds done

    def map(self, chunk: Chunk) -> Statistics:
        chunk = self.model.pooled(chunk)
        present = self.theta if self.round else None  # at first all experts count alike
        fitted = replace(self.model, variance=False)._at(chunk, present, trace=False)
        slope, curve, spread = np.zeros(chunk.n_experts), np.zeros(chunk.n_experts), np.zeros((chunk.n_experts, 2))
        arrays = list_arrays(chunk), pair_arrays(chunk), expert_arrays(chunk), self.model._sums(chunk)
        adherence_slopes(*arrays, self.theta, fitted.score, slope, curve, spread)
        unfinished = np.array([(~fitted.queries["converged"]).sum()])
        votes = decisive(chunk, self.model.unlisted)
        return {"slope": slope, "curve": curve, "spread": spread, "votes": votes, "unfinished": unfinished}

    def finish(self, statistics: Statistics) -> AdherenceRound | Params:
        model, slope, curve = self.model, statistics["slope"], statistics["curve"]
        informative = curve > 0.0  # the preferences of other experts cannot be told from chance
        step = np.where(informative, slope / np.where(informative, curve, 1.0), -np.inf)
        theta = np.clip(self.theta + step, 0.0, LONGEST)
        if theta.max(initial=0.0) <= 0.0:  # no expert agrees with the consensus: all count the same
            return self._learned(np.ones(len(slope)), statistics)
        theta = theta / theta.max()
        moved = float(np.abs(theta - self.theta).max())
        if moved > SETTLED and self.round + 1 < model.rounds:
            return AdherenceRound(model, theta, self.round + 1)
        if moved > SETTLED:
            not_converged(f"theta_mpm: adherence still moves by {moved:.1e} after {model.rounds} rounds; raise rounds")
        if statistics["unfinished"][0]:
            not_converged(
                f"theta_mpm: adherence was learned with {int(statistics['unfinished'][0])} queries not converged after "
                f"{model.steps} steps; {model.remedy}"
            )
        return self._learned(theta, statistics)

    def _learned(self, theta: Floats, statistics: Statistics) -> Params:
        """Adherence with its standard error, the scores taken as known.

        The preferences of one list are not independent. So the error is the larger of two: by the curvature, as if they
        were, and by how much the slopes of an expert's queries differ (the sandwich estimator).
        """
        slope, curve, spread, votes = (statistics[name] for name in ("slope", "curve", "spread", "votes"))
        known = np.where(curve > 0.0, curve, 1.0)
        varied = np.maximum(spread[:, 0] - slope**2 / np.maximum(spread[:, 1], 1.0), 0.0)  # about the mean slope
        error = np.where(curve > 0.0, np.sqrt(np.maximum(1.0 / known, varied / known**2)), np.inf)
        evidence = {"expert_error": error, "expert_votes": votes.astype(np.float64)}
        return {"expert_theta": theta, **evidence, "rounds": np.array([self.round + 1.0])}


def decisive(chunk: Chunk, unlisted: str) -> Offsets:  # (experts,)
    """The number of comparisons of each expert that are no ties: raw pairs, and pairs of lists."""
    won, _, _ = list_sums(chunk, left_out(unlisted, chunk), BINARY)
    listed = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
    voted = chunk.pair_expert[~chunk.pair_tie & (chunk.pair_weight > 0.0)]
    counts = np.bincount(listed, won, chunk.n_experts) + np.bincount(voted, minlength=chunk.n_experts)
    return np.asarray(counts, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class ThetaSupMpm(Adherent):
    """mpm in which an expert counts as much as it agreed with the labels of the training queries."""

    name: ClassVar[str] = "theta_sup_mpm"
    summary: ClassVar[str] = "mpm with each expert's adherence measured on labels"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 3.4"
    inputs: ClassVar[tuple[str, ...]] = ("lists",)
    supervised: ClassVar[bool] = True
    learns_from_parts: ClassVar[bool] = True

    scale: str = param(
        "chance",
        "adherence from the share of rightly ordered pairs: chance (no better than chance gives 0, the best expert 1) "
        "or plain (the share itself)",
        choices=("chance", "plain"),
    )
    unjudged: str = unjudged_param("ignore", most=0)

    def learning(self, n_experts: int, params: Params) -> Stage:
        return Agreement(self, params, "expert_theta", self.scale == "chance", self.unjudged)
