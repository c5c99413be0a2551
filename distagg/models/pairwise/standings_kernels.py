"""The largest gap of scores in each draw of their errors, over all pairs of items."""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats


@kernel
def largest_gaps(errors: Floats, steadiness: Floats) -> Floats:  # (draws, n), (n, n) -> (draws,)
    """The largest |gap| of each draw, in standard errors."""
    draws, size = errors.shape
    largest = np.zeros(draws)
    for d in range(draws):
        top = 0.0
        for i in range(size):
            mine = errors[d, i]
            for j in range(i):
                top = max(top, abs(mine - errors[d, j]) * steadiness[i, j])
        largest[d] = top
    return largest
