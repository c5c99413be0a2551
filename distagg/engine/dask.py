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
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from distagg.dataset.dataset import ChunkRef
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import Outcome, Round, Work, call_noting, collect_span, raise_notes, reduce_span
from distagg.engine.tree import merge_all
from distagg.errors import DistaggError, InfrastructureError, UsageError

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


# The Dask runner: the same map and tree on a local cluster or any scheduler. Only the engine knows Dask.
#
# Few, fat tasks: each gets a span of consecutive chunks, loads them itself (lineage: a lost worker's span is simply
# run again elsewhere) and returns merged nodes. Spans follow the number of workers, results do not: nodes merge in
# the fixed tree. Every wait has a deadline, and the driver watches the worker count. Rounds over the same chunks are
# calls to the workers (``engine.rounds``), and become tasks where a worker is lost.
#
# Settings that differ from Dask's defaults, and why:
#
# - ``allowed-failures`` 3 -> 30: a task counts as guilty whenever its worker dies, innocent or not.
# - ``no-workers-timeout`` never -> 60 s: a job without workers should end with an error, not hang.
# - dashboard on loopback, any free port: a LocalCluster would listen on every interface, at 8787.
# - ``NUMBA_NUM_THREADS``, ``OMP_NUM_THREADS`` 1 in workers: parallelism is the engine's.
# - ``connection_limit`` 512 -> 8,192: a round calls every worker at once, and the 513th would wait for another to end.
# - work stealing off: spans are balanced by entries beforehand, and a stolen span loses its cached chunks.


T = TypeVar("T")

NO_WORKERS_SECONDS = 60.0
POLL_SECONDS = 1.0
SPANS_PER_THREAD = 4  # one-pass work: small enough to balance, large enough to hide the scheduler
CONNECTIONS = 8192
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

SETTINGS = {
    "distributed.scheduler.allowed-failures": 30,
    "distributed.scheduler.no-workers-timeout": f"{NO_WORKERS_SECONDS:.0f}s",
    "distributed.scheduler.work-stealing": False,
    "distributed.nanny.pre-spawn-environ.NUMBA_NUM_THREADS": 1,
    "distributed.nanny.pre-spawn-environ.OMP_NUM_THREADS": 1,
    "distributed.nanny.pre-spawn-environ.OPENBLAS_NUM_THREADS": 1,
    "distributed.worker.daemon": True,
}


