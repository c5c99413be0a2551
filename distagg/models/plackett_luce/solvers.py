"""Solvers of Plackett-Luce: L-BFGS, minorisation-maximisation, iterative Luce spectral ranking; plain gradient steps.

All climb the same concave function (log likelihood plus prior) and stop by the same criterion: no entry of its
gradient above ``tolerance`` for each observed choice. Every step costs one or a few passes over the entries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.plackett_luce.kernels import Choices, add_outside, exact_sum, expect, from_outside, suffix_sums
from distagg.optimise.convergence import Ended
from distagg.optimise.lbfgs import BY_SLOPE, aim, begin, first_search, is_lost, judge
from distagg.types import Floats, Offsets

INNER = 20  # most power steps on one Markov chain


class Fit(NamedTuple):
    """The objective to maximise, and the tolerance."""

    shape: float  # of the prior
    tolerance: float
    steps: int


@kernel
def hunter_step(wins: Floats, shape: float, expected: Floats, theta: Floats) -> None:
    """Strengths times chosen / expected (Hunter 2004), where an item was chosen at all."""
    for i in range(len(theta)):
        if wins[i] + shape > 0.0:
            theta[i] += np.log((wins[i] + shape) / expected[i])


@kernel
def fill_scale(wins: Floats, shape: float, expected: Floats, scale: Floats) -> None:
    """1 / sqrt(how often each item is chosen), the mean of what was observed and what is expected."""
    for i in range(len(scale)):
        chosen = 0.5 * (wins[i] + shape + expected[i])
        scale[i] = 1.0 / np.sqrt(chosen) if chosen > 0.0 else 0.0


@kernel
def fill_gradient(wins: Floats, shape: float, expected: Floats, gradient: Floats) -> float:
    """The gradient of the negative function; returns its largest entry."""
    largest = 0.0
    for i in range(len(gradient)):
        gradient[i] = expected[i] - wins[i] - shape
        largest = max(largest, abs(gradient[i]))
    return largest


@kernel
def record(ended: Ended, q: int, step: int, left: float, value: float) -> None:
    """Note how far the fit of query q has come."""
    ended.iterations[q], ended.gradient[q], ended.objective[q] = step, left, value
    if 0 < step <= ended.trace.shape[1]:
        ended.trace[q, step - 1] = value


@kernel
def climb_query(
    how: Fit,
    choices: Choices,
    q: int,
    wins: Floats,  # (size,)
    number: float,  # of choices
    theta: Floats,  # (size,) where to start, filled
    ended: Ended,
) -> None:
    """L-BFGS on one query.

    It begins with one of Hunter's steps: expected comes near to chosen, and so to the curvature.
    """
    size, shape = len(theta), how.shape
    x, expected, gradient = np.empty(size), np.empty(size), np.empty(size)
    expect(choices, q, shape, theta, x, expected)
    hunter_step(wins, shape, expected, theta)
    path, search = begin(theta), first_search(BY_SLOPE)
    while not is_lost(search):
        value = expect(choices, q, shape, path.trial, x, expected)
        if search.steps < 0:
            fill_scale(wins, shape, expected, path.scale)
        left = fill_gradient(wins, shape, expected, gradient)
        search = judge(path, search, value, gradient)
        if search.tried == 0:
            record(ended, q, search.steps, left / number, value)
            if search.steps >= how.steps or left <= how.tolerance * number:
                break
            search = aim(path, search)


@kernel
def climb(
    how: Fit,
    choices: Choices,
    item_offsets: Offsets,  # (Q + 1,)
    wins: Floats,  # (I,)
    number: Floats,  # (Q,) of choices
    theta: Floats,  # (I,) where to start, filled
    ended: Ended,  # filled: largest gradient entry for each choice, log likelihood
) -> None:
    """L-BFGS on sqrt(wins) theta, in which the curvature at the maximum is near to one everywhere."""
    for q in range(len(number)):
        first, last = item_offsets[q], item_offsets[q + 1]
        if number[q] != 0.0:
            climb_query(how, choices, q, wins[first:last], number[q], theta[first:last], ended)


@kernel
def flows(choices: Choices, q: int, shape: float, x: Floats, share: Floats, into: Floats, out: Floats) -> None:
    """The Markov chain of Maystre & Grossglauser (2015) at strengths x, one step from ``share``.

    Every choice sends each item that was passed over to the chosen one at the rate 1 / (sum of x of all of them).
    ``into`` is what flows to each item, ``out`` the rate at which it leaves; both (size,) are filled.
    """
    size, item, behind = len(x), choices.item, choices.behind
    outside, strong, massed = np.zeros((2, size + 1)), np.empty(size + 1), np.empty(size + 1)
    high, low = exact_sum(x)
    mass, massed_low = exact_sum(share)
    for i in range(size):
        into[i] = shape * (mass - share[i]) / high
        out[i] = shape * (size - 1) / high
    for a in range(choices.query[q], choices.query[q + 1]):
        base, long, w = choices.start[a], choices.start[a + 1] - choices.start[a], choices.weight[a]
        suffix_sums(choices, a, x, high, low, strong)
        suffix_sums(choices, a, share, mass, massed_low, massed)
        ahead, group = 0.0, 0.0
        for n in range(long):
            i, after = item[base + n], behind[base + n]
            out[i] += ahead
            if after < long or choices.opened[a]:
                rate = w / (x[i] + strong[after])
                into[i] += rate * massed[after]
                group += rate
            if n + 1 == after:
                ahead += group
                group = 0.0
        if choices.opened[a]:
            add_outside(item, base, base + long, ahead, outside)
    for i in range(size):
        out[i] += from_outside(outside, i)


@kernel
def spectral_step(choices: Choices, q: int, shape: float, x: Floats, theta: Floats) -> None:
    """Update theta from the stationary distribution of the chain at x.

    Lazy power steps approximate the distribution; they end when a step is a tenth as long as the first one.
    """
    size = len(x)
    share, into, out = np.empty(size), np.empty(size), np.empty(size)
    for i in range(size):
        share[i] = x[i]
    wanted = 0.0
    for n in range(INNER):
        flows(choices, q, shape, x, share, into, out)
        change = 0.0
        for i in range(size):
            if out[i] > 0.0:
                new = 0.5 * (share[i] + into[i] / out[i])
                change = max(change, abs(new / share[i] - 1.0))
                share[i] = new
        if n == 0:
            wanted = 0.1 * change
        elif change <= wanted:
            break
    for i in range(size):
        theta[i] += np.log(share[i] / x[i])


@kernel
def repeat(
    spectral: bool,
    how: Fit,
    choices: Choices,
    item_offsets: Offsets,  # (Q + 1,)
    wins: Floats,  # (I,)
    number: Floats,  # (Q,) of choices
    theta: Floats,  # (I,) where to start, filled
    ended: Ended,  # filled: largest gradient entry for each choice, log likelihood
) -> None:
    """Fixed-point steps: strengths times chosen / expected (Hunter 2004), or the chain's stationary distribution."""
    shape, steps = how.shape, how.steps
    for q in range(len(number)):
        if number[q] == 0.0:
            continue
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        x, expected, here = np.empty(size), np.empty(size), theta[base : base + size]
        for step in range(steps + 1):
            value = expect(choices, q, shape, here, x, expected)
            left = 0.0
            for i in range(size):
                left = max(left, abs(wins[base + i] + shape - expected[i]))
            record(ended, q, step, left / number[q], value)
            if step == steps or left <= how.tolerance * number[q]:
                break
            if spectral:
                spectral_step(choices, q, shape, x, here)
                continue
            for i in range(size):
                if expected[i] > 0.0:
                    here[i] += np.log((wins[base + i] + shape) / expected[i])


@kernel
def descend(
    rate: float,  # length of a step
    how: Fit,
    choices: Choices,
    item_offsets: Offsets,  # (Q + 1,)
    wins: Floats,  # (I,)
    number: Floats,  # (Q,) of choices
    theta: Floats,  # (I,) where to start, filled
    ended: Ended,  # filled: largest gradient entry for each choice, log likelihood
) -> None:
    """Plain gradient steps of one length: stopped early, items that were chosen from seldom stay near the middle.

    A step to where the likelihood is no finite number is undone, and ends the fit.
    """
    for q in range(len(number)):
        if number[q] == 0.0:
            continue
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        x, expected, gradient, here = np.empty(size), np.empty(size), np.empty(size), theta[base : base + size]
        before = here.copy()
        for step in range(how.steps + 1):
            value = expect(choices, q, how.shape, here, x, expected)
            largest = fill_gradient(wins[base : base + size], how.shape, expected, gradient)
            if not np.isfinite(value + gradient.sum()):
                here[:] = before
                break
            record(ended, q, step, largest / number[q], value)
            if step == how.steps or largest <= how.tolerance * number[q]:
                break
            before[:] = here
            for i in range(size):
                here[i] -= rate * gradient[i]
