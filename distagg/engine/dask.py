"""The Dask runner: the same map and merge tree on a local cluster or any scheduler. Only the engine imports Dask.

Single passes are ordinary Dask tasks, few and large: each gets a span of consecutive chunks, loads them itself (so that
Dask reruns the span elsewhere when a worker is lost) and returns merged nodes. The spans depend on the number of
workers, the results do not: nodes merge in the fixed tree. Every wait has a deadline, and the driver watches the worker
count.

Rounds over the same chunks are direct calls to the workers, one message each way. A Dask task passes through the queues
of five processes before its result is back, and training in rounds would wait for that hundreds of times. Instead every
worker thread keeps its span: the chunk references are sent once, the chunks stay in the worker's cache, and a round
sends only what changed. If a call fails, or the scheduler drops its worker, the span becomes an ordinary task. Workers
that did not answer get no calls for ``WORKER_BACKOFF_SECONDS``.

Settings that differ from Dask's defaults, and why:

- ``allowed-failures`` 3 -> 30: Dask blames a task whenever its worker dies, whatever the cause.
- ``no-workers-timeout`` never -> 60 s: a job without workers should end with an error, not hang.
- dashboard on loopback, any free port: a LocalCluster would listen on every interface, at port 8787.
- ``NUMBA_NUM_THREADS``, ``OMP_NUM_THREADS`` 1 in workers: the engine owns the parallelism.
- ``connection_limit`` 512 -> 8,192: a round calls every worker at once, and call 513 would wait for another to end.
- work stealing off: spans are balanced by entries beforehand, and a stolen span loses its cached chunks.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from distagg.dataset.dataset import ChunkRef
from distagg.engine.identity import OtherCode, fingerprint, identity, on_same_code, other_code, refuse_other_code
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import (
    NotedResult,
    Round,
    Work,
    call_noting,
    collect_span,
    merge_all,
    raise_notes,
    reduce_span,
)
from distagg.errors import DistaggError, InfrastructureError, UsageError

POLL_WORKERS_SECONDS = 1.0  # how often the driver asks the scheduler for its workers
WORKER_BACKOFF_SECONDS = 60.0  # no direct calls to a worker for this long after it did not answer
SPAN_CACHE_BYTES = 256 << 20  # of chunk references, in a worker

T = TypeVar("T")
Reduce = Callable[[Any, Any], Any]
NO_WORKERS_SECONDS = 60.0
POLL_SECONDS = 1.0
SPANS_PER_THREAD = 4  # of a single pass: small enough to balance, large enough to hide the scheduler's overhead
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


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Work on a span of chunks."""

    work: Work
    refs: tuple[ChunkRef, ...]
    first: int
    reduce: Reduce

    @property
    def arguments(self) -> tuple[Work, tuple[ChunkRef, ...], int, Reduce]:
        """The arguments of ``reduce_span``."""
        return self.work, self.refs, self.first, self.reduce


@dataclass(slots=True)
class Spans:
    """A cache of spans by the digest of their bytes; the least recently used go first when the budget is full."""

    budget: int = SPAN_CACHE_BYTES
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


_spans = Spans()  # this worker's; only its event loop uses it


async def answer(
    expected: str, calls: list[tuple[Work, str, int, Reduce]], sent: dict[str, bytes], dask_worker: Any
) -> Any:
    """In a worker: run the calls one after the other in a worker thread, or name the spans that it does not have."""
    if expected != fingerprint():
        return {"other": identity()}
    _spans.add(sent)
    lacking = _spans.lacking([digest for _, digest, _, _ in calls])
    if lacking:
        return {"lacking": lacking}
    spans = [(work, _spans.held[digest][0], first, reduce) for work, digest, first, reduce in calls]
    loop, pool = dask_worker.loop.asyncio_loop, dask_worker.executors["default"]
    return {"outcomes": await loop.run_in_executor(pool, _in_turn, spans)}


def _in_turn(calls: list[tuple[Work, tuple[ChunkRef, ...], int, Reduce]]) -> list[NotedResult]:
    return [reduce_span(*call) for call in calls]


