"""L-BFGS (Nocedal 1980), one gradient at a time: whoever computes the gradients owns the loop.

A kernel takes no function as an argument, and the gradient of a query whose lists are spread over chunks comes from
workers. So the optimiser never calls an objective. It says where it wants the next gradient (``Path.trial``), judges
what it is given (``judge``) and aims again (``aim``). Every loop has the same four lines::

    value = ...                                     # the objective at path.trial, its gradient in ``gradient``
    search = judge(path, search, value, gradient)
    if search.tried == 0:                           # a step: stop here if it is good enough
        search = aim(path, search)

The function is minimised. Steps are taken on x / scale, where the caller may set ``Path.scale`` before the first
``judge``: best are the roots of the inverse second derivatives. Two rules of the line search:

- ``BY_VALUE``: halve a step until it ends low enough (Armijo 1966), or as low to rounding with a slope that says so
  (Hager & Zhang 2005).
- ``BY_SLOPE``: look at slopes only, doubling a step until the slope turns and interpolating then. For convex functions:
  close to their minimum values are the same to rounding while slopes still tell.

Cost of a step: O(size x MEMORY).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.optimise.linear import dot
from distagg.types import Floats

MEMORY = 10  # curvature pairs that are kept
BY_VALUE, BY_SLOPE = 0, 1
HALVINGS = 40  # of a step, before nothing lower can be told apart from rounding
SEARCHES = 30  # trials of a search by slope
KEPT = 0.9  # a step is long enough when it leaves at most this share of the slope


class Path(NamedTuple):
    """The arrays of an optimisation, which ``judge`` and ``aim`` change in place."""

    x: Floats  # (size,) the best point so far
    trial: Floats  # (size,) where the next gradient is wanted
    ahead: Floats  # (size,) the direction of the step, by x / scale
    gradient: Floats  # (size,) at x, by x / scale
    scale: Floats  # (size,)
    moves: Floats  # (MEMORY, size) what the last steps changed x / scale by, the newest over the oldest
    turns: Floats  # (MEMORY, size) and the gradient


class Bracket(NamedTuple):
    """Between which lengths a search by slope looks, and the slopes there."""

    low: float
    low_slope: float
    high: float  # inf until the slope has changed its sign
    high_slope: float


class Search(NamedTuple):
    """The numbers of an optimisation: how many steps it took, and where its line search stands."""

    rule: int
    steps: int  # -1 before the first gradient
    pairs: int  # curvature pairs so far
    tried: int  # trials that were refused since the last step
    value: float  # at x
    slope: float  # at x in the direction of the step
    length: float  # of the trial
    bracket: Bracket


@kernel
def begin(x: Floats) -> Path:
    """The path before the first gradient, which is wanted at x; x (size,) itself will be moved."""
    size = len(x)
    moves, turns = np.empty((MEMORY, size)), np.empty((MEMORY, size))
    return Path(x, x.copy(), np.zeros(size), np.zeros(size), np.ones(size), moves, turns)


@kernel
def first_search(rule: int) -> Search:
    """The search before the first gradient."""
    return Search(rule, -1, 0, 0, 0.0, 0.0, 0.0, Bracket(0.0, 0.0, np.inf, 0.0))


@kernel
def judge(path: Path, search: Search, value: float, gradient: Floats) -> Search:
    """Go to the trial if it is good enough, or try another length.

    ``value`` and ``gradient`` (size,) are those at ``path.trial``; the gradient is overwritten.
    """
    x, trial, ahead, before, scale = path.x, path.trial, path.ahead, path.gradient, path.scale
    if search.rule == BY_SLOPE:
        for i in range(len(x)):
            gradient[i] *= scale[i]
    good, slope = search.steps < 0 or is_low(search, value), 0.0
    if not good:
        slope = dot(gradient, ahead)
        good = is_flat(search, value, slope)
    if not good:
        length, bracket = 0.5 * search.length, search.bracket
        if search.rule == BY_SLOPE:
            bracket, length = narrow(bracket, search.length, slope)
        for i in range(len(x)):
            trial[i] = x[i] + length * scale[i] * ahead[i]
        return Search(
            search.rule, search.steps, search.pairs, search.tried + 1, search.value, search.slope, length, bracket
        )
    moves, turns, curved = path.moves[search.pairs % MEMORY], path.turns[search.pairs % MEMORY], 0.0
    for i in range(len(x)):
        # By value nothing is scaled: the difference of the points includes their rounding.
        moves[i] = search.length * ahead[i] if search.rule == BY_SLOPE else trial[i] - x[i]
        turns[i] = gradient[i] - before[i]
        curved += moves[i] * turns[i]
        x[i], before[i] = trial[i], gradient[i]
    pairs = search.pairs + 1 if curved > 0.0 else search.pairs
    return Search(search.rule, search.steps + 1, pairs, 0, value, 0.0, 1.0, search.bracket)


@kernel
def is_low(search: Search, value: float) -> bool:
    """Whether the value at a trial is low enough for a step."""
    return search.rule == BY_VALUE and value <= search.value + 1e-4 * search.length * search.slope


@kernel
def is_flat(search: Search, value: float, slope: float) -> bool:
    """Whether the slope at a trial is flat enough for a step; by value only where values cannot be told apart."""
    if search.rule == BY_SLOPE:
        return abs(slope) <= -KEPT * search.slope
    return value <= search.value + 1e-13 * abs(search.value) and slope <= -0.8 * search.slope


@kernel
def narrow(bracket: Bracket, length: float, slope: float) -> tuple[Bracket, float]:
    """The bracket after a trial of ``length`` that found ``slope``, and the length to try next."""
    low, low_slope, high, high_slope = bracket
    if slope < 0.0:
        low, low_slope = length, slope
        length *= 2.0
    else:
        high, high_slope = length, slope
    if high < np.inf:
        length = low + min(max(low_slope / (low_slope - high_slope), 0.1), 0.9) * (high - low)
    return Bracket(low, low_slope, high, high_slope), length


@kernel
def aim(path: Path, search: Search) -> Search:
    """Choose the next direction, after a step, and try its whole length."""
    x, trial, ahead, gradient, scale, moves, turns = path
    direction(gradient, moves, turns, search.pairs, ahead)
    slope = 0.0
    for i in range(len(x)):
        trial[i] = x[i] + scale[i] * ahead[i]
        slope += gradient[i] * ahead[i]
    bracket = Bracket(0.0, slope, np.inf, 0.0)
    return Search(search.rule, search.steps, search.pairs, 0, search.value, slope, 1.0, bracket)


@kernel
def direction(gradient: Floats, moves: Floats, turns: Floats, pairs: int, out: Floats) -> None:
    """Minus the inverse Hessian, as the last curvature pairs tell it, times the gradient, into ``out``."""
    size, held = len(out), min(pairs, MEMORY)
    weight = np.empty(MEMORY)
    for i in range(size):
        out[i] = -gradient[i]
    for back in range(held):
        row = (pairs - 1 - back) % MEMORY
        weight[row] = dot(moves[row], out) / dot(moves[row], turns[row])
        for i in range(size):
            out[i] -= weight[row] * turns[row, i]
    if held > 0:
        row = (pairs - 1) % MEMORY
        scale = dot(moves[row], turns[row]) / dot(turns[row], turns[row])
        for i in range(size):
            out[i] *= scale
    for back in range(held - 1, -1, -1):
        row = (pairs - 1 - back) % MEMORY
        undone = weight[row] - dot(turns[row], out) / dot(moves[row], turns[row])
        for i in range(size):
            out[i] += moves[row, i] * undone


@kernel
def is_lost(search: Search) -> bool:
    """Whether the line search failed to find a better point, so that the optimisation must end."""
    return search.tried >= (SEARCHES if search.rule == BY_SLOPE else HALVINGS)


@dataclass(frozen=True, slots=True, eq=False)
class Ascent:
    """The maximum of a concave function whose gradients come one round at a time, by slopes; nothing is overwritten."""

    path: Path
    search: Search

    @classmethod
    def begin(cls, x: Floats) -> Ascent:
        """Before the first gradient, which is wanted at x."""
        return cls(begin(x.copy()), first_search(BY_SLOPE))

    @property
    def x(self) -> Floats:
        """The best point so far."""
        return self.path.x

    @property
    def trial(self) -> Floats:
        """Where the next gradient is wanted."""
        return self.path.trial

    @property
    def steps(self) -> int:
        return self.search.steps

    @property
    def lost(self) -> bool:
        """Whether the line search failed to find a better point."""
        return bool(is_lost(self.search))

    def after(self, uphill: Floats, curvature: Floats) -> Ascent:
        """The next state, from the gradient at ``trial`` and (used once) minus the diagonal of the Hessian there."""
        path = Path(*(array.copy() for array in self.path))
        if self.search.steps < 0:
            some = curvature > 0.0
            path.scale[:] = np.where(some, 1.0 / np.sqrt(np.where(some, curvature, 1.0)), 0.0)
        search = judge(path, self.search, 0.0, -uphill)
        return Ascent(path, aim(path, search) if search.tried == 0 else search)
