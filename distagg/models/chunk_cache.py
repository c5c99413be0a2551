"""What is made of a chunk and kept while the chunk is in memory: rounds come back to the same chunks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from distagg.dataset.chunk import Chunk

T = TypeVar("T")

KEPT_BYTES = 512 << 20  # of all chunks together

_kept: WeakKeyDictionary[Chunk, dict[Hashable, Any]] = WeakKeyDictionary()
_keeping = Lock()


def kept(chunk: Chunk, key: Hashable, make: Callable[[Chunk], T]) -> T:
    """What ``make`` gives for the chunk, arrays in a dictionary or a tuple, from memory if it was kept.

    Where room is short, what was made under other keys (for models whose training is over, in a process that lives
    long) goes first. What finds no room even so is made again: of one key, those that came first stay, since rounds go
    through all chunks over and over.
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
    """Whether there is room, after other keys have made way."""
    free = KEPT_BYTES - sum(_size(arrays) for held in _kept.values() for arrays in held.values())
    others = [(held, other) for held in _kept.values() for other in held if other != key]
    for held, other in others:
        if free >= wanted:
            break
        free += _size(held.pop(other))
    return free >= wanted


def _size(made: Any) -> int:
    arrays: Iterable[Any] = made.values() if isinstance(made, dict) else made
    return sum(int(array.nbytes) for array in arrays)
