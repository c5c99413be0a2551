"""What results depend on besides data and settings: the code, its libraries and the processor.

The driver compares its own with that of every worker: all workers when it connects, and each task again on the worker
that runs it, because workers may join later. Other code would give other bits without an error, so it is refused with
the differences and what to do about them.
"""

from __future__ import annotations

import hashlib
import os
import platform
import socket
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from distagg.engine.ask import ask_workers
from distagg.errors import InfrastructureError
from distagg.storage.atomic import digest
from distagg.storage.paths import Store, place

Identity = dict[str, str]
PACKAGES = ("distagg", "numpy", "scipy", "numba", "llvmlite", "pyarrow", "dask", "distributed", "lightgbm")
OPTIONAL = ("lightgbm",)  # compared where both sides have it
SHOWN_WORKERS = 3
HOST, CODE, PROCESSOR, VECTORS = "host", "code", "processor", "numpy's vector instructions"


def installed(name: str) -> str | None:
    """A package's version, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def source_hash() -> str:
    """A hash of this package's source code, because two versions may have the same number."""
    root = Path(__file__).parents[1]
    total = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        total.update(f"{file.relative_to(root)} {digest(file)}\n".encode())
    return total.hexdigest()


@cache
def identity() -> Identity:
    """Host, code, versions and processor of this process.

    >>> mine = identity()
    >>> differences(mine, mine), differences(mine, {**mine, "numpy": "1.0"})[0].endswith("the worker 1.0")
    ([], True)
    """
    return {
        HOST: socket.gethostname(),
        CODE: source_hash()[:16],
        "python": ".".join(platform.python_version_tuple()[:2]),
        **{name: installed(name) or "" for name in PACKAGES},
        PROCESSOR: _processor(),
        VECTORS: _vectors(),
    }


@cache
def fingerprint() -> str:
    """The identity of this process without its host, as 16 hexadecimal digits."""
    mine = {name: value for name, value in identity().items() if name not in (HOST, *OPTIONAL)}
    return hashlib.sha256(repr(sorted(mine.items())).encode()).hexdigest()[:16]


def _processor() -> str:
    """The processor that numba compiles for, as its settings and LLVM name it."""
    import llvmlite.binding as llvm

    name = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    features = "" if name == "generic" else llvm.get_host_cpu_features().flatten()
    features = os.environ.get("NUMBA_CPU_FEATURES", features)
    if not features:
        return name
    return f"{name} with features {hashlib.sha256(features.encode()).hexdigest()[:8]}"


def _vectors() -> str:
    """The instruction sets that numpy chooses its own loops by."""
    from importlib import import_module

    numpy_core = import_module("numpy._core._multiarray_umath")
    return " ".join(name for name in numpy_core.__cpu_dispatch__ if numpy_core.__cpu_features__.get(name))


def differences(driver: Identity, worker: Identity) -> list[str]:
    """What a worker has that the driver has not, one line for each."""
    names = [name for name in driver if name != HOST and driver[name] != worker.get(name, "")]
    names = [name for name in names if name not in OPTIONAL or (driver[name] and worker.get(name))]
    return [
        f"{name}: the driver has {driver[name] or 'none'}, the worker {worker.get(name) or 'none'}" for name in names
    ]


def _remedies(driver: Identity, workers: list[Identity]) -> str:
    """What to do about the differences between the driver and some workers."""
    differing = [name for name in driver if any(differences({name: driver[name]}, worker) for worker in workers)]
    pins = [f"{name}=={driver[name]}" for name in PACKAGES if name in differing and name != "distagg"]
    steps = []
    if CODE in differing or "distagg" in differing or "python" in differing:
        steps.append(f"install this distagg ({driver['distagg']}, Python {driver['python']}) on the workers")
    if pins:
        steps.append(f"install {' '.join(pins)} there")
    if PROCESSOR in differing:
        steps.append("use processors of one kind, or set NUMBA_CPU_NAME=generic for the driver and all workers")
    if VECTORS in differing:
        everywhere = set(driver[VECTORS].split()).intersection(*(worker[VECTORS].split() for worker in workers))
        some = set(driver[VECTORS].split()).union(*(worker[VECTORS].split() for worker in workers)) - everywhere
        steps.append(f"set NPY_DISABLE_CPU_FEATURES='{' '.join(sorted(some))}' for the driver and all workers")
    return "; ".join([*steps, "restart the workers, then run again"])


def other_code(workers: Mapping[str, Identity], total: int | None = None) -> InfrastructureError:
    """The error for workers, by address, that differ from this process."""
    driver = identity()
    rows = [
        f"worker {address} on {worker.get(HOST, 'an unknown host')}: {'; '.join(differences(driver, worker))}"
        for address, worker in workers.items()
    ]
    more = f" and {len(rows) - SHOWN_WORKERS} more workers" if len(rows) > SHOWN_WORKERS else ""
    count = f"{len(rows)} of {total} workers differ" if total is not None else "a worker differs"
    return InfrastructureError(
        f"{count} from this driver, and would give other results; {' | '.join(rows[:SHOWN_WORKERS])}{more}; "
        + _remedies(driver, list(workers.values()))
    )


def compare_workers(client: Any) -> dict[str, Identity | Exception]:
    """The identity of every connected worker by address, or the error with which it answered."""
    return ask_workers(client, identity, on_error="return")


def refuse_other_code(client: Any) -> None:
    """Refuse workers that run other code than this process, before any work starts."""
    answers = compare_workers(client)
    for address, answer in answers.items():
        if isinstance(answer, Exception):
            raise InfrastructureError(
                f"worker {address} has no distagg like this driver's ({answer}); install distagg "
                f"{identity()['distagg']} there and restart it, then run again"
            ) from answer
    others = {a: w for a, w in answers.items() if isinstance(w, dict) and differences(identity(), w)}
    if others:
        raise other_code(others, len(answers))


def refuse_unseen(client: Any, path: str) -> None:
    """Refuse workers that cannot read a dataset, before any work starts; URLs are seen from everywhere."""
    if not path or isinstance(place(path), Store):
        return
    hosts = {a: host for a, host in ask_workers(client, _host_without, path).items() if host}
    if hosts:
        shown = ", ".join(f"{address} on host {host}" for address, host in list(hosts.items())[:SHOWN_WORKERS])
        more = f" and {len(hosts) - SHOWN_WORKERS} more" if len(hosts) > SHOWN_WORKERS else ""
        raise InfrastructureError(
            f"found workers that cannot read {path}: {shown}{more}; data must be at the same path on every host of a "
            "cluster: put it on a shared file system or in an object store (s3://), then run again"
        )


def _host_without(path: str) -> str:
    """In a worker: the name of this host if it cannot read the path, else an empty text."""
    return "" if os.access(path, os.R_OK | os.X_OK) else socket.gethostname()


def on_same_code(expected: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """In a worker: call a function if this process has the fingerprint of the driver; else tell its identity."""
    if expected != fingerprint():
        return OtherCode(identity())
    return function(*arguments)


class OtherCode:
    """The answer of a worker that runs other code than the driver: its identity."""

    def __init__(self, worker: Identity) -> None:
        self.worker = worker
