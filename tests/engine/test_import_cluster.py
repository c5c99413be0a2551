"""Import on real workers: killed one by one and all at once in every round, and the driver killed; the same bytes."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from distagg.dataset.build.writer import write_dataset
from distagg.engine.dask import DaskRunner, local_cluster
from distagg.engine.import_parallel import import_in_pieces
from distagg.errors import InfrastructureError
from distagg.sources.trec import TrecSource

ROUNDS = ("_read_task", "_sort_task", "_merge_task")
SIZES = {"piece_bytes": 900, "block_entries": 40}
TOGETHER_SECONDS = 120  # after which a test has failed


def runs(folder: Path) -> list[Path]:
    """Two runs, one with its queries backwards, so that its pieces are sorted once more."""
    for e, order in enumerate((range(12), reversed(range(12)))):
        lines = (f"q{q} Q0 d{(i * (7 + e) + q) % 31} {i} {-i} t\n" for q in order for i in range(9))
        (folder / f"run{e}").write_text("".join(lines))
    return [folder / "run0", folder / "run1"]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def dying(function: Any, markers: Path, together: int, after: bool, payload: Any) -> Any:
    """A task whose worker is killed, before or after its work, with as many others as shall die together."""
    for n in range(together):
        try:
            (markers / f"{function.__name__}-{n}").touch(exist_ok=False)
        except FileExistsError:
            continue
        if after:
            function(payload)
        deadline = time.monotonic() + TOGETHER_SECONDS
        while len(list(markers.glob(f"{function.__name__}-*"))) < together and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    return function(payload)


class Deadly:
    """A runner whose workers die in one round."""

    def __init__(self, runner: DaskRunner, round_: str, markers: Path, together: int, after: bool) -> None:
        self.runner, self.client = runner, runner.client
        self.round, self.kill = round_, (markers, together, after)

    def each(self, function: Any, payloads: Sequence[Any], progress: Any = None) -> Iterator[Any]:
        if function.__name__ == self.round:
            function = functools.partial(dying, function, *self.kill)
        return self.runner.each(function, payloads)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of two blocks, so that there are several to merge."""
    for module in ("writer", "join_names"):
        monkeypatch.setattr(f"distagg.dataset.build.{module}.FILE_BLOCKS", 2)


def import_whatever_dies(files: list[Path], target: Path, runner: Any) -> None:
    """Import; after an infrastructure error (Dask may lose its nannies, too) on a new cluster, as the message says."""
    try:
        import_in_pieces(TrecSource(files), target, runner, **SIZES)
    except InfrastructureError:
        with local_cluster(1) as fresh:
            import_in_pieces(TrecSource(files), target, fresh, **SIZES)


@pytest.mark.cluster
@pytest.mark.parametrize("together", [1, 2], ids=["one in every round", "all in every round"])
def test_killed_workers_cost_time_only(tmp_path: Path, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distagg.engine.dask.NO_WORKERS_SECONDS", 10.0)  # until a new cluster is started
    files = runs(tmp_path)
    write_dataset(TrecSource(files), tmp_path / "here", block_entries=SIZES["block_entries"])
    with ExitStack() as clusters:
        cluster: DaskRunner | None = None
        for round_ in ROUNDS:
            (markers := tmp_path / f"markers{round_}").mkdir()
            if cluster is None or not cluster.client.nthreads():  # Dask may lose nannies, too
                cluster = clusters.enter_context(local_cluster(2))
            runner = Deadly(cluster, round_, markers, together, after=round_ != "_read_task")
            import_whatever_dies(files, tmp_path / f"out{round_}", runner)
            assert len(list(markers.iterdir())) == together
            assert contents(tmp_path / f"out{round_}") == contents(tmp_path / "here")
            assert not list(tmp_path.glob(".*"))


DRIVER = """
import os, signal, sys
from pathlib import Path
from distagg.dataset.build import join_names, writer
from distagg.engine.import_parallel import import_in_pieces
from distagg.engine.runner import InlineRunner
from distagg.sources.trec import TrecSource

join_names.FILE_BLOCKS = writer.FILE_BLOCKS = 2
round_, count, target, *files = sys.argv[1:]

class Killed(InlineRunner):
    def each(self, function, payloads, progress=None):
        for n, payload in enumerate(payloads):
            if function.__name__ == round_ and n == int(count):
                os.kill(os.getpid(), signal.SIGKILL)
            print(function.__name__, flush=True)
            yield function(payload)

import_in_pieces(TrecSource(files), Path(target), Killed(), piece_bytes=900, block_entries=40)
"""


@pytest.mark.parametrize("round_", ROUNDS)
def test_a_killed_driver_goes_on_where_it_stopped(tmp_path: Path, round_: str) -> None:
    files = runs(tmp_path)
    write_dataset(TrecSource(files), tmp_path / "here", block_entries=SIZES["block_entries"])

    def drive(kill_in: str) -> tuple[int, list[str]]:
        words = [kill_in, "1", str(tmp_path / "out"), *map(str, files)]
        done = subprocess.run([sys.executable, "-c", DRIVER, *words], capture_output=True, text=True)
        return done.returncode, done.stdout.split()

    code, before = drive(round_)
    assert code == -signal.SIGKILL
    assert before[-1] == round_
    assert not (tmp_path / "out").exists()
    code, after = drive("")
    assert code == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "here")
    assert not list(tmp_path.glob(".*"))
    pieces = len(TrecSource(files).split(SIZES["piece_bytes"]))
    assert (before + after).count("_read_task") == pieces
    assert {*before, *after} == {*ROUNDS}
