"""Clusters whose workers come and go: those in use stay, new ones are used, and the answers are the inline ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import csv

from distagg.dataset import Dataset
from distagg.engine import ask, broadcast
from distagg.engine import dask as runners
from distagg.engine.compare import compare
from distagg.engine.dask import DaskRunner, remote_cluster
from distagg.engine.fitting.fit import fit
from distagg.engine.importing import import_dataset
from distagg.engine.rank import solve
from distagg.engine.runner import InlineRunner, Work
from distagg.models import Params
from distagg.models.crf.model import Crf

DEADLINE = 60.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "this should have happened long ago"
        time.sleep(0.01)


def _entries(chunk: Any, index: int, payload: int) -> np.ndarray:
    return np.array([chunk.n_entries * 0.1 * payload, float(index)])


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster of two workers, threads of this process, on TCP."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
    ) as made:
        yield made


@pytest.fixture(scope="module")
def chunks(planted: Path) -> tuple[Any, ...]:
    dataset = Dataset.open(planted)
    return tuple(dataset.select(fold=(13, {n})).plan()[0] for n in range(13))


@pytest.mark.cluster
def test_workers_in_use_are_kept_and_idle_ones_are_not(
    cluster: Any, chunks: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Adaptive, Client

    targets: list[int] = []

    class Watched(Adaptive):
        async def target(self) -> int:
            targets.append(await super().target())
            return targets[-1]

    monkeypatch.setattr(broadcast, "HOLD_SECONDS", DEADLINE)
    work = Work(_entries, 1, repeated=True)
    expected = InlineRunner().map_reduce(work, chunks, np.add)
    with Client(cluster, set_as_default=False) as client:
        runner = DaskRunner(client)
        np.testing.assert_array_equal(runner.map_reduce(work, chunks, np.add), expected)
        states = cluster.scheduler.workers
        until(lambda: all(state.long_running for state in states.values()))
        before = set(states)
        cluster.adapt(Adaptive=Watched, minimum=0, maximum=2, interval="10ms", wait_count=1)
        while len(targets) < 10:
            np.testing.assert_array_equal(runner.map_reduce(work, chunks, np.add), expected)
        assert set(states) == before
        assert set(targets) == {2}
        monkeypatch.setattr(broadcast, "HOLD_SECONDS", 0.0)  # no more rounds
        until(lambda: not states)
        # Rounds on an empty cluster: a worker starts for them, and the next round is a message to it.
        monkeypatch.setattr(broadcast, "HOLD_SECONDS", DEADLINE)
        monkeypatch.setattr(ask, "POLL_WORKERS_SECONDS", 0.0)
        np.testing.assert_array_equal(runner.map_reduce(work, chunks, np.add), expected)
        until(lambda: bool(runner.broadcast.slots()))
        assert not before & set(runner.broadcast.slots())
        np.testing.assert_array_equal(runner.map_reduce(work, chunks, np.add), expected)


@pytest.mark.cluster
def test_a_new_worker_is_used_from_the_next_round_on(
    cluster: Any, chunks: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client

    monkeypatch.setattr(ask, "POLL_WORKERS_SECONDS", 0.0)
    asked: list[set[str]] = []
    with Client(cluster, set_as_default=False) as client:
        runner = DaskRunner(client, hold_workers=False)
        for count in (2, 3, 1):
            cluster.scale(count)
            until(lambda count=count: len(client.nthreads()) == count)  # type: ignore[misc]
            (row,) = runner.broadcast.run([runners.Round(Work(_entries, 1), chunks, np.add)])
            assert all(part.outcome is not None for part in row)
            assert len(row) == count
            asked.append(set(runner.broadcast.slots()))
    assert asked[0] < asked[1]
    assert asked[2] < asked[1]


@pytest.mark.cluster
def test_long_rounds_are_tasks_that_dask_sees(
    cluster: Any, chunks: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client

    monkeypatch.setattr(runners, "LONG_ROUND_SECONDS", 0.0)
    work = Work(_entries, 3, repeated=True)
    with Client(cluster, set_as_default=False) as client:
        runner = DaskRunner(client)
        found = [runner.map_reduce(work, chunks, np.add) for _ in range(2)]
        seen = {prefix: state.state_counts for prefix, state in cluster.scheduler.task_prefixes.items()}
    assert seen["reduce_span"]["processing"] == 2 * runners.SPANS_PER_THREAD  # the second round
    for value in found:
        np.testing.assert_array_equal(value, InlineRunner().map_reduce(work, chunks, np.add))


@pytest.mark.cluster
def test_commands_on_a_cluster_that_starts_without_workers(cluster: Any, planted: Path, tmp_path: Path) -> None:
    dataset, model = Dataset.open(planted), Crf(rounds=4, mode="average")

    def answers(runner: Any) -> tuple[Params, Any, Any]:
        params = fit(model, dataset, runner=runner)
        ranking = solve(model, params, dataset, runner).ranking
        return params, ranking, compare(dataset, ["borda"], folds="3", runner=runner)["means"]

    cluster.scale(0)
    until(lambda: not cluster.scheduler.workers)
    cluster.adapt(minimum=0, maximum=3, interval="10ms", wait_count=1)
    source = tmp_path / "lists.csv"
    csv.write_csv(dataset.to_arrow().drop_columns(["label"]), source)
    with remote_cluster(cluster.scheduler_address) as runner:
        there = answers(runner)
        import_dataset("rankings", [source], tmp_path / "there", runner=runner)
    here = answers(None)
    import_dataset("rankings", [source], tmp_path / "here")
    files = [sorted((f.name, f.read_bytes()) for f in (tmp_path / place).iterdir()) for place in ("here", "there")]
    assert files[0] == files[1]
    np.testing.assert_equal(there[0], here[0])
    assert there[1:] == here[1:]
