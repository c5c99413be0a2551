"""A driver for two hosts: rounds or single queries, slow enough to be cut off in between.

    python two_hosts.py ADDRESS|inline DATASET rounds|queries NOTES

Writes a file into the folder NOTES for every chunk worked on (time and address), and prints the number of workers that
were given up and the digest of the result.
"""

from __future__ import annotations

import hashlib
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from distagg.dataset import Dataset
from distagg.engine.dask import remote_cluster
from distagg.engine.runner import InlineRunner, Work


def slowly(chunk: Any, index: int, payload: tuple[str, float]) -> np.ndarray:
    """Sums whose last bits show the order of merging."""
    import os

    notes, weight = payload
    if notes:
        time.sleep(0.04)
        (Path(notes) / f"{time.time_ns()}-{os.getpid()}").touch()
    return np.array([weight * np.sqrt(chunk.entry_rank).sum(), np.sin(weight + index)])


def main(address: str, source: str, mode: str, notes: str) -> None:
    refs = Dataset.open(source).plan(1 << 10)
    # Refs to be many although the data are small: the same chunk at several places.
    refs = tuple(refs[n % len(refs)] for n in range(24))
    place = nullcontext(InlineRunner()) if address == "inline" else remote_cluster(address)
    with place as runner:
        if address != "inline":
            runner.client.wait_for_workers(2, timeout=60)
        print("started", flush=True)
        if mode == "rounds":
            total = np.zeros(2)
            for _ in range(6):
                total = runner.map_reduce(Work(slowly, (notes, 1.0 + total[1] / 7), repeated=True), refs, np.add)
            found = total
        else:
            found = np.concatenate(list(runner.map(Work(slowly, (notes, 0.3)), refs * 6)))
        given_up = 0 if address == "inline" else len(runner.broadcast._backed_off)
    print("given up", given_up)
    print("digest", hashlib.sha256(found.tobytes()).hexdigest(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
