"""The joint uncertainty of one query's scores: the covariance of a fit's error, from its curvature.

A fit minimises minus the log likelihood, whose second derivatives are H, plus a prior of curvature D. Its error is
A^-1 (noise - D (s - m)) to first order, where A = H + D and m is the prior's centre, so its covariance is

    A^-1 (p H + f D) A^-1 + 2 / g v v'.

- p = 1 without ties, and where a model learns how likely ties are. A tie that counts as half a win for each side varies
  less than a win or a loss: an outcome of mean q has the variance q (1 - q) - t / 4, where t is the chance of a tie. So
  p = 1 - ties / (4 sum q (1 - q)), summed over battles; the plain inverse of A would be too wide.
- A gaussian prior whose weight w was learned is known from g scores only: its precision is that of a chi-square with g
  degrees of freedom, so the mean of 1 / w is larger by f = g / (g - 2) (Morris 1983), and scores move with the weight,
  by v = w A^-1 (s - m) for a unit of log w, whose variance is 2 / g (Kass & Steffey 1989). A given weight: f = 1, no v.

Only gaps of scores inside a connected component mean anything: the variance of a gap is c_ii + c_jj - 2 c_ij.
Cost: items^3 and a few matrices of items x items.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtr

from distagg.errors import UsageError
from distagg.models.intervals import quasi_variances
from distagg.models.pairwise.counts import Counts
from distagg.models.pairwise.kernels import GAMMA, GAUSSIAN
from distagg.models.pairwise.links import DAVIDSON, PROBIT, RAO_KUPPER, ROOT_HALF, Slopes, slopes
from distagg.types import Floats, Labels

MOST_ITEMS = 12_000  # a matrix of 1.1 GiB
LEAST_DISPERSION = 1e-3  # were all battles ties, the counts would tell nothing about how outcomes vary


class Terms(NamedTuple):
    """What a fit minimised, beside its counts."""

    link: int
    prior: int
    shape: float  # of a gamma prior
    weight: Floats  # (Q,) of a gaussian prior, a gamma prior's rate
    learned: bool  # whether the data chose the weights of a gaussian prior
    halved: bool  # whether a tie counts as half a win for each side


class Curvature(NamedTuple):
    """Second derivatives of one query's fit: n items, and the tie parameter last if there is one."""

    information: Floats  # (n + tied, n + tied) of likelihood and prior
    prior: Floats  # (n,) of the prior alone
    dispersion: float  # variance of outcomes relative to the likelihood's
    known: float  # scores that the data determine: degrees of freedom of a learned weight


def covariance(counts: Counts, q: int, component: Labels, score: Floats, eta: float, terms: Terms) -> Floats:  # (n, n)
    """The covariance of the error of query q's scores (n,), given components (n,) and the tie parameter."""
    size = len(score)
    if size > MOST_ITEMS:
        raise UsageError(
            f"errors=standard inverts a matrix of {size:,} x {size:,} items, and {MOST_ITEMS:,} are the most; "
            "choose errors=bootstrap"
        )
    bent = curvature(counts, q, component, score, eta, terms)
    members = np.zeros((size, component.max(initial=0) + 1))
    members[np.arange(size), component] = 1.0
    members /= members.sum(axis=0)  # averages over a component
    information = bent.information
    if terms.prior != GAMMA:  # fixes the level of every component, which neither likelihood nor gaussian prior does
        level = np.diagonal(information)[:size].mean() + 1.0
        information[:size, :size] += level * size * members @ members.T
    inverse = np.ascontiguousarray(np.linalg.inv(information)[:size, :size])
    wider, learned = 1.0, terms.prior == GAUSSIAN and terms.learned
    if learned:
        wider = bent.known / max(bent.known - 2.0, 1.0)
    result = bent.dispersion * inverse
    if wider != bent.dispersion and bent.prior.any():
        result += (wider - bent.dispersion) * (inverse * bent.prior) @ inverse
    if learned:
        centre = (np.bincount(component, score) / np.bincount(component))[component]
        moved = inverse @ (bent.prior * (score - centre))
        result += 2.0 / bent.known * np.outer(moved, moved)
    return np.asarray(result, dtype=np.float64)


