"""Runners supply map and the merge tree; the inline runner works in this process, without Dask.

A task is ``function(chunk, index, payload)`` on a loaded chunk. Notes of the models (not converged) come back with the
result, and the driver repeats them.

The merge tree is fixed: the same sums, to the last bit, for any distribution of chunks over workers. Leaves are chunk
results in dataset order. Node (level, place) covers 2**level leaves from place * 2**level on. A worker merges every
complete node inside its span of leaves; the driver merges the rest. A node without a right neighbour is promoted, so
the shape depends only on the number of leaves.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from distagg.dataset.chunk import Chunk
from distagg.dataset.chunk_ref import ChunkRef
from distagg.dataset.dataset import Dataset
from distagg.engine.progress import Progress, silent
from distagg.models.base import collected_notes, not_converged
from distagg.models.rounds import cache_bytes, kept_bytes

T = TypeVar("T")
Task = Callable[[Chunk, int, Any], T]


@dataclass(frozen=True, slots=True)
class Work:
    """The work to do on every chunk: the task, its payload, whether it needs item ids, whether to cache chunks."""

    task: Task[Any]
    payload: Any
    ids: bool = False
    repeated: bool = False


NotedResult = tuple[Any, list[str]]  # a result, and the models' notes


@dataclass(frozen=True, slots=True)
class Round:
    """One pass over the data: the work to do on every chunk, the chunks, and the function that merges the results."""

    work: Work
    refs: Sequence[ChunkRef]
    reduce: Callable[[Any, Any], Any]


class Runner(Protocol):
    @property
    def client(self) -> Any:
        """The Dask client, or None where there is no cluster."""
        ...

    def map(self, work: Work, refs: Sequence[ChunkRef], progress: Progress = silent) -> Iterator[Any]:
        """Results in the order of ``refs``."""
        ...

    def map_reduce(
        self, work: Work, refs: Sequence[ChunkRef], reduce: Callable[[T, T], T], progress: Progress = silent
    ) -> T | None:
        """Results merged in the fixed tree."""
        ...

    def rounds(self, todo: Sequence[Round], progress: Progress = silent) -> Iterator[Any]:
        """The merged results of several rounds, in order; rounds that the caller does not ask for may be skipped."""
        ...

    def each(self, function: Callable[[Any], T], payloads: Sequence[Any], progress: Progress = silent) -> Iterator[T]:
        """Independent calls, in parallel on workers; results in order."""
        ...


@dataclass(slots=True)
class Cache:
    """A cache of chunks within a budget; chunks that do not fit are loaded again each time.

    Rounds go through a dataset from end to end, again and again, so least-recently-used eviction would always drop the
    chunk that is needed next. Instead the first chunks stay until another dataset (or selection of it) needs the space.
    """

    budget: int = 0  # 0: by the memory of this process
    held: OrderedDict[tuple[ChunkRef, bool], Chunk] = field(default_factory=OrderedDict)
    size: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)  # a worker may have several threads

    @property
    def limit(self) -> int:
        """Bytes that the cache may hold."""
        return self.budget or cache_bytes()

    def load(self, ref: ChunkRef, ids: bool) -> Chunk:
        key = (ref, ids)
        with self.lock:
            if key in self.held:
                self.held.move_to_end(key)
                return self.held[key]
        chunk = ref.load(ids=ids)
        with self.lock:
            if key not in self.held:
                self._keep(key, chunk)
        return chunk

    def _keep(self, key: tuple[ChunkRef, bool], chunk: Chunk) -> None:
        others = [other for other in self.held if not _same(other[0], key[0])]
        for other in others:
            if self.size + kept_bytes() + chunk.nbytes <= self.limit:  # with what models keep of the chunks
                break
            self.size -= self.held.pop(other).nbytes
        if self.size + chunk.nbytes <= self.limit:
            self.held[key] = chunk
            self.size += chunk.nbytes


def _same(one: ChunkRef, other: ChunkRef) -> bool:
    """Whether both chunks belong to the same selection of a dataset on disk."""
    return bool(one.path) and (one.path, one.where) == (other.path, other.where)


_cache = Cache()


def run_span(work: Work, refs: Sequence[ChunkRef], first: int, progress: Progress = silent) -> Iterator[Any]:
    """Load and process consecutive chunks, one at a time."""
    for offset, ref in enumerate(refs):
        chunk = _cache.load(ref, work.ids) if work.repeated else ref.load(ids=work.ids)
        yield work.task(chunk, first + offset, work.payload)
        progress(1)


def reduce_span(work: Work, refs: Sequence[ChunkRef], first: int, reduce: Callable[[Any, Any], Any]) -> NotedResult:
    """The merged nodes of a span, and the models' notes."""
    with collected_notes() as notes:
        return merge_span(first, run_span(work, refs, first), reduce), notes


