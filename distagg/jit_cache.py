"""Compiled kernels on disk: every machine compiles a kernel once.

Code from here is run, so the folder must be as private as Python's own bytecode files: it belongs to the user and
nobody else can write to it, or it is not used. One subfolder holds the code of one state of things: all kernel
sources, the versions of numba, llvmlite, numpy and Python, numba's settings and the processor. numba's own cache looks
at a function's own file alone, and would go on with an old callee from another file.

A kernel and signature have one file: a SHA-256 and what it is of. Files are written under a name of their own and
renamed, so processes at once do no harm: a lost race costs a compilation. A file that is not what its SHA-256 says
counts as missing, and is replaced.

DISTAGG_CACHE=0 turns it off, DISTAGG_CACHE_DIR names another folder. When the folder cannot be used, kernels are
compiled in memory and one line on stderr says why.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import platform
import re
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent
# What kernels take from modules without kernels: numbers and records.
SHARED = tuple(PACKAGE / name for name in ("types.py", "optimise/convergence.py", "models/outcome.py"))
DAY = 86_400.0  # seconds
KEPT_DAYS = 30  # that an unused state is kept
CHECKSUM = hashlib.sha256().digest_size
# Settings of numba that change the code it makes.
SETTINGS = ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT", "ENABLE_AVX")


class Store:
    """The files of one state in a private folder."""

    def __init__(self, root: Path, digest: str) -> None:
        root = root.resolve()
        self.folder = root / digest
        for folder in (root, self.folder):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700, parents=folder == root)
            _refuse_shared(folder)
        self.full = ""  # why nothing more is written
        with contextlib.suppress(OSError):  # a folder that can only be read
            self._sweep()

    def read(self, name: str) -> bytes | None:
        """What was written under a name; None where nothing was, or not all of it is there."""
        try:
            file = os.open(self.folder / name, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
            with os.fdopen(file, "rb") as opened:
                if _is_foreign(os.fstat(file)):
                    return None
                data = opened.read()
        except OSError:
            return None
        checksum, content = data[:CHECKSUM], data[CHECKSUM:]
        return content if hashlib.sha256(content).digest() == checksum else None

    def write(self, name: str, content: bytes) -> None:
        """Keep content under a name. After a failure (a full disk) no more is tried."""
        if self.full:
            return
        temporary = ""
        try:
            file, temporary = tempfile.mkstemp(dir=self.folder, prefix=name, suffix=".tmp")
            with os.fdopen(file, "wb") as opened:
                opened.write(hashlib.sha256(content).digest() + content)
            os.replace(temporary, self.folder / name)
        except OSError as error:
            self.full = f"{self.folder} cannot be written to ({error.strerror})"
            note(self.full)
            if temporary:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)

    def _sweep(self) -> None:
        """Once a day: mark this state as used, remove those that nobody has used for weeks, and abandoned files."""
        now = time.time()
        used = self.folder.stat().st_mtime
        if now - used < DAY and any(self.folder.iterdir()):
            return
        for file in self.folder.glob("*.tmp"):
            if now - file.stat().st_mtime > DAY:
                file.unlink()
        os.utime(self.folder)
        for other in self.folder.parent.iterdir():
            if re.fullmatch("[0-9a-f]{32}", other.name) and now - other.stat().st_mtime > KEPT_DAYS * DAY:
                shutil.rmtree(other, ignore_errors=True)


class KernelCache:
    """Where numba's dispatcher looks for a kernel's compiled code before it compiles, and leaves it afterwards."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}".removeprefix("distagg.")

    @property
    def cache_path(self) -> str | None:
        opened = store()
        return None if opened is None else str(opened.folder)

    def load_overload(self, signature: Any, target: Any) -> Any:
        opened = store()
        content = None if opened is None else opened.read(self._file(signature))
        if content is None:
            return None
        from numba.core.compiler import CompileResult

        try:
            outside, result = pickle.loads(content)
            _provide(target, outside)
            return CompileResult._rebuild(target, *result)
        except Exception:  # whatever it is, compiling gives the answer
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        opened = store()
        if opened is None or compiled.lifted or compiled.library.has_dynamic_globals:
            return
        from numba.core.serialize import dumps

        opened.write(self._file(signature), dumps((_outside(compiled.library), compiled._reduce())))

    def _file(self, signature: Any) -> str:
        return f"{self.name}-{hashlib.sha256(str(signature).encode()).hexdigest()[:32]}"


