"""Questions to all workers, through the scheduler; a worker that stands still does not hold the driver up.

``Client.run`` waits for every worker, and without end for one that is stopped or hangs. Here a worker that the
scheduler has lost, or that sends no heartbeat for ``SILENT_SECONDS`` while others do, is left out, and the others are
asked again. So a question must change nothing on the worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Set
from concurrent.futures import Future, wait
from typing import Any, Literal

from distagg.errors import InfrastructureError

POLL_WORKERS_SECONDS = 1.0  # how often the driver asks the scheduler for its workers
SILENT_SECONDS = 30.0  # without a heartbeat, while others send them: a worker that is given up

log = logging.getLogger("distagg")


def ask_workers(
    client: Any, function: Callable[..., Any], *arguments: Any, on_error: Literal["raise", "return"] = "raise"
) -> dict[str, Any]:
    """What each worker answers, or the error that it raises, by address; without silent workers and those that left."""
    given_up: set[str] = set()

    async def ask(workers: list[str]) -> Any:
        return await client.run(function, *arguments, workers=workers, on_error="return")

    while called := set(client.nthreads()) - given_up:
        future = start(client, ask(sorted(called)))
        try:
            silent = wait_or_silent(client, future, called)
        finally:
            future.cancel()
        if not silent:
            replies = {a: reply for a, reply in future.result().items() if not isinstance(reply, OSError)}
            errors = [reply for reply in replies.values() if isinstance(reply, Exception)]
            if errors and on_error == "raise":
                raise errors[0]
            return replies
        given_up |= silent
        log.warning("%s does not answer; going on without it", ", ".join(sorted(silent)))
    if not client.nthreads():  # an adaptive cluster may be without workers
        return {}
    raise InfrastructureError("no worker of the cluster answers; restart its workers, then run again")


def start(client: Any, coroutine: Any) -> Future[Any]:
    """Run a coroutine in the client's event loop."""
    return asyncio.run_coroutine_threadsafe(coroutine, client.loop.asyncio_loop)


async def outcome(client: Any, future: Any) -> tuple[Any, BaseException | None]:
    """The result of a Dask task, or its error.

    Never cancel it: if a wait for a result is cancelled before it begins, as by ``Future.result(timeout=...)`` on a
    busy machine, distributed's client attaches every later one to it, and none ends.
    """
    try:
        return await client.gather(future, asynchronous=True), None
    except (Exception, asyncio.CancelledError) as error:
        return None, error


def wait_or_silent(client: Any, future: Future[Any], called: Set[str]) -> set[str]:
    """Wait for the replies of workers: returns none once they are there, or else those that are gone or silent."""
    while not wait([future], timeout=POLL_WORKERS_SECONDS).done:
        if gone := silent_workers(client, called):
            return gone
    return set()


def silent_workers(client: Any, called: Set[str]) -> set[str]:
    """The workers that the scheduler does not list, or that send no heartbeats while others do."""
    seen = {address: row["last_seen"] for address, row in worker_rows(client).items()}
    newest = max(seen.values(), default=0.0)
    patience = SILENT_SECONDS + len(seen) / 20  # large clusters send fewer heartbeats
    return {address for address in called if newest - seen.get(address, float("-inf")) > patience}


def worker_rows(client: Any) -> dict[str, dict[str, Any]]:
    """What the scheduler knows of each worker, by address."""
    try:
        info = client.scheduler_info(n_workers=-1)  # some versions of distributed tell of five workers by default
    except TypeError:  # versions that always tell of all
        info = client.scheduler_info()
    rows: dict[str, dict[str, Any]] = info["workers"]
    return rows
