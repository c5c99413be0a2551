"""The jit policy of all kernels.

Kernels are serial and release the GIL; parallelism belongs to the engine. They are compiled on first use, for the types
of their arguments, and cached on disk (see ``jit_cache``). With ``error_model="numpy"`` division by zero gives inf or
nan, as in numpy. Results must have the same bits everywhere, so there is no fastmath, and Intel's vector logarithms are
off, because their last bit depends on a number's position in a loop.

Kernels have few signatures: floats are float64, offsets int64, items and experts int32, all contiguous. A kernel takes
a flag instead of a function argument, because code with function arguments cannot be cached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from distagg.jit_cache import KernelCache

F = TypeVar("F", bound=Callable[..., object])


class Kernel:
    """A function that is compiled on its first call; other kernels may call it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.dispatchers: dict[bool, Any] = {}
        self.lock = threading.Lock()
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(*arguments)

    @property
    def compiled(self) -> Any:
        """Call the kernel from Python; the first call imports numba."""
        return self._dispatcher(inner=False)

    @property
    def _numba_type_(self) -> Any:
        """The numba type of the kernel, for calls from another kernel."""
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
    """Decorator: compile a loop over arrays."""
    return Kernel(function)  # type: ignore[return-value]


def _numba() -> Any:
    import numba

    return numba


def _dispatcher(function: Callable[..., Any], inner: bool) -> Any:
    """The numba dispatcher of a function; compiles nothing before its first call.

    An inner function becomes part of the kernels that call it: it is not cached, and Python cannot call it.
    """
    dispatcher = _numba().njit(
        nogil=True, error_model="numpy", no_cpython_wrapper=inner, no_cfunc_wrapper=inner
    )(function)  # fmt: skip
    if dispatcher is function:  # NUMBA_DISABLE_JIT
        return function
    if not inner and function.__module__.startswith("distagg."):  # the cache's digest covers only this package
        dispatcher._cache = KernelCache(function)
        # numba's extensions (sparse has one) are loaded only if something must be compiled.
        dispatcher._compilation_chain_init_hook = _nothing
    if _numba().config.USING_SVML:
        dispatcher.compile = partial(_compile_without_svml, dispatcher.compile)
    return dispatcher


def _nothing() -> None:
    pass


def _compile_without_svml(compile: Callable[[Any], Any], signature: Any) -> Any:
    """Compile our kernels with the C library's functions; other code in this process may still use Intel's."""
    from llvmlite.binding import set_option
    from numba.core.compiler_lock import global_compiler_lock

    with global_compiler_lock:
        _compiling.append(signature)  # kernels compile the kernels that they call
        set_option("distagg", "-vector-library=none")
        try:
            return compile(signature)
        finally:
            _compiling.pop()
            if not _compiling:
                set_option("distagg", "-vector-library=SVML")


_compiling: list[Any] = []
