"""The one jit policy.

Kernels are serial and release the GIL; parallelism belongs to the engine. They compile on first use, once per
process. numba's on-disk cache holds pickles, so it is off unless DISTAGG_JIT_CACHE=1 asks for it; then every process
writes files of its own names, since two that compile at once would otherwise overwrite each other's code under an
index that promises another. ``error_model="numpy"`` makes division by zero give inf or nan, as numpy does;
no fastmath: the same bits everywhere.

Kernels fill arrays by plain loops: assigning a slice costs two seconds of compilation, a loop nothing.

Loading numba and compiling takes longer than a small job. So a kernel may have a ``cold`` twin of plain numpy with the
same bits, which works until it has taken as long as compiling would; numba is loaded only then.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

CACHED = os.environ.get("DISTAGG_JIT_CACHE", "") == "1"
WARM = 3.0  # seconds that a cold twin may take in all: what loading numba and compiling a chain of kernels takes
LOADED = 0.2  # of them, once numba is loaded
GUESS = 5e-8  # seconds that a twin takes for a number, before one has been timed

F = TypeVar("F", bound=Callable[..., object])


class Kernel:
    """A function that is compiled when it is called for the first time; other kernels may call it."""

    def __init__(self, function: Callable[..., Any], cold: Callable[..., Any] | None = None) -> None:
        self.function, self.cold = function, cold
        self.seen, self.spent = 0, 0.0  # numbers given to the twin, and the seconds that it took
        self.made: Any = None
        self.lock = threading.Lock()
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__

    def __call__(self, *arguments: Any) -> Any:
        if self.made is None and self.cold is not None:
            size = max(a.size for a in arguments if isinstance(a, np.ndarray))
            limit = WARM * LOADED if "numba" in sys.modules else WARM
            if self.spent + size * (self.spent / self.seen if self.seen else GUESS) < limit:
                began = time.perf_counter()
                found = self.cold(*arguments)
                if found is not NotImplemented:  # as a twin says to what it would take too much memory for
                    self.seen, self.spent = self.seen + size, self.spent + time.perf_counter() - began
                    return found
        return self.compiled(*arguments)

    @property
    def compiled(self) -> Any:
        """The function as numba has it."""
        with self.lock:
            if self.made is None:
                self.made = _numba().njit(nogil=True, error_model="numpy", cache=CACHED)(self.function)
        return self.made

    @property
    def _numba_type_(self) -> Any:
        """What numba takes it for where another kernel calls it."""
        return _numba().types.Dispatcher(self.compiled)

    def __reduce__(self) -> str:
        return self.__name__


def kernel(function: F) -> F:
    """Compile a bare loop over arrays."""
    return Kernel(function)  # type: ignore[return-value]


def kernel_with(cold: Callable[..., Any]) -> Callable[[F], F]:
    """The same, with a twin that takes the same arguments and does the same without numba."""
    return lambda function: Kernel(function, cold)  # type: ignore[return-value]


def _numba() -> Any:
    os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")  # its logarithms are not the C library's, nor the twins'
    import numba

    if CACHED:
        from numba.core.caching import IndexDataCacheFile

        IndexDataCacheFile._data_name = _own_name
    return numba


def _own_name(file: Any, number: int) -> str:
    """A name of compiled code that no other process takes."""
    return str(file._index_name.removesuffix(".nbi")) + f".{os.getpid()}-{number}.nbc"
