"""Standard errors of scores from the curvature of a fit."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from distagg.errors import UsageError
from distagg.kernels.links import DAVIDSON, LOGIT, RAO_KUPPER, logit_slopes, slopes
from distagg.kernels.newton import GAMMA, GAUSSIAN
from distagg.models.counts import Counts
from distagg.types import Floats, Labels

MOST_ITEMS = 12_000  # a matrix of 1.1 GiB


def between(score: Floats, deviation: Floats, level: float) -> dict[str, np.ndarray]:
    """Columns of normal intervals."""
    reach = NormalDist().inv_cdf(0.5 + level / 2)
    return {"uncertainty": deviation, "low": score - reach * deviation, "high": score + reach * deviation}


def standard_errors(
    counts: Counts,
    component: Labels,  # (I,)
    score: Floats,  # (I,)
    eta: Floats,  # (Q,) tie parameters
    link: int,
    prior: int,
    weight: float,
    shape: float,
) -> Floats:  # (I,)
    """Standard error of every score about the mean of its component, by the inverse of the observed information.

    With a prior it is the posterior deviation in Laplace's approximation. A tie parameter's uncertainty is included.
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
                counts, q, component[base:end], score[base:end], eta[q], link, prior, weight, shape, curve
            )
    return deviation


def _of_query(
    counts: Counts, q: int, component: Labels, score: Floats, eta: float, link: int, prior: int, weight: float,
    shape: float, curve: Floats,
) -> Floats:  # fmt: skip
    size = len(score)
    tied = link in (DAVIDSON, RAO_KUPPER) and counts.ties[q] > 0
    gradient, diagonal, cross = np.empty(size + 1), np.empty(size + 1), np.empty(size + 1)
    rows = counts.offsets[counts.item_offsets[q] : counts.item_offsets[q + 1] + 1]
    evaluate = logit_slopes if link == LOGIT else slopes
    evaluate(
        link, np.append(score, eta), counts.ties[q], rows, counts.other, counts.ahead, counts.behind, gradient,
        diagonal, cross, curve,
    )  # fmt: skip
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
    covariance = np.linalg.inv(information)[:size, :size]
    averaged = covariance @ members
    variance = np.diag(covariance) - 2 * averaged[np.arange(size), component]
    variance += np.einsum("ic,ic->c", members, averaged)[component]
    return np.sqrt(np.maximum(variance, 0.0))
