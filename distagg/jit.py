"""The one jit policy.

Kernels are serial and release the GIL; parallelism belongs to the engine. They are compiled on first use, for the
types of their arguments, and kept on disk (see ``jit_cache``). ``error_model="numpy"`` makes division by zero give inf
or nan, as numpy does. No fastmath, and none of Intel's vector logarithms, whose last bit depends on where in a loop a
number stands: the same bits everywhere.

Few signatures: floats are float64, offsets int64, items and experts int32, all contiguous. A kernel never takes a
function as an argument, because its code could not be kept: it takes a flag.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from distagg.jit_cache import KernelCache

F = TypeVar("F", bound=Callable[..., object])


class Kernel:
    """A function that is compiled when it is called for the first time; other kernels may call it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.dispatchers: dict[bool, Any] = {}
        self.lock = threading.Lock()
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(*arguments)

    @property
    def compiled(self) -> Any:
        """The function as Python calls it; numba is loaded here."""
        return self._dispatcher(inner=False)

    @property
    def _numba_type_(self) -> Any:
        """What numba takes it for where another kernel calls it."""
        return _numba().types.Dispatcher(self._dispatcher(inner=True))

    def _dispatcher(self, inner: bool) -> Any:
        if inner not in self.dispatchers:
            with self.lock:
                if inner not in self.dispatchers:
                    self.dispatchers[inner] = _dispatcher(self.function, inner)
        return self.dispatchers[inner]

    def __reduce__(self) -> str:
        return self.__name__


def kernel(function: F) -> F:
    """Compile a bare loop over arrays."""
    return Kernel(function)  # type: ignore[return-value]


def _numba() -> Any:
    import numba

    return numba


def _dispatcher(function: Callable[..., Any], inner: bool) -> Any:
    """The function as numba has it: nothing is compiled before its first call.

    An inner function becomes a part of the kernels that call it: it is not kept, and Python cannot call it.
    """
    njit = _numba().njit(nogil=True, error_model="numpy", no_cpython_wrapper=inner, no_cfunc_wrapper=inner)
    dispatcher = njit(function)
    if dispatcher is function:  # NUMBA_DISABLE_JIT
        return function
    if not inner and function.__module__.startswith("distagg."):  # the cache's digest knows no other sources
        dispatcher._cache = KernelCache(function)
        # numba's extensions (sparse has one) are loaded to compile, not to find that nothing is to be compiled.
        dispatcher._compilation_chain_init_hook = _nothing
    if _numba().config.USING_SVML:
        dispatcher.compile = partial(_compile_without_svml, dispatcher.compile)
    return dispatcher


def _nothing() -> None:
    pass


def _compile_without_svml(compile: Callable[[Any], Any], signature: Any) -> Any:
    """Compile with the C library's functions, and leave Intel's to everybody else's code in this process."""
    from llvmlite.binding import set_option
    from numba.core.compiler_lock import global_compiler_lock

    with global_compiler_lock:
        _compiling.append(signature)  # kernels compile those that they call
        set_option("distagg", "-vector-library=none")
        try:
            return compile(signature)
        finally:
            _compiling.pop()
            if not _compiling:
                set_option("distagg", "-vector-library=SVML")


_compiling: list[Any] = []
