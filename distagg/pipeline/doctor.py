"""``distagg doctor``: check that this machine can run distagg."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distagg.engine.identity import installed
from distagg.engine.memory import usable_memory
from distagg.errors import install

OK, POOR, BAD = "ok", "poor", "bad"
NEEDED = ("numpy", "scipy", "numba", "pyarrow", "sparse", "dask", "distributed", "click")
EXTRAS = {"lightgbm": ("lightgbm", "lambdamart and blend"), "pandas": ("frames", "pandas frames")}
EXTRAS |= {"polars": ("frames", "polars frames")}
ROOM = 10 << 30


def examine(*, cluster: bool = True) -> list[dict[str, Any]]:
    """A row per check: its name, state (ok, poor, bad), what was found, what to do."""
    here = (_python, _packages, _extras, _cores, _memory, _disk, _kernels, _cache, _commit)
    checks: tuple[Callable[[], dict[str, Any]], ...] = (*here, _workers) if cluster else here
    rows = []
    for check in checks:
        try:
            rows.append(check())
        except Exception as error:
            rows.append(
                check_row(check.__name__.strip("_"), BAD, f"{type(error).__name__}: {error}", "see the message")
            )
    return rows


def check_row(check: str, state: str, found: str, remedy: str = "") -> dict[str, Any]:
    return {"check": check, "state": state, "found": found, "remedy": remedy if state != OK else ""}


def _python() -> dict[str, Any]:
    state = OK if sys.version_info >= (3, 11) else BAD
    return check_row("python", state, platform.python_version(), "install Python 3.11 or newer")


def _packages() -> dict[str, Any]:
    versions = {name: installed(name) for name in NEEDED}
    lacking = [name for name, version in versions.items() if version is None]
    present = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return check_row("packages", BAD if lacking else OK, present, f"pip install {' '.join(lacking)}")


def _extras() -> dict[str, Any]:
    lacking = {name: extra for name, extra in EXTRAS.items() if installed(name) is None}
    if not lacking:
        return check_row("extras", OK, "all there")
    names = ",".join(dict.fromkeys(extra for extra, _ in lacking.values()))
    shown = ", ".join(f"{name} ({what})" for name, (_, what) in lacking.items())
    return check_row("extras", OK, f"without {shown}; to add them: {install(names)}")


def _cores() -> dict[str, Any]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return check_row("cores", OK if usable > 1 else POOR, str(usable), "with one core, workers bring no speed-up")


def _memory() -> dict[str, Any]:
    usable = usable_memory()
    return check_row("memory", OK if usable >= 2 << 30 else POOR, f"{usable / 2**30:.1f} GB", "run fewer workers")


def _disk() -> dict[str, Any]:
    free = shutil.disk_usage(Path.cwd()).free
    return check_row("disk", OK if free >= ROOM else POOR, f"{free / 2**30:.1f} GB free here", "free disk space")


def _kernels() -> dict[str, Any]:
    import pyarrow as pa

    from distagg.dataset.dataset import Dataset
    from distagg.engine.api import rank

    lists = pa.table({"expert": ["a", "a", "b", "b"], "item": ["x", "y", "y", "z"], "rank": [1, 2, 1, 2]})
    order = rank("rrf", Dataset.from_arrow(lists))["item"].to_pylist()
    return check_row(
        "kernels", OK if order == ["y", "x", "z"] else BAD, f"rrf ranks {', '.join(order)}", "reinstall numba"
    )


def _cache() -> dict[str, Any]:
    """The cache of compiled kernels: where it is, and whether a test file can be written and read back."""
    from distagg import jit_cache as cache

    if cache.is_off():
        return check_row("cache", POOR, "off: every process compiles its own kernels", "unset DISTAGG_CACHE")
    opened, probe = cache.store(), os.urandom(8)
    if opened is None:
        return check_row("cache", POOR, cache.why_not(), "set DISTAGG_CACHE_DIR to a folder that only you can write to")
    name = f"probe-{probe.hex()}"
    opened.write(name, probe)
    same = opened.read(name) == probe
    (opened.folder / name).unlink(missing_ok=True)
    if not same:
        why = opened.full or f"{opened.folder} returns other bytes than were written"
        return check_row("cache", POOR, why, "free disk space, or set DISTAGG_CACHE_DIR to a writable folder")
    files = [file.stat().st_size for file in opened.folder.iterdir()]
    every = sum(file.stat().st_size for file in opened.folder.parent.rglob("*") if file.is_file())
    return check_row(
        "cache",
        OK,
        f"{opened.folder.parent}: {len(files)} compiled kernels, {sum(files) / 1e6:.1f} MB; with other "
        f"versions {every / 1e6:.1f} MB",
    )


def _commit() -> dict[str, Any]:
    """Renames, links and locks, which run directories need."""
    import fcntl

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        file = Path(folder) / "a"
        file.write_bytes(b"x")
        os.replace(file, Path(folder) / "b")
        os.link(Path(folder) / "b", Path(folder) / "c")
        os.symlink("b", Path(folder) / "latest")
        with (Path(folder) / "lease").open("w") as first, (Path(folder) / "lease").open("w") as second:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return check_row("commits", BAD, "two locks on one file", "keep run directories on a local disk")
            except BlockingIOError:
                return check_row("commits", OK, "renames, links and locks work here")


def _workers() -> dict[str, Any]:
    from distagg.engine.dask import local_cluster

    with local_cluster(1) as runner:
        doubled = list(runner.each(_double, [1, 2, 3]))
        dashboard = runner.client.dashboard_link.split("//")[1].split(":")[0]
    fine = doubled == [2, 4, 6] and dashboard in ("127.0.0.1", "localhost")
    return check_row(
        "workers", OK if fine else BAD, f"a worker started and answered; its dashboard listens on {dashboard}", ""
    )


def _double(number: int) -> int:
    return 2 * number
