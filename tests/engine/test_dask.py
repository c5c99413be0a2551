"""Rounds by calls to the workers: spans are sent once, and a lost worker costs time, not answers."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from distagg.dataset import Dataset
from distagg.engine import dask as rounds
from distagg.engine.dask import DaskRunner, local_cluster
from distagg.engine.runner import InlineRunner, Round, Work
from distagg.errors import InputError


def _entries(chunk: Any, index: int, payload: int) -> np.ndarray:
    return np.array([chunk.n_entries * 0.1 * payload, float(index)])


def _kill_once(chunk: Any, index: int, marker: str) -> np.ndarray:
    """A task whose worker dies the first time that the chunk before the last comes round."""
    if chunk.positions[0] == 11 and not os.path.exists(marker):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return _entries(chunk, index, 1)


def _bad(chunk: Any, index: int, payload: None) -> None:
    raise InputError("part-3", line=7, found="x", expected="y")


class Workers:
    """Workers in this process, behind what a client offers; every message is weighed. ``silent`` ones never answer."""

    def __init__(self, silent: tuple[str, ...] = ()) -> None:
        loop = asyncio.new_event_loop()
        self.loop = SimpleNamespace(asyncio_loop=loop)
        self.worker = SimpleNamespace(loop=self.loop, executors={"default": ThreadPoolExecutor(1)})
        self.silent, self.listed, self.bytes = silent, {"a": 1, "b": 1}, [0]
        self.thread = threading.Thread(target=loop.run_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.loop.asyncio_loop.call_soon_threadsafe(self.loop.asyncio_loop.stop)
        self.thread.join()
        self.worker.executors["default"].shutdown()
        self.loop.asyncio_loop.close()

    def nthreads(self) -> dict[str, int]:
        return dict(self.listed)

    def rpc(self, address: str) -> Any:
        async def run(function: bytes, args: bytes) -> dict[str, Any]:
            if address in self.silent:
                self.listed.pop(address, None)
                await asyncio.sleep(60)
            self.bytes.append(len(args))
            found = await pickle.loads(function)(*pickle.loads(args), dask_worker=self.worker)
            return {"status": "OK", "result": found}

        return SimpleNamespace(run=run)


@pytest.fixture
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    monkeypatch.setattr(rounds, "_spans", rounds.Spans())
    made = Workers(*getattr(request, "param", ()))
    yield made
    made.close()


@pytest.fixture(scope="module")
def held(planted: Path) -> Dataset:
    """The planted data in thirteen chunks in memory, which travel with the spans."""
    from dataclasses import replace

    dataset = Dataset.open(planted)
    chunks = tuple(dataset.select(fold=(13, {n})).plan()[0].load() for n in range(13))
    block = dataset.manifest.blocks[0]
    blocks = tuple(replace(block, queries=c.n_queries, items=c.n_items, entries=c.n_entries) for c in chunks)
    return replace(dataset, held=chunks, manifest=replace(dataset.manifest, blocks=blocks))


def test_what_does_not_change_is_sent_once(held: Dataset, workers: Workers) -> None:
    runner, refs = DaskRunner(workers), held.plan()
    expected = [InlineRunner().map_reduce(Work(_entries, n), refs, np.add) for n in range(4)]
    found = []
    for n in range(4):
        workers.bytes.append(0)
        found.append(runner.map_reduce(Work(_entries, n, repeated=True), refs, np.add))
    np.testing.assert_array_equal(found, expected)
    by_round = [[int(b) for b in part.split()] for part in " ".join(map(str, workers.bytes)).split(" 0")][1:]
    data = sum(len(pickle.dumps(ref)) for ref in refs)
    assert sum(by_round[0]) > data / 2
    assert [len(sent) for sent in by_round[1:]] == [2, 2, 2]  # a message for each worker
    assert max(sum(sent) for sent in by_round[1:]) < 2_000


def test_several_rounds_are_one_message(held: Dataset, workers: Workers) -> None:
    runner, refs = DaskRunner(workers), held.plan()
    todo = [Round(Work(_entries, n, repeated=True), refs[: 5 + n], np.add) for n in range(3)]
    list(runner.rounds(todo))
    before = len(workers.bytes)
    found = list(runner.rounds(todo))
    assert len(workers.bytes) - before == 2
    np.testing.assert_array_equal(found, list(InlineRunner().rounds(todo)))


@pytest.mark.parametrize("workers", [(("b",),)], indirect=True)
def test_a_worker_that_the_scheduler_gave_up_is_not_waited_for(
    held: Dataset, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = rounds.Rounds(workers)
    calls = [(slot, [rounds.Call(Work(_entries, 1), held.plan(), 0, np.add)]) for slot in direct.slots()]
    found = direct.run(calls)
    assert found[0] is not None
    assert found[1] is None
    assert direct.slots() == ["a"]  # looked up again
    workers.listed["b"] = 1
    monkeypatch.setattr(rounds, "POLL_WORKERS_SECONDS", 0.0)
    assert direct.slots() == ["a"]  # back too soon to be trusted
    direct._backed_off["b"] = 0.0
    assert direct.slots() == ["a", "b"]


def test_spans_stay_within_their_budget(held: Dataset) -> None:
    bodies = {str(n): pickle.dumps((ref,)) for n, ref in enumerate(held.plan())}
    spans = rounds.Spans(budget=3 * max(map(len, bodies.values())))
    for digest, body in bodies.items():
        spans.add({digest: body})
    assert "12" in spans.held
    assert spans.lacking(["0", "12"]) == ["0"]
    assert sum(size for _, size in spans.held.values()) <= spans.budget


@pytest.mark.cluster
def test_a_worker_killed_in_a_round_costs_time_not_answers(held: Dataset, tmp_path: Path) -> None:
    marker = tmp_path / "killed"
    refs = held.plan()
    with local_cluster(2) as runner:
        found = [runner.map_reduce(Work(_kill_once, str(marker), repeated=True), refs, np.add) for _ in range(3)]
        with pytest.raises(InputError, match="part-3:7"):
            runner.map_reduce(Work(_bad, None, repeated=True), refs, np.add)
    assert marker.exists()
    for one in found:
        np.testing.assert_array_equal(one, InlineRunner().map_reduce(Work(_entries, 1), refs, np.add))
