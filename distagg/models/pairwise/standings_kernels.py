"""The largest gap of scores in each draw of their errors, over ordered pairs of items."""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats


@kernel
def largest_gaps(errors: Floats, upper: Floats, lower: Floats) -> Floats:  # (draws, n), (n, n), (n, n) -> (draws,)
    """The largest gap of each draw, in standard errors, over ordered pairs.

    For i > j, ``upper[i, j]`` is one over the standard error of the gap of i above j, ``lower[i, j]`` that of the gap
    of j above i; 0 leaves the ordered pair out.
    """
    draws, size = errors.shape
    largest = np.zeros(draws)
    for d in range(draws):
        top = 0.0
        for i in range(size):
            mine = errors[d, i]
            for j in range(i):
                gap = mine - errors[d, j]
                top = max(top, gap * upper[i, j], -gap * lower[i, j])
        largest[d] = top
    return largest