class Rounds:
    """Direct calls to the workers of a connected client."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._polled = float("-inf")
        self._slots: list[str] = []
        self._backed_off: dict[str, float] = {}
        self._serialised: OrderedDict[tuple[ChunkRef, ...], tuple[str, bytes]] = OrderedDict()

    def slots(self) -> list[str]:
        """The address of every worker thread, at most a second old, without the workers in back-off."""
        now = time.monotonic()
        if now - self._polled > POLL_WORKERS_SECONDS:
            self._backed_off = {address: until for address, until in self._backed_off.items() if until > now}
            threads = {a: count for a, count in self.client.nthreads().items() if a not in self._backed_off}
            self._slots = [address for address in sorted(threads) for _ in range(threads[address])]
            self._polled = time.monotonic()
        return self._slots

    def run(self, calls: list[tuple[str, list[Call]]]) -> list[list[NotedResult] | None]:
        """The results of every slot's calls, None where its worker did not answer. Raises a task's error."""
        import asyncio

        loop = self.client.loop.asyncio_loop
        running = [asyncio.run_coroutine_threadsafe(self._ask(address, todo), loop) for address, todo in calls]
        waiting = set(running)
        try:
            while waiting:
                _, waiting = futures.wait(waiting, timeout=POLL_WORKERS_SECONDS)
                if waiting:
                    present = self.client.nthreads()
                    for (address, _), future in zip(calls, running, strict=True):
                        if future in waiting and address not in present:
                            future.cancel()
            answers = [None if future.cancelled() else future.result() for future in running]
        finally:
            for future in waiting:
                future.cancel()
        for (address, _), outcomes in zip(calls, answers, strict=True):
            if outcomes is None:
                self._backed_off[address] = time.monotonic() + WORKER_BACKOFF_SECONDS
                self._polled = float("-inf")
        return answers

    async def _ask(self, address: str, calls: list[Call]) -> list[NotedResult] | None:
        from distributed.core import clean_exception
        from distributed.protocol.pickle import dumps

        named = [self._serialise(call.refs) for call in calls]
        requests = [(c.work, digest, c.first, c.reduce) for c, (digest, _) in zip(calls, named, strict=True)]
        sent: dict[str, bytes] = {}
        for _ in range(2):  # the second time with the spans that the worker does not have
            try:
                reply = await self.client.rpc(address).run(
                    function=dumps(answer), args=dumps((fingerprint(), requests, sent))
                )
            except OSError:  # closed, refused, timed out
                return None
            if reply["status"] == "error":
                raise clean_exception(**reply)[1] or RuntimeError(f"worker {address} failed without an error message")
            answered = reply["result"]
            if "other" in answered:
                raise other_code({address: answered["other"]})
            if "outcomes" in answered:
                return answered["outcomes"]
            sent = {digest: body for digest, body in named if digest in answered["lacking"]}
        return None

    def _serialise(self, refs: tuple[ChunkRef, ...]) -> tuple[str, bytes]:
        """A span's digest and bytes, serialised once while it is in use."""
        from distributed.protocol.pickle import dumps

        if refs not in self._serialised:
            body = dumps(refs)
            self._serialised[refs] = hashlib.sha256(body).hexdigest(), body
            while (
                sum(len(body) for _, body in self._serialised.values()) > SPAN_CACHE_BYTES and len(self._serialised) > 1
            ):
                self._serialised.popitem(last=False)
        self._serialised.move_to_end(refs)
        return self._serialised[refs]


