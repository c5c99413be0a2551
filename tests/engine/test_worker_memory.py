"""The memory of workers: sizes are understood, caches follow from them, chunks that cannot fit are refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine import runner as runners
from distagg.engine.dask import local_cluster
from distagg.engine.runner import Cache, Work
from distagg.engine.worker_memory import VARIABLE, cache_bytes, needed_by, parse_memory, refuse_large_chunks
from distagg.errors import UsageError


@pytest.mark.parametrize("text", ["", "4 apples", "-1GB", "1e9", "10MB"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--memory"):
        parse_memory(text)


def test_caches_are_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Cache().budget == 512 << 20
    monkeypatch.setenv(VARIABLE, str(1 << 30))
    assert cache_bytes() == Cache().budget == 256 << 20
    monkeypatch.setenv(VARIABLE, str(1 << 40))
    assert cache_bytes() == 512 << 20


def test_a_chunk_that_cannot_fit_is_refused_with_the_number_needed(planted: Path) -> None:
    ref = Dataset.open(planted).plan()[0]
    large = replace(ref, blocks=(replace(ref.blocks[0], entries=100_000_000),))
    with pytest.raises(
        UsageError, match=r"chunk of 100,000,000 entries, which needs about 9\.9 GB; give --memory 10\.0GB"
    ):
        refuse_large_chunks([ref, large], parse_memory("4GB"))
    refuse_large_chunks([ref, large], needed_by(large))


def _limits(chunk: Any, index: int, payload: None) -> np.ndarray:
    return np.array([runners._cache.budget, int(os.environ[VARIABLE])])


@pytest.mark.cluster
def test_workers_get_their_memory(planted: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="distagg")
    refs = Dataset.open(planted).plan()
    with local_cluster(1, 1 << 30) as runner:
        found = next(iter(runner.map(Work(_limits, None), refs)))
        rows = runner.client.scheduler_info()["workers"].values()
        assert [row["memory_limit"] for row in rows] == [1 << 30]
        large = replace(refs[0], blocks=(replace(refs[0].blocks[0], entries=10**9),))
        with pytest.raises(UsageError, match="needs about 96"):
            list(runner.map(Work(_limits, None), [*refs, large, large]))
    assert found.tolist() == [256 << 20, 1 << 30]
    assert "spill to" in caplog.text


def test_memory_is_about_workers_that_distagg_starts(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rank", "rrf", str(planted), "--memory", "4GB"]) == 2
    assert "dask worker --memory-limit" in capsys.readouterr().err
