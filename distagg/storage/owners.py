"""Whose a staging path is: its name says host and process, so that what a killed process left can be told and removed.

A name ends with ``HOST.SPACE.PROCESS.START``: the host, its space of process numbers (a container has its own), the
number of the process, and when it started, since numbers are used again. Only a process of this host and space can be
known to have ended; what belongs to others stays.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

STAGED = re.compile(r"(?:\..*\.(?:staging|new)-|distagg-)[0-9a-z_]{8}\.(?P<owner>[\w-]+\.\d+\.\d+\.\d+)", re.DOTALL)
HOST_LETTERS = 24
LONGEST = 160  # bytes of a target's name in a staging path; most file systems allow 255 in all


def owner() -> str:
    """This process, as the names of its staging paths say it."""
    return f"{_here()}.{os.getpid()}.{_start(os.getpid())}"


def staging_name(name: str, kind: str) -> str:
    """A new name for a staging path beside ``name``, of the kind ``staging`` or ``new``."""
    return f".{_stem(name)}.{kind}-{uuid.uuid4().hex[:8]}.{owner()}"


def _stem(name: str) -> str:
    """The name, or a short one in its place if there would be no room for more in it."""
    encoded = name.encode(errors="surrogateescape")
    return name if len(encoded) <= LONGEST else f"{name[:16]}-{hashlib.sha256(encoded).hexdigest()[:16]}"


def is_abandoned(name: str) -> bool:
    """Whether a name is that of a staging path whose process, on this host, has ended."""
    match = STAGED.fullmatch(name)
    if match is None:
        return False
    here, number, start = match["owner"].rsplit(".", 2)
    return here == _here() and _start(int(number)) != int(start)


def sweep(target: Path) -> None:
    """Remove what processes that were killed have left of earlier attempts at the same target."""
    for path in target.parent.glob(f".{glob.escape(_stem(target.name))}.staging-*"):
        if is_abandoned(path.name):
            remove_path(path)


def abandoned_in(folder: Path) -> Iterator[Path]:
    """Staging paths of ended processes in a folder and those below it, and in the folder for temporary files."""
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent) / name for name in sorted([*folders, *files]) if is_abandoned(name))
        folders[:] = [name for name in folders if not name.startswith(".")]
    with suppress(OSError):
        temporary = Path(tempfile.gettempdir())
        yield from (path for path in sorted(temporary.glob("distagg-*")) if is_abandoned(path.name))


def remove_path(path: Path) -> None:
    """Remove a file, a link or a folder, as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _here() -> str:
    """This host, and its space of process numbers."""
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:HOST_LETTERS] or "host"
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return f"{host}.{space}"


def _start(process: int) -> int:
    """When a process started, in ticks of the system's clock; 0 where only that it runs is known, -1 if it ended."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(errors="replace")
        fields = stat.rpartition(")")[2].split()
        return -1 if fields[0] in "ZX" else int(fields[19])
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return -1
    except (OSError, IndexError, ValueError):
        return 0
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return -1
    except OSError:
        pass
    return 0
