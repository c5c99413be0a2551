"""Plackett-Luce on a split query: a round to count, then a round for each gradient.

Expected choices add up over lists, so a round is one pass over the entries, with statistics of the size of the items.
L-BFGS takes its gradients by map and reduce: ``solvers.climb``, one round at a time; so do plain gradient steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.outcome import ISOLATED, OK, UNBEATEN, WINLESS
from distagg.models.plackett_luce.kernels import Choices, count_choices, examine, expect
from distagg.models.plackett_luce.uncertainty import compared
from distagg.models.rounds import Gathered, Params, Stage, Statistics, kept
from distagg.optimise.components import overlaid
from distagg.optimise.convergence import Ended
from distagg.optimise.lbfgs import Ascent
from distagg.types import INDEX, Floats, Indices

if TYPE_CHECKING:
    from distagg.models.plackett_luce.model import PlackettLuce

SOLVERS = ("lbfgs", "mm", "gradient")


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """What the lists of all chunks say before any fit."""

    params: Params
    wins: Floats  # (items,) how often each one was chosen
    number: float  # of choices
    compared: Floats  # (items,) comparisons
    status: Indices  # (items,)
    component: Indices  # (items,)


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """The end of all rounds."""

    counted: Counted
    theta: Floats  # (items,)
    ended: Ended


@dataclass(frozen=True, slots=True, eq=False)
class CountRound(Stage):
    """The first round: every chunk shows a part of the comparison graph."""

    model: PlackettLuce
    params: Params

    def map(self, chunk: Chunk) -> Statistics:
        choices = _choices(self.model, chunk)
        wins, number = count_choices(choices, chunk.item_offsets)
        status, component = examine(choices, chunk.item_offsets, wins)
        beaten = (status == OK) | (status == WINLESS)
        counts = {"wins": wins, "number": number, "compared": compared(choices, chunk.item_offsets)}
        return {**counts, "lost": beaten, "component": component}

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        summed = {name: a[name] + b[name] for name in ("wins", "number", "compared")}
        return {**summed, "lost": a["lost"] | b["lost"], "component": overlaid(a["component"], b["component"])}

    def finish(self, statistics: Statistics) -> HunterRound | StepRound:
        won, lost = statistics["wins"] > 0.0, statistics["lost"]
        status = np.where(won, np.where(lost, OK, UNBEATEN), np.where(lost, WINLESS, ISOLATED)).astype(INDEX)
        number = float(statistics["number"][0])
        counted = Counted(
            self.params, statistics["wins"], number, statistics["compared"], status, statistics["component"]
        )
        first = StepRound if self.model.solver == "gradient" else HunterRound
        return first(self.model, counted, np.zeros(len(won)), 0, ())


@dataclass(frozen=True, slots=True, eq=False)
class Expectation(Stage):
    """How often theta expects each item to be chosen in a chunk's lists, and their log likelihood."""

    model: PlackettLuce
    theta: Floats

    def map(self, chunk: Chunk) -> Statistics:
        x, chosen = np.empty(len(self.theta)), np.empty(len(self.theta))
        value = expect(_choices(self.model, chunk), 0, 0.0, self.theta, x, chosen)
        return {"expected": chosen, "value": np.array([value])}


@dataclass(frozen=True, slots=True, eq=False)
class Slope:
    """The objective at some theta."""

    uphill: Floats  # (items,) the gradient
    chosen: Floats  # (items,) expected choices, prior included
    left: float  # the largest gradient entry for each choice
    value: float  # log likelihood

    @classmethod
    def at(cls, model: PlackettLuce, counted: Counted, theta: Floats, statistics: Statistics) -> Slope:
        shape, x = model.prior_shape, np.exp(theta - theta.max())
        chosen = statistics["expected"] + shape * len(x) * x / x.sum()
        uphill = counted.wins + shape - chosen
        left = float(np.abs(uphill).max()) / max(counted.number, 1.0)
        return cls(uphill, chosen, left, float(statistics["value"][0]))


