"""Rounds by messages to the workers: shares are sent once, and a lost worker costs time, not answers."""

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
from distagg.engine import ask, broadcast
from distagg.engine import dask as dask_runner
from distagg.engine.dask import DaskRunner, local_cluster
from distagg.engine.runner import InlineRunner, Round, Work
from distagg.errors import InfrastructureError, InputError


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

    def __init__(self, silent: tuple[str, ...] = (), threads: int = 1) -> None:
        self.loop = SimpleNamespace(asyncio_loop=asyncio.new_event_loop())
        self.pool = ThreadPoolExecutor(threads)
        self.silent, self.listed, self.bytes = silent, {"a": threads, "b": 1}, [0]
        self.seen = dict.fromkeys(self.listed, 1000.0)
        self.asked: list[str] = []
        self.thread = threading.Thread(target=self.loop.asyncio_loop.run_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.loop.asyncio_loop.call_soon_threadsafe(self.loop.asyncio_loop.stop)
        self.thread.join()
        self.pool.shutdown()
        self.loop.asyncio_loop.close()

    def nthreads(self) -> dict[str, int]:
        return dict(self.listed)

    def scheduler_info(self) -> dict[str, Any]:
        return {"workers": {address: {"last_seen": self.seen[address]} for address in self.listed}}

    async def run(self, function: Any, *args: Any, workers: list[str], on_error: str) -> dict[str, Any]:
        replies = await asyncio.gather(*(self._one(function, args, a) for a in workers), return_exceptions=True)
        return dict(zip(workers, replies, strict=True))

    async def _one(self, function: Any, args: tuple[Any, ...], address: str) -> Any:
        self.asked.append(address)
        self.bytes.append(len(pickle.dumps(args)))
        if address in self.silent:
            await asyncio.Event().wait()
        about = {"nanny": None, "memory_manager": SimpleNamespace(memory_limit=None)}
        worker = SimpleNamespace(address=address, executors={"default": self.pool}, **about)
        return await function(*pickle.loads(pickle.dumps(args)), dask_worker=worker)


@pytest.fixture
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    monkeypatch.setattr(broadcast, "_seats", {})
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


def plain(workers: Workers) -> DaskRunner:
    return DaskRunner(workers, hold_workers=False)


@pytest.mark.parametrize("workers", [(), ((), 3)], indirect=True)
def test_what_does_not_change_is_sent_once(held: Dataset, workers: Workers) -> None:
    runner, refs = plain(workers), held.plan()
    expected = [InlineRunner().map_reduce(Work(_entries, n), refs, np.add) for n in range(4)]
    found, sent = [], []
    for n in range(4):
        before = len(workers.bytes)
        found.append(runner.map_reduce(Work(_entries, n, repeated=True), refs, np.add))
        sent.append(workers.bytes[before:])
    np.testing.assert_array_equal(found, expected)
    data = sum(len(pickle.dumps(ref)) for ref in refs)
    assert data / 2 < sum(sent[0]) < 2 * data  # each share to its worker alone
    assert [len(messages) for messages in sent[1:]] == [2, 2, 2]  # a message for each worker
    assert max(sum(messages) for messages in sent[1:]) < 2_000


@pytest.mark.parametrize("workers", [(), ((), 3)], indirect=True)
def test_several_rounds_are_one_message(held: Dataset, workers: Workers) -> None:
    runner, refs = plain(workers), held.plan()
    todo = [Round(Work(_entries, n, repeated=True), refs[: 1 + 4 * n], np.add) for n in (2, 0, 1)]
    list(runner.rounds(todo))
    before = len(workers.bytes)
    found = list(runner.rounds(todo))
    assert len(workers.bytes) - before == 2
    np.testing.assert_array_equal(found, list(InlineRunner().rounds(todo)))


@pytest.mark.parametrize("workers", [(("b",),)], indirect=True)
@pytest.mark.parametrize("gone", [True, False])
def test_a_worker_that_is_gone_or_silent_is_not_waited_for(
    held: Dataset, workers: Workers, monkeypatch: pytest.MonkeyPatch, *, gone: bool
) -> None:
    monkeypatch.setattr(ask, "POLL_WORKERS_SECONDS", 0.01)
    asking = broadcast.Broadcast(workers, hold_workers=False)
    assert asking.slots() == ("a", "b")
    if gone:
        del workers.listed["b"]
    else:
        workers.seen["b"] -= ask.SILENT_SECONDS + 1
    (row,) = asking.run([Round(Work(_counted, 1), held.plan(), np.add)])
    assert [part.outcome is None for part in row] == [False, True]
    assert row[1].workers == ["a"]
    assert _counts.pop() == row[0].span[1]  # the other worker was asked again, and computed once
    assert not _counts
    assert asking.slots() == ("a",)
    workers.listed["b"] = 1
    monkeypatch.setattr(ask, "POLL_WORKERS_SECONDS", 0.0)
    assert asking.slots() == ("a",)  # back too soon to be trusted
    asking._backed_off["b"] = 0.0
    assert asking.slots() == ("a", "b")


async def _name(word: str, dask_worker: Any) -> str:
    if word == "wrong":
        raise ValueError(word)
    return f"{word} {dask_worker.address}"


@pytest.mark.parametrize("workers", [(("b",),)], indirect=True)
@pytest.mark.parametrize("gone", [True, False])
def test_a_question_to_all_does_not_wait_for_a_silent_worker(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, gone: bool
) -> None:
    monkeypatch.setattr(ask, "POLL_WORKERS_SECONDS", 0.01)
    if gone:
        workers.scheduler_info = lambda: {"workers": {"a": {"last_seen": 1000.0}}}  # type: ignore[method-assign]
    else:
        workers.seen["b"] -= ask.SILENT_SECONDS + 1
    assert ask.ask_workers(workers, _name, "I am") == {"a": "I am a"}
    assert "b does not answer" in caplog.text
    del workers.listed["a"]
    workers.seen["b"] = 0.0
    workers.scheduler_info = lambda: {"workers": {}}  # type: ignore[method-assign]
    with pytest.raises(InfrastructureError, match="no worker of the cluster answers"):
        ask.ask_workers(workers, _name, "I am")
    workers.listed.clear()
    assert ask.ask_workers(workers, _name, "I am") == {}


def test_errors_of_questions_are_raised_or_returned(workers: Workers) -> None:
    with pytest.raises(ValueError, match="wrong"):
        ask.ask_workers(workers, _name, "wrong")
    replies = ask.ask_workers(workers, _name, "wrong", on_error="return")
    assert [type(reply) for reply in replies.values()] == [ValueError, ValueError]


_counts: list[int] = []


def _counted(chunk: Any, index: int, payload: int) -> np.ndarray:
    if index == 0:
        _counts.append(0)
    _counts[-1] += 1
    return _entries(chunk, index, payload)


def test_shares_stay_within_their_budget(held: Dataset) -> None:
    bodies = {str(n): pickle.dumps([((ref,), n)]) for n, ref in enumerate(held.plan())}
    shares = broadcast.Shares(budget=3 * max(map(len, bodies.values())))
    for digest, body in bodies.items():
        shares.add({digest: body})
    assert "12" in shares.held
    assert shares.lacking(["0", "12"]) == ["0"]
    assert sum(size for _, size in shares.held.values()) <= shares.budget


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


@pytest.mark.cluster
def test_a_stopped_worker_costs_time_not_answers(held: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "SILENT_SECONDS", 5.0)
    refs, work = held.plan(), Work(_entries, 1, repeated=True)
    with local_cluster(2) as runner:
        runner.map_reduce(work, refs, np.add)
        stopped, process = sorted(runner.client.run(os.getpid).items())[1]
        os.kill(process, signal.SIGSTOP)
        try:
            found = [runner.map_reduce(work, refs, np.add) for _ in range(2)]
            assert stopped not in runner.broadcast.slots()
        finally:
            os.kill(process, signal.SIGCONT)
    for one in found:
        np.testing.assert_array_equal(one, InlineRunner().map_reduce(work, refs, np.add))


@pytest.mark.cluster
def test_tasks_of_a_stopped_worker_go_to_the_others(
    held: Dataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Although the scheduler would wait for it without end."""
    monkeypatch.setattr(ask, "SILENT_SECONDS", 3.0)
    monkeypatch.setitem(dask_runner.SETTINGS, "distributed.scheduler.worker-ttl", None)
    refs, work = held.plan(), Work(_entries, 1)
    with local_cluster(2) as runner:
        stopped, process = sorted(runner.client.run(os.getpid).items())[1]
        os.kill(process, signal.SIGSTOP)
        try:
            found = list(runner.map(work, refs))
        finally:
            os.kill(process, signal.SIGCONT)
    assert f"{stopped} does not answer; its tasks go to other workers" in caplog.text
    np.testing.assert_array_equal(found, list(InlineRunner().map(work, refs)))


def test_workers_that_are_paused_for_good_are_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker short of memory takes no tasks, and may stay so; one that works resets the clock."""

    class Cluster:
        status = "paused"

        def scheduler_info(self, n_workers: int) -> dict[str, Any]:
            return {"workers": {"tcp://a": {"status": self.status}, "tcp://b": {"status": "paused"}}}

    cluster = Cluster()
    runner = DaskRunner(cluster)
    since = runner._alone(None)
    assert since is not None
    assert runner._alone(since) == since
    monkeypatch.setattr(dask_runner, "NO_WORKERS_SECONDS", -1.0)
    with pytest.raises(InfrastructureError, match="paused: they lack memory"):
        runner._alone(since)
    cluster.status = "running"
    assert runner._alone(since) is None
