"""Jobs: steps of one validated specification, run in a directory that survives its driver.

Names are loaded when they are first used: commands read the table of options without loading what runs jobs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distagg.pipeline.run import drive
    from distagg.pipeline.spec import Job, Step, read_job

_HOME = {"Job": "spec", "Step": "spec", "drive": "run", "read_job": "spec"}
__all__ = ["Job", "Step", "drive", "read_job"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"distagg.pipeline.{_HOME[name]}"), name)
    raise AttributeError(f"module 'distagg.pipeline' has no attribute {name!r}")
