"""The cache of compiled kernels on disk: each kernel is compiled once per machine.

Processes execute code from this cache, so the folder must be as private as Python's bytecode files: it is used only if
the user owns it and nobody else can write to it. Each subfolder has the code for one digest of all kernel sources, the
versions of numba, llvmlite, numpy and Python, numba's settings and the processor. numba's own cache is not enough: it
checks only a function's own file, and would reuse old code of a callee from another file.

A kernel with a signature has one file: a SHA-256, then the code. Files are written under unique names and renamed, so
that concurrent processes do no harm: a lost race costs a compilation. A file that does not match its SHA-256 counts as
missing and is replaced.

DISTAGG_CACHE=0 turns the cache off, DISTAGG_CACHE_DIR sets another folder. If the folder cannot be used, kernels are
compiled in memory, and one line on stderr says why.
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
CONSTANTS = PACKAGE / "types.py"  # constants of kernels, in a module without kernels
DAY = 86_400.0  # seconds
KEPT_DAYS = 30  # after the last use of a digest
CHECKSUM = hashlib.sha256().digest_size
# Settings of numba that change the generated code.
SETTINGS = ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT", "ENABLE_AVX")


class Store:
    """The files of one digest in a private folder."""

    def __init__(self, root: Path, digest: str) -> None:
        root = root.resolve()
        self.folder = root / digest
        for folder in (root, self.folder):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700, parents=folder == root)
            _refuse_shared(folder)
        self.full = ""  # why writing stopped, if it did
        with contextlib.suppress(OSError):  # a read-only folder
            self._sweep()

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if it is missing or damaged."""
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
        """Write a file. After a failure (a full disk) further writes are skipped."""
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
        """Once a day: mark this digest as used, remove digests unused for weeks, and abandoned files."""
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
    """The cache interface of numba's dispatcher: load a kernel's code before compiling, save it afterwards."""

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
        except Exception:  # after any error the kernel is simply compiled
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
    """The external symbols of a library."""
    module = library._final_module
    declared = (value.name for value in (*module.functions, *module.global_variables) if value.is_declaration)
    return [name for name in declared if not name.startswith("llvm.")]


def _provide(target: Any, outside: list[str]) -> None:
    """Load the symbols that compiled code needs; for most code numba's runtime is enough.

    All of numba's symbols, with scipy's linear algebra, take half a second to load. They are loaded only if a symbol is
    missing, because LLVM ends the process at an unknown symbol.
    """
    from llvmlite.binding import address_of_symbol
    from numba.core.runtime import rtsys

    rtsys.initialize(target)
    if not all(address_of_symbol(name) for name in outside):
        target.refresh()


_lock = threading.Lock()


def store() -> Store | None:
    """This process's cache, or None if compiled code is not cached."""
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
    """A digest of everything that compiled code depends on."""
    import llvmlite
    import numba
    import numpy as np
    from numba.core import config
    from numba.core.registry import cpu_target

    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.version, platform.python_implementation())
    settings = [(name, getattr(config, name, None)) for name in SETTINGS]
    total = hashlib.sha256(repr((versions, settings, cpu_target.target_context.codegen().magic_tuple())).encode())
    for source in sources():
        content = source.read_bytes()
        total.update(f"\0{source.relative_to(PACKAGE).as_posix()}\0{len(content)}\0".encode() + content)
    return total.hexdigest()[:32]


def sources() -> list[Path]:
    """All modules of the package with kernels, and ``types``."""
    return [file for file in sorted(PACKAGE.rglob("*.py")) if file == CONSTANTS or b"@kernel" in file.read_bytes()]


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
    """Why compiled code is not cached, as printed on stderr; empty if it is."""
    return _notes[0] if _notes else ""


def note(reason: str) -> None:
    """Print on stderr, once per process, why compiled code is not cached."""
    _notes.append(reason)
    if len(_notes) == 1:
        print(
            f"distagg: compiled kernels are not kept: {reason}; every process compiles its own (DISTAGG_CACHE_DIR "
            "names another folder, DISTAGG_CACHE=0 says that this is meant)",
            file=sys.stderr,
        )
