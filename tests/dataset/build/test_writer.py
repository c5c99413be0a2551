"""What stands on disk: blocks, files, hashes, and nothing when something fails."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.build import writer as writer_module
from distagg.errors import InputError, UsageError
from tests.dataset.naive import ListSource, Rows, naive_regroup, read_back


def entries(queries: int, experts: int = 3, items: int = 4) -> list[dict[str, object]]:
    return [
        {"query": f"q{q}", "expert": f"e{e}", "item": f"i{i}", "rank": float(i + 1), "score": 1.0 / (i + 1 + e)}
        for e in range(experts)
        for q in range(queries)
        for i in range(items)
    ]


def test_blocks_are_row_groups_and_files_roll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "FILE_BLOCKS", 2)
    source = ListSource([Rows("entries", entries(10), "A1")])
    manifest = write_dataset(source, tmp_path / "d", block_entries=24)  # two queries of twelve entries
    assert [(b.file, b.group, b.first_query, b.queries) for b in manifest.blocks] == [
        (0, 0, 0, 2),
        (0, 1, 2, 2),
        (1, 0, 4, 2),
        (1, 1, 6, 2),
        (2, 0, 8, 2),
    ]
    assert [f.path for f in manifest.files] == [
        "experts.parquet",
        *(f"{table}-0000{i}.parquet" for table in ("lists", "queries") for i in range(3)),
    ]
    for file in manifest.files:
        path = tmp_path / "d" / file.path
        assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
        assert path.stat().st_size == file.bytes
        assert pq.read_metadata(path).num_rows == file.rows
    assert manifest.parts == ("A1",)
    assert {block.parts for block in manifest.blocks} == {("A1",)}
    assert list(read_back(Dataset.open(tmp_path / "d"))) == [f"q{q}" for q in range(10)]


def test_the_plan_covers_blocks_of_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "FILE_BLOCKS", 2)
    source = ListSource([Rows("entries", entries(10))])
    write_dataset(source, tmp_path / "d", block_entries=12)
    dataset = Dataset.open(tmp_path / "d")
    for budget in (1, 50, 10_000):
        chunks = [ref.load() for ref in dataset.plan(budget)]
        assert sum(chunk.n_entries for chunk in chunks) == 120
        assert np.concatenate([chunk.positions for chunk in chunks]).tolist() == list(range(10))


def test_scores_stay_only_when_every_list_has_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = entries(2)
    assert write_dataset(ListSource([Rows("entries", rows)]), tmp_path / "all").scores
    assert not caplog.messages
    rows[-1]["score"] = None
    assert not write_dataset(ListSource([Rows("entries", rows)]), tmp_path / "some").scores
    assert "score" not in pq.read_schema(tmp_path / "some" / "lists-00000.parquet").names
    (message,) = caplog.messages
    assert f"{len(rows) - 1} of {len(rows)} entries have a score; all scores are left out" in message


def test_one_query_of_many_experts(tmp_path: Path) -> None:
    rows = [{**row, "query": "all"} for row in entries(1, experts=50, items=6)]
    source = ListSource([Rows("entries", rows[:100], "u.data"), Rows("entries", rows[100:], "u.data")], "expert")
    manifest = write_dataset(source, tmp_path / "d", block_entries=60, memory_bytes=1)
    assert [(b.first_query, b.queries, b.items, b.lists) for b in manifest.blocks] == [(0, 1, 6, 10)] * 5
    assert [f.path for f in manifest.files] == ["experts.parquet", "lists-00000.parquet", "queries-00000.parquet"]
    assert read_back(Dataset.open(tmp_path / "d")) == naive_regroup(source.given, "expert")


def test_ranks_of_ratings_are_not_positive(tmp_path: Path) -> None:
    rows = [{"query": "all", "expert": "u", "item": "x", "rank": -4.0, "score": None}]
    assert not write_dataset(ListSource([Rows("entries", rows)]), tmp_path / "d").positive


def test_progress_counts_every_row_twice(tmp_path: Path) -> None:
    said: list[int] = []
    write_dataset(ListSource([Rows("entries", entries(4))]), tmp_path / "d", progress=said.append)
    assert sum(said) == 2 * 48


def test_refuses_a_taken_target(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        write_dataset(ListSource([Rows("entries", entries(1))]), tmp_path / "d")


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    class Broken(ListSource):
        def tables(self):  # type: ignore[no-untyped-def]
            yield Rows("entries", entries(5))
            yield Rows("entries", entries(3))
            raise InputError("made-up", line=9, found="nonsense", expected="sense")

    with pytest.raises(InputError, match="made-up:9"):
        write_dataset(Broken([]), tmp_path / "d", memory_bytes=1)
    assert list(tmp_path.iterdir()) == []


def test_lists_and_pairs_do_not_mix(tmp_path: Path) -> None:
    pair = {"query": "q", "expert": "a", "winner": "x", "loser": "y", "weight": 1.0, "tie": False}
    with pytest.raises(InputError, match="lists and pairs"):
        write_dataset(ListSource([Rows("entries", entries(1)), Rows("pairs", [pair])]), tmp_path / "d")
