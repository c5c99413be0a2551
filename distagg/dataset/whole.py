"""Small files that are written whole or not at all, over what was there before."""

from __future__ import annotations

import hashlib
import os
import uuid

from distagg.dataset.place import Place, Store


def write_whole(target: Place, body: bytes) -> None:
    """Put ``body`` at ``target`` in one step: a reader, or whoever comes after a crash, sees the old or the new."""
    if isinstance(target, Store):
        target.write_bytes(body)
        return
    fresh = target.with_name(f".{target.name}.new-{uuid.uuid4().hex[:8]}")
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
    """Make a file's bytes, or the names in a folder, last; what a store has taken lasts."""
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