@dataclass(frozen=True, slots=True, eq=False)
class HunterRound(Stage):
    """A step of Hunter's: all of them with solver=mm, the first one with lbfgs."""

    model: PlackettLuce
    counted: Counted
    theta: Floats
    taken: int  # steps
    trace: tuple[float, ...]

    def sent(self) -> Expectation:
        return Expectation(self.model, self.theta)

    def finish(self, statistics: Statistics) -> HunterRound | ClimbRound | Gathered:
        model, counted = self.model, self.counted
        slope = Slope.at(model, counted, self.theta, statistics)
        theta = self.theta + np.log((counted.wins + model.prior_shape) / slope.chosen)
        if model.solver == "lbfgs":
            if not counted.number:
                return _over(counted, self.theta, 0, 0.0, 0.0, ())
            return ClimbRound(model, counted, Ascent.begin(theta), 0.0, 0.0, ())
        trace = (*self.trace, slope.value) if self.taken else ()
        if slope.left <= model.tolerance or self.taken >= model.steps:
            return _over(counted, self.theta, self.taken, slope.left, slope.value, trace)
        return HunterRound(model, counted, theta, self.taken + 1, trace)


@dataclass(frozen=True, slots=True, eq=False)
class StepRound(Stage):
    """A plain gradient step."""

    model: PlackettLuce
    counted: Counted
    theta: Floats
    taken: int  # steps
    trace: tuple[float, ...]

    def sent(self) -> Expectation:
        return Expectation(self.model, self.theta)

    def finish(self, statistics: Statistics) -> StepRound | Gathered:
        slope = Slope.at(self.model, self.counted, self.theta, statistics)
        trace = (*self.trace, slope.value) if self.taken else ()
        if slope.left <= self.model.tolerance or self.taken >= self.model.steps:
            return _over(self.counted, self.theta, self.taken, slope.left, slope.value, trace)
        theta = self.theta + float(self.model.rate) * slope.uphill
        return StepRound(self.model, self.counted, theta, self.taken + 1, trace)


@dataclass(frozen=True, slots=True, eq=False)
class ClimbRound(Stage):
    """A gradient for L-BFGS."""

    model: PlackettLuce
    counted: Counted
    ascent: Ascent
    left: float  # at the last step
    value: float
    trace: tuple[float, ...]

    def sent(self) -> Expectation:
        return Expectation(self.model, self.ascent.trial)

    def finish(self, statistics: Statistics) -> ClimbRound | Gathered:
        model, counted, left, value, trace = self.model, self.counted, self.left, self.value, self.trace
        slope = Slope.at(model, counted, self.ascent.trial, statistics)
        curvature = 0.5 * (counted.wins + model.prior_shape + slope.chosen)
        ascent = self.ascent.after(slope.uphill, curvature)
        over = ascent.lost
        if ascent.steps > self.ascent.steps:
            left, value = slope.left, slope.value
            trace = (*trace, value) if ascent.steps else ()
            over = left <= model.tolerance or ascent.steps >= model.steps
        if over:
            return _over(counted, ascent.x, ascent.steps, left, value, trace)
        return ClimbRound(model, counted, ascent, left, value, trace)


def _over(counted: Counted, theta: Floats, steps: int, left: float, value: float, trace: tuple[float, ...]) -> Gathered:
    ended = Ended(np.array([steps]), np.array([left]), np.array([value]), np.array(trace).reshape(1, -1))
    return Gathered(counted.params, Fitted(counted, theta, ended))


def first_round(model: PlackettLuce, params: Params) -> CountRound:
    """The first round; settings that need whole queries are refused."""
    wrong = {
        f"solver={model.solver}": model.solver not in SOLVERS,
        "prior=none": model.prior == "none" and model.solver != "gradient",
        f"errors={model.errors}": model.errors != "none",
    }
    for setting, bad in wrong.items():
        if bad:
            raise UsageError(
                f"{model.name} with {setting} needs whole queries, and this one is spread over chunks; choose "
                f"solver=lbfgs with prior=gamma, or solver=gradient, and errors=none (and --bootstrap for uncertainty)"
            )
    return CountRound(model, params)


def _choices(model: PlackettLuce, chunk: Chunk) -> Choices:
    return kept(chunk, ("choices", model.unlisted, model.ties), model.choices)
