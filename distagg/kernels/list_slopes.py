"""Bradley-Terry straight from lists: what their pairs say about scores, without writing the pairs down.

Cost: O(length^2) for each list and call, memory O(items).
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.lists import BINARY
from distagg.types import Floats, Indices, Offsets


@kernel
def list_slopes(
    function: int,
    share: float,  # of a tie that each side wins
    valued: bool,
    entry_offsets: Offsets,  # (L + 1,)
    entry_item: Indices,  # (E,) lists of one query
    value: Floats,  # (E,) ranks as the pair function compares them, ascending in a list
    scale: Floats,  # (L,) what a difference is multiplied by
    score: Floats,  # (I,)
    slope: Floats,  # (I,) filled: gradient of the log likelihood
    curve: Floats,  # (I,) filled: minus the diagonal of its Hessian
) -> float:
    """Log likelihood of all pairs of listed items (0 unless ``valued``)."""
    size = len(score)
    strength, total = np.empty(size), 0.0
    top = 0.0
    for i in range(size):
        top = max(top, score[i])
        slope[i], curve[i] = 0.0, 0.0
    for i in range(size):
        strength[i] = np.exp(score[i] - top)
    for a in range(len(entry_offsets) - 1):
        first, last = entry_offsets[a], entry_offsets[a + 1]
        for e in range(first, last):
            i, x = entry_item[e], strength[entry_item[e]]
            up, bend = 0.0, 0.0
            for f in range(e + 1, last):
                j = entry_item[f]
                gap = value[f] - value[e]
                if function == BINARY:
                    w, tied = 1.0, gap == 0.0
                else:
                    w, tied = scale[a] * gap, False
                if w == 0.0:
                    continue
                y = strength[j]
                p = y / (x + y)  # the chance of the one behind
                if tied:
                    if share == 0.0:
                        continue
                    moved, w = share * (2.0 * p - 1.0), 2.0 * share
                    if valued:
                        total += share * (np.log(p) + np.log1p(-p))
                else:
                    moved = w * p
                    if valued:
                        total += w * np.log1p(-p)
                bent = w * p * (1.0 - p)
                up += moved
                bend += bent
                slope[j] -= moved
                curve[j] += bent
            slope[i] += up
            curve[i] += bend
    return total
