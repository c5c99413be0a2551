"""Staging folders that outlive their process: what a job has finished, until the job publishes it.

A folder belongs to one purpose, which its file ``purpose.json`` says; a folder with another purpose is emptied.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from distagg.storage.atomic import write_whole
from distagg.storage.paths import Place, Store

PURPOSE = "purpose.json"


def claim(staging: Place, purpose: bytes) -> None:
    """Make the folder, or keep it if it has this purpose; a folder with another purpose is emptied."""
    file = staging / PURPOSE
    if staging.exists() and not (file.is_file() and file.read_bytes() == purpose):
        remove(staging)
    if not staging.exists():
        staging.mkdir(parents=True)
        write_whole(file, purpose)


def remove(folder: Place, *, quietly: bool = False) -> None:
    """Remove a folder and everything in it."""
    if isinstance(folder, Store):
        folder.rmdir()
    else:
        shutil.rmtree(folder, ignore_errors=quietly)


def link_or_copy(source: Place, target: Place) -> None:
    """Give a file another name, or copy it; the source stays, in case the process dies before it publishes."""
    if isinstance(source, Store) and isinstance(target, Store):
        source.copy_to(target)
        return
    if isinstance(source, Store) or isinstance(target, Store):
        target.write_bytes(source.read_bytes())
        return
    link(source, target)


def link(source: Path, target: Path) -> None:
    """Give a file a second name by a hard link, or copy it where links are not supported."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # no links on this file system
        shutil.copyfile(source, target)
