"""The processes of a local cluster: started and ended within a time limit, whatever becomes of one of them.

Distributed starts a worker's process by a nanny, which waits for its first message. A process that dies before that
message is replaced, but then two waits of the nanny compete for the message of the new process, and if the wrong one
takes it, the other never ends: nor does the start or the end of the cluster, although all workers are there. So the
cluster starts empty and is scaled up, which waits for nothing, and workers are counted by what the scheduler says.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from typing import Any

from distagg.errors import InfrastructureError

START_SECONDS = 60.0  # for the first worker to start
NEXT_SECONDS = 10.0  # for each further one, after the one before; the cluster then goes on with those there
END_SECONDS = 10.0  # after that, what is left of a cluster is killed
POLL_SECONDS = 0.05

log = logging.getLogger("distagg")


@contextmanager
def ended(cluster: Any) -> Iterator[Any]:
    """A cluster that was started without workers; its processes end with the ``with`` block."""
    before = set(active_children())
    try:
        yield cluster
    finally:
        try:
            cluster.close(timeout=END_SECONDS)
        except TimeoutError:
            log.warning("the local cluster did not end within %.0f seconds; its processes are killed", END_SECONDS)
            for process in set(active_children()) - before:
                process.kill()
                process.join(END_SECONDS)


def start_workers(cluster: Any, client: Any, count: int) -> None:
    """Start so many workers and wait until they are connected, or cannot be. Late ones join when they are ready."""
    cluster.scale(count)
    there, latest = 0, time.monotonic()
    while (now := len(client.nthreads())) + _failed(cluster) < count:
        if now > there:
            there, latest = now, time.monotonic()
        if time.monotonic() - latest > (NEXT_SECONDS if there else START_SECONDS):
            break
        time.sleep(POLL_SECONDS)
    if not now:
        raise InfrastructureError(
            f"none of {count} worker processes started; run again, or with fewer --workers. Processes import the "
            "script that starts them: in a script, do it below 'if __name__ == \"__main__\":'"
        )
    if now < count:
        log.warning("%d of %d workers started; going on with them", now, count)


def _failed(cluster: Any) -> int:
    """The number of workers whose start has failed for good."""
    return sum(nanny.status.name in ("failed", "closed") for nanny in list(cluster.workers.values()))
