"""Plackett-Luce on one query whose lists are spread over chunks: a round to count, then a round for each gradient.

Expected choices add up over lists, so a round is one pass over the entries, with statistics of the size of the items.
L-BFGS takes its gradients by map and reduce: ``solvers.climb``, one round at a time. Its state is a dictionary of
arrays: ``trial`` is where the next gradient is wanted, ``theta`` the best point so far. Each call of ``ascend`` costs
O(items); steps are taken on theta / scale, in which the curvature is near to one. The line search looks at slopes only:
the function is concave, and close to its maximum values are the same to rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Params, Statistics
from distagg.models.chunk_cache import kept
from distagg.models.mpm.kernels import MEMORY, direction
from distagg.models.outcome import ISOLATED, OK, UNBEATEN, WINLESS
from distagg.models.plackett_luce.errors import compared
from distagg.models.plackett_luce.kernels import Choices, count_choices, examine, expect
from distagg.models.plackett_luce.solvers import KEPT, SEARCHES
from distagg.types import INDEX, Floats, Indices

if TYPE_CHECKING:
    from distagg.models.plackett_luce.model import PlackettLuce


_NUMBERS = ("held", "kept", "step", "slope", "low", "low_slope", "high", "high_slope", "length", "tried")


def begin(theta: Floats) -> Params:
    """The state before the first gradient, which is wanted at theta."""
    size = len(theta)
    numbers = dict.fromkeys(_NUMBERS, 0.0) | {"step": -1.0, "high": np.inf}
    return {
        "theta": theta,
        "trial": theta,
        "ahead": np.zeros(size),
        "gradient": np.zeros(size),
        "scale": np.ones(size),
        "moves": np.zeros((MEMORY, size)),
        "turns": np.zeros((MEMORY, size)),
        "search": np.array(list(numbers.values())),
    }


def steps_taken(state: Params) -> int:
    return int(state["search"][_NUMBERS.index("step")])


def lost(state: Params) -> bool:
    """Whether the line search failed to find a better point, so that the fit must end."""
    return bool(state["search"][_NUMBERS.index("tried")] >= SEARCHES)


def ascend(state: Params, uphill: Floats, curvature: Floats) -> Params:
    """The next state, from the gradient at ``trial`` and (used once) the diagonal of minus the Hessian there."""
    n = dict(zip(_NUMBERS, state["search"].tolist(), strict=True))
    theta, ahead, scale = state["theta"], state["ahead"], state["scale"]
    if n["step"] < 0:
        scale = np.where(curvature > 0.0, 1.0 / np.sqrt(np.where(curvature > 0.0, curvature, 1.0)), 0.0)
    turned = -uphill * scale
    slope_ahead = float((turned * ahead).sum())
    if not abs(slope_ahead) <= -KEPT * n["slope"]:
        n["tried"] += 1
        if slope_ahead < 0.0:
            n["low"], n["low_slope"] = n["length"], slope_ahead
            n["length"] *= 2.0
        else:
            n["high"], n["high_slope"] = n["length"], slope_ahead
        if n["high"] < np.inf:
            share = min(max(n["low_slope"] / (n["low_slope"] - n["high_slope"]), 0.1), 0.9)
            n["length"] = n["low"] + share * (n["high"] - n["low"])
        return {**state, "trial": theta + n["length"] * scale * ahead, "search": np.array(list(n.values()))}
    moves, turns, row = state["moves"].copy(), state["turns"].copy(), int(n["kept"]) % MEMORY
    moves[row], turns[row] = n["length"] * ahead, turned - state["gradient"]
    if float((moves[row] * turns[row]).sum()) > 0.0:
        n["kept"], n["held"] = n["kept"] + 1, min(n["held"] + 1, MEMORY)
    theta, ahead = state["trial"], np.empty(len(theta))
    direction(turned, moves, turns, int(n["held"]), int(n["kept"]), ahead)
    slope = float((turned * ahead).sum())
    n |= {"slope": slope, "low": 0.0, "low_slope": slope, "high": np.inf, "length": 1.0, "tried": 0.0}
    n["step"] += 1
    return {
        **state,
        "theta": theta,
        "trial": theta + scale * ahead,
        "ahead": ahead,
        "gradient": turned,
        "scale": scale,
        "moves": moves,
        "turns": turns,
        "search": np.array(list(n.values())),
    }


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
    return {**summed, "lost": a["lost"] | b["lost"], "component": join(a["component"], b["component"])}


def join(a: Indices, b: Indices) -> Indices:
    """Connected components of two graphs laid over one another, numbered in the order of their first items."""
    import scipy.sparse
    import scipy.sparse.csgraph

    n = int(a.max(initial=-1)) + 1
    size = n + int(b.max(initial=-1)) + 1
    edges = scipy.sparse.coo_array((np.ones(len(a), dtype=np.int8), (a, n + b)), shape=(size, size))
    label = scipy.sparse.csgraph.connected_components(edges, directed=False)[1][a]
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(INDEX)


def counted(statistics: Statistics) -> Params:
    """The state before the first gradient, at equal strengths."""
    won, lost_ = statistics["wins"] > 0.0, statistics["lost"]
    status = np.where(won, np.where(lost_, OK, UNBEATEN), np.where(lost_, WINLESS, ISOLATED)).astype(INDEX)
    known = {name: statistics[name] for name in ("wins", "number", "compared", "component")}
    none = {"ended": np.zeros(3), "trace": np.zeros(0)}
    return {**known, **none, "status": status, **begin(np.zeros(len(won))), "round": np.zeros(1)}


def moved(model: PlackettLuce, statistics: Statistics, params: Params) -> Params:
    """The next state: first a step of Hunter's, then L-BFGS; or Hunter's steps alone."""
    shape, wins, theta = float(model.shape), params["wins"], params["trial"]
    x = np.exp(theta - theta.max())
    chosen = statistics["expected"] + shape * len(x) * x / x.sum()
    uphill = wins + shape - chosen
    left = float(np.abs(uphill).max()) / max(float(params["number"][0]), 1.0)
    first = not params["round"][0]
    if model.solver == "mm":
        before = {**params, "theta": theta}
        taken = int(params["round"][0])
    elif first:
        before, taken = params, -1
    else:
        before = ascend(params, uphill, 0.5 * (wins + shape + chosen))
        taken = steps_taken(before)
    accepted = model.solver == "mm" or taken > steps_taken(params)
    if accepted and taken >= 0:
        trace = np.append(params["trace"], statistics["value"]) if taken > 0 else params["trace"]
        before = {**before, "ended": np.array([taken, left, float(statistics["value"][0])]), "trace": trace}
        if left <= model.tolerance or taken >= model.steps:
            return _over(before)
    if lost(before) or not params["number"][0]:
        return _over(before)
    if model.solver == "mm" or first:
        theta = theta + np.log((wins + shape) / chosen)
        before = {**before, "trial": theta, "theta": theta}
    return {**before, "round": params["round"] + 1.0}


def _over(state: Params) -> Params:
    kept_ = ("theta", "status", "component", "compared", "ended", "trace")
    return {**{name: state[name] for name in kept_}, "over": np.ones(1)}


def _choices(model: PlackettLuce, chunk: Chunk) -> Choices:
    return kept(chunk, ("choices", model.unlisted), model.choices)
