"""Sums over vectors, added one after the other: the same bits wherever they are needed."""

from __future__ import annotations

from distagg.kernels.jit import kernel
from distagg.types import Floats


@kernel
def dot(x: Floats, y: Floats) -> float:
    """The inner product."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total
