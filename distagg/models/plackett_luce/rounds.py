"""Plackett-Luce on one query whose lists are spread over chunks: a round to count, then a round for each gradient.

Expected choices add up over lists, so a round is one pass over the entries, with statistics of the size of the items.
L-BFGS takes its gradients by map and reduce: ``solvers.climb``, one round at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Params, Statistics
from distagg.models.chunk_cache import kept
from distagg.models.outcome import ISOLATED, OK, UNBEATEN, WINLESS
from distagg.models.plackett_luce.errors import compared
from distagg.models.plackett_luce.kernels import Choices, count_choices, examine, expect
from distagg.optimise.components import overlaid
from distagg.optimise.lbfgs import BY_SLOPE, Path, Search, aim, begin, first_search, is_lost, judge
from distagg.types import INDEX, Floats

if TYPE_CHECKING:
    from distagg.models.plackett_luce.model import PlackettLuce


@dataclass(frozen=True, slots=True, eq=False)
class Ascent:
    """L-BFGS on a concave function whose gradients come one round at a time."""

    path: Path
    search: Search

    @property
    def steps(self) -> int:
        return self.search.steps

    @property
    def lost(self) -> bool:
        """Whether the line search failed to find a better point, so that the fit must end."""
        return bool(is_lost(self.search))

    def after(self, uphill: Floats, curvature: Floats) -> Ascent:
        """The next state, from the gradient at ``path.trial`` and (used once) minus the Hessian's diagonal there."""
        path = Path(*(array.copy() for array in self.path))
        if self.search.steps < 0:
            some = curvature > 0.0
            path.scale[:] = np.where(some, 1.0 / np.sqrt(np.where(some, curvature, 1.0)), 0.0)
        search = judge(path, self.search, 0.0, -uphill)
        return Ascent(path, aim(path, search) if search.tried == 0 else search)


def ascent_from(theta: Floats) -> Ascent:
    """The state before the first gradient, which is wanted at theta."""
    return Ascent(begin(theta.copy()), first_search(BY_SLOPE))


ROUNDS = ("lbfgs", "mm")


def check(model: PlackettLuce) -> None:
    """Refuse settings that need whole queries."""
    wrong = {
        f"solver={model.solver}": model.solver not in ROUNDS,
        "prior=none": model.prior == "none",
        f"errors={model.errors}": model.errors != "none",
    }
    for setting, bad in wrong.items():
        if bad:
            raise UsageError(
                f"{model.name} with {setting} needs whole queries, and this one is spread over chunks; choose "
                f"solver=lbfgs, prior=gamma, errors=none (and --bootstrap for uncertainty)"
            )


def count(model: PlackettLuce, chunk: Chunk) -> Statistics:
    """The part of the comparison graph that one chunk shows."""
    choices = _choices(model, chunk)
    wins, number = count_choices(choices, chunk.item_offsets)
    status, component = examine(choices, chunk.item_offsets, wins)
    beaten = (status == OK) | (status == WINLESS)
    counts = {"wins": wins, "number": number, "compared": compared(choices, chunk.item_offsets)}
    return {**counts, "lost": beaten, "component": component}


def expected(model: PlackettLuce, chunk: Chunk, theta: np.ndarray) -> Statistics:
    """How often theta expects each item to be chosen in the chunk's lists, and their log likelihood."""
    choices = _choices(model, chunk)
    x, chosen = np.empty(len(theta)), np.empty(len(theta))
    value = expect(choices, 0, 0.0, theta, x, chosen)
    return {"expected": chosen, "value": np.array([value])}


def merge(a: Statistics, b: Statistics) -> Statistics:
    summed = {name: a[name] + b[name] for name in a if name not in ("lost", "component")}
    if "lost" not in a:
        return summed
    return {**summed, "lost": a["lost"] | b["lost"], "component": overlaid(a["component"], b["component"])}


def counted(statistics: Statistics) -> dict[str, Any]:
    """The state before the first gradient, at equal strengths."""
    won, lost_ = statistics["wins"] > 0.0, statistics["lost"]
    status = np.where(won, np.where(lost_, OK, UNBEATEN), np.where(lost_, WINLESS, ISOLATED)).astype(INDEX)
    known = {name: statistics[name] for name in ("wins", "number", "compared", "component")}
    none = {"ended": np.zeros(3), "trace": np.zeros(0)}
    start = np.zeros(len(won))
    return {**known, **none, "status": status, "ascent": ascent_from(start), "trial": start, "round": np.zeros(1)}


def moved(model: PlackettLuce, statistics: Statistics, params: dict[str, Any]) -> dict[str, Any]:
    """The next state: first a step of Hunter's, then L-BFGS; or Hunter's steps alone."""
    shape, wins, theta = float(model.shape), params["wins"], params["trial"]
    x = np.exp(theta - theta.max())
    chosen = statistics["expected"] + shape * len(x) * x / x.sum()
    uphill = wins + shape - chosen
    left = float(np.abs(uphill).max()) / max(float(params["number"][0]), 1.0)
    first = not params["round"][0]
    if model.solver == "mm":
        ascent, taken, accepted = ascent_from(theta), int(params["round"][0]), True
    elif first:
        ascent, taken, accepted = params["ascent"], -1, False
    else:
        ascent = params["ascent"].after(uphill, 0.5 * (wins + shape + chosen))
        taken, accepted = ascent.steps, ascent.steps > params["ascent"].steps
    state = {**params, "ascent": ascent, "trial": ascent.path.trial, "theta": ascent.path.x}
    if accepted:
        trace = np.append(params["trace"], statistics["value"]) if taken > 0 else params["trace"]
        state |= {"ended": np.array([taken, left, float(statistics["value"][0])]), "trace": trace}
        if left <= model.tolerance or taken >= model.steps:
            return _over(state)
    if ascent.lost or not params["number"][0]:
        return _over(state)
    if model.solver == "mm" or first:
        theta = theta + np.log((wins + shape) / chosen)
        state |= {"trial": theta, "ascent": ascent_from(theta)}
    return {**state, "round": params["round"] + 1.0}


def _over(state: dict[str, Any]) -> Params:
    kept_ = ("theta", "status", "component", "compared", "ended", "trace")
    return {**{name: state[name] for name in kept_}, "over": np.ones(1)}


def _choices(model: PlackettLuce, chunk: Chunk) -> Choices:
    return kept(chunk, ("choices", model.unlisted), model.choices)
