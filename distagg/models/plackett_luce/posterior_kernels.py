"""The posterior of Plackett-Luce strengths under a gamma prior: power EP (Guiver & Snelson 2009) and a Gibbs sampler.

Every choice of winner i among a set is a factor f = x_i / (sum of x in the set). Power EP with power -1 approximates f
by a product of gammas, one for each item of the set (shape less one, and rate, are its *message*). The power makes
the moments those of 1 / f = 1 + (sum of the others) / x_i under independent gammas: a mixture of two gammas for each
item, projected on one gamma by the mean and the mean of the logarithm. A sweep costs O(sum of sizes of the sets).
Means of log strengths come out right to a few hundredths. Deviations err on the wide side, as strengths share a scale
that independent gammas do not know: by a third with two items, by a tenth with five, by a few percent with fifteen.

The sampler (Caron & Doucet 2012) adds an exponential arrival time for each choice; given those, strengths are
independent gammas. A draw costs O(entries).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.plackett_luce.kernels import Choices, add_outside, exact_sum, from_outside, suffix_sums
from distagg.types import Floats, Indices, Offsets

LEAST_SHAPE = 1.0 + 1e-3  # of a winner, without which 1 / x has no mean


@kernel
def digamma(x: float) -> float:
    """The derivative of log gamma, for x > 0."""
    total = 0.0
    while x < 8.0:
        total -= 1.0 / x
        x += 1.0
    r = 1.0 / (x * x)
    series = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132)))))
    return total + np.log(x) - 0.5 / x - series


@kernel
def trigamma(x: float) -> float:
    """The second derivative of log gamma, for x > 0."""
    total = 0.0
    while x < 8.0:
        total += 1.0 / (x * x)
        x += 1.0
    r = 1.0 / (x * x)
    series = r * (1 / 6 - r * (1 / 30 - r * (1 / 42 - r * (1 / 30 - r * (5 / 66)))))
    return total + 1.0 / x + 0.5 * r + series / x


@kernel
def shape_of(gap: float, k: float) -> float:
    """The shape k of the gamma with log(mean) - mean(log) = ``gap``, by Newton's method on 1 / k from a first guess."""
    for _ in range(50):
        step = (np.log(k) - digamma(k) - gap) / (k * k * (1.0 / k - trigamma(k)))
        inverse = max(1.0 / k + step, 0.1 / k)
        k = 1.0 / inverse
        if abs(step) < 1e-12 * inverse:
            break
    return k


class Contests(NamedTuple):
    """Every choice of one query with all its items."""

    start: Offsets  # (choices + 1,) over the items of each choice
    item: Indices  # the winner first
    weight: Floats  # (choices,)


class Gammas(NamedTuple):
    """The approximation: a gamma for each item, and the message of each choice to each of its items."""

    shape: Floats  # (size,)
    rate: Floats  # (size,)
    message: Floats  # (2, len(item)) of each choice to each of its items: shape less one, and rate


@kernel
def first_messages(contests: Contests, prior: float, gammas: Gammas) -> None:
    """First messages: every choice adds 1 to its winner's shape, and divides a rate of 1 among its items."""
    start, item, weight = contests
    shape, rate, message = gammas
    for i in range(len(shape)):
        shape[i] = rate[i] = prior
    for c in range(len(weight)):
        for n in range(start[c], start[c + 1]):
            message[0, n] = 1.0 if n == start[c] else 0.0
            message[1, n] = 1.0 / (start[c + 1] - start[c])
            shape[item[n]] += weight[c] * message[0, n]
            rate[item[n]] += weight[c] * message[1, n]


