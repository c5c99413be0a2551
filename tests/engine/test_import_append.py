"""Appending and compacting: what one import of all files gives, and no harm to readers of the version before.

Rounds run in this process, as they are or with everything pickled as for workers; a driver is killed for good.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import distagg
from distagg.dataset import Dataset, write_dataset
from distagg.dataset.build.compact import compact_dataset
from distagg.engine import import_append as append_module
from distagg.engine.import_append import append_in_pieces
from distagg.engine.runner import InlineRunner
from distagg.errors import InfrastructureError, InputError
from distagg.sources.letor import LetorSource
from distagg.sources.observed_pairs import PairsSource
from distagg.sources.ratings import RatingsSource
from distagg.sources.trec import JudgedSource, TrecSource
from distagg.storage.sealed import committed
from tests.dataset.naive import read_back


def trec(folder: Path, n: int) -> Any:
    """Day n has new queries, and a new system from day 1 on."""
    (day := folder / f"day{n}").mkdir(exist_ok=True)
    for e in range(1 + min(n, 1), -1, -1):
        lines = (f"q{n}{q} Q0 d{(i * (7 + e) + q) % 31} {i} {-i} t\n" for q in range(7 + n) for i in range(9))
        (day / f"sys{e}").write_text("".join(lines))
    (day / "qrels").write_text("".join(f"q{n}{q} 0 d{i} {i % 3}\n" for q in range(7 + n) for i in range(4)))
    return sorted(day.glob("sys*")), day / "qrels"


def of_runs(folder: Path, days: list[int]) -> Any:
    """The source of all days: one that reads day after day."""
    every = [trec(folder, n) for n in days]
    sources = [JudgedSource(TrecSource(runs), [qrels]) for runs, qrels in every]
    return Joined(sources)


class Joined:
    """Several sources, read one after the other."""

    def __init__(self, sources: list[Any]) -> None:
        self.sources = sources
        self.name, self.partition = sources[0].name, sources[0].partition
        self.files = tuple(file for source in sources for file in source.files)
        self.items_once = getattr(sources[0], "items_once", False)

    def tables(self) -> Any:
        for source in self.sources:
            yield from source.tables()

    def split(self, size: int, whole: frozenset[str] = frozenset()) -> list[Any]:
        return [piece for source in self.sources for piece in source.split(size, whole)]

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        return [place for source in self.sources for place in source.locate(query, expert, item)]


def of_letor(folder: Path, days: list[int]) -> LetorSource:
    for n in days:
        lines = (
            f"{(q + d) % 3} qid:{n}{q} 1:{d + 1} {n + 2}:{(d * 3 + q) % 7 + 1} #docid = d{d}\n"
            for q in range(6)
            for d in range(7)
        )
        (folder / f"A{n}.txt").write_text("".join(lines))
    return LetorSource([folder / f"A{n}.txt" for n in days])


def of_ratings(folder: Path, days: list[int]) -> RatingsSource:
    for n in days:
        lines = (f"{n}{u}\t{(u * 3 + i + n * 4) % 19}\t{(u + i) % 5 + 1}\t0\n" for u in range(9) for i in range(6))
        (folder / f"u{n}.data").write_text("".join(lines))
    source = RatingsSource([folder / f"u{n}.data" for n in days])
    source._part = "u0.data"  # as of the first import
    return source


def of_battles(folder: Path, days: list[int]) -> PairsSource:
    for n in days:
        lines = (f"m{i % (4 + n)},m{i % (4 + n) + 1},{1_700_000_000 + 100 * n + i}\n" for i in range(60))
        (folder / f"log{n}.csv").write_text("winner,loser,time\n" + "".join(lines))
    source = PairsSource([folder / f"log{n}.csv" for n in days])
    source._several = False
    return source


SOURCES: dict[str, Callable[[Path, list[int]], Any]] = {
    "trec": of_runs,
    "letor": of_letor,
    "ratings": of_ratings,
    "battles": of_battles,
}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in committed(folder, "a dataset").iterdir() if file.is_file()}


@pytest.mark.parametrize("kind", SOURCES)
def test_appended_days_are_as_one_import(tmp_path: Path, kind: str) -> None:
    make = SOURCES[kind]
    write_dataset(make(tmp_path, [0, 1, 2]), tmp_path / "whole", block_entries=100)
    write_dataset(make(tmp_path, [0]), tmp_path / "grown", block_entries=100)
    reader, rows = Dataset.open(tmp_path / "grown"), read_back(Dataset.open(tmp_path / "grown"))
    for day in (1, 2):
        seen: list[int] = []
        append_in_pieces(make(tmp_path, [day]), tmp_path / "grown", block_entries=100, progress=seen.append)
        assert sum(seen) > 0
    assert read_back(reader) == rows  # who opened the first version goes on reading it
    grown, whole = Dataset.open(tmp_path / "grown"), Dataset.open(tmp_path / "whole")
    assert len(grown.manifest.blocks) > len(whole.manifest.blocks)
    if kind != "battles":
        assert read_back(grown) == read_back(whole)
    different = ("blocks", "parts") if kind == "battles" else ("blocks",)
    assert {**grown.info(), **dict.fromkeys(different)} == {**whole.info(), **dict.fromkeys(different)}
    model = "bradley_terry" if kind == "battles" else "borda"
    assert distagg.rank(model, grown)["item"].to_pylist() == distagg.rank(model, whole)["item"].to_pylist()

    before, after = compact_dataset(tmp_path / "grown", block_entries=100)
    assert len(before.blocks) == len(grown.manifest.blocks)
    same = contents(tmp_path / "whole")
    packed = contents(tmp_path / "grown")
    assert {name: body for name, body in packed.items() if name.endswith(".parquet") and "queries" not in name} == {
        name: body for name, body in same.items() if name.endswith(".parquet") and "queries" not in name
    }
    if kind in ("trec", "letor"):
        assert packed == {name: body for name, body in same.items() if name != "_SUCCESS"}
    assert read_back(grown) is not None  # the version before can still be read
    again = compact_dataset(tmp_path / "grown", block_entries=100, remove_old=True)
    assert again == (after, after)
    assert sorted(path.name for path in (tmp_path / "grown").iterdir())[0] == "_SUCCESS"
    assert len(list((tmp_path / "grown").iterdir())) == 2
    assert Dataset.open(tmp_path / "grown").info()["entries"] == whole.info()["entries"]


def test_known_queries_and_experts_are_refused(tmp_path: Path) -> None:
    write_dataset(of_runs(tmp_path, [0]), tmp_path / "runs")
    write_dataset(of_ratings(tmp_path, [0]), tmp_path / "ratings")
    write_dataset(of_battles(tmp_path, [0]), tmp_path / "battles")
    for target, source, message in (
        ("runs", of_runs(tmp_path, [0]), "query 'q00' in the new files"),
        ("ratings", of_ratings(tmp_path, [0]), "expert '00' in the new files"),
        ("runs", of_ratings(tmp_path, [1]), "rows grouped by expert"),
        ("battles", of_ratings(tmp_path, [1]), "new lists"),
    ):
        before = contents(tmp_path / target)
        with pytest.raises(InputError, match=message):
            append_in_pieces(source, tmp_path / target)
        assert contents(tmp_path / target) == before
        assert not list((tmp_path / target).glob("attempt-*"))


def test_a_failure_or_another_append_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(of_runs(tmp_path, [0]), tmp_path / "runs")
    before = contents(tmp_path / "runs")

    def full(*about: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(InfrastructureError, match="run again to resume"):
        patch.setattr(append_module, "link_or_copy", full)
        append_in_pieces(of_runs(tmp_path, [1]), tmp_path / "runs")
    assert contents(tmp_path / "runs") == before

    def meanwhile(*about: object) -> None:
        monkeypatch.undo()
        append_in_pieces(of_runs(tmp_path, [2]), tmp_path / "runs")

    monkeypatch.setattr(append_module, "link_or_copy", meanwhile)
    with pytest.raises(InfrastructureError, match="another version meanwhile"):
        append_in_pieces(of_runs(tmp_path, [1]), tmp_path / "runs")
    assert len(list((tmp_path / "runs").glob("attempt-*"))) == 1
    assert Dataset.open(tmp_path / "runs").manifest.queries == 7 + 9


class Pickled(InlineRunner):
    """Tasks as workers run them."""

    client: Any = "here"

    def each(self, function: Any, payloads: Sequence[Any], progress: Any = None) -> Iterator[Any]:
        for payload in payloads:
            yield pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(payload)))))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of two blocks."""
    for module in ("writer", "join_names"):
        monkeypatch.setattr(f"distagg.dataset.build.{module}.FILE_BLOCKS", 2)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", SOURCES)
