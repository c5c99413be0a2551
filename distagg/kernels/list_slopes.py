"""Bradley-Terry straight from lists: what their pairs say about scores, without writing the pairs down.

Cost: O(length^2) for each list and call, memory O(items).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import Floats, Indices, Offsets


class ComparedLists(NamedTuple):
    """Lists of one query, and what they say of two items: 1, or ``scale`` times the difference of their values."""

    binary: bool
    tie_share: float  # of a tie that each side wins; only binary comparisons have ties
    offsets: Offsets  # (L + 1,)
    item: Indices  # (E,)
    value: Floats  # (E,) ranks as the pair function compares them, ascending in a list
    scale: Floats  # (L,)


@kernel
def list_slopes(lists: ComparedLists, score: Floats, valued: bool) -> tuple[float, Floats, Floats]:  # (I,), (I,)
    """Log likelihood of all pairs of listed items (0 unless ``valued``), its gradient and minus its Hessian's diagonal.

    At scores (I,).
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
    """exp(score), the largest 1 or all below it."""
    top = 0.0
    for i in range(len(score)):
        top = max(top, score[i])
    strength = np.empty(len(score))
    for i in range(len(score)):
        strength[i] = np.exp(score[i] - top)
    return strength


@kernel
def pair_slopes(weight: float, tied: bool, x: float, y: float, valued: bool) -> tuple[float, float, float]:
    """What a pair adds to the slope of the one ahead, of strength x, and to both curves; and its log likelihood.

    A tie is a win of that weight for each side.
    """
    p = y / (x + y)  # the chance of the one behind
    if tied:
        said = weight * (np.log(p) + np.log1p(-p)) if valued else 0.0
        return weight * (2.0 * p - 1.0), 2.0 * weight * p * (1.0 - p), said
    said = weight * np.log1p(-p) if valued else 0.0
    return weight * p, weight * p * (1.0 - p), said