@kernel
def update_choice(contests: Contests, c: int, gammas: Gammas, moved: float) -> float:
    """Update the messages of one choice; returns the larger of ``moved`` and the largest relative change of a shape.

    If the gammas without this choice are improper, its messages stay as they are, and the result is inf.
    """
    item, weight, first, last = contests.item, contests.weight[c], contests.start[c], contests.start[c + 1]
    shape, rate, message = gammas
    a, b = shape[item[first]] + message[0, first], rate[item[first]] + message[1, first]
    others, sound = 0.0, a > LEAST_SHAPE and b > 0.0
    for n in range(first + 1, last):
        loser_a, loser_b = shape[item[n]] + message[0, n], rate[item[n]] + message[1, n]
        sound = sound and loser_a > 0.0 and loser_b > 0.0
        others += loser_a / loser_b
    if not sound:
        return np.inf
    inverse = b / (a - 1.0)
    whole = 1.0 + inverse * others
    for n in range(first, last):
        i = item[n]
        a, b = shape[i] + message[0, n], rate[i] + message[1, n]
        if n == first:
            part = inverse * others / whole
            mean, log_mean = (a - part) / b, digamma(a) - part / (a - 1.0)
        else:
            part = inverse * a / b / whole
            mean, log_mean = (a + part) / b, digamma(a) + part / a
        k = shape_of(np.log(mean * b) - log_mean, a)
        more_shape, more_rate = a - k - message[0, n], b - k / mean - message[1, n]
        message[0, n] += more_shape
        message[1, n] += more_rate
        shape[i] += weight * more_shape
        rate[i] += weight * more_rate
        moved = max(moved, abs(more_shape) * weight / shape[i])
    return moved


@kernel
def rescale(prior: float, gammas: Gammas) -> None:
    """Scale the mean strength to 1: only the prior determines the scale, which would converge slowly."""
    shape, rate, message = gammas
    size, total = len(shape), 0.0
    for i in range(size):
        total += shape[i] / rate[i]
    for i in range(size):
        rate[i] = prior + (rate[i] - prior) * total / size
    for n in range(message.shape[1]):
        message[1, n] *= total / size


@kernel
def propagate(
    contests: Contests,
    prior: float,  # shape of the prior, its rate the same: mean 1
    tolerance: float,
    steps: int,
    shape: Floats,  # (size,) filled
    rate: Floats,  # (size,) filled
) -> tuple[int, float]:
    """Power EP until no shape changes by a larger share than ``tolerance``; returns sweeps and the last change."""
    gammas = Gammas(shape, rate, np.empty((2, len(contests.item))))
    first_messages(contests, prior, gammas)
    moved = np.inf
    for sweep in range(steps):
        moved = 0.0
        for c in range(len(contests.weight)):
            moved = update_choice(contests, c, gammas, moved)
        rescale(prior, gammas)
        if moved <= tolerance:
            return sweep + 1, moved
    return steps, moved


@kernel
def fill_rates(choices: Choices, times: Floats, prior: float, x: Floats, rate: Floats) -> None:
    """The rate of every item's gamma, given arrival times; ``times`` (choices,) is scaled to the strengths x first."""
    size, item, behind = len(x), choices.item, choices.behind
    suffix, outside, at = np.empty(size + 1), np.zeros((2, size + 1)), 0
    high, low = exact_sum(x)
    rate[:] = prior
    for a in range(len(choices.weight)):
        base, long = choices.start[a], choices.start[a + 1] - choices.start[a]
        suffix_sums(choices, a, x, high, low, suffix)
        ahead, group = 0.0, 0.0
        for n in range(long):
            i, after = item[base + n], behind[base + n]
            wait = 0.0
            if after < long or choices.opened[a]:
                wait = times[at] / (x[i] + suffix[after])
                at += 1
            rate[i] += ahead + wait
            group += wait
            if n + 1 == after:
                ahead += group
                group = 0.0
        if choices.opened[a]:
            add_outside(item, base, base + long, ahead, outside)
    for i in range(size):
        rate[i] += from_outside(outside, i)


@kernel
def sample(
    choices: Choices,  # of one query
    times: Floats,  # (draws, choices) standard gammas of the weights, in the order of entries that are choices
    gammas: Floats,  # (draws, size) standard gammas of prior and wins
    prior: float,
    share: Floats,  # (size,) of each item in the centre of scores
    x: Floats,  # (size,) where the chain stands, filled
    moments: Floats,  # (2, size) added to: sums of centred log strengths and of their squares
) -> None:
    """Gibbs draws of the strengths."""
    size, rate = len(x), np.empty(len(x))
    for t in range(len(gammas)):
        fill_rates(choices, times[t], prior, x, rate)
        mean, total = 0.0, 0.0
        for i in range(size):
            x[i] = gammas[t, i] / rate[i]
            total += x[i]
            mean += share[i] * np.log(x[i])
        for i in range(size):
            centred = np.log(x[i]) - mean
            moments[0, i] += centred
            moments[1, i] += centred * centred
            x[i] *= size / total  # the scale mixes slowly and has no meaning
