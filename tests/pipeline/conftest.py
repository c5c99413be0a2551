"""Data that the tests of jobs share."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_jobs import write_small


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("small") / "data")
