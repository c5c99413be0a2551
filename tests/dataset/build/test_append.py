"""Appending and compacting: what one import of all files gives, and no harm to readers of the version before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import distagg
from distagg.dataset import Dataset, write_dataset
from distagg.dataset.build import append as append_module
from distagg.dataset.build.append import append_dataset
from distagg.dataset.build.compact import compact_dataset
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
        append_dataset(make(tmp_path, [day]), tmp_path / "grown", block_entries=100, progress=seen.append)
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
            append_dataset(source, tmp_path / target)
        assert contents(tmp_path / target) == before
        assert not list((tmp_path / target).glob("attempt-*"))


def test_a_failure_or_another_append_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(of_runs(tmp_path, [0]), tmp_path / "runs")
    before = contents(tmp_path / "runs")

    def full(*about: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(InfrastructureError, match="was not changed"):
        patch.setattr(append_module, "link_or_copy", full)
        append_dataset(of_runs(tmp_path, [1]), tmp_path / "runs")
    assert contents(tmp_path / "runs") == before

    def meanwhile(*about: object) -> None:
        monkeypatch.undo()
        append_dataset(of_runs(tmp_path, [2]), tmp_path / "runs")

    monkeypatch.setattr(append_module, "link_or_copy", meanwhile)
    with pytest.raises(InfrastructureError, match="another version meanwhile"):
        append_dataset(of_runs(tmp_path, [1]), tmp_path / "runs")
    assert len(list((tmp_path / "runs").glob("attempt-*"))) == 1
    assert Dataset.open(tmp_path / "runs").manifest.queries == 7 + 9
