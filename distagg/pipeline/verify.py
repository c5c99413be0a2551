"""``distagg verify``: check every file of a dataset, a model, rankings or a run against the hashes it was made with.

Datasets are also loaded, chunk by chunk, so that every number is in its range. What was found whole is noted beside the
manifest, with the time and the manifest's hash: a note about another manifest does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distagg.dataset.dataset import Dataset
from distagg.dataset.manifest import FORMAT, VERIFIED
from distagg.engine.saved import MODEL_FORMAT, MODEL_VERSION, load_model
from distagg.errors import DistaggError, InputError, UsageError
from distagg.pipeline.folder import RunFolder
from distagg.pipeline.records import damage_of, damage_of_run
from distagg.pipeline.status import job_of
from distagg.rankings.files import RANKINGS_FORMAT
from distagg.storage.atomic import MARKER, digest, write_whole
from distagg.storage.paths import Place, Store, size_of
from distagg.storage.sealed import committed, listed, manifest_file, read_manifest_json, read_sealed, sealed

WHAT = "a dataset, a model, rankings or a run"
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Verification:
    """What was checked: the kind of directory, its files and bytes, and every damage."""

    kind: str
    files: int
    bytes: int
    damage: tuple[str, ...]
    noted: bool = False  # whether the time could be written down


def verify(path: Place, progress: Progress = lambda files: None) -> Verification:
    """Check everything in a directory; notes the time if all is whole."""
    if not path.exists():
        raise InputError(str(path), found="nothing there", expected=WHAT)
    if not path.is_dir():
        raise UsageError(f"{path} is a file, expected the directory of {WHAT}; files have no hashes to check")
    if not isinstance(path, Store) and RunFolder(path).begun:
        found = _verify_run(RunFolder(path))
        folder: Place = path
    else:
        folder = committed(path, WHAT)
        found = _verify_files(folder, progress)
    if found.damage:
        with suppress(OSError, DistaggError):
            (folder / VERIFIED).unlink(missing_ok=True)
        return found
    return Verification(found.kind, found.files, found.bytes, (), _note(folder, found))


def _verify_files(folder: Place, progress: Progress) -> Verification:
    """Check a dataset, a model or rankings."""
    kinds = {FORMAT: ("dataset", 1), MODEL_FORMAT: ("model", MODEL_VERSION), RANKINGS_FORMAT: ("rankings", 1)}
    fmt = str(read_sealed(manifest_file(folder)).get("format"))
    if fmt not in kinds:
        raise InputError(str(manifest_file(folder)), found=f"format {fmt!r}", expected=f"that of {WHAT}")
    kind, version = kinds[fmt]
    entries = listed(read_manifest_json(folder, fmt, WHAT, version), manifest_file(folder))
    damage = []
    for entry in entries:
        file = folder / entry["path"]
        if not file.is_file():
            damage.append(f"{file}: no such file")
        elif digest(file) != entry["sha256"]:
            damage.append(f"{file}: {_difference(file, entry)}")
        progress(1)
    if not damage:
        try:
            _load(folder, kind)
        except InputError as error:
            damage.append(str(error))
    return Verification(kind, len(entries) + 1, sum(entry["bytes"] for entry in entries), tuple(damage))


def _load(folder: Place, kind: str) -> None:
    """Load what was checked: files may be whole and still hold what cannot be."""
    if kind == "dataset":
        for _ in Dataset.in_folder(folder).chunks():
            pass
    elif kind == "model" and (folder / MARKER).is_file():
        load_model(folder)


def _difference(file: Place, entry: dict[str, Any]) -> str:
    size = size_of(file)
    return f"{size} bytes, expected {entry['bytes']}" if size != entry["bytes"] else "another SHA-256"


def _verify_run(folder: RunFolder) -> Verification:
    steps = job_of(folder).steps
    damage = damage_of_run(folder, steps)
    files = [file for file in folder.path.rglob("*") if file.is_file()]
    checked = [file for file in files if file.name not in ("events.jsonl", "lease", VERIFIED)]
    size = sum(file.stat().st_size for file in checked)
    named = tuple(f"{folder.path / name}: not what was written" for name in damage)
    return Verification("run", len(checked), size, named)


def _note(folder: Place, found: Verification) -> bool:
    body = {
        "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "files": found.files,
        "bytes": found.bytes,
        "manifest": _manifest_hash(folder),
    }
    try:
        write_whole(folder / VERIFIED, sealed(body))
    except (OSError, DistaggError):  # a directory that can only be read
        return False
    return True


def last_verified(folder: Place) -> str:
    """When a directory, with this manifest, was last found whole; "never" if that is not known."""
    try:
        body = read_sealed(folder / VERIFIED)
        return str(body["time"]) if body["manifest"] == _manifest_hash(folder) else "never"
    except (DistaggError, OSError, KeyError):
        return "never"


def _manifest_hash(folder: Place) -> str:
    file = manifest_file(folder)
    return digest(file) if file.is_file() else ""


def damage_by_step(folder: RunFolder) -> dict[str, str]:
    """The state of every finished step's files: ``verified``, or the damaged file."""
    found = {step.name: damage_of(folder, step) for step in job_of(folder).steps if folder.done(step)}
    return {name: "verified" if bad is None else f"damaged: {bad}" for name, bad in found.items()}
