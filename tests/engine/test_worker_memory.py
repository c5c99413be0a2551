"""The memory of workers: sizes are understood, caches follow from them, chunks that cannot fit are refused."""

from __future__ import annotations

import json
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
from distagg.engine.runner import Cache, Work, as_runner
from distagg.engine.worker_memory import needed_by, parse_memory, refuse_large_chunks
from distagg.errors import UsageError
from distagg.models.rounds import MEMORY, cache_bytes
from distagg.pipeline.plan import plan
from distagg.pipeline.spec import make_job


@pytest.mark.parametrize("text", ["", "4 apples", "-1GB", "1e9", "10MB"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"found .*, expected"):
        parse_memory(text)


def test_caches_are_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Cache().limit == 512 << 20
    monkeypatch.setenv(MEMORY, str(1 << 30))
    assert cache_bytes() == Cache().limit == 256 << 20
    monkeypatch.setenv(MEMORY, str(1 << 40))
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
    return np.array([runners._cache.limit, int(os.environ[MEMORY])])


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


def test_a_job_names_the_memory_of_its_workers(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    body = {"name": "small", "steps": {"ranked": {"do": "rank", "model": "rrf", "dataset": str(planted)}}}
    assert make_job({**body, "place": {"workers": 2, "memory": "4GB"}}).place["memory"] == "4GB"
    for place, said in (
        ({"workers": 2, "memory": "much"}, "place.memory: found 'much', expected a size"),
        ({"memory": "4GB"}, "place.memory: is that of local workers"),
    ):
        with pytest.raises(UsageError, match=said):
            make_job({**body, "place": place})
    job = make_job({**body, "place": {"workers": 2, "memory": "315MB"}})
    with pytest.raises(UsageError, match=r"steps\.ranked: memory of a worker: found 315 MB .*; give --memory 0\.4GB"):
        plan(job)
    (tmp_path / "job.json").write_text(json.dumps(job.to_dict()))
    assert main(["run", "job.json"]) == 2
    assert main(["run", "job.json", "--memory", "316MB"]) == 2
    assert "found 316 MB" in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/small/*/output"))


@pytest.mark.cluster
def test_workers_of_a_cluster_that_is_there_size_their_caches(planted: Path) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, memory_limit=1 << 30, dashboard_address="127.0.0.1:0") as own,
        Client(own, set_as_default=False) as client,
    ):
        work = Work(_limits, None, repeated=True)
        found = as_runner(client).map_reduce(work, Dataset.open(planted).plan(), np.maximum)
    assert found is not None
    assert found.tolist() == [256 << 20, 1 << 30]
