"""Link functions: the probability that item i beats item j, given the difference d = s_i - s_j of their scores.

    LOGIT        1 / (1 + exp(-d))                                             Bradley & Terry 1952
    PROBIT       Phi(d / sqrt 2)                                               Thurstone 1927, case V
    DAVIDSON     exp(d / 2) / Z, a tie nu / Z, Z = exp(d / 2) + exp(-d / 2) + nu     Davidson 1970, nu = exp(eta)
    RAO_KUPPER   1 / (1 + exp(eta - d)), a tie the rest                        Rao & Kupper 1967, eta > 0

A tie counts for both items of its pair: as half a win each with DAVIDSON, as a whole win each with RAO_KUPPER, where
the probability of a tie is the product of both wins times a factor that depends on eta alone. The negative log
likelihood is convex in (s, eta) with every link.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.pairwise.graph import Graph
from distagg.types import Floats

LOGIT, PROBIT, DAVIDSON, RAO_KUPPER = 0, 1, 2, 3
WIDEST = 600.0  # spread of scores up to which exp(s) neither overflows nor vanishes
ROOT_HALF = math.sqrt(0.5)
LOG_ROOT_TAU = 0.5 * math.log(2.0 * math.pi)


class Slopes(NamedTuple):
    """Derivatives of one query's negative log likelihood by its scores and, as the last entry, by eta."""

    gradient: Floats  # (size + 1,)
    diagonal: Floats  # (size + 1,) second derivatives
    cross: Floats  # (size + 1,) mixed second derivatives by score and eta
    curve: Floats  # (edges,) second derivative by the difference of scores, at the query's own edges


@kernel
def mills(y: float) -> tuple[float, float]:
    """The inverse Mills ratio phi(y) / Phi(-y) for y >= 0, and the ratio minus y.

    For large y both come from Laplace's continued fraction.
    """
    if y < 8.0:
        ratio = math.exp(-0.5 * y * y - LOG_ROOT_TAU) / (0.5 * math.erfc(y * ROOT_HALF))
        return ratio, ratio - y
    rest = y
    for k in range(40, 1, -1):
        rest = y + k / rest
    return y + 1.0 / rest, 1.0 / rest


@kernel
def strengths(s: Floats) -> tuple[Floats, bool]:
    """exp(s) times a common factor, and whether the scores are close enough together that none of them overflows."""
    low, high = 0.0, 0.0
    for i in range(len(s)):
        low, high = min(low, s[i]), max(high, s[i])
    strength = np.empty(len(s))
    for i in range(len(s)):
        strength[i] = math.exp(s[i] - 0.5 * (low + high))
    return strength, high - low < WIDEST


@kernel
def slopes(link: int, graph: Graph, q: int, s: Floats, out: Slopes) -> None:
    """Write the derivatives of query q to ``out``; s (size + 1,) holds its scores, then eta."""
    if link == LOGIT:
        logit_slopes(graph, q, s, out)
    else:
        other_slopes(link, graph, q, s, out)


@kernel
def logit_slopes(graph: Graph, q: int, s: Floats, out: Slopes) -> None:
    """The same for LOGIT, which has no eta."""
    size, other, ahead, behind, curve = len(s) - 1, graph.other, graph.ahead, graph.behind, out.curve
    offsets = graph.offsets[graph.item_offsets[q] : graph.item_offsets[q + 1] + 1]
    out.gradient[size] = out.diagonal[size] = 0.0
    out.cross[:] = 0.0
    strength, narrow = strengths(s[:size])
    sums = np.zeros(2 * size)  # first and second derivatives of each item, side by side
    for i in range(size):
        mine, down, bend = strength[i], 0.0, 0.0
        for e in range(offsets[i], offsets[i + 1]):
            j = other[e]
            theirs = strength[j]
            if not narrow:
                mine, theirs = math.exp(min(s[i] - s[j], 0.0)), math.exp(min(s[j] - s[i], 0.0))
            share = 1.0 / (mine + theirs)
            slope = (behind[e] * mine - ahead[e] * theirs) * share
            second = (ahead[e] + behind[e]) * (mine * share) * (theirs * share)
            curve[e] = second
            down += slope
            bend += second
            sums[2 * j] -= slope
            sums[2 * j + 1] += second
        out.gradient[i] = sums[2 * i] + down  # all items with lower numbers have added their share
        out.diagonal[i] = sums[2 * i + 1] + bend


