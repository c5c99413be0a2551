"""Fixtures that several folders of tests use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The first example compiles kernels, so no deadline; derandomised: the same examples on every machine.
settings.register_profile("distagg", deadline=None, derandomize=True)
settings.load_profile("distagg")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The real data sets, which are not ours to ship; tests that need them skip without them."""
    folder = Path(os.environ.get("DISTAGG_DATA", Path(__file__).parents[1] / ".." / "shared" / "data")).resolve()
    if not folder.is_dir():
        pytest.skip(f"no real data: set DISTAGG_DATA or put it at {folder}")
    return folder
