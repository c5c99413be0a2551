"""The one jit policy.

Kernels are serial and release the GIL; parallelism belongs to the engine. They compile on first use, once per
process. numba's on-disk cache holds pickles and is unsafe under concurrent writers, so it is off unless
DISTAGG_JIT_CACHE=1 asks for it. ``error_model="numpy"`` makes division by zero give inf or nan, as numpy does;
no fastmath: the same bits everywhere.

Kernels fill arrays by plain loops: assigning a slice costs two seconds of compilation, a loop nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import numba

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a bare loop over arrays."""
    cache = os.environ.get("DISTAGG_JIT_CACHE", "") == "1"
    return numba.njit(nogil=True, error_model="numpy", cache=cache)(function)
