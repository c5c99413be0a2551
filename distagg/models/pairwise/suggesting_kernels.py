"""The greedy choice of pairs to compare next, and what each answer is expected to tell."""

from __future__ import annotations

import math

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats, Labels, Offsets


@kernel
def information(gap: float, variance: float, tie: float) -> float:
    """Expected information of an answer about an uncertain gap; ``tie`` is Davidson's nu.

    The mean over a normal gap is that at a shrunken gap, times the same factor (MacKay 1992).
    """
    shrink = 1.0 / math.sqrt(1.0 + math.pi * variance / 8.0)
    half = 0.5 * shrink * abs(gap)
    up, down, tied = 1.0, math.exp(-2.0 * half), tie * math.exp(-half)
    total = up + down + tied
    decided, lead = (up + down) / total, (up - down) / total
    return shrink * 0.25 * (decided - lead * lead)


@kernel
def best_pair(
    score: Floats, covariance: Floats, tie: float, component: Labels, used: np.ndarray, joining: bool
) -> tuple[int, int, float, float]:
    """The unused pair of most expected bits (of different components where joining): items, bits, information."""
    best, one, other, weight = -1.0, -1, -1, 0.0
    size = len(score)
    for i in range(size):
        for j in range(i + 1, size):
            if used[i, j] or (joining and component[i] == component[j]):
                continue
            variance = max(covariance[i, i] + covariance[j, j] - 2.0 * covariance[i, j], 0.0)
            told = information(score[i] - score[j], variance, tie)
            bits = 0.5 * math.log2(1.0 + told * variance)
            if bits > best:
                best, one, other, weight = bits, i, j, told
    return one, other, best, weight


@kernel
def answered(covariance: Floats, i: int, j: int, weight: float) -> None:
    """Update the covariance, in place, for an answer of that information about the gap of i and j."""
    size = len(covariance)
    along = np.empty(size)
    for k in range(size):
        along[k] = covariance[k, i] - covariance[k, j]
    factor = weight / (1.0 + weight * (along[i] - along[j]))
    for k in range(size):
        for m in range(size):
            covariance[k, m] -= factor * along[k] * along[m]


@kernel
def choose_pairs(
    score: Floats,  # (size,)
    covariance: Floats,  # (size, size), overwritten
    tie: float,
    component: Labels,  # (size,), overwritten: pairs join components
    components: int,
    count: int,
) -> tuple[Offsets, Offsets, Floats, np.ndarray]:
    """As many pairs as asked for, or all there are: items, expected bits, and whether they join components."""
    size = len(score)
    count = min(count, size * (size - 1) // 2)
    one, other = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    gain, joins = np.empty(count), np.zeros(count, dtype=np.bool_)
    used = np.zeros((size, size), dtype=np.bool_)
    for n in range(count):
        joining = components > 1
        i, j, bits, weight = best_pair(score, covariance, tie, component, used, joining)
        one[n], other[n], gain[n], joins[n] = i, j, bits, joining
        used[i, j] = True
        answered(covariance, i, j, weight)
        if joining:
            gone, kept = component[j], component[i]
            for k in range(size):
                if component[k] == gone:
                    component[k] = kept
            components -= 1
    return one, other, gain, joins
