"""What a model knows at each time, in three types; no model has to ask in which state it is.

- ``Params``: what was learned. Arrays by name, saved with the model; arrays named ``expert_*`` have a row for each
  expert and are aligned by name.
- ``Gathered``: what was gathered from a split query, whose lists lie in several chunks.
- ``Stage``: rounds in progress. A stage is one round of map and reduce, and knows what follows: the next stage, or the
  result of all rounds.

A model gives the engine its first stage: ``Model.learning`` ends in params, ``Model.gathering`` in what was gathered.

Rounds come back to the same chunks: ``kept`` is a cache of arrays computed from chunks, as long as these are in memory.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar, Self, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from distagg.dataset.chunk import Chunk

Params = dict[str, np.ndarray]
Statistics = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """The statistics of a split query over all its chunks, beside what was learned before."""

    params: Params
    statistics: Any  # sums by name, or a type of the model's own


class Stage:
    """One round over the chunks. Subclasses are frozen dataclasses of a ``model`` and the state of the rounds."""

    model: Any
    repeated: ClassVar[bool] = True  # more rounds follow: workers keep the chunks in memory

    def sent(self) -> Stage:
        """What ``map`` needs on the workers; by default everything."""
        return self

    def map(self, chunk: Chunk) -> Statistics:
        raise NotImplementedError

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        return {key: a[key] + b[key] for key in a}

    def finish(self, statistics: Statistics) -> Any:
        """The stage that follows, or the result of the rounds."""
        raise NotImplementedError

    def state(self) -> dict[str, np.ndarray]:
        """Everything but the model as arrays, for a checkpoint."""
        return {name: np.asarray(value) for name, value in self._fields().items()}

    def resumed(self, state: dict[str, np.ndarray]) -> Self:
        """The stage of this kind that has the state of a checkpoint."""
        known = self._fields()
        numbers = {name: type(value)(state[name]) for name, value in known.items() if isinstance(value, int | float)}
        return dataclasses.replace(self, **{name: state[name] for name in known} | numbers)  # type: ignore[type-var]

    def _fields(self) -> dict[str, Any]:
        names = (field.name for field in dataclasses.fields(self) if field.name != "model")  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, eq=False)
class Pass(Stage):
    """The one round of most models: their ``map`` over all chunks of a split query."""

    repeated: ClassVar[bool] = False

    model: Any
    params: Params

    def map(self, chunk: Chunk) -> Statistics:
        statistics: Statistics = self.model.map(chunk, self.params)
        return statistics

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        statistics: Statistics = self.model.reduce(a, b)
        return statistics

    def finish(self, statistics: Statistics) -> Gathered:
        return Gathered(self.params, statistics)


@dataclass(frozen=True, slots=True, eq=False)
class LearningPass(Pass):
    """The one round of models that learn from one pass over all chunks."""

    def finish(self, statistics: Statistics) -> Any:
        return {**self.params, **self.model.learned(statistics)}


T = TypeVar("T")

MEMORY = "DISTAGG_MEMORY"  # the environment variable with the bytes that this process may use
KEPT_BYTES = 512 << 20  # for all chunks together
CACHE_SHARE = 4  # a quarter of the memory is for chunks that rounds read again, as much for what models keep of them

_kept: WeakKeyDictionary[Chunk, dict[Hashable, Any]] = WeakKeyDictionary()
_keeping = Lock()


def cache_bytes() -> int:
    """Bytes that a cache may hold in this process: of chunks between rounds, or of what models keep of them."""
    memory = os.environ.get(MEMORY, "")
    return min(KEPT_BYTES, int(memory) // CACHE_SHARE) if memory.isdigit() else KEPT_BYTES


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


def kept_bytes() -> int:
    """Bytes of all results in the cache."""
    with _keeping:
        return sum(_size(arrays) for held in _kept.values() for arrays in held.values())


def _room(wanted: int, key: Hashable) -> bool:
    """Whether that many bytes are free, after removing results of other keys as far as needed."""
    free = cache_bytes() - sum(_size(arrays) for held in _kept.values() for arrays in held.values())
    others = [(held, other) for held in _kept.values() for other in held if other != key]
    for held, other in others:
        if free >= wanted:
            break
        free += _size(held.pop(other))
    return free >= wanted


def _size(result: Any) -> int:
    arrays: Iterable[Any] = result.values() if isinstance(result, dict) else result
    return sum(int(array.nbytes) for array in arrays)
