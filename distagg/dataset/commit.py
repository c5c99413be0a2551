"""All there or not there: directories and files that appear whole, at the end, or never.

Work happens in a staging neighbour of the target; a rename publishes it. An interrupted run leaves only
the staging neighbour, which the error path removes.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distagg.dataset.manifest import MARKER
from distagg.dataset.whole import sync
from distagg.errors import UsageError


def refuse_existing(target: Path) -> None:
    """Refuse an output path that is taken, or whose parent cannot be written."""
    if target.exists() or target.is_symlink():
        raise UsageError(f"output {target} exists already; name another path or remove it first")


@contextmanager
def staged_directory(target: Path) -> Iterator[Path]:
    """A staging directory that becomes ``target``, marker included, when the block ends well."""
    refuse_existing(target)
    staging = _staging(target)
    staging.mkdir(parents=True)
    try:
        yield staging
        (staging / MARKER).touch()
        for file in staging.rglob("*"):
            if file.is_file():
                sync(file)
        sync(staging)
        refuse_existing(target)
        os.rename(staging, target)
        sync(target.parent)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


@contextmanager
def staged_file(target: Path) -> Iterator[Path]:
    """A staging file that becomes ``target`` when the block ends well."""
    refuse_existing(target)
    target.parent.mkdir(parents=True, exist_ok=True)
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


def _staging(target: Path) -> Path:
    return target.parent / f".{target.name}.staging-{uuid.uuid4().hex[:8]}"
