"""Rounds over the same chunks: one message through the scheduler to all workers, one answer from each.

A Dask task passes through the queues of five processes before its result is back, and training in rounds would wait for
that hundreds of times. ``Client.run`` instead hands one message to the scheduler, which passes it on to all workers, so
the driver needs no connection to any worker. Every worker keeps its share of the chunk references: the driver sends
shares once, a round names them by digest, and the chunks stay in the worker's cache.

A worker that fails, leaves, or sends no heartbeat while others do (``ask.SILENT_SECONDS``), is given up: it gets no
message for ``BACKOFF_SECONDS``, and the caller runs its share elsewhere. The other workers are then asked again for the
same round, and answer with what they have computed meanwhile.

Dask does not see this work in its queues. So that adaptive clusters do not retire workers in use, each worker also runs
a Dask task that has seceded (it takes no thread) and lasts while rounds keep coming: Dask never retires a worker with
such a task.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distagg.dataset.chunk_ref import ChunkRef
from distagg.engine import ask
from distagg.engine.identity import fingerprint, identity, other_code
from distagg.engine.runner import NotedResult, Round, Work, reduce_span
from distagg.engine.worker_memory import note_memory

BACKOFF_SECONDS = 60.0  # no message to a worker for this long after it did not answer
HOLD_SECONDS = 10.0  # how long a worker stays in use after its last round
SHARE_BYTES = 256 << 20  # of chunk references, in a worker

Reduce = Callable[[Any, Any], Any]
Span = tuple[int, int]  # of chunks: first, and one past the last
Share = list[tuple[tuple[ChunkRef, ...], int]]  # for each thread of a worker: its chunks, and the index of the first
Step = tuple[Work, Reduce, str]  # of a round: what to do, and the digest of the chunks


@dataclass(slots=True)
class Shares:
    """A worker's shares by digest; the least recently used go first when the budget is full."""

    budget: int = SHARE_BYTES
    held: OrderedDict[str, tuple[Share, int]] = field(default_factory=OrderedDict)

    def add(self, sent: dict[str, bytes]) -> None:
        from distributed.protocol.pickle import loads

        for digest, body in sent.items():
            self.held[digest] = loads(body), len(body)
        while sum(size for _, size in self.held.values()) > self.budget and len(self.held) > len(sent):
            self.held.popitem(last=False)

    def lacking(self, digests: Sequence[str]) -> list[str]:
        for digest in digests:
            if digest in self.held:
                self.held.move_to_end(digest)
        return [digest for digest in digests if digest not in self.held]


@dataclass(slots=True)
class Seat:
    """What a worker keeps between messages: its shares, the round in progress, and when it was last in use."""

    shares: Shares = field(default_factory=Shares)
    token: str = ""
    running: asyncio.Future[Any] | None = None
    used: float = field(default_factory=time.monotonic)

    def in_use(self) -> bool:
        busy = self.running is not None and not self.running.done()
        return busy or time.monotonic() - self.used < HOLD_SECONDS


_seats: dict[str, Seat] = {}  # by the worker's address: workers may share a process


def _seat(worker: Any) -> Seat:
    note_memory(worker)
    return _seats.setdefault(worker.address, Seat())


async def receive(sent: dict[str, bytes], dask_worker: Any) -> None:
    """In a worker: keep shares of chunk references."""
    _seat(dask_worker).shares.add(sent)


async def answer(expected: str, token: str, steps: list[Step], dask_worker: Any) -> dict[str, Any]:
    """In a worker: run its share of every step in its threads, or name the shares that it does not have.

    A second message with the same token waits for the work that the first one began. A worker whose fingerprint is
    not the expected one tells its identity instead.
    """
    if expected != fingerprint():
        return {"other": identity()}
    seat = _seat(dask_worker)
    seat.used = time.monotonic()
    if seat.token != token or seat.running is None:
        lacking = seat.shares.lacking([digest for _, _, digest in steps])
        if lacking:
            return {"lacking": lacking}
        shares = [(work, reduce, seat.shares.held[digest][0]) for work, reduce, digest in steps]
        threads = max((len(share) for _, _, share in shares), default=0)
        loop, pool = asyncio.get_running_loop(), dask_worker.executors["default"]
        calls = [
            [(work, *share[n], reduce) for work, reduce, share in shares if n < len(share)] for n in range(threads)
        ]
        seat.token = token
        seat.running = asyncio.gather(*(loop.run_in_executor(pool, _in_turn, mine) for mine in calls))
    outcomes = await asyncio.shield(seat.running)
    seat.used = time.monotonic()
    return {"outcomes": outcomes}