@kernel
def edge_slopes(
    link: int, d: float, eta: float, ahead: float, behind: float
) -> tuple[float, float, float, float, float]:
    """Derivatives of one pair's negative log likelihood: by d, by d twice, by eta, by d and eta, by eta twice.

    ``other_slopes`` adds the terms that depend on eta alone. Not for LOGIT.
    """
    if link == PROBIT:
        y = abs(d) * ROOT_HALF
        far, over = mills(y)  # of the item with the lower score
        near = math.exp(-0.5 * y * y - LOG_ROOT_TAU)
        near /= 1.0 - near / far
        likely, unlikely = (ahead, behind) if d >= 0.0 else (behind, ahead)
        slope = ROOT_HALF * (unlikely * far - likely * near)
        curve = 0.5 * (unlikely * far * over + likely * near * (near + y))
        return slope if d >= 0.0 else -slope, curve, 0.0, 0.0, 0.0
    # exp(d / 2), exp(-d / 2) and exp(eta), each divided by the largest of them
    high = max(0.5 * abs(d), eta)
    up, down, tied = math.exp(0.5 * d - high), math.exp(-0.5 * d - high), math.exp(eta - high)
    if link == DAVIDSON:
        z = up + down + tied
        up, down, tied = up / z, down / z, tied / z
        count, lean = ahead + behind, 0.5 * (up - down)
        # The form count * lean - (ahead - behind) / 2 would lose digits where one item wins all comparisons.
        slope = 0.5 * (behind * (2.0 * up + tied) - ahead * (2.0 * down + tied))
        curve = count * (0.25 * (up + down) - lean * lean)
        return slope, curve, count * tied, -count * tied * lean, count * tied * (up + down)
    win, lose = 1.0 / (1.0 + math.exp(eta - d)), 1.0 / (1.0 + math.exp(eta + d))
    no_win, no_loss = ahead / (1.0 + math.exp(d - eta)), behind / (1.0 + math.exp(-d - eta))
    mine, theirs = win * no_win, lose * no_loss
    return no_loss - no_win, mine + theirs, no_win + no_loss, theirs - mine, mine + theirs


@kernel
def other_slopes(link: int, graph: Graph, q: int, s: Floats, out: Slopes) -> None:
    """The same for every other link. Without ties the derivatives by eta are 0, so eta does not change."""
    gradient, diagonal, cross, curve = out
    offsets = graph.offsets[graph.item_offsets[q] : graph.item_offsets[q + 1] + 1]
    size, ties, eta = len(s) - 1, graph.ties[q], s[-1]
    for i in range(size + 1):
        gradient[i] = diagonal[i] = cross[i] = 0.0
    if ties > 0.0 and link == DAVIDSON:  # -ties * eta
        gradient[size] = -ties
    elif ties > 0.0 and link == RAO_KUPPER:  # -ties * log(exp(2 eta) - 1)
        rest = -math.expm1(-2.0 * eta)
        gradient[size], diagonal[size] = -2.0 * ties / rest, 4.0 * ties * math.exp(-2.0 * eta) / (rest * rest)
    for i in range(size):
        for e in range(offsets[i], offsets[i + 1]):
            j = graph.other[e]
            slope, second, tied, mixed, bent = edge_slopes(link, s[i] - s[j], eta, graph.ahead[e], graph.behind[e])
            curve[e] = second
            gradient[i] += slope
            gradient[j] -= slope
            diagonal[i] += second
            diagonal[j] += second
            if ties > 0.0:
                cross[i] += mixed
                cross[j] -= mixed
                gradient[size] += tied
                diagonal[size] += bent


