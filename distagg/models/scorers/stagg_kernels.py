"""The expected metric of a ranking by uncertain scores, and its gradient: Niu et al. 2013, sections 4.3.1 to 4.3.3.

Item i beats item j with probability p_ij = P(N(s_i - s_j, 2 sigma^2) > 0). The rank of j is the number of items that
beat it, where these events are taken as independent. NDCG, ERR and RBP are sums over items j of
gain_j E[discount(rank_j) prod_i keep_i], the product being over the items i that beat j. keep_i is 1, except for ERR,
where it is the probability that item i does not satisfy the reader. If the discount is a sum of exponentials, the
expectation is sum_t weight_t prod_i (1 - p_ij (1 - ratio_t keep_i)). This is exact, and so is its gradient.

Cost of a query: items x relevant items x terms. The paper's recursion costs items^2 x relevant items, and its gradient
items times that. ``normal`` is the paper's approximation by a normally distributed rank: items x relevant items.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.positional.kernels import class_terms
from distagg.models.scorers.kernels import Net, Rows, backward, forward, label_range, unit_state
from distagg.types import Bools, Floats, Labels, Offsets

LEAST = 1e-12  # variance of a rank that is as good as sure
FAR, NODES = 9, 128  # the normal distribution is tabulated up to 9 deviations from its mean, at 128 points for each
POINTS = np.arange(-FAR * NODES, FAR * NODES + 1) / NODES
DENSITY = np.exp(-0.5 * POINTS * POINTS) / math.sqrt(2.0 * math.pi)
SHARE = np.array([0.5 * math.erfc(-point / math.sqrt(2.0)) for point in POINTS])


class Metric(NamedTuple):
    """A metric that is a sum over items of gain x discount of the rank x the keeps of the items ranked before."""

    normal: bool  # by a normal rank
    sigma: float
    gain: Floats  # (I,) divided by what the metric of the query is divided by
    keep: Floats  # (I,)
    rival: Bools  # (I,) whether others can lose to the item
    discount: Floats  # (longest query,) by rank
    starts: Offsets  # (classes + 1,) the terms of the discount, for sizes up to 1, 2, 4 .. (see ``exponentials``)
    ratio: Floats  # (T,)
    weight: Floats  # (T,)


@kernel
def exact_slope(chance: Floats, keep: Floats, ratio: Floats, weight: Floats, slope: Floats) -> float:
    """E[discount x keeps] of one item, given the others' chances (size,) to beat it; fills the gradient by them."""
    size, value, product = len(chance), 0.0, weight.copy()
    for i in range(size):
        slope[i] = 0.0
        wins, on = 1.0 - chance[i], chance[i] * keep[i]
        for t in range(len(ratio)):  # inside, because these products do not wait for each other
            product[t] *= wins + on * ratio[t]
    for t in range(len(ratio)):
        value += product[t]
        for i in range(size):
            left = ratio[t] * keep[i]
            slope[i] -= product[t] * (1.0 - left) / ((1.0 - chance[i]) + chance[i] * left)
    return value


@kernel
def normal_slope(chance: Floats, keep: Floats, discount: Floats, slope: Floats) -> float:
    """As ``exact_slope``, with a normal rank, rounded to 0 .. size - 1 and independent of the keeps."""
    size, mean, square, cascade = len(chance), 0.0, 0.0, 1.0
    for i in range(size):
        mean += chance[i]
        square += chance[i] * (1.0 - chance[i])
        cascade *= (1.0 - chance[i]) + chance[i] * keep[i]
    sure = square <= LEAST
    deviation = math.sqrt(LEAST if sure else square)
    value, by_mean, by_deviation = discount[size - 1], 0.0, 0.0
    for r in range(size - 1):
        drop, edge = discount[r] - discount[r + 1], (r + 0.5 - mean) / deviation
        density = math.exp(-0.5 * edge * edge) / math.sqrt(2.0 * math.pi)
        value += drop * 0.5 * math.erfc(-edge / math.sqrt(2.0))
        by_mean -= drop * density / deviation
        by_deviation -= drop * density * edge / deviation
    by_square = 0.0 if sure else by_deviation / (2.0 * deviation)
    for i in range(size):
        stops = (1.0 - keep[i]) / ((1.0 - chance[i]) + chance[i] * keep[i])
        slope[i] = cascade * (by_mean + by_square * (1.0 - 2.0 * chance[i]) - value * stops)
    return value * cascade