def test_the_same_bytes_on_workers(tmp_path: Path, kind: str) -> None:
    grown = {}
    for name, more in {"here": {}, "there": {"runner": Pickled(), "piece_bytes": 300, "memory_bytes": 1000}}.items():
        write_dataset(SOURCES[kind](tmp_path, [0]), tmp_path / name, block_entries=40)
        for day in (1, 2):
            append_in_pieces(SOURCES[kind](tmp_path, [day]), tmp_path / name, block_entries=40, **more)
        grown[name] = contents(tmp_path / name)
    assert grown["here"] == grown["there"]
    assert not list(tmp_path.glob(".*"))


def system(folder: Path, name: str, queries: Sequence[int]) -> Path:
    """A run of one system."""
    lines = (f"q{q} Q0 d{(i * (7 + len(name)) + q) % 31} {i} {-(i // 2)} t\n" for q in queries for i in range(9))
    (folder / name).write_text("".join(lines))
    return folder / name


@pytest.fixture
def systems(tmp_path: Path) -> tuple[list[Path], Path]:
    """Two systems with 30 queries; one with some of these in another order, and new ones; judgements of all items."""
    runs = [system(tmp_path, "a", range(30)), system(tmp_path, "bb", range(29, -1, -1))]
    runs.append(system(tmp_path, "ccc", [*range(12, 8, -1), *range(30, 34)]))
    (tmp_path / "qrels").write_text("".join(f"q{q} 0 d{i} {(q + i) % 3}\n" for q in range(34) for i in range(0, 31, 2)))
    return runs, tmp_path / "qrels"


