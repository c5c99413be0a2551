"""A cache of arrays computed from chunks, as long as the chunks are in memory: rounds come back to the same chunks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from distagg.dataset.chunk import Chunk

T = TypeVar("T")

KEPT_BYTES = 512 << 20  # for all chunks together

_kept: WeakKeyDictionary[Chunk, dict[Hashable, Any]] = WeakKeyDictionary()
_keeping = Lock()


def kept(chunk: Chunk, key: Hashable, make: Callable[[Chunk], T]) -> T:
    """The result of ``make(chunk)``, arrays in a dictionary or a tuple, from the cache if it is there.

    When the cache is full, results under other keys go first: they belong to models whose training is over. If that is
    not enough, the new result is not cached, and the first ones stay. Rounds go through all chunks again and again, so
    that replacing the oldest would replace each one before it is used.
    """
    with _keeping:
        held = _kept.get(chunk, {})
        if key in held:
            return held[key]
    arrays = make(chunk)
    with _keeping:
        if _room(_size(arrays), key):
            _kept.setdefault(chunk, {})[key] = arrays
    return arrays


def _room(wanted: int, key: Hashable) -> bool:
    """Whether that many bytes are free, after removing results of other keys as far as needed."""
    free = KEPT_BYTES - sum(_size(arrays) for held in _kept.values() for arrays in held.values())
    others = [(held, other) for held in _kept.values() for other in held if other != key]
    for held, other in others:
        if free >= wanted:
            break
        free += _size(held.pop(other))
    return free >= wanted


def _size(result: Any) -> int:
    arrays: Iterable[Any] = result.values() if isinstance(result, dict) else result
    return sum(int(array.nbytes) for array in arrays)