def collect_span(work: Work, refs: Sequence[ChunkRef], first: int) -> NotedResult:
    """The results of a span in order, and the models' notes."""
    with collected_notes() as notes:
        return list(run_span(work, refs, first)), notes


def call_noting(function: Callable[[Any], Any], payload: Any) -> NotedResult:
    """The result of an independent call, and the models' notes."""
    with collected_notes() as notes:
        return function(payload), notes


def raise_notes(notes: list[str]) -> None:
    for message in notes:
        not_converged(message)


class InlineRunner:
    """Runs chunk after chunk in this process: the default."""

    client: Any = None

    def map(self, work: Work, refs: Sequence[ChunkRef], progress: Progress = silent) -> Iterator[Any]:
        for index, ref in enumerate(refs):
            with collected_notes() as notes:
                (value,) = run_span(work, [ref], index, progress)
            raise_notes(notes)
            yield value

    def map_reduce(
        self, work: Work, refs: Sequence[ChunkRef], reduce: Callable[[T, T], T], progress: Progress = silent
    ) -> T | None:
        with collected_notes() as notes:
            nodes = merge_span(0, run_span(work, refs, 0, progress), reduce)
        raise_notes(notes)
        return merge_all([nodes], reduce)

    def rounds(self, todo: Sequence[Round], progress: Progress = silent) -> Iterator[Any]:
        for step in todo:
            yield self.map_reduce(step.work, step.refs, step.reduce, progress)

    def each(self, function: Callable[[Any], T], payloads: Sequence[Any], progress: Progress = silent) -> Iterator[T]:
        for payload in payloads:
            yield function(payload)
            progress(1)


def as_runner(runner: Any = None) -> Runner:
    """The runner that is meant: None is this process, a ``distributed.Client`` its cluster.

    >>> type(as_runner()).__name__
    'InlineRunner'
    """
    if runner is None:
        return InlineRunner()
    if not isinstance(runner, type) and any(base.__module__ == "distributed.client" for base in type(runner).__mro__):
        from distagg.engine.dask import runner_of

        return runner_of(runner)
    return runner


def runner_for(runner: Any, dataset: Dataset) -> Runner:
    """As ``as_runner``; None is the cluster that holds the dataset's chunks, if there is one."""
    if runner is None and dataset.held and not isinstance(dataset.held[0], Chunk):
        from distagg.engine.collections import client_of

        runner = client_of(dataset)
    return as_runner(runner)


class Node(NamedTuple):
    level: int
    place: int  # among the nodes of its level
    value: object


def push(stack: list[Node], node: Node, reduce: Callable[[T, T], T]) -> None:
    """Add the next node in order and merge the pairs that it completes."""
    while stack and stack[-1].level == node.level and node.place % 2 == 1 and stack[-1].place == node.place - 1:
        left = stack.pop()
        node = Node(node.level + 1, node.place // 2, reduce(left.value, node.value))  # type: ignore[arg-type]
    stack.append(node)


def merge_span(first: int, values: Iterable[T], reduce: Callable[[T, T], T]) -> list[Node]:
    """The complete nodes of leaves ``first``, ``first + 1``, ... in order."""
    stack: list[Node] = []
    for offset, value in enumerate(values):
        push(stack, Node(0, first + offset, value), reduce)
    return stack


def merge_all(spans: Iterable[list[Node]], reduce: Callable[[T, T], T]) -> T | None:
    """The root, from the nodes of consecutive spans that cover all leaves; None without leaves."""
    stack: list[Node] = []
    for span in spans:
        for node in span:
            push(stack, node, reduce)
    if not stack:
        return None
    value = stack.pop().value
    while stack:
        value = reduce(stack.pop().value, value)  # type: ignore[arg-type]
    return value  # type: ignore[return-value]
