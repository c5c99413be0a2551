"""What is made of a chunk and kept while the chunk is in memory: rounds come back to the same chunks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from distagg.dataset.chunk import Chunk

T = TypeVar("T")

KEPT_BYTES = 512 << 20  # of all chunks together; what finds no room is made again

_kept: WeakKeyDictionary[Chunk, dict[Hashable, Any]] = WeakKeyDictionary()
_keeping = Lock()


def kept(chunk: Chunk, key: Hashable, make: Callable[[Chunk], T]) -> T:
    """What ``make`` gives for the chunk, arrays in a dictionary or a tuple, from memory if it was kept."""
    with _keeping:
        held = _kept.get(chunk, {})
        if key in held:
            return held[key]
    made = make(chunk)
    with _keeping:
        if _size(made) + sum(_size(one) for kept in _kept.values() for one in kept.values()) <= KEPT_BYTES:
            _kept.setdefault(chunk, {})[key] = made
    return made


def _size(made: Any) -> int:
    arrays: Iterable[Any] = made.values() if isinstance(made, dict) else made
    return sum(int(array.nbytes) for array in arrays)
