"""Scores from pair counts by Newton's method: every step solves with the Laplacian of the comparison graph.

The objective is the negative log likelihood of a link (see ``links``) plus, with a prior,
prior / 2 * sum (s - centre)^2 (GAUSSIAN; the centre is 0 except in draws of the prior) or
sum (rate exp(s) - (shape - 1) s) (GAMMA: the mode of strengths exp(s)). The objective is convex, so a step is accepted
as soon as the slope at its end is not uphill. This needs neither values nor logarithms. Each step is solved by
conjugate gradients, preconditioned by the diagonal, O(edges) an iteration; early steps are solved less accurately.

With ``seek`` the weight of a GAUSSIAN prior is estimated from the data: it maximises the marginal likelihood in
Laplace's approximation, with the diagonal d of the second derivatives (MacKay 1992). There weight = known / sum s^2,
where known = sum d / (d + weight) is the number of scores that the data determine. Both sums count one more item, known
exactly, with score 1. This keeps the weight between 1 / (1 + sum s^2) and 1 + items if the data say little. The pairs
of a list are not independent: all counts together are worth only the share ``evidence`` of them. The likelihood to that
power has the same maximum with a prior of that share of the weight, so weight = known / sum s^2 / evidence.

``list_slopes`` takes Bradley-Terry's slopes straight from lists, without writing their pairs down: O(length^2) for each
list and call, memory O(items).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.pairwise.graph import Graph
from distagg.models.pairwise.links import RAO_KUPPER, Slopes, slopes
from distagg.optimise.linear import copy_to, dot
from distagg.types import Floats, Indices, Offsets

NONE, GAUSSIAN, GAMMA = 0, 1, 2
UPHILL = 0.1  # a step may end with an uphill slope of at most this share of its first slope
TRIES = 60  # the largest number of times that a step is shortened
SETTLED, CHANGES = 0.01, 100  # the relative change at which the prior's weight has settled; the most changes


@kernel
def solve_step(graph: Graph, q: int, slopes: Slopes, closeness: float, x: Floats) -> None:
    """Solve (second derivatives) x = -gradient for x (size + 1,), to a relative residual of ``closeness``.

    The method is conjugate gradients, preconditioned by the diagonal.
    """
    length, diagonal = len(x), slopes.diagonal
    rest, ahead, out, scale = np.empty(length), np.empty(length), np.empty(length), np.empty(length)
    for i in range(length):
        scale[i] = 1.0 / diagonal[i] if diagonal[i] > 0.0 else 0.0
        x[i], rest[i] = 0.0, -slopes.gradient[i]
        ahead[i] = scale[i] * rest[i]
    now = dot(rest, ahead)
    goal = now * closeness * closeness
    for _ in range(2 * length + 10):
        if now <= goal or now == 0.0:
            break
        multiply(graph, q, slopes, ahead, out)
        bend = dot(ahead, out)
        if bend <= 0.0:
            break  # up to rounding, the residual is in the null space
        alpha, before = now / bend, now
        now = 0.0
        for i in range(length):
            x[i] += alpha * ahead[i]
            rest[i] -= alpha * out[i]
            now += rest[i] * rest[i] * scale[i]
        for i in range(length):
            ahead[i] = scale[i] * rest[i] + now / before * ahead[i]


@kernel
def multiply(graph: Graph, q: int, slopes: Slopes, x: Floats, out: Floats) -> None:
    """Multiply the matrix of second derivatives by x, and write the product to ``out``."""
    other, (_, diagonal, cross, curve) = graph.other, slopes
    offsets = graph.offsets[graph.item_offsets[q] : graph.item_offsets[q + 1] + 1]
    size = len(x) - 1
    for i in range(size + 1):
        out[i] = diagonal[i] * x[i] + cross[i] * x[size]
    for i in range(size):
        mine, taken = x[i], 0.0
        out[size] += cross[i] * mine
        for e in range(offsets[i], offsets[i + 1]):
            j = other[e]
            taken += curve[e] * x[j]
            out[j] -= curve[e] * mine
        out[i] -= taken


class Fit(NamedTuple):
    """The function to minimise, and when to stop."""

    link: int
    prior: int
    shape: float  # of a gamma prior
    seek: bool  # whether to change the weights of a gaussian prior until they settle
    tolerance: float
    steps: int


@kernel
def fit_queries(
    how: Fit,
    graph: Graph,
    evidence: Floats,  # (Q,) independent comparisons for each one that is counted; for ``how.seek``
    weight: Floats,  # (Q,) of the prior, or a gamma prior's rate; filled with ``how.seek``
    centre: Floats,  # (I,) of a gaussian prior
    score: Floats,  # (I,) where to start, filled
    eta: Floats,  # (Q,) where to start, filled; queries of infinite eta are passed over
    iterations: Offsets,  # (Q,) steps taken before, and filled: now
    left: Floats,  # (Q,) filled: the longest Newton step that a single score would still take
) -> None:
    """Fit the scores of every query to its counts."""
    curve = np.empty(len(graph.other))
    for q in range(len(graph.ties)):
        if eta[q] < np.inf and graph.item_offsets[q + 1] > graph.item_offsets[q]:
            fit_query(how, graph, q, curve, evidence[q], weight, centre, score, eta, iterations, left)


@kernel
def fit_query(
    how: Fit,
    graph: Graph,
    q: int,
    curve: Floats,
    evidence: float,
    weight: Floats,
    centre: Floats,
    score: Floats,
    eta: Floats,
    iterations: Offsets,
    left: Floats,
) -> None:
    """Newton's method for one query: steps are shortened until they do not end uphill."""
    base, end = graph.item_offsets[q], graph.item_offsets[q + 1]
    size = end - base
    s = np.empty(size + 1)  # the scores, then the tie parameter
    copy_to(s, score[base:end])
    s[size] = eta[q]
    start, x = s.copy(), np.zeros(size + 1)
    gradient, diagonal = np.empty(size + 1), np.empty(size + 1)
    derivatives = Slopes(gradient, diagonal, np.empty(size + 1), curve)
    taken, tries, first, part = iterations[q], 0, 0.0, 1.0
    changes = CHANGES if how.seek else 0
    while True:
        if tries > 0:
            for i in range(size + 1):
                s[i] = start[i] + part * x[i]
        good, along = how.link != RAO_KUPPER or graph.ties[q] == 0.0 or s[size] > 0.0, -2.0 * first
        if good:
            slopes_at(how, graph, q, weight[q], centre[base:end], s, derivatives)
            along = slope_along(gradient, x)
            good = along <= -UPHILL * first
        tries += 1
        if not good and tries < TRIES:
            part *= max(0.1, min(0.5, first / (first - along)))
            continue
        left[q] = longest_step(gradient, diagonal)
        if taken == how.steps or not good or (left[q] <= how.tolerance and changes == 0):
            break
        if left[q] <= how.tolerance:
            before, weight[q] = weight[q], better_weight(diagonal, weight[q], s) / evidence
            if abs(weight[q] - before) <= SETTLED * before:
                break
            changes, tries, first = changes - 1, 0, 0.0
            x[:] = 0.0
            continue
        solve_step(graph, q, derivatives, min(0.02, left[q]), x)
        copy_to(start, s)
        first = dot(gradient, x)
        taken, part, tries = taken + 1, 1.0, 1
    iterations[q], eta[q] = taken, s[size]
    copy_to(score[base:end], s[:size])


