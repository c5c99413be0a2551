"""Rounds over the same chunks: the driver calls workers itself, so that a round costs one message each way.

A task of Dask's scheduler passes five processes' queues before its result is back; a model that is trained in rounds
would wait for that hundreds of times. Here every worker thread keeps its span of chunks (the words that say how to load
them are sent once, the chunks are in its cache) and gets only what changes. Nothing is lost with a worker: a span whose
call fails, or whose worker the scheduler has given up, is handed back, and the runner makes an ordinary task of it.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

from distagg.dataset.reader import ChunkRef
from distagg.engine.runner import Outcome, Work, reduce_span

LOOK_SECONDS = 1.0  # how often the scheduler is asked which workers there are
SHUN_SECONDS = 60.0  # a worker that did not answer is left to the scheduler for so long
KEPT_BYTES = 256 << 20  # of spans, in a worker

Reduce = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Work on a span of chunks."""

    work: Work
    refs: tuple[ChunkRef, ...]
    first: int
    reduce: Reduce

    @property
    def told(self) -> tuple[Work, tuple[ChunkRef, ...], int, Reduce]:
        """The arguments of ``reduce_span``."""
        return self.work, self.refs, self.first, self.reduce


@dataclass(slots=True)
class Spans:
    """Spans by the digest of their bytes, newest kept, within a budget."""

    budget: int = KEPT_BYTES
    held: OrderedDict[str, tuple[tuple[ChunkRef, ...], int]] = field(default_factory=OrderedDict)

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


_spans = Spans()  # of this worker; only its event loop touches it


async def answer(calls: list[tuple[Work, str, int, Reduce]], sent: dict[str, bytes], dask_worker: Any) -> Any:
    """In a worker: the outcomes of calls one after the other in one of its threads, or the spans it has to be sent."""
    _spans.add(sent)
    lacking = _spans.lacking([digest for _, digest, _, _ in calls])
    if lacking:
        return {"lacking": lacking}
    found = [(work, _spans.held[digest][0], first, reduce) for work, digest, first, reduce in calls]
    loop, pool = dask_worker.loop.asyncio_loop, dask_worker.executors["default"]
    return {"outcomes": await loop.run_in_executor(pool, _in_turn, found)}


def _in_turn(calls: list[tuple[Work, tuple[ChunkRef, ...], int, Reduce]]) -> list[Outcome]:
    return [reduce_span(*call) for call in calls]


class Rounds:
    """Calls to the workers of a connected client."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._looked = float("-inf")
        self._slots: list[str] = []
        self._shunned: dict[str, float] = {}
        self._named: OrderedDict[tuple[ChunkRef, ...], tuple[str, bytes]] = OrderedDict()

    def slots(self) -> list[str]:
        """The address of every worker thread; may be a second old. Workers that did not answer are left out."""
        now = time.monotonic()
        if now - self._looked > LOOK_SECONDS:
            self._shunned = {address: until for address, until in self._shunned.items() if until > now}
            threads = {a: count for a, count in self.client.nthreads().items() if a not in self._shunned}
            self._slots = [address for address in sorted(threads) for _ in range(threads[address])]
            self._looked = time.monotonic()
        return self._slots

    def run(self, calls: list[tuple[str, list[Call]]]) -> list[list[Outcome] | None]:
        """The outcomes of the calls of every slot; None where its worker did not answer. A task's error is raised."""
        import asyncio

        loop = self.client.loop.asyncio_loop
        running = [asyncio.run_coroutine_threadsafe(self._ask(address, todo), loop) for address, todo in calls]
        waiting = set(running)
        try:
            while waiting:
                _, waiting = futures.wait(waiting, timeout=LOOK_SECONDS)
                if waiting:
                    here = self.client.nthreads()
                    for (address, _), one in zip(calls, running, strict=True):
                        if one in waiting and address not in here:
                            one.cancel()
            found = [None if one.cancelled() else one.result() for one in running]
        finally:
            for one in waiting:
                one.cancel()
        for (address, _), outcomes in zip(calls, found, strict=True):
            if outcomes is None:
                self._shunned[address] = time.monotonic() + SHUN_SECONDS
                self._looked = float("-inf")
        return found

    async def _ask(self, address: str, calls: list[Call]) -> list[Outcome] | None:
        from distributed.core import clean_exception
        from distributed.protocol.pickle import dumps

        named = [self._name(call.refs) for call in calls]
        words = [(c.work, digest, c.first, c.reduce) for c, (digest, _) in zip(calls, named, strict=True)]
        sent: dict[str, bytes] = {}
        for _ in range(2):  # the second time with what the worker lacks
            try:
                reply = await self.client.rpc(address).run(function=dumps(answer), args=dumps((words, sent)))
            except OSError:  # closed, refused, timed out
                return None
            if reply["status"] == "error":
                raise clean_exception(**reply)[1] or RuntimeError(f"the worker {address} failed without saying why")
            found = reply["result"]
            if "outcomes" in found:
                return found["outcomes"]
            sent = {digest: body for digest, body in named if digest in found["lacking"]}
        return None

    def _name(self, refs: tuple[ChunkRef, ...]) -> tuple[str, bytes]:
        """A span's digest and bytes, made once while it is in use."""
        from distributed.protocol.pickle import dumps

        if refs not in self._named:
            body = dumps(refs)
            self._named[refs] = hashlib.sha256(body).hexdigest(), body
            while sum(len(body) for _, body in self._named.values()) > KEPT_BYTES and len(self._named) > 1:
                self._named.popitem(last=False)
        self._named.move_to_end(refs)
        return self._named[refs]