class DaskRunner:
    """Map and tree over a connected Dask client."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.direct = Rounds(client)

    @property
    def threads(self) -> int:
        return max(1, sum(self.client.nthreads().values()))

    def map(self, work: Work, refs: Sequence[ChunkRef], progress: Progress = silent) -> Iterator[Any]:
        spans = share_out(refs, self.threads * SPANS_PER_THREAD)
        calls = [(collect_span, (work, refs[a:b], a)) for a, b in spans]
        for values in self._run(calls, spans, progress):
            yield from values

    def map_reduce(
        self, work: Work, refs: Sequence[ChunkRef], reduce: Callable[[T, T], T], progress: Progress = silent
    ) -> T | None:
        if work.repeated:
            return next(self.rounds([Round(work, refs, reduce)], progress))
        spans = share_out(refs, self.threads * SPANS_PER_THREAD)
        calls = [(reduce_span, (work, refs[a:b], a, reduce)) for a, b in spans]
        return merge_all(self._run(calls, spans, progress), reduce)

    def rounds(self, todo: Sequence[Round], progress: Progress = silent) -> Iterator[Any]:
        """A span of every round for each worker thread, all in one message; spans that come back are made tasks."""
        try:
            slots = self.direct.slots()
            calls = [
                [
                    Call(one.work, tuple(one.refs[a:b]), a, one.reduce)
                    for a, b in share_out(one.refs, max(1, len(slots)))
                ]
                for one in todo
            ]
            shares = [(slot, [row[n] for row in calls if n < len(row)]) for n, slot in enumerate(slots)]
            answers = self.direct.run([(slot, mine) for slot, mine in shares if mine])
        except OSError as error:
            raise InfrastructureError(f"a worker failed: {error}; run again to resume") from error
        answered: dict[Call, Outcome] = {}
        for (_, mine), outcomes in zip(shares, answers, strict=False):
            answered.update(zip(mine, outcomes or (), strict=False))
        for row in calls:
            lost = [call for call in row if call not in answered]
            again = self._run([(reduce_span, call.told) for call in lost], [(0, 0)] * len(lost), silent)
            nodes = []
            for call in row:
                value, notes = answered[call] if call in answered else (next(again), [])
                raise_notes(notes)
                progress(len(call.refs))
                nodes.append(value)
            yield merge_all(nodes, row[0].reduce) if row else None

    def each(self, function: Callable[[Any], T], payloads: Sequence[Any], progress: Progress = silent) -> Iterator[T]:
        calls = [(call_noting, (function, payload)) for payload in payloads]
        yield from self._run(calls, [(n, n + 1) for n in range(len(calls))], progress)

    def _run(
        self, calls: list[tuple[Callable[..., Any], tuple[Any, ...]]], spans: list[tuple[int, int]], progress: Progress
    ) -> Iterator[Any]:
        """Results in order. A task's own error is raised as it is; anything else is the infrastructure's."""
        # Lowest number first, so that results can be used (and dropped) in order while later spans still run.
        futures = [self.client.submit(f, *args, pure=False, priority=-n) for n, (f, args) in enumerate(calls)]
        try:
            for n, future in enumerate(futures):
                value, notes = self._wait(future)
                raise_notes(notes)
                progress(spans[n][1] - spans[n][0])
                futures[n] = None  # lets the cluster forget the result
                yield value
        finally:
            waiting = [future for future in futures if future is not None]
            if waiting:
                self.client.cancel(waiting, force=True)

    def _wait(self, future: Any) -> Any:
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError

        alone_since: float | None = None
        while True:
            try:
                return future.result(timeout=POLL_SECONDS)
            except TimeoutError:
                alone_since = self._alone(alone_since)
            except UnboundLocalError:
                # On a busy machine distributed's own waiting is sometimes cancelled and leaves no result: ask again.
                if future.status == "error":
                    raise
                alone_since = self._alone(alone_since)
            except DistaggError:
                raise
            except (KilledWorker, FutureCancelledError, CommClosedError, OSError) as error:
                raise InfrastructureError(f"the cluster lost a task: {error}; run again to resume") from error

    def _alone(self, since: float | None) -> float | None:
        """When the last worker left, or None; an error once that is too long ago."""
        if self.client.nthreads():
            return None
        now = time.monotonic()
        if since is not None and now - since > NO_WORKERS_SECONDS:
            raise InfrastructureError(f"no worker for {NO_WORKERS_SECONDS:.0f} seconds; check the cluster, run again")
        return since if since is not None else now


def share_out(refs: Sequence[ChunkRef], pieces: int) -> list[tuple[int, int]]:
    """Consecutive spans of about equal entries, at most ``pieces`` of them."""
    weights = [ref.entries + 1 for ref in refs]
    spans: list[tuple[int, int]] = []
    total, first, filled = sum(weights), 0, 0
    for index, weight in enumerate(weights):
        filled += weight
        if filled * pieces >= total * (len(spans) + 1) or index == len(refs) - 1:
            spans.append((first, index + 1))
            first = index + 1
    return spans


@contextmanager
def local_cluster(workers: int) -> Iterator[DaskRunner]:
    """A cluster of processes on this machine, on loopback, that ends with the block."""
    import dask
    from distributed import Client, LocalCluster

    if workers < 1:
        raise UsageError(f"--workers: found {workers}, expected a whole number of at least 1")
    with (
        dask.config.set(SETTINGS),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False, connection_limit=CONNECTIONS) as client,
    ):
        yield DaskRunner(client)


@contextmanager
def remote_cluster(address: str) -> Iterator[DaskRunner]:
    """A cluster that runs already. Off this machine only with TLS."""
    import dask
    from distributed import Client

    host = address.rpartition("://")[2].rpartition(":")[0]
    if not address.startswith("tls://") and host not in LOOPBACK:
        raise UsageError(
            f"--scheduler {address}: found an unencrypted address off this machine, expected tls://HOST:PORT; "
            "'distagg certificates' makes what it needs"
        )
    if address.startswith("tls://") and not dask.config.get("distributed.comm.tls.ca-file", None):
        raise UsageError(
            f"--scheduler {address}: found no certificates, expected those of the cluster: export DASK_CONFIG=FOLDER "
            "with the folder that 'distagg certificates FOLDER' made for it"
        )
    try:
        with (
            dask.config.set(SETTINGS),
            Client(address, set_as_default=False, timeout=20, connection_limit=CONNECTIONS) as client,
        ):
            client.wait_for_workers(1, timeout=NO_WORKERS_SECONDS)
            yield DaskRunner(client)
    except (OSError, TimeoutError) as error:
        raise InfrastructureError(f"no cluster at {address}: {error}") from error
