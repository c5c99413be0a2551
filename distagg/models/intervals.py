"""Where scores are centred, the intervals of their columns, and errors that belong to one score each.

Only gaps of scores are known, so a standard error of one score is a convention. About the plain mean of all items, one
newcomer with two comparisons moves everybody's score and widens everybody's error. Scores are therefore centred on the
mean over comparisons, in which an item counts as often as it was compared, and standard errors are the roots of
quasi-variances (Firth & de Menezes 2004): numbers q such that q_i + q_j is the variance of the gap of i and j.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from distagg.types import Bools, Floats, Indices, Labels, Offsets

NOTHING_KNOWN = {"uncertainty": np.inf, "low": -np.inf, "high": np.inf}
ROUNDING = 1e-14  # of the largest variance: gaps are not known any closer


def between(score: Floats, deviation: Floats, level: float) -> dict[str, np.ndarray]:
    """Columns of normal intervals."""
    reach = NormalDist().inv_cdf(0.5 + level / 2)
    return {"uncertainty": deviation, "low": score - reach * deviation, "high": score + reach * deviation}


def over_resamples(scores: Floats, held: Bools, level: float) -> dict[str, np.ndarray]:  # (resamples, I) each
    """Columns of bootstrap intervals, over those resamples that hold the item; infinite where fewer than two do.

    Quantiles are those between which a further draw lies with the given probability (p (n + 1), Weibull 1939).
    """
    count = held.sum(axis=0)
    columns = {name: np.full(scores.shape[1], value) for name, value in NOTHING_KNOWN.items()}
    tail = (1 - level) / 2
    for times in np.unique(count[count > 1]):  # items that as many resamples hold, together
        rows = np.flatnonzero(count == times)
        seen = scores.T[rows][held.T[rows]].reshape(len(rows), times)
        columns["uncertainty"][rows] = seen.std(axis=1, ddof=1)
        columns["low"][rows], columns["high"][rows] = np.quantile(seen, [tail, 1 - tail], axis=1, method="weibull")
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
