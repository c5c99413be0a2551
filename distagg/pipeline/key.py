"""The resume key: everything that the outputs of a job depend on; and the environment of a run.

Where a job runs and how often it saves checkpoints are not part of the key.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import distagg
from distagg.dataset.dataset import CHUNK_ENTRIES
from distagg.dataset.manifest import committed, manifest_file
from distagg.engine.fitting.train import TRAIN_ENTRIES
from distagg.pipeline.spec import Job, Step
from distagg.storage.atomic import digest
from distagg.storage.paths import Place, Store, is_found, place
from distagg.types import SCHEMA_VERSION

PACKAGES = ("distagg", "numpy", "scipy", "numba", "pyarrow", "sparse", "dask", "distributed", "lightgbm")
LIBRARIES = ("numpy", "scipy", "numba", "pyarrow")  # the bits of results, or bytes of files, depend on them
SHOWN = 8


def environment() -> dict[str, Any]:
    """Versions, machine and the settings of numerical libraries."""
    settings = {name: os.environ[name] for name in sorted(os.environ) if name.endswith("_NUM_THREADS")}
    return {
        "python": platform.python_version(), "system": platform.platform(), "machine": platform.machine(),
        "host": platform.node(), "cores": os.cpu_count(), "packages": {name: installed(name) for name in PACKAGES},
        "command": sys.argv[1:], "settings": settings,
    }  # fmt: skip


def installed(name: str) -> str | None:
    """A package's version, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def resume_key(job: Job) -> dict[str, Any]:
    """Configuration, inputs by their hashes, plan, code and seed."""
    inputs = sorted({path for step in job.steps for path in references(step) if is_found(path)})
    return {
        "steps": job.to_dict()["steps"],
        "order": [step.name for step in job.steps],
        "seed": job.seed,
        "inputs": {path: fingerprint(place(path)) for path in inputs},
        "plan": plan_key(),
        "code": code_key(),
    }


def plan_key() -> dict[str, int]:
    """How data is divided into chunks."""
    return {"schema": SCHEMA_VERSION, "chunk_entries": CHUNK_ENTRIES, "train_entries": TRAIN_ENTRIES}


def code_key() -> dict[str, str]:
    """Versions of the code that results depend on."""
    return {"distagg": distagg.__version__, "source": source_hash(), **{name: version(name) for name in LIBRARIES}}


def short(key: dict[str, Any]) -> str:
    """The key as twelve hexadecimal digits, the name of the run directory."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]


def difference(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The differences between two keys, one per line."""
    old, new = _flat(before), _flat(now)
    lines = [
        f"{name}: was {old.get(name, 'not there')}, is {new.get(name, 'not there')}"
        for name in sorted(old | new)
        if old.get(name) != new.get(name)
    ]
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return lines[:SHOWN] + more


def fingerprint(path: Place) -> str:
    """A hash of the content of a path; of a directory with a manifest of hashes, the hash of the manifest."""
    if path.is_file():
        return digest(path)
    if isinstance(path, Store):
        return digest(manifest_file(committed(path, "a dataset, rankings or a model")))
    manifest = manifest_file(path)
    if manifest.is_file() and "sha256" in manifest.read_text(encoding="utf-8", errors="replace"):
        return digest(manifest)
    total = hashlib.sha256()
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        total.update(f"{file.relative_to(path)} {digest(file)}\n".encode())
    return total.hexdigest()


@cache
def source_hash() -> str:
    """A hash of this package's source code, because two versions may have the same number."""
    root = Path(distagg.__file__).parent
    total = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        total.update(f"{file.relative_to(root)} {digest(file)}\n".encode())
    return total.hexdigest()


def references(step: Step) -> list[str]:
    """What a step may read: names of steps, absolute paths, models' names."""
    named = [step.values.get(key) for key in ("dataset", "valid", "model", "rankings", "qrels")]
    return [reference for reference in (*named, *step.values.get("files", ())) if reference]


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    return {k: v for key, inner in value.items() for k, v in _flat(inner, f"{name}.{key}" if name else key).items()}