def curvature(counts: Counts, q: int, component: Labels, score: Floats, eta: float, terms: Terms) -> Curvature:
    """The second derivatives of query q at its scores (n,) and tie parameter."""
    size = len(score)
    tied = terms.link in (DAVIDSON, RAO_KUPPER) and counts.ties[q] > 0
    rows = counts.offsets[counts.item_offsets[q] : counts.item_offsets[q + 1] + 1]
    diagonal, cross, curve = np.empty(size + 1), np.empty(size + 1), np.empty(len(counts.other))
    slopes(terms.link, counts.graph, q, np.append(score, eta), Slopes(np.empty(size + 1), diagonal, cross, curve))
    used = slice(rows[0], rows[-1])
    low, high = np.repeat(np.arange(size), np.diff(rows)), counts.other[used]
    prior = np.zeros(size)
    if terms.prior == GAUSSIAN:
        prior[:] = terms.weight[q]
    elif terms.prior == GAMMA:
        strength = np.exp(score - score.max())  # the prior puts a component's mean strength at (shape - 1) / rate
        mean = np.bincount(component, strength) / np.bincount(component)
        prior[:] = (terms.shape - 1) * strength / mean[component]
    known = 1.0 + float((diagonal[:size] / np.maximum(diagonal[:size] + prior, np.finfo(float).tiny)).sum())
    information = np.zeros((size + tied, size + tied))
    information[low, high] = information[high, low] = -curve[used]
    information[np.arange(size), np.arange(size)] = diagonal[:size] + prior
    if tied:
        information[:size, size] = information[size, :size] = cross[:size]
        information[size, size] = diagonal[size]
    dispersion = 1.0
    if terms.halved and counts.ties[q] > 0:
        chance = expected(terms.link, score[low] - score[high], eta)
        varied = 4.0 * float(((counts.ahead[used] + counts.behind[used]) * chance * (1.0 - chance)).sum())
        dispersion = max(1.0 - float(counts.ties[q]) / varied, LEAST_DISPERSION)
    return Curvature(information, prior, dispersion, known)


def expected(link: int, gap: Floats, eta: float) -> Floats:
    """The chance to win at a gap of scores, plus half the chance of a tie, in links that have ties.

    >>> expected(DAVIDSON, np.array([0.0, 1.0]), 0.0).round(3).tolist()
    [0.5, 0.66]
    """
    if link == PROBIT:
        chance = ndtr(gap * ROOT_HALF)
    elif link == RAO_KUPPER:
        chance = 0.5 * (expit(gap - eta) + expit(gap + eta))
    elif link == DAVIDSON and eta == np.inf:
        chance = np.full(gap.shape, 0.5)
    elif link == DAVIDSON:
        high = np.maximum(0.5 * np.abs(gap), eta)
        up, down, tie = np.exp(0.5 * gap - high), np.exp(-0.5 * gap - high), np.exp(eta - high)
        chance = (up + 0.5 * tie) / (up + down + tie)
    else:
        chance = expit(gap)
    return np.asarray(chance, dtype=np.float64)


def standard_errors(counts: Counts, component: Labels, score: Floats, eta: Floats, terms: Terms) -> Floats:  # (I,)
    """Root of every item's quasi-variance in its component, given scores (I,), components (I,), tie parameters (Q,)."""
    deviation = np.zeros(len(score))
    for q in range(len(eta)):
        base, end = counts.item_offsets[q], counts.item_offsets[q + 1]
        if end == base or np.isposinf(eta[q]):
            continue
        own = component[base:end]
        spread = covariance(counts, q, own, score[base:end], float(eta[q]), terms)
        for part in range(int(own.max()) + 1):
            rows = np.flatnonzero(own == part)
            alone = len(rows) == len(own)
            deviation[base + rows] = np.sqrt(quasi_variances(spread if alone else spread[np.ix_(rows, rows)]))
    return deviation
