"""An ordered map on several threads, for functions that release the GIL (pyarrow, numpy, kernels)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")
_THREADS: ContextVar[int] = ContextVar("threads", default=2)


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside the block, ``ordered_map`` works in the caller's thread: on a cluster, workers are the parallelism."""
    token = _THREADS.set(1)
    try:
        yield
    finally:
        _THREADS.reset(token)


def ordered_map(function: Callable[[S], T], values: Iterable[S]) -> Iterator[T]:
    """``map`` on a few threads, results in the order of ``values``.

    With n threads at most n + 1 values are in progress, so that memory is bounded for any length of ``values``, which
    the caller's thread iterates. An error is raised in place of its result.

    >>> list(ordered_map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    workers = _THREADS.get()
    if workers == 1:
        yield from map(function, values)
        return
    pending: deque[Future[T]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="distagg") as pool:
        try:
            for value in values:
                pending.append(pool.submit(function, value))
                if len(pending) > workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
