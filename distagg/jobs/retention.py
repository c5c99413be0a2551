"""Retention: of a job's finished runs the newest so many are kept.

Deleted is only what is certainly a finished run of this job: a directory beside the new run, under the name of its key,
whose manifest says so, that nobody holds, and to which ``latest`` does not point. It is renamed first, so that nobody
meets half a run. Unfinished runs stay: somebody may want to resume them.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from distagg.dataset.manifest import MANIFEST, MARKER
from distagg.errors import DistaggError, InfrastructureError
from distagg.jobs.folder import RUN_FORMAT, RunFolder
from distagg.jobs.key import short

_GONE = re.compile(r"\.gone-[0-9a-f]{12}")


def retain(root: Path, name: str, keep: int, newest: str) -> list[str]:
    """Delete old runs of the job ``name`` in ``root``, keeping ``keep`` with ``newest``; gives the names deleted."""
    for left in root.iterdir():  # of a driver that died while it deleted
        if _GONE.fullmatch(left.name) and left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
    pointer = root / "latest"
    spared = {newest, os.readlink(pointer) if pointer.is_symlink() else newest}
    runs = [run for run in root.iterdir() if run.name not in spared and finished_run(run, name)]
    runs.sort(key=lambda run: ((run / MARKER).stat().st_mtime_ns, run.name), reverse=True)
    deleted = []
    for run in runs[max(0, keep - len(spared)) :]:
        with suppress(InfrastructureError), RunFolder(run).lease():  # held: somebody is at it
            gone = root / f".gone-{run.name}"
            os.rename(run, gone)
            shutil.rmtree(gone)
            deleted.append(run.name)
    return deleted


def finished_run(path: Path, name: str) -> bool:
    """Whether a path is a finished run of a job, and nothing else."""
    if path.is_symlink() or not path.is_dir() or not (path / MARKER).is_file():
        return False
    folder = RunFolder(path)
    try:
        body, key = folder.read(MANIFEST), folder.read("key.json")
        return (body["format"], body["name"], body["key"], short(key)) == (RUN_FORMAT, name, path.name, path.name)
    except (DistaggError, KeyError, TypeError):
        return False