def with_a_third_system(target: Path, systems: tuple[list[Path], Path], **more: Any) -> None:
    runs, qrels = systems
    write_dataset(JudgedSource(TrecSource(runs[:2]), [qrels]), target, block_entries=60)
    append_in_pieces(JudgedSource(TrecSource(runs[2:]), [qrels]), target, block_entries=60, **more)


@pytest.mark.usefixtures("small")
def test_new_experts_of_known_queries_change_their_files_alone(
    tmp_path: Path, systems: tuple[list[Path], Path]
) -> None:
    runs, qrels = systems
    data = tmp_path / "grown"
    write_dataset(JudgedSource(TrecSource(runs[:2]), [qrels]), data, block_entries=60)
    reader = Dataset.open(data)
    before, rows = reader.manifest, read_back(reader)
    touched = {b.file for b in before.blocks if b.first_query <= 12 and b.first_query + b.queries > 9}
    assert 0 < len(touched) < len({block.file for block in before.blocks})
    append_in_pieces(JudgedSource(TrecSource(runs[2:]), [qrels]), data, block_entries=60)
    grown = Dataset.open(data)
    for file in before.files:
        again = Path(grown.path) / file.path
        number = file.path.removesuffix(".parquet").rpartition("-")[2]
        if number.isdigit() and int(number) not in touched:
            assert again.samefile(Path(reader.path) / file.path)
        else:
            assert file.path == "experts.parquet" or not again.exists()
    assert read_back(reader) == rows
    write_dataset(JudgedSource(TrecSource(runs), [qrels]), tmp_path / "whole", block_entries=60)
    whole = Dataset.open(tmp_path / "whole")
    assert read_back(grown) == read_back(whole)
    assert {**grown.info(), "blocks": 0} == {**whole.info(), "blocks": 0}
    assert distagg.rank("borda", grown) == distagg.rank("borda", whole)
    compact_dataset(data, block_entries=60)
    assert len(grown.manifest.blocks) > len(whole.manifest.blocks)
    assert contents(data) == {name: body for name, body in contents(tmp_path / "whole").items() if name != "_SUCCESS"}


