"""Importing into memory: the same queries, the same rankings and the same errors as through a directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distagg
from distagg.dataset import frames as memory
from distagg.engine.importing import read_dataset
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


def test_folders_name_experts(tmp_path: Path) -> None:
    """As Hive and Spark lay out tables; their files have the same names, and hidden ones are passed over."""
    for expert, items in (("bm25", "xy"), ("dense%2B", "yz")):
        folder = tmp_path / "runs" / f"expert={expert}"
        folder.mkdir(parents=True)
        table = pa.table({"query": ["7", "7"], "item": list(items), "score": [2.0, 1.0]})
        pq.write_table(table, folder / "part-0.parquet")
    (tmp_path / "runs" / "_SUCCESS").touch()
    dataset = distagg.rank("rrf", tmp_path / "runs")
    assert dataset["item"].to_pylist() == ["y", "x", "z"]
    assert read_dataset(tmp_path / "runs").experts == ("bm25", "dense+")
    assert read_dataset(tmp_path / "runs" / "expert=bm25").experts == ("bm25",)
    assert distagg.import_dataset("rankings", [tmp_path / "runs"], tmp_path / "d").manifest.parts == ("",)
    with pytest.raises(InputError, match=r"runs/expert=bm25/part-0.parquet:1.*found item 'x' again"):
        read_dataset([tmp_path / "runs", tmp_path / "runs" / "expert=bm25"])
    (tmp_path / "runs" / "day=1").mkdir()
    with pytest.raises(InputError, match=r"day=1: found a folder for each day, .*; give one of these folders"):
        read_dataset(tmp_path / "runs")
    (tmp_path / "runs" / "day=1").rename(tmp_path / "runs" / "expert=")
    (tmp_path / "runs" / "expert=" / "x.csv").write_text("query,item,rank\n7,x,1\n")
    with pytest.raises(InputError, match=r"found the folder expert=, expected a name of the expert"):
        read_dataset(tmp_path / "runs")


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_folders_name_columns_of_text(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "system=a" / "qid=7"
    folder.mkdir(parents=True)
    texts = {"csv": "item,rank\nx,1\ny,2\n", "jsonl": '{"item": "x", "rank": 1}\n{"item": "y", "rank": 2}\n'}
    (folder / f"x.{suffix}").write_text(texts[suffix])
    table = read_dataset(tmp_path).to_arrow()
    assert table.select(["query", "expert", "item"]).to_pylist()[1] == {"query": "7", "expert": "a", "item": "y"}
    (folder / f"x.{suffix}").write_text(texts[suffix] + texts[suffix].replace("item,rank\n", ""))
    with pytest.raises(InputError, match=rf"x.{suffix}:{4 if suffix == 'csv' else 3}: found item 'x' again"):
        read_dataset(tmp_path)


def test_files_without_experts_are_experts(tmp_path: Path) -> None:
    for name, items in (("bm25.csv", "xy"), ("dense.csv", "yz")):
        (tmp_path / name).write_text(
            "qid,docno,score\n" + "".join(f"7,{item},{9 - i}\n" for i, item in enumerate(items))
        )
    assert read_dataset(tmp_path).experts == ("bm25", "dense")
    assert distagg.rank("rrf", tmp_path)["item"].to_pylist() == ["y", "x", "z"]
    with pytest.raises(InputError, match=r"bm25.csv:1: found no column 'expert', .* give several files, one by expert"):
        read_dataset(tmp_path / "bm25.csv")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "bm25.csv").write_text("qid,docno,score\n7,x,1\n")
    with pytest.raises(UsageError, match="give their expert the same name, 'bm25'; rename one of them"):
        read_dataset([tmp_path / "bm25.csv", tmp_path / "other" / "bm25.csv"])
