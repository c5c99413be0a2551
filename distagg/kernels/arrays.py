"""Loops that many kernels need.

numba compiles ``target[:] = source`` together with code that words an error about shapes, which takes 3 to 5 seconds;
this loop takes 0.1.
"""

from __future__ import annotations

from distagg.kernels.jit import kernel
from distagg.types import Floats, Offsets


@kernel
def copy_to(target: Floats | Offsets, source: Floats | Offsets) -> None:
    """Copy as many numbers as ``source`` has to the beginning of ``target``."""
    for i in range(len(source)):
        target[i] = source[i]
