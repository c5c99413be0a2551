"""Importing into memory: the same queries, the same rankings and the same errors as through a directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import distagg
from distagg.dataset import frames as memory
from distagg.errors import InputError, UsageError
from distagg.sources.trec import TrecSource
from tests.dataset.naive import read_back


def _runs(folder: Path) -> list[Path]:
    """Three runs of thirty queries: two in the order of queries, one backwards; scores tie."""
    files = []
    for e in range(3):
        file = folder / f"run{e}"
        queries = range(30) if e < 2 else reversed(range(30))
        file.write_text(
            "".join(f"q{q} Q0 d{(i * (7 + e) + q) % 41} {i} {-(i // 2)} t\n" for q in queries for i in range(12))
        )
        files.append(file)
    return files


@pytest.mark.parametrize("qrels", [False, True])
def test_memory_holds_what_a_directory_does(tmp_path: Path, qrels: bool) -> None:
    files = _runs(tmp_path)
    options = {}
    if qrels:
        (tmp_path / "qrels").write_text("".join(f"q{q} 0 d{i} {i % 3}\n" for q in range(31) for i in range(50)))
        options["qrels"] = tmp_path / "qrels"
    there = distagg.import_dataset("trec", files, tmp_path / "dataset", **options)
    here = distagg.import_dataset("trec", files, **options)
    assert read_back(here) == read_back(there)
    assert {**here.info(), "blocks": 0} == {**there.info(), "blocks": 0}
    for model in ("rrf", "borda", "mc4"):
        assert distagg.rank(model, here).equals(distagg.rank(model, there))


def test_blocks_and_spills_change_nothing(tmp_path: Path) -> None:
    source = TrecSource(_runs(tmp_path))
    whole, said = memory.hold_source(source), []
    cut = memory.hold_source(source, memory_bytes=1, block_entries=100, progress=said.append)
    assert len(whole.manifest.blocks) == 1
    assert len(cut.manifest.blocks) > 5
    assert sum(said) == 2 * cut.manifest.entries  # read, and put in their place
    assert distagg.rank("rrf", cut).equals(distagg.rank("rrf", whole))


@pytest.mark.parametrize("line", ["q1 Q0 d1 1 x t\n", "q1 Q0 d1 1 0.5\n", "q1 Q0 a 9 0.5 t\nq1 Q0 a 10 0.4 t\n"])
def test_errors_name_the_same_lines(tmp_path: Path, line: str) -> None:
    files = _runs(tmp_path)
    files[1].write_text(files[1].read_text() + line)

    def said(call: Callable[[], object]) -> str:
        with pytest.raises(InputError) as error:
            call()
        return str(error.value)

    assert said(lambda: distagg.import_dataset("trec", files)) == said(
        lambda: distagg.import_dataset("trec", files, tmp_path / "dataset")
    )
    assert not (tmp_path / "dataset").exists()


def test_tables_about_users_and_items_need_a_directory(tmp_path: Path) -> None:
    (tmp_path / "u.data").write_text("1\t1\t5\t0\n2\t1\t4\t0\n")
    (tmp_path / "items.csv").write_text("item,title\n1,Up\n")
    with pytest.raises(UsageError, match="the table of items is kept on disk with the ratings; give a target"):
        distagg.import_dataset("ratings", [tmp_path / "u.data"], items=tmp_path / "items.csv")


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("letor", "x.txt", "1 qid:7 1:1 2:NULL #docid = a\n0 qid:7 1:2 2:4 #docid = b\n"),
        ("trec", "x.run", "7 Q0 a 1 2.5 tag\n7 Q0 b 2 1.5 tag\n"),
        ("rankings", "x.csv", "expert,item,rank\ne,a,1\ne,b,2\n"),
        ("ratings", "u.data", "1\ta\t5\t881250949\n1\tb\t3\t881250949\n2\ta\t4\t881250949\n"),
        ("pairs", "x.csv", "winner,loser,judge\na,b,x\nb,c,y\na,c,x\n"),
    ],
)
def test_every_kind_is_held_in_memory(kind: str, name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    here = distagg.import_dataset(kind, [tmp_path / name])
    there = distagg.import_dataset(kind, [tmp_path / name], tmp_path / "data")
    assert here.experts == there.experts
    assert distagg.rank("borda", here).equals(distagg.rank("borda", there))