class DaskRunner:
    """Runs tasks on a Dask cluster, through a connected client, and merges their results in the fixed tree."""

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
        """Send each worker thread its span of every round in one message; spans that fail become ordinary tasks."""
        try:
            slots = self.direct.slots()
            calls = [
                [
                    Call(step.work, tuple(step.refs[a:b]), a, step.reduce)
                    for a, b in share_out(step.refs, max(1, len(slots)))
                ]
                for step in todo
            ]
            shares = [(slot, [row[n] for row in calls if n < len(row)]) for n, slot in enumerate(slots)]
            answers = self.direct.run([(slot, mine) for slot, mine in shares if mine])
        except OSError as error:
            raise InfrastructureError(f"a worker failed: {error}; run again to resume") from error
        answered: dict[Call, NotedResult] = {}
        for (_, mine), outcomes in zip(shares, answers, strict=False):
            answered.update(zip(mine, outcomes or (), strict=False))
        for row in calls:
            lost = [call for call in row if call not in answered]
            again = self._run([(reduce_span, call.arguments) for call in lost], [(0, 0)] * len(lost), silent)
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
        """Results in order. Raises a task's own error unchanged, and an InfrastructureError for everything else."""
        # Lowest number first, so that the driver can use (and drop) results in order while later spans still run.
        futures = [
            self.client.submit(on_same_code, fingerprint(), f, *args, pure=False, priority=-n)
            for n, (f, args) in enumerate(calls)
        ]
        try:
            for n, future in enumerate(futures):
                result = self._wait(future)
                if isinstance(result, OtherCode):
                    raise other_code({"": result.worker})
                value, notes = result
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
                # On a busy machine distributed sometimes cancels its own wait and returns no result: wait again.
                if future.status == "error":
                    raise
                alone_since = self._alone(alone_since)
            except DistaggError:
                raise
            except ImportError as error:
                raise InfrastructureError(
                    f"a worker has no distagg like this driver's ({error}); install it there, then run again"
                ) from error
            except (KilledWorker, FutureCancelledError, CommClosedError, OSError) as error:
                raise InfrastructureError(f"the cluster lost a task: {error}; run again to resume") from error

    def _alone(self, since: float | None) -> float | None:
        """The time since when there are no workers, or None; an error once that is too long ago."""
        if self.client.nthreads():
            return None
        now = time.monotonic()
        if since is not None and now - since > NO_WORKERS_SECONDS:
            raise InfrastructureError(
                f"no worker for {NO_WORKERS_SECONDS:.0f} seconds; check the cluster, then run again"
            )
        return since if since is not None else now


def share_out(refs: Sequence[ChunkRef], pieces: int) -> list[tuple[int, int]]:
    """Split chunks into at most ``pieces`` consecutive spans with about the same number of entries."""
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
    """Start a cluster of processes on this machine, on loopback; it ends with the ``with`` block."""
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


def _refuse_unreadable_certificates(address: str) -> None:
    """Refuse certificates that are missing or no certificates: Dask would try to connect until it times out."""
    from distributed import Security

    security = Security()
    files = security.get_tls_config_for_role("client")
    try:
        if security.get_connection_args("client")["ssl_context"] is None:
            raise OSError("the settings name no certificate of clients")
    except OSError as error:  # includes those of ssl
        missing = [str(file) for file in files.values() if isinstance(file, str) and not os.path.isfile(file)]
        found = f"no {', '.join(missing)}" if missing else f"certificates that cannot be used ({error})"
        raise UsageError(
            f"--scheduler {address}: found {found}, expected the cluster's certificates; check the paths in the "
            "folder that DASK_CONFIG names, or create them again: 'distagg certificates FOLDER'"
        ) from error


@contextmanager
def remote_cluster(address: str) -> Iterator[DaskRunner]:
    """Connect to a running cluster; TLS is required unless it is on this machine."""
    import dask
    from distributed import Client

    host = address.rpartition("://")[2].rpartition(":")[0]
    if not address.startswith("tls://") and host not in LOOPBACK:
        raise UsageError(
            f"--scheduler {address}: found an unencrypted address off this machine, expected tls://HOST:PORT; "
            "'distagg certificates' creates the certificates for it"
        )
    if address.startswith("tls://") and not dask.config.get("distributed.comm.tls.ca-file", None):
        raise UsageError(
            f"--scheduler {address}: found no certificates, expected those of the cluster: export DASK_CONFIG=FOLDER "
            "with the folder that 'distagg certificates FOLDER' created for it"
        )
    if address.startswith("tls://"):
        _refuse_unreadable_certificates(address)
    try:
        with (
            dask.config.set(SETTINGS),
            Client(address, set_as_default=False, timeout=20, connection_limit=CONNECTIONS) as client,
        ):
            client.wait_for_workers(1, timeout=NO_WORKERS_SECONDS)
            refuse_other_code(client)
            yield DaskRunner(client)
    except (OSError, TimeoutError) as error:
        raise InfrastructureError(f"no cluster at {address}: {error}") from error
