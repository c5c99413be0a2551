"""The base of bradley_terry and thurstone: pair counts, the comparison graph, priors, Newton's method, errors.

Scores are centred in every connected component of a query's comparison graph, because no comparison relates one
component to another: the mean over comparisons is 0 (``intervals``). Scores are rounded to 9 decimals, so that items
with the same record tie.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Solver, param
from distagg.models.intervals import between, centred, over_resamples
from distagg.models.outcome import ISOLATED, Outcome
from distagg.models.pairwise.counted import Counted, Graph, graph_of, refuse_endless
from distagg.models.pairwise.counts import Counts
from distagg.models.pairwise.covariance import Terms, standard_errors
from distagg.models.pairwise.kernels import GAMMA, GAUSSIAN, NONE, Fit, fit_queries
from distagg.models.pairwise.links import log_likelihood
from distagg.models.pairwise.resamples import resample
from distagg.models.pairwise.routes import DIGITS, SOUGHT, ListFit, Measure, PairCounts
from distagg.models.rounds import Gathered, Params, Stage
from distagg.optimise.convergence import FIT_COLUMNS, Ended
from distagg.types import Floats, Offsets

PRIORS = {"none": NONE, "gaussian": GAUSSIAN, "gamma": GAMMA}


@dataclass(frozen=True, kw_only=True)
class Pairwise(Counted, Solver):
    """A score for every item such that the gap of two scores gives the chance that one beats the other."""

    cost: ClassVar[str] = "pairs + distinct pairs x steps"
    criterion: ClassVar[str] = "no score alone would move by more than tolerance"
    remedy: ClassVar[str] = "raise steps or the prior's weight"

    prior: str = param(
        "gaussian",
        "gaussian on scores keeps all of them finite; none is maximum likelihood",
        choices=("gaussian", "none"),
    )
    weight: float | Literal["auto"] = param(
        "auto",
        "weight of the gaussian prior, one over its variance: a number, or auto (of the largest marginal likelihood in "
        "each query, to one percent; with unlisted=ignore a list of n items counts as n - 1 independent comparisons; "
        "told as weight beside its fit)",
        choices=("auto",),
        above=0.0,
    )
    components: bool = param(
        False, "without a prior, fit connected components apart where there are several, each around 0"
    )
    route: str = param(
        "auto",
        "where experts are spread over chunks: counts (of pairs, merged), lists (gradients straight from the lists, in "
        "rounds; no memory for pairs) or auto (the cheaper by an estimate, which is logged)",
        choices=("auto", "counts", "lists"),
    )
    steps: int = param(10_000, "largest number of steps to take; Newton's method needs about a dozen", least=1)
    tolerance: float = param(1e-8, "stop when no score alone would move by more", above=0.0)
    errors: str = param(
        "none",
        "uncertainty of scores: standard (from the fit's curvature, as quasi-variances: the root of the sum of two "
        "squared errors is the error of a gap), bootstrap (resampled lists and pairs; resamples says how many hold the "
        "item) or none",
        choices=("none", "standard", "bootstrap"),
    )
    level: float = param(0.95, "confidence of the interval low to high", above=0.0)
    resamples: int = param(200, "bootstrap resamples", least=2)
    seed: int = param(0, "seed of the bootstrap", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.level >= 1:
            raise UsageError(f"parameter level of {self.name}: found {self.level!r}, expected a number below 1")
        if self.errors == "bootstrap" and self.prior == "none":
            raise UsageError(
                f"{self.name}: errors=bootstrap needs a prior, because a resample may leave an item unbeaten; "
                "choose prior=gaussian or errors=standard"
            )

    @property
    def link(self) -> int:
        """The code of ``distagg.models.pairwise.links``."""
        raise NotImplementedError

    @property
    def prior_numbers(self) -> tuple[int, float, float]:
        """Code, weight (a gamma prior's rate) and shape."""
        return PRIORS[self.prior], self.given_weight, 0.0

    @property
    def given_weight(self) -> float:
        """The weight of the gaussian prior, or the first guess where the data choose it."""
        return 1.0 if self.weight == "auto" else float(self.weight)

    @property
    def seeks(self) -> bool:
        """Whether the weight of the prior is estimated from the data."""
        return self.prior == "gaussian" and self.weight == "auto"

    @property
    def item_columns(self) -> tuple[str, ...]:
        known = ("uncertainty", "low", "high") if self.errors != "none" else ()
        counted = ("resamples",) if self.errors == "bootstrap" else ()
        return (*known, *counted, "status", "component")

    @property
    def query_columns(self) -> tuple[str, ...]:
        return (*FIT_COLUMNS, "weight") if self.prior == "gaussian" else FIT_COLUMNS

    def gathering(self, params: Params) -> Stage:
        return Measure(self, params)

    def score(self, chunk: Chunk, params: Params) -> Floats:
        return dataclasses.replace(self, errors="none").solve(chunk, params).score

    def score_split(self, chunk: Chunk, gathered: Gathered) -> Floats:
        return dataclasses.replace(self, errors="none").solve_split(chunk, gathered).score

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        return self.shown(chunk, super().fit_chunk(chunk, params, trace=trace))

    def fit_split(self, chunk: Chunk, gathered: Gathered, *, trace: bool) -> Outcome:
        end: PairCounts | ListFit = gathered.statistics
        return self.shown(chunk, end.outcome(self, chunk, trace=trace))

    def shown(self, chunk: Chunk, outcome: Outcome) -> Outcome:
        """The outcome on the scale that people see."""
        return outcome

    def of_counts(self, chunk: Chunk, counts: Counts, *, split: bool, trace: bool) -> Outcome:
        """The fit of every query, with its errors, from pair counts; ``split``: the chunk does not have all lists."""
        graph = self.examine(counts)
        if self.prior == "none":
            self.refuse_endless(chunk, graph, split=split)
        outcome, eta = self.fitted(counts, graph, trace=trace)
        outcome.items.update(status=graph.status, component=graph.component)
        if self.errors == "standard":
            terms = self.terms(outcome)
            deviation = standard_errors(counts, graph.component, outcome.score, eta, terms)
            alone = np.flatnonzero(graph.status == ISOLATED)
            deviation[alone] = self.prior_deviation(terms.weight[chunk.item_query()[alone]])
            outcome.items.update(between(outcome.score, deviation, self.level))
        elif self.errors == "bootstrap":
            if split:
                raise UsageError(
                    f"{self.name}: errors=bootstrap needs whole queries; choose errors=standard, or rank --bootstrap"
                )
            scores, held = resample(self, chunk, counts, graph, outcome, eta)
            seen = held
            if self.prior == "gaussian":  # a resample without an item draws its score from the prior
                seen = np.broadcast_to(graph.status != ISOLATED, held.shape)
            outcome.items.update(over_resamples(scores, seen, self.level), resamples=held.sum(axis=0))
        return outcome

    def terms(self, outcome: Outcome) -> Terms:
        """What a fit with that outcome minimised."""
        prior, weight, shape = self.prior_numbers
        weights = outcome.queries.get("weight", np.full(len(outcome.queries["converged"]), weight))
        return Terms(self.link, prior, shape, weights, self.seeks, self.ties == "half")

    def examine(self, counts: Counts) -> Graph:
        """Statuses and components; strongly connected ones only where a fit without a prior depends on them."""
        return graph_of(counts, strong=self.prior == "none")

    def prior_deviation(self, weight: Floats) -> Floats:
        """The deviation of the score of items without comparisons, which the weight of their query's prior gives."""
        return np.asarray(weight**-0.5 if self.prior == "gaussian" else np.full(len(weight), np.inf))

    def start_eta(self, counts: Counts) -> Floats:  # (Q,)
        """The start value of the tie parameter, in models that have one."""
        return np.zeros(len(counts.ties))

    def first_scores(self, counts: Counts) -> Floats:  # (I,)
        """The scores that the fit starts from: the log odds of winning, as if all opponents were equally strong."""
        return np.log((counts.won + 0.5) / (counts.lost + 0.5))

    def fitted(
        self,
        counts: Counts,
        graph: Graph,
        start: Floats | None = None,
        weight: Floats | None = None,
        centre: Floats | None = None,
        *,
        trace: bool = False,
    ) -> tuple[Outcome, Floats]:
        """The fit, from given scores (I,) or its own, and the tie parameter of every query.

        Weights (Q,) and centres (I,) of a gaussian prior may be given: they are the model's own, and 0, otherwise.
        The number of steps counts those at the final weight of the prior; the search for it only sets their start.
        """
        queries = len(counts.ties)
        eta = self.start_eta(counts)
        taken, left = np.zeros(queries, dtype=np.int64), np.zeros(queries)
        score = self.first_scores(counts) if start is None else start.copy()
        centre = np.zeros(len(score)) if centre is None else centre
        history = []
        if weight is None:
            weight = np.full(queries, self.prior_numbers[1])
            if self.seeks:
                self._run(counts, weight, centre, self.steps, score, eta, taken.copy(), left, seek=True)
        for steps in [1] * self.steps if trace else [self.steps]:  # a step at a time gives the same bits
            more = np.zeros(queries, dtype=np.int64)
            self._run(counts, weight, centre, steps, score, eta, more, left)
            taken += more
            likelihood = log_likelihood(self.link, counts.graph, score, eta)
            history.append(np.where(more > 0, likelihood, np.nan))
            if not more.any():
                break
        score = centred(score, graph.place(counts.item_offsets), counts.won + counts.lost)
        score = np.round(score, DIGITS) + 0.0  # or rounding would part items whose records are the same
        ended = Ended(taken, left, likelihood, np.stack(history, axis=1))
        fit = ended.columns(self.tolerance)
        if self.prior == "gaussian":
            fit["weight"] = weight
        return Outcome(score, {}, fit, ended.steps() if trace else None), eta

    def _run(
        self,
        counts: Counts,
        weight: Floats,
        centre: Floats,
        steps: int,
        score: Floats,
        eta: Floats,
        taken: Offsets,
        left: Floats,
        *,
        seek: bool = False,
    ) -> None:
        """Take up to ``steps`` steps from the present scores and tie parameters; ``seek`` also changes the weights."""
        prior, _, shape = self.prior_numbers
        tolerance = max(SOUGHT, self.tolerance) if seek else self.tolerance
        how = Fit(self.link, prior, shape, seek, tolerance, steps)
        evidence = counts.evidence(self.tie_share)
        fit_queries(how, counts.graph, evidence, weight, centre, score, eta, taken, left)

    def refuse_endless(self, chunk: Chunk, graph: Graph, *, split: bool) -> None:
        """Refuse a maximum-likelihood fit that has no finite maximum, or no single one."""
        refuse_endless(chunk, graph, apart=self.components, remedy="choose prior=gaussian")