def _in_turn(calls: list[tuple[Work, tuple[ChunkRef, ...], int, Reduce]]) -> list[NotedResult]:
    return [reduce_span(*call) for call in calls]


def share_out(refs: Sequence[ChunkRef], pieces: int) -> list[Span]:
    """Split chunks into at most ``pieces`` consecutive spans with about the same number of entries."""
    weights = [ref.entries + 1 for ref in refs]
    spans: list[Span] = []
    total, first, filled = sum(weights), 0, 0
    for index, weight in enumerate(weights):
        filled += weight
        if filled * pieces >= total * (len(spans) + 1) or index == len(refs) - 1:
            spans.append((first, index + 1))
            first = index + 1
    return spans


def hold() -> None:
    """A Dask task: keeps its worker from being retired while rounds run there."""
    from distributed import get_worker, secede

    seat = _seat(get_worker())
    seat.used = time.monotonic()
    secede()
    pause = threading.Event()
    while seat.in_use():
        pause.wait(HOLD_SECONDS / 10)


class Part(NamedTuple):
    """A span of chunks, its result (None: not computed yet), and the workers that should compute it."""

    span: Span
    outcome: NotedResult | None
    workers: Sequence[str]


@dataclass(frozen=True, slots=True)
class Layout:
    """How chunks are shared out: a span of them for each worker thread, and a digest that identifies the layout."""

    digest: str
    refs: tuple[ChunkRef, ...]
    slots: tuple[str, ...]
    spans: tuple[Span, ...]

    def body(self, address: str) -> bytes:
        """A worker's share, as it is sent."""
        from distributed.protocol.pickle import dumps

        mine = [span for slot, span in zip(self.slots, self.spans, strict=False) if slot == address]
        return bytes(dumps([(self.refs[a:b], a) for a, b in mine]))