def _outside(library: Any) -> list[str]:
    """Names of all that a library calls or reads and does not have itself."""
    module = library._final_module
    declared = (value.name for value in (*module.functions, *module.global_variables) if value.is_declaration)
    return [name for name in declared if not name.startswith("llvm.")]


def _provide(target: Any, outside: list[str]) -> None:
    """Have all names that compiled code needs: most code is content with numba's runtime.

    Everything that numba knows to compile takes half a second to load, scipy's linear algebra among it. It is loaded
    where a name is missing, because LLVM ends the process at a name that it does not find.
    """
    from llvmlite.binding import address_of_symbol
    from numba.core.runtime import rtsys

    rtsys.initialize(target)
    if not all(address_of_symbol(name) for name in outside):
        target.refresh()


_lock = threading.Lock()


def store() -> Store | None:
    """This process's store; None where compiled code is not kept."""
    with _lock:
        return _store()


@cache
def _store() -> Store | None:
    if is_off():
        return None
    try:
        return Store(folder(), digest())
    except (OSError, RuntimeError) as error:
        note(f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror else str(error))
        return None


def is_off() -> bool:
    return os.environ.get("DISTAGG_CACHE", "") == "0"


def folder() -> Path:
    """The user's folder for compiled code."""
    named = os.environ.get("DISTAGG_CACHE_DIR")
    if named:
        return Path(named)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
        usual = ("AppData", "Local")
    elif sys.platform == "darwin":
        base, usual = "", ("Library", "Caches")
    else:
        base, usual = os.environ.get("XDG_CACHE_HOME", ""), (".cache",)
    return (Path(base) if os.path.isabs(base) else Path.home().joinpath(*usual)) / "distagg"


def digest() -> str:
    """A name for all that compiled code depends on."""
    import llvmlite
    import numba
    import numpy as np
    from numba.core import config
    from numba.core.registry import cpu_target

    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.version, platform.python_implementation())
    settings = [(name, getattr(config, name, None)) for name in SETTINGS]
    hashed = hashlib.sha256(repr((versions, settings, cpu_target.target_context.codegen().magic_tuple())).encode())
    for source in sources():
        content = source.read_bytes()
        hashed.update(f"\0{source.relative_to(PACKAGE).as_posix()}\0{len(content)}\0".encode() + content)
    return hashed.hexdigest()[:32]


def sources() -> list[Path]:
    """All modules of the package with kernels, and what they share."""
    return [file for file in sorted(PACKAGE.rglob("*.py")) if file in SHARED or b"@kernel" in file.read_bytes()]


def _refuse_shared(folder: Path) -> None:
    state = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(state.st_mode):
        raise OSError(f"{folder} is not a folder")
    if _is_foreign(state):
        raise OSError(f"{folder} belongs to another user")
    if os.name == "posix" and state.st_mode & 0o022:
        raise OSError(f"others can write to {folder} (mode {stat.S_IMODE(state.st_mode):04o})")


def _is_foreign(state: os.stat_result) -> bool:
    return os.name == "posix" and state.st_uid != os.geteuid()


_notes: list[str] = []


def why_not() -> str:
    """Why compiled code is not kept, as said on stderr; empty where it is."""
    return _notes[0] if _notes else ""


def note(reason: str) -> None:
    """Say on stderr, once in a process, why compiled code is not kept."""
    _notes.append(reason)
    if len(_notes) == 1:
        print(
            f"distagg: compiled kernels are not kept: {reason}; every process compiles its own (DISTAGG_CACHE_DIR "
            "names another folder, DISTAGG_CACHE=0 says that this is meant)",
            file=sys.stderr,
        )