@kernel
def log_likelihood(link: int, graph: Graph, score: Floats, eta: Floats) -> Floats:  # (I,), (Q,) -> (Q,)
    """The log likelihood of every query's counts."""
    total = np.zeros(len(eta))
    for q in range(len(eta)):
        if eta[q] == np.inf:
            continue  # all comparisons are ties, which then have probability 1
        s = score[graph.item_offsets[q] : graph.item_offsets[q + 1]]
        if link == LOGIT:
            total[q] = logit_likelihood(graph, q, s)
        else:
            total[q] = other_likelihood(link, graph, q, s, eta[q])
    return total


@kernel
def logit_likelihood(graph: Graph, q: int, s: Floats) -> float:
    """The log likelihood of one query at scores s (size,), by LOGIT."""
    offsets = graph.offsets[graph.item_offsets[q] : graph.item_offsets[q + 1] + 1]
    strength, narrow = strengths(s)
    total, product = 0.0, 1.0
    for i in range(len(s)):
        for e in range(offsets[i], offsets[i + 1]):
            j, mine, theirs = graph.other[e], graph.ahead[e], graph.behind[e]
            d, up, down = s[i] - s[j], strength[i], strength[j]
            total += mine * min(d, 0.0) + theirs * min(-d, 0.0)
            factor = 1.0 + (min(up, down) / max(up, down) if narrow else math.exp(-abs(d)))
            if mine + theirs == 1.0:  # one logarithm for many pairs: their factors are between 1 and 2
                product *= factor
            else:
                total -= (mine + theirs) * math.log(factor)
            if product > 1e300:
                total -= math.log(product)
                product = 1.0
    return total - math.log(product)


@kernel
def other_likelihood(link: int, graph: Graph, q: int, s: Floats, eta: float) -> float:
    """The log likelihood of one query at scores s (size,) and eta, by every other link."""
    offsets, ties, total = graph.offsets[graph.item_offsets[q] : graph.item_offsets[q + 1] + 1], graph.ties[q], 0.0
    if ties > 0.0 and link == DAVIDSON:
        total = ties * eta
    elif ties > 0.0 and link == RAO_KUPPER:
        total = ties * (2.0 * eta + math.log(-math.expm1(-2.0 * eta)))
    for i in range(len(s)):
        for e in range(offsets[i], offsets[i + 1]):
            up, down = edge_likelihood(link, s[i] - s[graph.other[e]], eta, graph.ahead[e], graph.behind[e])
            total += up
            total += down
    return total


@kernel
def edge_likelihood(link: int, d: float, eta: float, ahead: float, behind: float) -> tuple[float, float]:
    """Log likelihood of one pair's counts, as two terms; the second one is 0 except for RAO_KUPPER. Not for LOGIT."""
    if link == PROBIT:
        y = abs(d) * ROOT_HALF
        far, density = mills(y)[0], -0.5 * y * y - LOG_ROOT_TAU
        likely, unlikely = (ahead, behind) if d >= 0.0 else (behind, ahead)
        return unlikely * (density - math.log(far)) + likely * math.log1p(-math.exp(density) / far), 0.0
    if link == DAVIDSON:
        high = max(0.5 * abs(d), eta)
        z = math.exp(0.5 * d - high) + math.exp(-0.5 * d - high) + math.exp(eta - high)
        return 0.5 * (ahead - behind) * d - (ahead + behind) * (high + math.log(z)), 0.0
    win, loss = d - eta, -d - eta
    up = ahead * (min(win, 0.0) - math.log1p(math.exp(-abs(win))))
    return up, behind * (min(loss, 0.0) - math.log1p(math.exp(-abs(loss))))
