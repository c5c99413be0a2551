"""Sums over vectors, added one after the other: the same bits wherever they are needed."""

from __future__ import annotations

from distagg.jit import kernel
from distagg.types import Floats, Offsets


@kernel
def dot(x: Floats, y: Floats) -> float:
    """The inner product."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@kernel
def copy_to(target: Floats | Offsets, source: Floats | Offsets) -> None:
    """Copy as many numbers as ``source`` has to the beginning of ``target``.

    numba compiles ``target[:] = source`` together with code that words an error about shapes: 3 to 5 seconds more.
    """
    for i in range(len(source)):
        target[i] = source[i]