@kernel
def slopes_at(how: Fit, graph: Graph, q: int, weight: float, centre: Floats, s: Floats, out: Slopes) -> None:
    """Write the first and second derivatives of the objective at ``s``, scores and tie parameter, to ``out``."""
    slopes(how.link, graph, q, s, out)
    for i in range(len(s) - 1):
        if how.prior == GAUSSIAN:
            out.gradient[i] += weight * (s[i] - centre[i])
            out.diagonal[i] += weight
        elif how.prior == GAMMA:
            mean = weight * math.exp(s[i])
            out.gradient[i] += mean - (how.shape - 1.0)
            out.diagonal[i] += mean


@kernel
def slope_along(gradient: Floats, x: Floats) -> float:
    """The slope in the direction of a step; the tie parameter's term is added first."""
    total = gradient[-1] * x[-1]
    for i in range(len(x) - 1):
        total += gradient[i] * x[i]
    return total


@kernel
def longest_step(gradient: Floats, diagonal: Floats) -> float:
    """The longest Newton step that a score would take if all others were held fixed."""
    longest = 0.0
    for i in range(len(gradient)):
        if diagonal[i] > 0.0:
            longest = max(longest, abs(gradient[i]) / diagonal[i])
    return longest


@kernel
def better_weight(diagonal: Floats, weight: float, s: Floats) -> float:
    """The next prior weight: the number of scores that the data determine, divided by the sum of squared scores."""
    known, squares = 1.0, 1.0
    for i in range(len(s) - 1):
        known += (diagonal[i] - weight) / diagonal[i]
        squares += s[i] * s[i]
    return known / squares