class Broadcast:
    """Messages to all workers of a connected client."""

    def __init__(self, client: Any, *, hold_workers: bool = True) -> None:
        self.client = client
        self.hold_workers = hold_workers
        self._polled = float("-inf")
        self._slots: tuple[str, ...] = ()
        self._backed_off: dict[str, float] = {}
        self._holds: dict[str, Any] = {}
        self._layouts: OrderedDict[tuple[tuple[ChunkRef, ...], tuple[str, ...]], Layout] = OrderedDict()

    def slots(self) -> tuple[str, ...]:
        """The address of every worker thread, at most a second old, without the workers in back-off."""
        now = time.monotonic()
        if now - self._polled > ask.POLL_WORKERS_SECONDS:
            self._backed_off = {address: until for address, until in self._backed_off.items() if until > now}
            threads = {a: count for a, count in self.client.nthreads().items() if a not in self._backed_off}
            self._slots = tuple(address for address in sorted(threads) for _ in range(threads[address]))
            if self.hold_workers:
                self._hold(threads.keys())
            self._polled = time.monotonic()
        return self._slots

    def _hold(self, addresses: Set[str]) -> None:
        """A task on every worker that keeps it from being retired; one that has ended is submitted again."""
        for address in self._holds.keys() - addresses:
            self._holds.pop(address, None)
        for address in addresses - self._holds.keys():
            self._holds[address] = future = self.client.submit(hold, workers=[address], pure=False)
            # Dask keeps a worker for the result of a task as long as somebody has its future.
            future.add_done_callback(lambda done, address=address: self._holds.pop(address, None))

    def run(self, todo: Sequence[Round]) -> list[list[Part]]:
        """The parts of every round, without a result where a worker did not answer. Raises a task's error."""
        slots = self.slots()
        layouts = [self._layout(tuple(step.refs), slots) for step in todo]
        steps = [(step.work, step.reduce, layout.digest) for step, layout in zip(todo, layouts, strict=True)]
        answers = self._ask(steps, {layout.digest: layout for layout in layouts})
        first = {slot: -place for place, slot in reversed(list(enumerate(slots)))}
        answering = sorted(set(self.slots()))
        rows: list[list[Part]] = [[] for _ in layouts]
        for number, layout in enumerate(layouts):
            for place, (slot, span) in enumerate(zip(slots or ("",), layout.spans, strict=False)):
                outcomes = answers.get(slot)
                # An answer holds, for each thread of the worker, the results of the steps in which it has a span.
                before = sum(place < len(other.spans) for other in layouts[:number])
                rows[number].append(Part(span, outcomes[place + first[slot]][before] if outcomes else None, answering))
        return rows

    def parts(self, refs: Sequence[ChunkRef], pieces: int) -> list[Part]:
        """So many parts for each worker thread, all without a result, for the workers that a message would go to."""
        slots = self.slots() or ("",)
        return [
            Part((a + c, a + d), None, [slot] if slot else [])
            for slot, (a, b) in zip(slots, share_out(refs, len(slots)), strict=False)
            for c, d in share_out(refs[a:b], pieces)
        ]

    def _layout(self, refs: tuple[ChunkRef, ...], slots: tuple[str, ...]) -> Layout:
        """How the chunks are shared out over the threads; the digest is computed once while it is in use."""
        from distributed.protocol.pickle import dumps

        key = refs, slots
        if key not in self._layouts:
            digest = hashlib.sha256(dumps(key)).hexdigest()
            self._layouts[key] = Layout(digest, refs, slots, tuple(share_out(refs, max(1, len(slots)))))
            while len(self._layouts) > 8:
                self._layouts.popitem(last=False)
        self._layouts.move_to_end(key)
        return self._layouts[key]

    def _ask(self, steps: list[Step], layouts: dict[str, Layout]) -> dict[str, list[list[NotedResult]]]:
        """The answers by address; workers that do not answer are backed off."""
        token = uuid.uuid4().hex
        waiting = {slot for layout in layouts.values() for slot, _ in zip(layout.slots, layout.spans, strict=False)}
        answers: dict[str, list[list[NotedResult]]] = {}
        while waiting:
            replies = self._wait(self._call(token, steps, sorted(waiting)), waiting)
            lacking: dict[str, list[Layout]] = {}
            for address, reply in replies.items():
                if isinstance(reply, OSError):  # closed, refused, timed out: by the scheduler's word, or the task's own
                    self._back_off(address)
                    waiting.discard(address)
                elif isinstance(reply, Exception):
                    raise reply
                elif "other" in reply:
                    raise other_code({address: reply["other"]})
                elif "lacking" in reply:
                    lacking[address] = [layouts[digest] for digest in reply["lacking"]]
                else:
                    answers[address] = reply["outcomes"]
                    waiting.discard(address)
            if lacking:
                self._wait(self._send(lacking), set(lacking))
            waiting -= self._backed_off.keys()
        return answers

    async def _call(self, token: str, steps: list[Step], workers: list[str]) -> dict[str, Any]:
        replies: dict[str, Any] = await self.client.run(
            answer, fingerprint(), token, steps, workers=workers, on_error="return"
        )
        return replies

    async def _send(self, lacking: dict[str, list[Layout]]) -> dict[str, Any]:
        for address, layouts in lacking.items():  # one by one: chunks in memory travel with their references
            sent = {layout.digest: layout.body(address) for layout in layouts}
            await self.client.run(receive, sent, workers=[address], on_error="ignore")
        return {}

    def _wait(self, coroutine: Any, called: set[str]) -> dict[str, Any]:
        """The replies; nothing if a worker that was called is gone or silent, which is then backed off."""
        future = ask.start(self.client, coroutine)
        try:
            gone = ask.wait_or_silent(self.client, future, called)
            for address in gone:
                self._back_off(address)
            return {} if gone else future.result()
        finally:
            future.cancel()

    def _back_off(self, address: str) -> None:
        self._backed_off[address] = time.monotonic() + BACKOFF_SECONDS
        self._polled = float("-inf")
