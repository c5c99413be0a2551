"""Multinomial Preference Model kernels (Volkovs & Zemel 2014, sections 2.3 to 2.5; Volkovs & Zemel 2012).

The partition function over ordered pairs factors,

    sum_{k != l} exp(t (s_k - s_l)) = (sum_k exp(t s_k)) (sum_l exp(-t s_l)) - M

so the log likelihood and its gradient cost O(M) for every distinct adherence t, and need only the net wins of the data.
The objective of one query is the negative log likelihood divided by the number of observed preferences, plus a weak
Gaussian prior that keeps scores finite if the likelihood has no maximum (an item that wins everything):

    f(s) = -sum_i n_i s_i + sum_g w_g log Z(t_g, s) + prior / 2 sum_i s_i^2

with n the net wins weighted by adherence and w the share of preferences of group g. It is convex and is minimised.

With variances exp(b) every difference is divided by exp(b_k) + exp(b_l). The partition function then no longer factors:
the sum is over all pairs, and needs the margins of the data. A prior on b is needed too, because s and exp(b) can be
scaled together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.optimise.convergence import Ended
from distagg.optimise.lbfgs import BY_VALUE, aim, begin, first_search, is_lost, judge
from distagg.optimise.linear import copy_to
from distagg.types import Floats, Offsets


class Objective(NamedTuple):
    """The objective to minimise for one query."""

    spread: bool  # with variances
    data: Floats  # for each observed preference: (1, size) net wins, or with variances (size, size) margins
    adherence: Floats  # (groups,)
    share: Floats  # (groups,) of preferences
    prior: float  # on scores
    tightness: float  # on logarithms of variances


class Fit(NamedTuple):
    """How every query is fitted."""

    spread: bool  # fit variances too
    prior: float  # weight of the prior on scores, divided among the items of a query
    tightness: float  # weight of the prior on log variances, divided in the same way
    tolerance: float  # on the largest gradient entry
    steps: int
    rate: float  # of plain gradient steps, as in the papers; 0 for L-BFGS with backtracking


@kernel
def objective(f: Objective, x: Floats, gradient: Floats) -> float:
    """f at x, and its gradient."""
    if f.spread:
        return spread_likelihood(f, x, gradient)
    return likelihood(f, x, gradient)


@kernel
def likelihood(f: Objective, s: Floats, gradient: Floats) -> float:
    """f at scores s (size,), and its gradient."""
    size, net = len(s), f.data[0]
    low, high = s[0], s[0]
    value = 0.0
    for i in range(size):
        low, high = min(low, s[i]), max(high, s[i])
        value += 0.5 * f.prior * s[i] * s[i] - net[i] * s[i]
        gradient[i] = f.prior * s[i] - net[i]
    over, under = np.empty(size), np.empty(size)  # exp(t s) and exp(-t s), each divided by its largest
    for g in range(len(f.adherence)):
        t = f.adherence[g]
        if t == 0.0 or f.share[g] == 0.0:
            continue  # the distribution is uniform, whatever the scores
        up, down = 0.0, 0.0
        for i in range(size):
            over[i], under[i] = np.exp(t * (s[i] - high)), np.exp(t * (low - s[i]))
            up += over[i]
            down += under[i]
        span = np.exp(t * (low - high))
        z = up * down - size * span
        value += f.share[g] * (np.log(z) + t * (high - low))
        scale = f.share[g] * t / z
        for i in range(size):
            gradient[i] += scale * (over[i] * down - under[i] * up)
    return value


@kernel
def spread_likelihood(f: Objective, x: Floats, gradient: Floats) -> float:
    """f at scores and, behind them, logarithms of variances (2 size,), and its gradient.

    One exponential for each unordered pair and group.
    """
    size = len(f.data)
    variance = np.exp(x[size:])
    value = 0.0
    for i in range(size):
        value += 0.5 * (f.prior * x[i] * x[i] + f.tightness * x[size + i] * x[size + i])
        gradient[i], gradient[size + i] = f.prior * x[i], 0.0
    value, widest = subtract_margins(f.data, x, variance, value, gradient)
    slope = np.empty(2 * size)
    for g in range(len(f.adherence)):
        t = f.adherence[g]
        if t == 0.0 or f.share[g] == 0.0:
            continue
        z = spread_partition(t, x, variance, widest, slope)
        value += f.share[g] * (np.log(z) + t * widest)
        for i in range(2 * size):
            gradient[i] += f.share[g] * t / z * slope[i]
    for i in range(size):
        gradient[size + i] = gradient[size + i] * variance[i] + f.tightness * x[size + i]
    return value


@kernel
def subtract_margins(
    margins: Floats, x: Floats, variance: Floats, value: float, gradient: Floats
) -> tuple[float, float]:
    """Subtract margins times differences from ``value``, and their derivatives by score and variance from ``gradient``.

    Returns the new value, and the largest difference of any two items.
    """
    size, widest = len(margins), 0.0
    for i in range(size):
        for j in range(i + 1, size):
            inverse = 1.0 / (variance[i] + variance[j])
            d = (x[i] - x[j]) * inverse
            widest = max(widest, abs(d))
            pull = margins[i, j] * inverse
            value -= margins[i, j] * d
            gradient[i] -= pull
            gradient[j] += pull
            gradient[size + i] += pull * d
            gradient[size + j] += pull * d
    return value, widest


@kernel
def spread_partition(t: float, x: Floats, variance: Floats, widest: float, slope: Floats) -> float:
    """Z at adherence t, divided by exp(t widest) to avoid overflow; ``slope`` (2 size,) gets its derivatives over t."""
    size, z = len(variance), 0.0
    slope[:] = 0.0
    for i in range(size):
        for j in range(i + 1, size):
            inverse = 1.0 / (variance[i] + variance[j])
            d = (x[i] - x[j]) * inverse
            up = np.exp(t * (abs(d) - widest))
            down = np.exp(-t * (abs(d) + widest))
            z += up + down
            push = np.copysign(up - down, d) * inverse
            slope[i] += push
            slope[j] -= push
            slope[size + i] -= push * d
            slope[size + j] -= push * d
    return z


@kernel
def maximise(f: Objective, how: Fit, x: Floats, trace: Floats) -> tuple[int, float, float]:
    """Fit x in place, starting from its values; returns the steps taken, the largest gradient entry left, and f.

    ``trace`` is filled with minus f after every step, as far as it is long enough.
    """
    if how.rate > 0.0:
        return descend(f, how, x, trace)
    path, search, gradient, largest = begin(x), first_search(BY_VALUE), np.empty(len(x)), 0.0
    while not is_lost(search):
        value = objective(f, path.trial, gradient)
        search = judge(path, search, value, gradient)
        if search.tried == 0:
            if search.steps < len(trace):
                trace[search.steps] = -value
            largest = largest_entry(path.gradient)
            if largest <= how.tolerance or search.steps == how.steps:
                break
            search = aim(path, search)
    return search.steps, largest, search.value


@kernel
def descend(f: Objective, how: Fit, x: Floats, trace: Floats) -> tuple[int, float, float]:
    """The same by gradient steps of fixed length; a step to something that is not finite is undone, and ends it."""
    gradient, before = np.empty(len(x)), np.empty(len(x))
    step, value = 0, objective(f, x, gradient)
    while True:
        if step < len(trace):
            trace[step] = -value
        largest = largest_entry(gradient)
        if largest <= how.tolerance or step == how.steps:
            return step, largest, value
        before[:] = x
        for i in range(len(x)):
            x[i] -= how.rate * gradient[i]
        last, value = value, objective(f, x, gradient)
        if not np.isfinite(value + gradient.sum()):
            x[:] = before
            return step, largest, last
        step += 1


@kernel
def largest_entry(gradient: Floats) -> float:
    largest = 0.0
    for i in range(len(gradient)):
        largest = max(largest, abs(gradient[i]))
    return largest


@kernel
def fit_queries(
    how: Fit,
    levels: Floats,  # (levels,) adherence
    item_offsets: Offsets,  # (Q + 1,)
    net: Floats,  # (I,) net wins
    observed: Floats,  # (Q, levels) preferences of experts of that adherence
    score: Floats,  # (I,) where to start, filled
    ended: Ended,  # filled: with the penalised log likelihood for the objective
) -> None:
    """Scores of every query, without variances."""
    for q in range(len(item_offsets) - 1):
        base, end = item_offsets[q], item_offsets[q + 1]
        data, here = net[base:end].reshape(1, end - base), score[base:end]
        fit_query(how, levels, data, observed[q], here, here, ended, q)


@kernel
def fit_query(
    how: Fit,
    levels: Floats,  # (levels,) adherence
    data: Floats,  # (1, size) net wins, or with variances (size, size) margins
    observed: Floats,  # (levels,) preferences of experts of that adherence
    score: Floats,  # (size,) where to start, filled
    variance: Floats,  # (size,) filled with ``how.spread``, else not touched
    ended: Ended,
    q: int,  # the query's row of ``ended``
) -> None:
    """Fit one query's scores (and variances). A query without preferences keeps its scores."""
    size, total = len(score), 0.0
    for g in range(len(levels)):
        total += observed[g]
    if total == 0.0 or size < 2:
        return
    heard = observed > 0.0
    f = Objective(
        how.spread, data / total, levels[heard], observed[heard] / total, how.prior / size, how.tightness / size
    )
    x = np.zeros(2 * size if how.spread else size)
    copy_to(x, score)
    trace = ended.trace[q]
    steps, gradient, value = maximise(f, how, x, trace)
    for n in range(min(steps + 1, len(trace))):
        trace[n] *= total
    copy_to(score, x[:size])
    if how.spread:
        for i in range(size):
            variance[i] = np.exp(x[size + i])
    ended.iterations[q], ended.gradient[q], ended.objective[q] = steps, gradient, -total * value