class ComparedLists(NamedTuple):
    """The lists of one query. A comparison weighs 1 if binary, else ``scale`` times the difference of two values."""

    binary: bool
    tie_share: float  # the share of a tie that each side wins; only binary comparisons have ties
    offsets: Offsets  # (L + 1,)
    item: Indices  # (E,)
    value: Floats  # (E,) ranks as the pair function compares them, ascending in a list
    scale: Floats  # (L,)


@kernel
def list_slopes(lists: ComparedLists, score: Floats, valued: bool) -> tuple[float, Floats, Floats]:  # (I,), (I,)
    """Log likelihood of all pairs of listed items, its gradient, and minus the diagonal of its Hessian.

    All are taken at the given scores (I,). The log likelihood is 0 unless ``valued``.
    """
    item, value, strength = lists.item, lists.value, strengths(score)
    total, slope, curve = 0.0, np.zeros(len(score)), np.zeros(len(score))
    for a in range(len(lists.offsets) - 1):
        last, scale = lists.offsets[a + 1], lists.scale[a]
        for e in range(lists.offsets[a], last):
            i, x = item[e], strength[item[e]]
            up, bend = 0.0, 0.0
            for f in range(e + 1, last):
                j = item[f]
                gap = value[f] - value[e]
                weight, tied = scale * gap, False
                if lists.binary:
                    tied = gap == 0.0
                    weight = lists.tie_share if tied else 1.0
                if weight == 0.0:
                    continue
                moved, bent, said = pair_slopes(weight, tied, x, strength[j], valued)
                total += said
                up += moved
                bend += bent
                slope[j] -= moved
                curve[j] += bent
            slope[i] += up
            curve[i] += bend
    return total, slope, curve


@kernel
def strengths(score: Floats) -> Floats:
    """exp(score), scaled down so that none is above 1."""
    top = 0.0
    for i in range(len(score)):
        top = max(top, score[i])
    strength = np.empty(len(score))
    for i in range(len(score)):
        strength[i] = np.exp(score[i] - top)
    return strength


@kernel
def pair_slopes(weight: float, tied: bool, x: float, y: float, valued: bool) -> tuple[float, float, float]:
    """Terms of one pair: gradient for the item ahead (strength x), second derivative for each item, log likelihood.

    A tie counts as one win for each side, both with the given weight.
    """
    p = y / (x + y)  # the probability that the item behind wins
    if tied:
        said = weight * (np.log(p) + np.log1p(-p)) if valued else 0.0
        return weight * (2.0 * p - 1.0), 2.0 * weight * p * (1.0 - p), said
    said = weight * np.log1p(-p) if valued else 0.0
    return weight * p, weight * p * (1.0 - p), said