@pytest.mark.usefixtures("small")
def test_new_experts_have_the_same_bytes_on_workers(tmp_path: Path, systems: tuple[list[Path], Path]) -> None:
    with_a_third_system(tmp_path / "here", systems)
    with_a_third_system(tmp_path / "there", systems, runner=Pickled(), piece_bytes=300, memory_bytes=1000)
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def test_new_experts_in_letor_files_and_in_a_directory_of_their_own(tmp_path: Path) -> None:
    write_dataset(of_letor(tmp_path, [0, 1]), tmp_path / "data")
    text = (tmp_path / "A1.txt").read_text()
    (tmp_path / "more.txt").write_text(text.replace(" 1:", " 8:").replace(" 3:", " 9:"))
    append_in_pieces(LetorSource([tmp_path / "more.txt"]), tmp_path / "data", target=tmp_path / "larger")
    small, large = Dataset.open(tmp_path / "data"), Dataset.open(tmp_path / "larger")
    assert (small.manifest.lists, large.manifest.lists) == (24, 36)
    assert large.manifest.labels == small.manifest.labels
    assert {*large.experts} == {*small.experts, "8", "9"}
    (tmp_path / "more.txt").write_text(text.replace(" 1:", " 8:").replace(" 3:", " 9:").replace("0 qid:10", "2 qid:10"))
    with pytest.raises(InputError, match=r"more.txt:\d+: found .*label"):
        append_in_pieces(LetorSource([tmp_path / "more.txt"]), tmp_path / "data")


def test_lists_that_are_there_and_judged_items_without_judgements_are_refused(
    tmp_path: Path, systems: tuple[list[Path], Path], caplog: pytest.LogCaptureFixture
) -> None:
    runs, qrels = systems
    write_dataset(JudgedSource(TrecSource(runs[:2]), [qrels]), tmp_path / "data")
    before = contents(tmp_path / "data")
    (other := tmp_path / "other").mkdir()
    again = system(other, "bb", [4, 40])
    with pytest.raises(InputError, match="a list of expert 'bb' in query 'q4' in the new files, which the dataset has"):
        append_in_pieces(JudgedSource(TrecSource([again]), [qrels]), tmp_path / "data")
    with pytest.raises(InputError, match=r"judged that are in no list.*give --qrels"):
        append_in_pieces(TrecSource(runs[2:]), tmp_path / "data")
    assert contents(tmp_path / "data") == before
    caplog.set_level("INFO", logger="distagg")
    append_in_pieces(JudgedSource(TrecSource([system(other, "dddd", [50])]), [qrels]), tmp_path / "data")
    assert "30 known queries have judgements but no new lists" in caplog.text
    assert Dataset.open(tmp_path / "data").manifest.queries == 31


DRIVER = """
import os, signal, sys
from pathlib import Path
from distagg.dataset.build import join_names, writer
from distagg.engine import import_append
from distagg.engine.import_append import append_in_pieces
from distagg.engine.runner import InlineRunner
from distagg.sources.trec import JudgedSource, TrecSource

join_names.FILE_BLOCKS = writer.FILE_BLOCKS = 2
moment, data, run, qrels = sys.argv[1:]

class Killed(InlineRunner):
    def each(self, function, payloads, progress=None):
        for n, payload in enumerate(payloads):
            if function.__name__ == moment and n == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            print(function.__name__, flush=True)
            yield function(payload)

if moment == "marker":
    next_version = import_append.next_version
    def killed(base):
        with next_version(base) as folder:
            yield folder
            os.kill(os.getpid(), signal.SIGKILL)
    from contextlib import contextmanager
    import_append.next_version = contextmanager(killed)
source = JudgedSource(TrecSource([run]), [Path(qrels)])
append_in_pieces(source, Path(data), Killed(), piece_bytes=300, block_entries=60)
"""


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("moment", ["_read_task", "_merge_task", "marker"])
def test_a_killed_driver_leaves_the_version_before_and_goes_on(
    tmp_path: Path, systems: tuple[list[Path], Path], moment: str
) -> None:
    runs, qrels = systems
    with_a_third_system(tmp_path / "whole", systems)
    write_dataset(JudgedSource(TrecSource(runs[:2]), [qrels]), tmp_path / "data", block_entries=60)
    before, rows = contents(tmp_path / "data"), read_back(Dataset.open(tmp_path / "data"))

    def drive(moment: str) -> tuple[int, list[str]]:
        words = [moment, str(tmp_path / "data"), str(runs[2]), str(qrels)]
        done = subprocess.run([sys.executable, "-c", DRIVER, *words], capture_output=True, text=True)
        return done.returncode, done.stdout.split() or [done.stderr]

    code, first = drive(moment)
    assert code == -signal.SIGKILL, first
    assert contents(tmp_path / "data") == before
    assert read_back(Dataset.open(tmp_path / "data")) == rows
    code, then = drive("")
    assert code == 0
    assert contents(tmp_path / "data") == contents(tmp_path / "whole")
    if moment != "_read_task":  # what was read is not read again
        assert "_read_task" in first
        assert "_read_task" not in then
    assert not list(tmp_path.glob(".*"))
