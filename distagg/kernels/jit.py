"""The one jit policy.

Kernels are serial and release the GIL; parallelism belongs to the engine. They compile on first use, once per
process. numba's on-disk cache holds pickles, so it is off unless DISTAGG_JIT_CACHE=1 asks for it; then every process
writes files of its own names, since two that compile at once would otherwise overwrite each other's code under an
index that promises another. ``error_model="numpy"`` makes division by zero give inf or nan, as numpy does;
no fastmath: the same bits everywhere.

Kernels fill arrays by plain loops: assigning a slice costs two seconds of compilation, a loop nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import numba
from numba.core.caching import IndexDataCacheFile

CACHED = os.environ.get("DISTAGG_JIT_CACHE", "") == "1"

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a bare loop over arrays."""
    return numba.njit(nogil=True, error_model="numpy", cache=CACHED)(function)


def _own_name(file: IndexDataCacheFile, number: int) -> str:
    """A name of compiled code that no other process takes."""
    return str(file._index_name.removesuffix(".nbi")) + f".{os.getpid()}-{number}.nbc"


if CACHED:
    IndexDataCacheFile._data_name = _own_name
