"""The Dask runner: the same map and merge tree on a local cluster or any scheduler. Only the engine imports Dask.

Single passes are ordinary Dask tasks, few and large: each gets a span of consecutive chunks, loads them itself (so that
Dask reruns the span elsewhere when a worker is lost) and returns merged nodes. The spans depend on the number of
workers, the results do not: nodes merge in the fixed tree. Every wait has a deadline, and the driver watches the worker
count.

Rounds over the same chunks are one message to all workers (``distagg.engine.broadcast``). The span of a worker that
does not answer becomes an ordinary task. Everything goes through the scheduler: the driver connects to no worker.

Settings that differ from Dask's defaults, and why:

- ``allowed-failures`` 3 -> 30: Dask blames a task whenever its worker dies, whatever the cause.
- ``no-workers-timeout`` never -> 60 s: a job without workers should end with an error, not hang.
- dashboard on loopback, any free port: a LocalCluster would listen on every interface, at port 8787.
- ``MALLOC_TRIM_THRESHOLD_`` 64 KB -> 64 MB, and the threshold of mmap to match, which are the values that glibc reaches
  by itself: with Dask's, every block of a file that is parsed takes fresh pages (import: four times the system time).
- ``NUMBA_NUM_THREADS``, ``OMP_NUM_THREADS`` 1 in workers: the engine owns the parallelism.
- ``worker-ttl`` 5 min -> 1 min: a worker that hangs is replaced, and its tasks run elsewhere.
- workers of a local cluster start after it (`local_processes`): its own start waits forever if one dies meanwhile.
- work stealing off: spans are balanced by entries beforehand, and a stolen span loses its cached chunks.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from distagg.dataset.chunk import Chunk
from distagg.dataset.chunk_ref import ChunkRef
from distagg.engine import ask
from distagg.engine.ask import silent_workers, worker_rows
from distagg.engine.broadcast import Broadcast, Part, Span, share_out
from distagg.engine.identity import OtherCode, fingerprint, on_same_code, other_code, refuse_other_code, refuse_unseen
from distagg.engine.local_processes import ended, start_workers
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import (
    Round,
    Work,
    call_noting,
    collect_span,
    merge_all,
    raise_notes,
    reduce_span,
)
from distagg.engine.worker_memory import refuse_large_chunks, size_text
from distagg.errors import DistaggError, InfrastructureError, UsageError, hidden
from distagg.models.rounds import MEMORY

T = TypeVar("T")
log = logging.getLogger("distagg")
NO_WORKERS_SECONDS = 60.0
POLL_SECONDS = 1.0
LONG_ROUND_SECONDS = 2.0  # the cost of tasks, tens of milliseconds, is small beside it
WORKERS_PER_CORE = 16  # at most, of a local cluster
RUNNER = "_distagg_runner"  # the attribute of a client that keeps its runner
SPANS_PER_THREAD = 4  # of a single pass: small enough to balance, large enough to hide the scheduler's overhead
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
SETTINGS = {
    "distributed.scheduler.allowed-failures": 30,
    "distributed.scheduler.no-workers-timeout": f"{NO_WORKERS_SECONDS:.0f}s",
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.nanny.pre-spawn-environ.NUMBA_NUM_THREADS": 1,
    "distributed.nanny.pre-spawn-environ.OMP_NUM_THREADS": 1,
    "distributed.nanny.pre-spawn-environ.OPENBLAS_NUM_THREADS": 1,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 64 << 20,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 32 << 20,
    "distributed.worker.daemon": True,
}


Call = tuple[Callable[..., Any], tuple[Any, ...]]  # a function and its arguments


class DaskRunner:
    """Runs tasks on a Dask cluster, through a connected client, and merges their results in the fixed tree."""

    def __init__(self, client: Any, *, hold_workers: bool = True, remote: bool = False, memory: int = 0) -> None:
        self.client, self.remote, self.memory = client, remote, memory
        self.broadcast = Broadcast(client, hold_workers=hold_workers)
        self._round_seconds = 0.0  # of the last round
        self._seen: set[str] = set()  # paths of datasets that all workers can read
        self._fitting: set[tuple[str, int]] = set()  # paths and numbers of chunks that fit into a worker's memory

    @property
    def threads(self) -> int:
        return max(1, sum(self.client.nthreads().values()))

    def map(self, work: Work, refs: Sequence[ChunkRef], progress: Progress = silent) -> Iterator[Any]:
        self._check(refs)
        spans = share_out(refs, self.threads * SPANS_PER_THREAD)
        calls = self._calls(collect_span, work, refs, spans)
        for values in self._run(calls, spans, progress):
            yield from values

    def map_reduce(
        self, work: Work, refs: Sequence[ChunkRef], reduce: Callable[[T, T], T], progress: Progress = silent
    ) -> T | None:
        if work.repeated:
            return next(self.rounds([Round(work, refs, reduce)], progress))
        self._check(refs)
        spans = share_out(refs, self.threads * SPANS_PER_THREAD)
        calls = self._calls(reduce_span, work, refs, spans, reduce)
        return merge_all(self._run(calls, spans, progress), reduce)

    def _calls(
        self, function: Callable[..., Any], work: Work, refs: Sequence[ChunkRef], spans: Sequence[Span], *more: Any
    ) -> list[Call]:
        """A call for each span. Chunks that workers hold are arguments of its task, which Dask runs where they are."""
        if not _elsewhere(refs):
            return [(function, (work, refs[a:b], a, *more)) for a, b in spans]
        bare = [replace(ref, held=None) for ref in refs]
        futures = [ref.held.future for ref in refs]  # type: ignore[union-attr]
        return [(with_chunks, (function, futures[a:b], work, bare[a:b], a, *more)) for a, b in spans]

    def rounds(self, todo: Sequence[Round], progress: Progress = silent) -> Iterator[Any]:
        """Send all rounds to all workers in one message; spans without an answer become ordinary tasks.

        On a cluster that may grow, a round is tasks from the start if the last one took ``LONG_ROUND_SECONDS``: Dask
        then sees the load, and an adaptive cluster starts workers for it.
        """
        for step in todo:
            self._check(step.refs)
        began = time.monotonic()
        try:
            if any(_elsewhere(step.refs) for step in todo):  # Dask knows where they are
                pieces = self.threads * SPANS_PER_THREAD
                rows = [[Part(span, None, ()) for span in share_out(step.refs, pieces)] for step in todo]
            elif self.broadcast.hold_workers and self._round_seconds > LONG_ROUND_SECONDS:
                rows = [self.broadcast.parts(step.refs, SPANS_PER_THREAD) for step in todo]
            else:
                rows = self.broadcast.run(todo)
        except OSError as error:
            raise InfrastructureError(f"lost the scheduler: {error}; run again to resume") from error
        for step, row in zip(todo, rows, strict=True):
            missing = [part for part in row if part.outcome is None]
            spans = [part.span for part in missing]
            calls = self._calls(reduce_span, step.work, step.refs, spans, step.reduce)
            tasks = self._run(calls, spans, silent, [part.workers for part in missing])
            nodes = []
            for (a, b), outcome, _ in row:
                value, notes = outcome or (next(tasks), [])
                raise_notes(notes)
                progress(b - a)
                nodes.append(value)
            self._round_seconds = time.monotonic() - began
            yield merge_all(nodes, step.reduce)

    def each(self, function: Callable[[Any], T], payloads: Sequence[Any], progress: Progress = silent) -> Iterator[T]:
        calls = [(call_noting, (function, payload)) for payload in payloads]
        yield from self._run(calls, [(n, n + 1) for n in range(len(calls))], progress)

    def _check(self, refs: Sequence[ChunkRef]) -> None:
        """Refuse workers of other machines that cannot read the data, and chunks that fit into no worker, once each."""
        if not refs:
            return
        path = refs[0].path
        if self.remote and refs[0].held is None and path not in self._seen:
            refuse_unseen(self.client, path)
            self._seen.add(path)
        if (path, len(refs)) not in self._fitting:
            memory = self.memory or (self._least_memory() if self.remote else 0)
            if memory:
                refuse_large_chunks(refs, memory)
            self._fitting.add((path, len(refs)))

    def _least_memory(self) -> int:
        """The smallest limit that a worker has, in bytes; 0 if none has one."""
        limits = [row["memory_limit"] or 0 for row in worker_rows(self.client).values()]
        return int(min((limit for limit in limits if limit), default=0))

    def _run(
        self,
        calls: list[Call],
        spans: list[Span],
        progress: Progress,
        preferred: Sequence[Sequence[str]] = (),
    ) -> Iterator[Any]:
        """Results in order. Raises a task's own error unchanged, and an InfrastructureError for everything else.

        A task goes to one of its preferred workers, if it has any, as long as one of them is there.
        """
        futures = [self._submit(call, n, preferred[n] if preferred else ()) for n, call in enumerate(calls)]
        try:
            for n in range(len(futures)):
                result = self._wait(futures, n, calls)
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

    def _submit(self, call: Call, n: int, workers: Sequence[str]) -> Any:
        """The future of call ``n``, on one of these workers (if there are any) as long as one of them is there."""
        function, arguments = call
        return self.client.submit(
            on_same_code, fingerprint(), function, *arguments,
            key=f"{function.__name__}-{uuid.uuid4()}",  # Dask keeps durations, and shows them, by this name
            priority=-n,  # the driver can use (and drop) results in order while later spans still run
            workers=list(workers) or None,
            allow_other_workers=bool(workers),
        )  # fmt: skip

    def _send_again(self, futures: list[Any], calls: list[Call]) -> None:
        """Submit the tasks of silent workers (``ask.silent_workers``) again, to the others.

        The scheduler gives a worker up only after its own time limit, which may be minutes or none. A task that runs
        twice is harmless, as with workers that are lost: each attempt writes files of its own.
        """
        workers = set(self.client.nthreads())
        mute = silent_workers(self.client, workers)
        if not mute or mute == workers:
            return
        stuck = {key for keys in self.client.processing(workers=sorted(mute)).values() for key in keys}
        again = [n for n, future in enumerate(futures) if future is not None and future.key in stuck]
        if not again:
            return
        log.warning("%s does not answer; its tasks go to other workers", ", ".join(sorted(mute)))
        given_up = [futures[n] for n in again]
        for n in again:
            futures[n] = self._submit(calls[n], n, sorted(workers - mute))
        self.client.cancel(given_up, force=True)

    def _wait(self, futures: list[Any], n: int, calls: list[Call]) -> Any:
        """The result of call ``n``; its future changes if it is submitted again."""
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError
        from distributed.scheduler import NoValidWorkerError, NoWorkerError

        alone_since: float | None = None
        asked = futures[n]
        reply = ask.start(self.client, ask.outcome(self.client, asked))
        while not wait([reply], timeout=POLL_SECONDS).done:
            alone_since = self._alone(alone_since)
            self._send_again(futures, calls)
            if futures[n] is not asked:
                asked = futures[n]
                reply = ask.start(self.client, ask.outcome(self.client, asked))
        value, error = reply.result()
        if error is None:
            return value
        if isinstance(error, ImportError):
            raise InfrastructureError(
                f"a worker has no distagg like this driver's ({error}); install it there, then run again"
            ) from error
        lost = (KilledWorker, NoValidWorkerError, NoWorkerError, FutureCancelledError, CommClosedError, OSError)
        if isinstance(error, lost) and not isinstance(error, DistaggError):
            raise InfrastructureError(f"the cluster lost a task: {error}; run again to resume") from error
        raise error

    def _states(self) -> set[str]:
        """What the workers are doing: running, or paused because they lack memory."""
        return {worker.get("status", "running") for worker in worker_rows(self.client).values()}

    def _alone(self, since: float | None) -> float | None:
        """The time since when no worker takes tasks, or None; an error once that is too long ago."""
        states = self._states()
        if "running" in states:
            return None
        now = time.monotonic()
        if since is not None and now - since > NO_WORKERS_SECONDS:
            paused = " (those there are paused: they lack memory)" if "paused" in states else ""
            raise InfrastructureError(
                f"no worker for {NO_WORKERS_SECONDS:.0f} seconds{paused}; check the cluster, then run again"
            )
        return since if since is not None else now


def _elsewhere(refs: Sequence[ChunkRef]) -> bool:
    """Whether workers hold the chunks as results of Dask tasks."""
    return bool(refs) and refs[0].held is not None and not isinstance(refs[0].held, Chunk)


def with_chunks(function: Callable[..., T], chunks: list[Chunk], work: Work, refs: Sequence[ChunkRef], *more: Any) -> T:
    """In a worker: call a function of a span on chunks that are there already."""
    return function(work, [replace(ref, held=chunk) for ref, chunk in zip(refs, chunks, strict=True)], *more)


def runner_of(client: Any) -> DaskRunner:
    """The runner on the cluster of a client that the caller has connected."""
    if client.asynchronous:
        raise UsageError("found an asynchronous distributed.Client, expected one that waits: Client(address)")
    known: DaskRunner | None = getattr(client, RUNNER, None)
    if known is None:
        refuse_other_code(client)
        known = DaskRunner(client, remote=True)
        setattr(client, RUNNER, known)  # it lives as long as its client, and remembers what workers have
    return known


@contextmanager
def local_cluster(workers: int, memory: int = 0) -> Iterator[DaskRunner]:
    """Start a cluster of processes on this machine, on loopback; it ends with the ``with`` block.

    ``memory`` is the bytes that each worker may use, 0 for no limit. Dask spills results of tasks to a worker's folder
    (under ``temporary-directory`` of Dask's settings) and restarts a worker that exceeds its memory.
    """
    import dask
    from distributed import Client, LocalCluster

    most = WORKERS_PER_CORE * (os.cpu_count() or 1)
    if not 1 <= workers <= most:
        raise UsageError(
            f"--workers: found {workers}, expected a whole number from 1 to {most}, {WORKERS_PER_CORE} for each core "
            "of this machine"
        )
    with (
        dask.config.set(SETTINGS),
        ended(
            LocalCluster(
                n_workers=0,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                memory_limit=memory,
                env={MEMORY: str(memory)} if memory else {},
                silence_logs=50,
            )
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        start_workers(cluster, client, workers)
        if memory:
            rows = worker_rows(client).values()
            folders = sorted({str(Path(row["local_directory"]).parent) for row in rows})
            log.info("workers may use %s each, and spill to %s", size_text(memory), ", ".join(folders))
        yield DaskRunner(client, hold_workers=False, memory=memory)


def _refuse_unreadable_certificates(address: str) -> None:
    """Refuse certificates that are missing or no certificates: Dask would try to connect until it times out."""
    from ssl import cert_time_to_seconds

    from distributed import Security

    security = Security()
    files = security.get_tls_config_for_role("client")
    try:
        context = security.get_connection_args("client")["ssl_context"]
        if context is None:
            raise OSError("the settings name no certificate of clients")
        ended = [ca["notAfter"] for ca in context.get_ca_certs() if cert_time_to_seconds(ca["notAfter"]) < time.time()]
        if ended:
            raise OSError(f"they expired on {ended[0]}")
    except OSError as error:  # includes those of ssl
        missing = [str(file) for file in files.values() if isinstance(file, str) and not os.path.isfile(file)]
        found = f"no {', '.join(missing)}" if missing else f"certificates that cannot be used ({error})"
        raise UsageError(
            f"--scheduler {address}: found {found}, expected the cluster's certificates; check the paths in the "
            "folder that DASK_CONFIG names, or create them again: 'distagg certificates FOLDER'"
        ) from error


@contextmanager
def remote_cluster(address: str, *, check: bool = True) -> Iterator[DaskRunner]:
    """Connect to a running cluster; TLS is required unless it is on this machine.

    Workers that run other code are refused, unless ``check`` is false.
    """
    import dask
    from distributed import Client

    host = address.rpartition("://")[2].rpartition(":")[0]
    if not address.startswith("tls://") and host not in LOOPBACK:
        raise UsageError(
            f"--scheduler {hidden(address)}: found an unencrypted address off this machine, expected tls://HOST:PORT; "
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
            Client(address, set_as_default=False, timeout=20) as client,
        ):
            runner = DaskRunner(client, remote=True)
            if not client.nthreads():
                list(runner.each(abs, [0]))  # an adaptive cluster starts workers when there is a task
            if check:
                refuse_other_code(client)
            yield runner
    except (OSError, TimeoutError) as error:
        raise InfrastructureError(f"no cluster at {address}: {error}") from error
