"""Plackett-Luce: plackett_luce, strengths of items from lists as sequences of choices.

Plackett 1975; Hunter 2004 (MM); Maystre & Grossglauser 2015 (i-LSR); Caron & Doucet 2012 (gamma prior, sampler);
Guiver & Snelson 2009 (power EP). Cost: O(entries) for every pass, some twenty passes for a fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import InputError, UsageError
from distagg.models.base import Solver, param
from distagg.models.intervals import centred
from distagg.models.outcome import STATUS, Outcome
from distagg.models.pairs import unlisted_last, unlisted_param
from distagg.models.plackett_luce.kernels import Choices, count_choices, examine, gather_choices, reach, untied
from distagg.models.plackett_luce.solvers import Fit, climb, descend, repeat
from distagg.models.plackett_luce.split import Fitted, first_round
from distagg.models.plackett_luce.uncertainty import POSTERIORS, bootstrap, compared, posterior, standard_errors
from distagg.models.rounds import Gathered, Params, Stage
from distagg.optimise.convergence import Ended, not_begun
from distagg.types import Floats, Indices, Offsets

NAMED = 3  # items named in a message


@dataclass(frozen=True, kw_only=True)
class PlackettLuce(Solver):
    """Log strengths by maximum likelihood, by maximum posterior density, or as posterior means."""

    name: ClassVar[str] = "plackett_luce"
    summary: ClassVar[str] = "Plackett-Luce: every place of a list is a choice among what is left"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Plackett 1975; Hunter 2004; Guiver & Snelson 2009"
    cost: ClassVar[str] = "entries x steps"
    inputs: ClassVar[tuple[str, ...]] = ("lists", "pairs")
    additive: ClassVar[bool] = True
    criterion: ClassVar[str] = "largest gradient entry for each observed choice; with bayes, move of a shape"
    remedy: ClassVar[str] = "raise steps or shape"

    unlisted: str = unlisted_param()
    solver: str = param(
        "lbfgs",
        "lbfgs, mm (Hunter) or ilsr (Maystre & Grossglauser), all to the same answer; posterior means of log "
        "strengths with their deviations as uncertainty: bayes (power EP) or gibbs (sampled); or gradient: plain steps "
        "from scores of 0, with prior=none steps=100 as in the papers (what is left of the gradient is reported)",
        choices=("lbfgs", "mm", "ilsr", *POSTERIORS, "gradient"),
    )
    rate: float = param(1e-3, "length of a gradient step", above=0.0)
    ties: str = param(
        "open",
        "tied items of a list: open (each is chosen over what stands behind the tie, nothing is said between them) or "
        "order (chosen one after the other, in the order of the query's items, as in the papers' experiments on "
        "ratings); raw pairs that are tied say nothing",
        choices=("open", "order"),
    )
    prior: str = param(
        "gamma", "gamma (every item was also chosen shape times from among all) or none", choices=("gamma", "none")
    )
    shape: float = param(1.0, "shape of the gamma prior, in choices for each item", above=0.0)
    errors: str = param(
        "none",
        "uncertainty of scores: none, standard (inverse information, as quasi-variances: the root of the sum of two "
        "squared errors is the error of a gap) or bootstrap (lists drawn again; 95% intervals as well, "
        "and resamples: how many hold the item)",
        choices=("none", "standard", "bootstrap"),
    )
    components: bool = param(False, "with prior=none, fit every connected component by itself, its scores centred")
    resamples: int = param(200, "bootstrap resamples", least=2)
    draws: int = param(2000, "samples that gibbs keeps", least=2)
    seed: int = param(
        0, "seed of bootstrap and gibbs; every query has its own stream, by its position in the dataset", least=0
    )
    steps: int = param(2000, "largest number of steps to take", least=1)
    tolerance: float = param(1e-11, "stop when no gradient entry is larger, for each observed choice", above=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior == "none" and self.solver in POSTERIORS:
            raise UsageError(f"{self.name} with solver={self.solver} needs a prior: leave prior at gamma")
        if self.prior == "none" and self.errors == "bootstrap":
            raise UsageError(
                f"{self.name} with errors=bootstrap needs a prior, as lists drawn again may leave an item unbeaten: "
                "leave prior at gamma (shape may be small), or use errors=standard"
            )
        if self.errors != "none" and self.solver in POSTERIORS:
            raise UsageError(f"{self.name} with solver={self.solver} gives its own uncertainty: leave errors at none")
        if self.solver == "gradient" and self.errors != "none":
            raise UsageError(
                f"{self.name} with solver=gradient stops before the maximum, where errors mean nothing: leave errors "
                "at none"
            )
        if self.components and self.prior != "none":
            raise UsageError(f"{self.name} with components=true is for prior=none: a prior joins all components")

    @property
    def item_columns(self) -> tuple[str, ...]:
        if self.errors == "bootstrap":
            return ("uncertainty", "low", "high", "resamples", "status", "component")
        if self.errors == "standard" or self.solver in POSTERIORS:
            return ("uncertainty", "status", "component")
        return ("status", "component")

    def gathering(self, params: Params) -> Stage:
        return first_round(self, params)

    def choices(self, chunk: Chunk) -> Choices:
        """Lists and pairs of a chunk as choices."""
        item, rank = chunk.entry_item, chunk.entry_rank
        if self.ties == "order":
            item, rank = untied(chunk.entry_offsets, item, rank)
        return gather_choices(
            unlisted_last(self.unlisted, chunk),
            chunk.item_offsets,
            chunk.list_offsets,
            chunk.entry_offsets,
            item,
            rank,
            chunk.pair_offsets,
            chunk.pair_winner,
            chunk.pair_loser,
            chunk.pair_weight,
            chunk.pair_tie,
        )

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        choices = self.choices(chunk)
        wins, number = count_choices(choices, chunk.item_offsets)
        status, component = examine(choices, chunk.item_offsets, wins)
        items: dict[str, np.ndarray] = {"status": status, "component": component}
        group = None
        if self.prior == "none" and self.solver != "gradient":  # a number of steps ends somewhere
            self._identified(chunk, choices, status, component)
            group = component if self.components else None
        ended = not_begun(chunk.n_queries, self.steps if trace else 0)
        if self.solver in POSTERIORS:
            score, uncertainty, queries = posterior(self, chunk, choices, wins)
            return Outcome(score, {"uncertainty": uncertainty, **items}, queries, ended.trace[:, :0] if trace else None)
        theta = np.zeros(chunk.n_items)
        self.fit(choices, chunk.item_offsets, wins, number, theta, ended)
        within: Any = chunk.item_query()
        if group is not None:
            within = np.unique(np.stack([within, group], axis=1), axis=0, return_inverse=True)[1].ravel()
        score = centred(theta, within, compared(choices, chunk.item_offsets))
        if self.errors == "standard":
            items["uncertainty"] = standard_errors(choices, chunk.item_offsets, self.prior_shape, score, group)
        if self.errors == "bootstrap":
            items |= bootstrap(self, chunk, choices, score)
        return Outcome(score, items, ended.columns(self.tolerance), ended.steps() if trace else None)

    def fit_split(self, chunk: Chunk, gathered: Gathered, *, trace: bool) -> Outcome:
        fitted: Fitted = gathered.statistics
        counted, ended = fitted.counted, fitted.ended
        score = centred(fitted.theta, chunk.item_query(), counted.compared)
        items = {"status": counted.status, "component": counted.component}
        return Outcome(score, items, ended.columns(self.tolerance), ended.trace if trace else None)

    @property
    def prior_shape(self) -> float:
        return float(self.shape) if self.prior == "gamma" else 0.0

    def fit(
        self, choices: Choices, item_offsets: Offsets, wins: Floats, number: Floats, theta: Floats, ended: Ended
    ) -> None:
        """Fill theta (I,) with log strengths, from where it stands, and ``ended``."""
        how = Fit(self.prior_shape, self.tolerance, self.steps)
        rest = (how, choices, item_offsets, wins, number, theta, ended)
        if self.solver == "lbfgs":
            climb(*rest)
        elif self.solver == "gradient":
            descend(float(self.rate), *rest)
        else:
            repeat(self.solver == "ilsr", *rest)

    def _identified(self, chunk: Chunk, choices: Choices, status: Indices, component: Indices) -> None:
        """Refuse queries in which the likelihood has no maximum."""
        marks = np.ones((2, chunk.n_items), dtype=bool)
        for forward in (0, 1):
            reach(forward == 1, choices, chunk.item_offsets, component, marks[forward])
        within = chunk.item_query()
        loose = ~marks.all(axis=0)
        if not self.components:
            loose |= component > 0
        if not loose.any():
            return
        q = int(within[np.argmax(loose)])
        span = slice(int(chunk.item_offsets[q]), int(chunk.item_offsets[q + 1]))
        parts = int(component[span].max()) + 1
        problems = [f"{parts} connected components"] if parts > 1 else []
        for code in (1, 2, 3):
            problems += self._named(chunk, span, np.flatnonzero(status[span] == code), STATUS[code])
        if not problems:
            beats, beaten = marks[1, span], marks[0, span]
            few = min((beats & beaten, ~beats, ~beaten), key=lambda m: int(m.sum()) or len(m))
            problems = self._named(chunk, span, np.flatnonzero(few), "only ever ahead of, or behind, the rest")
        remedy = "use prior=gamma"
        if parts > 1 and marks[:, span].all():
            remedy += ", or components=true to fit each by itself"
        raise InputError(
            f"query {chunk.query_ids[q].as_py()}",
            found=" and ".join(problems),
            expected="every item to beat and lose to every other along some path, without which the likelihood has "
            "no maximum",
            remedy=remedy,
        )

    def _named(self, chunk: Chunk, span: slice, rows: np.ndarray, what: str) -> list[str]:
        if not len(rows):
            return []
        ids = [chunk.item_ids[span.start + int(i)].as_py() if len(chunk.item_ids) else str(i) for i in rows[:NAMED]]
        more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
        return [f"{what}: {', '.join(ids)}{more}"]
