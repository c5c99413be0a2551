"""Solvers of Plackett-Luce: L-BFGS, minorisation-maximisation and iterative Luce spectral ranking.

All climb the same concave function (log likelihood plus prior) and stop by the same criterion: no entry of its
gradient above ``tolerance`` for each observed choice. Every step costs one or a few passes over the entries.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.mpm import MEMORY, direction
from distagg.kernels.plackett_luce import Choices, expect, suffix_sums, take
from distagg.types import Floats, Offsets

SEARCHES = 30  # trials of a line search
INNER = 20  # most power steps on one Markov chain
KEPT = 0.9  # a step is long enough when it leaves at most this share of the slope


@kernel
def climb(
    choices: Choices,
    item_offsets: Offsets,
    wins: Floats,  # (I,)
    number: Floats,  # (Q,) of choices
    shape: float,
    tolerance: float,
    steps: int,
    theta: Floats,  # (I,) where to start, filled
    ended: Floats,  # (Q, 3) filled: steps, largest gradient entry for each choice, log likelihood
    trace: Floats,  # (Q, T) filled: log likelihood after each step
) -> None:
    """L-BFGS on sqrt(wins) theta, in which the curvature at the maximum is near to one everywhere.

    The line search looks at slopes only: the function is concave, and close to the maximum its values are all the
    same to rounding while slopes still tell.
    """
    for q in range(len(number)):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        if number[q] == 0.0:
            continue
        x, expected, trial, scale = np.empty(size), np.empty(size), np.empty(size), np.ones(size)
        ahead, gradient, turned = np.zeros(size), np.zeros(size), np.zeros(size)
        moves, turns = np.empty((MEMORY, size)), np.empty((MEMORY, size))
        held, kept, step = min(steps, 0), min(steps, 0), -2  # min: a plain 0 would compile ``direction`` twice
        slope, low, low_slope, high, high_slope, length, tried = 0.0, 0.0, 0.0, np.inf, 0.0, 0.0, 0
        while tried < SEARCHES:
            for i in range(size):
                trial[i] = theta[base + i] + length * scale[i] * ahead[i]
            value = expect(choices, q, shape, trial, x, expected)
            if step == -2:  # begin with one of Hunter's steps: expected comes near to chosen, and so to the curvature
                step = -1
                for i in range(size):
                    if wins[base + i] + shape > 0.0:
                        theta[base + i] += np.log((wins[base + i] + shape) / expected[i])
                continue
            found, left = 0.0, 0.0
            for i in range(size):
                if step < 0:
                    chosen = 0.5 * (wins[base + i] + shape + expected[i])
                    scale[i] = 1.0 / np.sqrt(chosen) if chosen > 0.0 else 0.0
                turned[i] = (expected[i] - wins[base + i] - shape) * scale[i]
                found += turned[i] * ahead[i]
                left = max(left, abs(expected[i] - wins[base + i] - shape))
            if not abs(found) <= -KEPT * slope:
                tried += 1
                if found < 0.0:
                    low, low_slope = length, found
                    length *= 2.0
                else:
                    high, high_slope = length, found
                if high < np.inf:
                    length = low + min(max(low_slope / (low_slope - high_slope), 0.1), 0.9) * (high - low)
                continue
            bend, row = 0.0, kept % MEMORY
            for i in range(size):
                moves[row, i] = length * ahead[i]
                turns[row, i] = turned[i] - gradient[i]
                bend += moves[row, i] * turns[row, i]
                theta[base + i], gradient[i] = trial[i], turned[i]
            if bend > 0.0:
                kept += 1
                held = min(held + 1, MEMORY)
            step += 1
            ended[q, 0], ended[q, 1], ended[q, 2] = step, left / number[q], value
            if 0 < step <= trace.shape[1]:
                trace[q, step - 1] = value
            if step >= steps or left <= tolerance * number[q]:
                break
            direction(gradient, moves, turns, held, kept, ahead)
            slope = 0.0
            for i in range(size):
                slope += gradient[i] * ahead[i]
            low, low_slope, high, length, tried = 0.0, slope, np.inf, 1.0, 0


@kernel
def flows(choices: Choices, q: int, shape: float, x: Floats, share: Floats, into: Floats, out: Floats) -> None:
    """The Markov chain of Maystre & Grossglauser (2015) at strengths x, one step from ``share``.

    Every choice sends each item that was passed over to the chosen one at the rate 1 / (sum of x of all of them).
    ``into`` is what flows to each item, ``out`` the rate at which it leaves; both (size,) are filled.
    """
    size, item, behind = len(x), choices.item, choices.behind
    listed, strong, massed = np.zeros((2, size)), np.empty(size + 1), np.empty(size + 1)
    high, low, mass, massed_low = 0.0, 0.0, 0.0, 0.0
    for i in range(size):
        high, low = take(high, low, -x[i])
        mass, massed_low = take(mass, massed_low, -share[i])
    for i in range(size):
        into[i] = shape * (mass - share[i]) / high
        out[i] = shape * (size - 1) / high
    shared, lost = 0.0, 0.0
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
            shared, lost = take(shared, lost, -ahead)
            for e in range(base, base + long):
                i = item[e]
                listed[0, i], listed[1, i] = take(listed[0, i], listed[1, i], -ahead)
    for i in range(size):
        out[i] += max((shared - listed[0, i]) + (lost - listed[1, i]), 0.0)


@kernel
def spectral_step(choices: Choices, q: int, shape: float, x: Floats, theta: Floats) -> None:
    """theta from the stationary distribution of the chain at x: lazy power steps until a tenth of the way is left."""
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
    choices: Choices,
    item_offsets: Offsets,
    wins: Floats,  # (I,)
    number: Floats,  # (Q,) of choices
    shape: float,
    tolerance: float,
    steps: int,
    theta: Floats,  # (I,) where to start, filled
    ended: Floats,  # (Q, 3) filled: steps, largest gradient entry for each choice, log likelihood
    trace: Floats,  # (Q, T) filled: log likelihood after each step
) -> None:
    """Fixed-point steps: strengths times chosen / expected (Hunter 2004), or the chain's stationary distribution."""
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
            ended[q, 0], ended[q, 1], ended[q, 2] = step, left / number[q], value
            if 0 < step <= trace.shape[1]:
                trace[q, step - 1] = value
            if step == steps or left <= tolerance * number[q]:
                break
            if spectral:
                spectral_step(choices, q, shape, x, here)
                continue
            for i in range(size):
                if expected[i] > 0.0:
                    here[i] += np.log((wins[base + i] + shape) / expected[i])
