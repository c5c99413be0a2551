"""What a run ran with, for whoever looks at it later."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("distagg", "numpy", "scipy", "numba", "pyarrow", "sparse", "dask", "distributed", "lightgbm")


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
