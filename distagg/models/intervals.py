"""Where scores are centred, and their standard errors from the curvature of a fit.

Only gaps of scores are known, so a standard error of one score is a convention. About the plain mean of all items, one
newcomer with two comparisons moves everybody's score and widens everybody's error. Scores are therefore centred on the
mean over comparisons, in which an item counts as often as it was compared, and standard errors are the roots of
quasi-variances (Firth & de Menezes 2004): numbers q such that q_i + q_j is the variance of the gap of i and j.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from distagg.errors import UsageError
from distagg.models.pairwise.counts import Counts
from distagg.models.pairwise.kernels import GAMMA, GAUSSIAN
from distagg.models.pairwise.links import DAVIDSON, RAO_KUPPER, Slopes, slopes
from distagg.types import Bools, Floats, Indices, Labels, Offsets

MOST_ITEMS = 12_000  # a matrix of 1.1 GiB
NOTHING_KNOWN = {"uncertainty": np.inf, "low": -np.inf, "high": np.inf}
ROUNDING = 1e-14  # of the largest variance: gaps are not known any closer


def between(score: Floats, deviation: Floats, level: float) -> dict[str, np.ndarray]:
    """Columns of normal intervals."""
    reach = NormalDist().inv_cdf(0.5 + level / 2)
    return {"uncertainty": deviation, "low": score - reach * deviation, "high": score + reach * deviation}


def over_resamples(scores: Floats, held: Bools, level: float) -> dict[str, np.ndarray]:  # (resamples, I) each
    """Columns of bootstrap intervals, over those resamples that hold the item; infinite where fewer than two do."""
    count = held.sum(axis=0)
    columns = {name: np.full(scores.shape[1], value) for name, value in NOTHING_KNOWN.items()}
    tail = (1 - level) / 2
    for times in np.unique(count[count > 1]):  # items that as many resamples hold, together
        rows = np.flatnonzero(count == times)
        seen = scores.T[rows][held.T[rows]].reshape(len(rows), times)
        columns["uncertainty"][rows] = seen.std(axis=1, ddof=1)
        columns["low"][rows], columns["high"][rows] = np.quantile(seen, [tail, 1 - tail], axis=1)
    return {**columns, "resamples": count}


def centred(score: Floats, group: Labels | Indices | Offsets, compared: Floats) -> Floats:  # (I,) each
    """Scores less the mean of their group, in which items count by their comparisons; alike where nobody has any."""
    total = np.bincount(group, compared)
    weight = np.where(total[group] > 0.0, compared, 1.0)
    mean = np.bincount(group, weight * score) / np.maximum(np.bincount(group, weight), np.finfo(float).tiny)
    result: Floats = score - mean[group]
    return result


def quasi_variances(covariance: Floats) -> Floats:  # (n, n) -> (n,)
    """q with q_i + q_j as near as can be, relatively, to the variance v_ij of every gap: least squares of (..) / v - 1.

    An item alone has none: infinite. Two share their gap's variance. An item through which all others are compared gets
    0: what is known of the others is known relative to it. Cost: one solution of n equations. Overwrites its argument.
    """
    size, own = len(covariance), np.diagonal(covariance).copy()
    if size == 1:
        return np.full(1, np.inf)
    covariance *= -2.0
    covariance += own[:, None]
    covariance += own
    if size == 2:
        return np.full(2, max(covariance[0, 1], 0.0) / 2)
    np.fill_diagonal(covariance, np.inf)
    least = max(float(covariance.min()), float(own.max()) * ROUNDING, np.finfo(float).tiny)
    np.maximum(covariance, least, out=covariance)
    weight = np.divide(least, covariance, out=covariance)  # one over the variances, in units of the least
    right = least * weight.sum(axis=1)
    weight *= weight
    np.fill_diagonal(weight, weight.sum(axis=1))
    return np.maximum(np.linalg.solve(weight, right), 0.0)


def standard_errors(
    counts: Counts,
    component: Labels,  # (I,)
    score: Floats,  # (I,)
    eta: Floats,  # (Q,) tie parameters
    link: int,
    prior: int,
    weight: Floats,  # (Q,)
    shape: float,
) -> Floats:  # (I,)
    """Root of every item's quasi-variance in its component, by the inverse of the observed information.

    With a prior that is the posterior deviation in Laplace's approximation. A tie parameter's uncertainty is included.
    """
    deviation = np.zeros(len(score))
    curve = np.empty(len(counts.other))
    for q in range(len(eta)):
        base, end = counts.item_offsets[q], counts.item_offsets[q + 1]
        size = int(end - base)
        if size > MOST_ITEMS:
            raise UsageError(
                f"errors=standard inverts a matrix of {size:,} x {size:,} items, and {MOST_ITEMS:,} are the most; "
                "choose errors=bootstrap"
            )
        if size and not np.isposinf(eta[q]):
            deviation[base:end] = _of_query(
                counts, q, component[base:end], score[base:end], eta[q], link, prior, float(weight[q]), shape, curve
            )
    return deviation


def _of_query(
    counts: Counts,
    q: int,
    component: Labels,
    score: Floats,
    eta: float,
    link: int,
    prior: int,
    weight: float,
    shape: float,
    curve: Floats,
) -> Floats:
    size = len(score)
    tied = link in (DAVIDSON, RAO_KUPPER) and counts.ties[q] > 0
    rows = counts.offsets[counts.item_offsets[q] : counts.item_offsets[q + 1] + 1]
    diagonal, cross = np.empty(size + 1), np.empty(size + 1)
    slopes(link, counts.graph, q, np.append(score, eta), Slopes(np.empty(size + 1), diagonal, cross, curve))
    if prior == GAUSSIAN:
        diagonal[:size] += weight
    elif prior == GAMMA:
        strength = np.exp(score - score.max())  # the prior puts a component's mean strength at (shape - 1) / rate
        mean = np.bincount(component, strength) / np.bincount(component)
        diagonal[:size] += (shape - 1) * strength / mean[component]
    used = slice(rows[0], rows[-1])
    low, high = np.repeat(np.arange(size), np.diff(rows)), counts.other[used]
    information = np.zeros((size + tied, size + tied))
    information[low, high] = information[high, low] = -curve[used]
    information[np.arange(size), np.arange(size)] = diagonal[:size]
    if tied:
        information[:size, size] = information[size, :size] = cross[:size]
        information[size, size] = diagonal[size]
    members = np.zeros((size, component.max() + 1))
    members[np.arange(size), component] = 1.0
    members /= members.sum(axis=0)  # averages over a component
    if prior != GAMMA:  # fixes the level of every component, which neither likelihood nor gaussian prior ties to gaps
        information[:size, :size] += (diagonal[:size].mean() + 1.0) * size * members @ members.T
    covariance = np.asarray(np.linalg.inv(information)[:size, :size], dtype=np.float64)
    variance = np.empty(size)
    for part in range(int(component.max()) + 1):
        rows = np.flatnonzero(component == part)
        variance[rows] = quasi_variances(covariance[np.ix_(rows, rows)] if len(rows) < size else covariance.copy())
    return np.sqrt(variance)
