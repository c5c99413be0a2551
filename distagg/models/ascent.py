"""L-BFGS a round at a time, for gradients that come by map and reduce: ``kernels.luce_fit.climb``, unrolled.

A state is a dictionary of arrays: ``trial`` is where the next gradient is wanted, ``theta`` the best point so far. Each
call of ``ascend`` costs O(items); steps are taken on theta / scale, in which the curvature is near to one. The line
search looks at slopes only: the function is concave, and close to its maximum values are the same to rounding.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.luce_fit import KEPT, SEARCHES
from distagg.kernels.mpm import MEMORY, direction
from distagg.models.base import Params
from distagg.types import Floats

_NUMBERS = ("held", "kept", "step", "slope", "low", "low_slope", "high", "high_slope", "length", "tried")


def begin(theta: Floats) -> Params:
    """The state before the first gradient, which is wanted at theta."""
    size = len(theta)
    numbers = dict.fromkeys(_NUMBERS, 0.0) | {"step": -1.0, "high": np.inf}
    return {
        "theta": theta, "trial": theta, "ahead": np.zeros(size), "gradient": np.zeros(size), "scale": np.ones(size),
        "moves": np.zeros((MEMORY, size)), "turns": np.zeros((MEMORY, size)),
        "search": np.array(list(numbers.values())),
    }  # fmt: skip


def steps_taken(state: Params) -> int:
    return int(state["search"][_NUMBERS.index("step")])


def lost(state: Params) -> bool:
    """Whether the line search found no better point: nothing more can be gained."""
    return bool(state["search"][_NUMBERS.index("tried")] >= SEARCHES)


def ascend(state: Params, uphill: Floats, curvature: Floats) -> Params:
    """The next state, from the gradient at ``trial`` and (used once) the diagonal of minus the Hessian there."""
    n = dict(zip(_NUMBERS, state["search"].tolist(), strict=True))
    theta, ahead, scale = state["theta"], state["ahead"], state["scale"]
    if n["step"] < 0:
        scale = np.where(curvature > 0.0, 1.0 / np.sqrt(np.where(curvature > 0.0, curvature, 1.0)), 0.0)
    turned = -uphill * scale
    found = float((turned * ahead).sum())
    if not abs(found) <= -KEPT * n["slope"]:
        n["tried"] += 1
        if found < 0.0:
            n["low"], n["low_slope"] = n["length"], found
            n["length"] *= 2.0
        else:
            n["high"], n["high_slope"] = n["length"], found
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
        **state, "theta": theta, "trial": theta + scale * ahead, "ahead": ahead, "gradient": turned, "scale": scale,
        "moves": moves, "turns": turns, "search": np.array(list(n.values())),
    }  # fmt: skip
