"""All-or-nothing writes: directories and files appear complete, at the end, or not at all.

On a local disk, files are written to a staging path beside the target, and a rename publishes them. After an
interruption only the staging path is left, and the error handler removes it. What a killed process leaves is removed by
the next attempt at the same target (``owners.py``).

An object store has no rename. There the files of a directory go to a folder ``attempt-XXXXXXXX`` inside the target,
with a unique name. The marker, written last, contains this name: one small write publishes everything. Readers never
read an attempt that the marker does not name, so that another attempt can be made beside it. A single file is written
under a unique name and copied to the target inside the store, in one step.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from distagg.errors import DistaggError, InfrastructureError, UsageError
from distagg.storage.owners import owner, staging_name, sweep
from distagg.storage.paths import P, Place, Store

MARKER = "_SUCCESS"  # written last: the directory is complete
ATTEMPT = re.compile(r"attempt-[0-9a-f]{8}")


def refuse_existing(target: Place) -> None:
    """Refuse an output path that exists, or whose parent is not writable."""
    if isinstance(target, Store):
        taken = any(not ATTEMPT.fullmatch(name) for name in target.sizes()) or target.is_file()
    else:
        taken = target.exists() or target.is_symlink()
    if taken:
        raise UsageError(f"output {target} exists already; choose another path or remove it first")


@contextmanager
def staged_directory(target: P) -> Iterator[P]:
    """A staging directory that becomes ``target``, with its marker, when the block ends without an error."""
    refuse_existing(target)
    if isinstance(target, Store):
        attempt = target / f"attempt-{uuid.uuid4().hex[:8]}"
        try:
            yield attempt  # type: ignore[misc]
            refuse_existing(target)
        except BaseException:
            with suppress(DistaggError):
                attempt.rmdir()
            raise
        (target / MARKER).write_text(attempt.name)  # after a failure here the marker may exist, so the files must stay
        return
    assert isinstance(target, Path)
    sweep(target)
    staging = _staging(target)
    staging.mkdir(parents=True)
    try:
        yield staging
        (staging / MARKER).touch()
        for inside in staging.rglob("*"):  # files, and folders for the names in them
            sync(inside)
        sync(staging)
        refuse_existing(target)
        os.rename(staging, target)
        sync(target.parent)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


@contextmanager
def next_version(target: P) -> Iterator[P]:
    """A folder inside a complete directory that becomes its content when the block ends without an error.

    The marker then names this folder. The files of earlier versions stay where they are, for those who read them.
    """
    marker = target / MARKER
    before = marker.read_bytes()
    version = target / f"attempt-{uuid.uuid4().hex[:8]}"
    try:
        version.mkdir()
        yield version  # type: ignore[misc]
        if isinstance(version, Path):
            for inside in version.iterdir():
                sync(inside)
            sync(version)
        if marker.read_bytes() != before:
            raise InfrastructureError(f"{target} got another version meanwhile; run again to add to that one")
    except BaseException:
        if isinstance(version, Store):
            with suppress(DistaggError):
                version.rmdir()
        else:
            shutil.rmtree(version, ignore_errors=True)
        raise
    write_whole(marker, version.name.encode())


@contextmanager
def staged_file(target: P, *, overwrite: bool = False) -> Iterator[P]:
    """A staging file that becomes ``target`` when the block ends without an error; ``overwrite`` is for stores."""
    if isinstance(target, Store):
        if not overwrite:
            refuse_existing(target)
        fresh = _staging(target)
        try:
            yield fresh
            if not overwrite:
                refuse_existing(target)
            fresh.copy_to(target)
        finally:
            with suppress(DistaggError):
                fresh.unlink(missing_ok=True)
        return
    assert isinstance(target, Path)
    refuse_existing(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target)
    staging = _staging(target)
    try:
        yield staging
        sync(staging)
        refuse_existing(target)
        os.rename(staging, target)
        sync(target.parent)
    except BaseException:
        staging.unlink(missing_ok=True)
        raise


@contextmanager
def scratch(staging: Place, name: str) -> Iterator[Path]:
    """A local working folder that is removed afterwards: in a local staging directory, or a temporary folder."""
    if isinstance(staging, Store):
        with tempfile.TemporaryDirectory(prefix="distagg-", suffix=f".{owner()}") as folder:
            yield Path(folder)
        return
    (staging / name).mkdir()
    yield staging / name
    shutil.rmtree(staging / name)


def _staging(target: P) -> P:
    return target.with_name(staging_name(target.name, "staging"))  # type: ignore[return-value]


def write_whole(target: Place, body: bytes) -> None:
    """Write or replace a small file atomically: readers see the old or the new content, also after a crash."""
    if isinstance(target, Store):
        target.write_bytes(body)
        return
    fresh = target.with_name(staging_name(target.name, "new"))
    try:
        with fresh.open("wb") as out:
            out.write(body)
            out.flush()
            os.fsync(out.fileno())
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)
    sync(target.parent)


def sync(path: Place) -> None:
    """Flush a file's bytes, or the names in a folder, to disk (fsync); object stores need no flush."""
    if isinstance(path, Store):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Place) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