@kernel
def normal_chance(score: Floats, rival: float, wide: float, chance: Floats, density: Floats) -> None:
    """Fill the probability (size,) that an item with each score (size,) beats the rival, and its slope by the score.

    Taylor's series from the nearest tabulated point: errors are below 1e-15, in a fifth of the time of erfc and exp.
    Gaps of more than ``FAR`` deviations count as ``FAR``; scores that are not numbers give NaN.
    """
    for i in range(len(score)):
        gap = (score[i] - rival) / wide
        near = gap if gap > -FAR else -float(FAR)  # also where the gap is NaN
        near = near if near < FAR else float(FAR)
        n = math.floor(near * NODES + 0.5) + FAR * NODES
        x, peak = POINTS[n], DENSITY[n]
        h, square = near - x, x * x
        ahead = -h * (x + 0.5 * h)  # exp of it is the density over the point's
        rest = 1.0 + ahead * (1.0 + ahead / 5.0 * (1.0 + ahead / 6.0)) / 4.0
        slope = peak * (1.0 + ahead * (1.0 + ahead / 2.0 * (1.0 + ahead / 3.0 * rest))) / wide
        third = (square - 1.0) / 6.0 - h * (x * (square - 3.0) / 24.0 - h * (square * (square - 6.0) + 3.0) / 120.0)
        share = SHARE[n] + peak * h * (1.0 - h * (x / 2.0 - h * third))
        chance[i] = share if gap == gap else gap
        density[i] = slope if gap == gap else gap


@kernel
def expected_metric(
    begin: int,  # the query's items
    end: int,
    metric: Metric,
    score: Floats,  # (I,)
    force: Floats,  # (I,) filled for begin..end: the gradient by each score
) -> float:
    """The expected metric of one query."""
    size, value, wide = end - begin, 0.0, math.sqrt(2.0) * metric.sigma
    chance, density, slope = np.empty(size), np.empty(size), np.empty(size)
    gain, keep = metric.gain, metric.keep[begin:end]
    ratio, weight = class_terms(size, metric.starts, metric.ratio, metric.weight)
    for i in range(begin, end):
        force[i] = 0.0
    for j in range(begin, end):
        if gain[j] == 0.0:
            continue
        normal_chance(score[begin:end], score[j], wide, chance, density)
        for i in range(size):
            if begin + i == j or not metric.rival[begin + i]:
                chance[i], density[i] = 0.0, 0.0
        if metric.normal:
            value += gain[j] * normal_slope(chance, keep, metric.discount, slope)
        else:
            value += gain[j] * exact_slope(chance, keep, ratio, weight, slope)
        for i in range(size):
            push = gain[j] * slope[i] * density[i]
            force[begin + i] += push
            force[j] -= push
    return value


@kernel
def climb_expected(
    metric: Metric,
    hidden: bool,
    queries: Offsets,  # in the order in which they are learned from
    labels: Labels,  # (I,)
    rows: Rows,
    net: Net,
    step: float,
    new: Net,  # added to; it may be the net itself: then every query makes a step
) -> int:
    """Add ``step`` times each query's gradient; returns the number of queries that had two different labels."""
    taught = 0
    state, score, force = unit_state(rows, net), np.empty(len(labels)), np.empty(len(labels))
    for q in queries:
        begin, end = rows.item_offsets[q], rows.item_offsets[q + 1]
        low, high = label_range(labels[begin:end])
        if not low < high:
            continue
        taught += 1
        forward(q, hidden, rows, net, state, score)
        expected_metric(begin, end, metric, score, force)
        backward(q, hidden, step, rows, net, force, state, new)
    return taught
