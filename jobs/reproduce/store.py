"""Results on disk, a JSON file for each experiment, and the loop that measures what is not there yet.

A result is used again only where its key is the same: the experiment's settings, the dataset's manifest (which holds
hashes of its files), the code that computes and the libraries that decide bits. Files appear whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import distagg
from distagg.dataset import Dataset
from distagg.errors import DistaggError
from distagg.storage.sealed import MANIFEST
from jobs.reproduce import experiments, held_out, ratings, rules
from jobs.reproduce.experiments import Experiment

COMPUTES = ("dataset", "engine", "jit.py", "metrics", "models", "ordering.py", "sources", "types.py")
LIBRARIES = ("numpy", "scipy", "numba", "pyarrow", "lightgbm")
KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    function.__name__: function
    for function in (
        experiments.model_row, rules.rule_row, experiments.unused_experts, experiments.expert_weights,
        experiments.hard_queries,
        experiments.robustness, experiments.ranking_time, ratings.completed, ratings.constants, ratings.ends,
        held_out.held_out_users, held_out.held_out_pairs,
    )
}  # fmt: skip
THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Store:
    """A folder of results about datasets, which are named paths."""

    folder: Path
    datasets: Mapping[str, Path]

    def path(self, one: Experiment) -> Path:
        return self.folder / (re.sub(r"[^a-z0-9]+", "-", one.name.lower()).strip("-") + ".json")

    def key(self, one: Experiment) -> dict[str, Any]:
        manifest = (self.datasets[one.data] / MANIFEST).read_bytes()
        settings = json.loads(json.dumps(dict(one.settings)))  # as it will be read again
        return {"kind": one.kind, "settings": settings, "data": hashlib.sha256(manifest).hexdigest(), "code": code()}

    def load(self, one: Experiment) -> dict[str, Any] | None:
        """What was found and the seconds it took; None where it is not there, or of other code, data or settings."""
        try:
            kept: dict[str, Any] = json.loads(self.path(one).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return kept if kept.get("key") == self.key(one) else None

    def save(self, one: Experiment, found: dict[str, Any], seconds: float) -> None:
        target = self.path(one)
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(f".{os.getpid()}.new")
        fresh.write_text(json.dumps({"key": self.key(one), "seconds": seconds, "found": found}), encoding="utf-8")
        os.replace(fresh, target)


@cache
def code() -> str:
    """A hash of the source that computes; drawing may change without measuring again."""
    root = Path(distagg.__file__).parent
    files = [
        Path(__file__).with_name(f"{name}.py")
        for name in ("experiments", "held_out", "letter", "paper_completions", "ratings", "rules")
    ]
    files += [*(file for part in COMPUTES for file in [root / part, *sorted((root / part).rglob("*.py"))])]
    total = hashlib.sha256(" ".join(f"{name} {_version(name)}" for name in LIBRARIES).encode())
    for file in files:
        if file.is_file():
            total.update(file.name.encode() + file.read_bytes())
    return total.hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except ImportError:
        return "absent"


def measure(one: Experiment, path: Path) -> tuple[dict[str, Any], float]:
    began = time.perf_counter()
    found = KINDS[one.kind](Dataset.open(path), **one.settings)
    return found, time.perf_counter() - began


def measure_all(
    store: Store, todo: Iterable[Experiment], workers: int, tell: Callable[[Experiment, float | str], None]
) -> dict[str, str]:
    """Measure and keep; long ones first, those that are timed last and alone. What fails does not stop the others.

    Returns what failed, with the error; ``tell`` hears of each when it is over: its seconds, or the error.
    """
    failed: dict[str, str] = {}
    ordered = sorted(todo, key=lambda one: (one.alone, -one.cost))

    def over(one: Experiment, get: Callable[[], tuple[dict[str, Any], float]]) -> None:
        try:
            found, seconds = get()
            store.save(one, found, seconds)
            tell(one, seconds)
        except (DistaggError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            failed[one.name] = f"{type(error).__name__}: {error}"
            tell(one, failed[one.name])

    if workers == 1:
        for one in ordered:
            over(one, lambda one=one: measure(one, store.datasets[one.data]))  # type: ignore[misc]
        return failed
    # One thread each: the processes share the cores. Set here, since numba reads it when it is imported.
    for name in THREADS:
        os.environ.setdefault(name, "1")
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for batch in ([one for one in ordered if not one.alone], *([one] for one in ordered if one.alone)):
            running: dict[Future[Any], Experiment] = {
                pool.submit(measure, one, store.datasets[one.data]): one for one in batch
            }
            try:
                while running:
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        over(running.pop(future), future.result)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return failed
