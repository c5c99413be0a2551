"""Rankings of anybody, read back and refused when broken, by the readers that import files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distagg.cli.main import main
from distagg.engine.read_rankings import read_rankings
from distagg.errors import InputError

RUN = "q Q0 x 1 0.5 t\nq Q0 y 2 0.9 t\n"
CSV = "query,item,rank\nq,x,2\nq,y,1\n"
QRELS = "q 0 x 0\nq 0 y 1\n"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    (tmp_path / "a.run").write_text(RUN)
    (tmp_path / "a.qrels").write_text(QRELS)
    words = ["import", "trec", str(tmp_path / "a.run"), "--qrels", str(tmp_path / "a.qrels")]
    assert main([*words, "-o", str(tmp_path / "data")]) == 0
    return tmp_path / "data"


@pytest.mark.parametrize(("name", "content"), [("r.run", RUN), ("r.trec", RUN), ("r.csv", CSV)])
@pytest.mark.parametrize("packed", [False, True])
def test_files_are_evaluated_packed_or_not(
    name: str, content: str, packed: bool, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / (f"{name}.gz" if packed else name)
    file.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    capsys.readouterr()
    assert main(["evaluate", str(file), str(dataset), "-m", "p@1"]) == 0
    assert "100.00" in capsys.readouterr().out


def test_a_cut_gzip_file(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.run.gz").write_bytes(gzip.compress((RUN * 100).encode())[:-10])
    assert main(["evaluate", str(tmp_path / "r.run.gz"), str(dataset)]) == 3
    assert "r.run.gz: found a broken gzip stream" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ["q Q0 z", "q Q0 z 3 high t", "q Q0 z 3 nan t", "q Q0 z 3 0.1", "q Q0 z 3 0.1 t more", "q Q0 z 3 1_0 t"]
)
def test_both_doors_refuse_the_same_lines(
    line: str, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.run"
    file.write_text(f"{RUN}{line}\n")
    capsys.readouterr()
    assert main(["import", "trec", str(file), "-o", str(tmp_path / "other")]) == 3
    refused = capsys.readouterr().err
    assert main(["evaluate", str(file), str(dataset)]) == 3
    assert capsys.readouterr().err == refused
    assert f"{file}:3: found" in refused


def test_columns_beside_the_ranking_are_kept(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("query,item,rank,score,experts,title\nq,x,1,-inf,3,A b\nq,y,2,-inf,4,\n")
    assert read_rankings(tmp_path / "r.csv").to_pylist() == [
        {"query": "q", "item": "x", "rank": 1, "score": -np.inf, "experts": 3, "title": "A b"},
        {"query": "q", "item": "y", "rank": 2, "score": -np.inf, "experts": 4, "title": None},
    ]


def test_a_header_alone_is_an_empty_ranking(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("query,item,rank,score\n")
    assert len(read_rankings(tmp_path / "r.csv")) == 0


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.run", "q Q0 x 1 0.5 t\nq Q0 y\n", ":2:"),
        ("r.run", "q Q0 x 1 high t\n", ":1:"),
        ("r.run", "q Q0 x 1 nan t\n", "finite"),
        ("r.csv", "subject,item,rank\nq,x,1\n", "expected query, item"),
        ("r.csv", "query,item,rank\nq,x,1,2,3\n", ":2: found 5 values"),
        ("r.csv", "query,item,rank\nq,x,1\nq,y,second\n", ":3: found rank 'second'"),
        ("r.csv.gz", "query,item,rank\n", "broken gzip"),
        ("r.parquet", "not parquet", "unreadable"),
    ],
)
def test_broken_rankings_are_refused(name: str, content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said):
        read_rankings(tmp_path / name)


def test_an_unfinished_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="_SUCCESS"):
        read_rankings(tmp_path)
    with pytest.raises(InputError, match="nothing there"):
        read_rankings(tmp_path / "absent")


def test_trec_order_is_by_score(tmp_path: Path) -> None:
    (tmp_path / "r.run").write_text("q Q0 x 1 0.5 t\nq Q0 y 2 0.9 t\n")
    assert np.argmax(read_rankings(tmp_path / "r.run")["score"].to_numpy()) == 1


def test_names_of_other_tools(tmp_path: Path) -> None:
    """PyTerrier's query is a text; a column of another tool's name is renamed in Parquet as in text."""
    (tmp_path / "r.csv").write_text("qid,query,docno,rank,note\n7,cats,x,0,good\n7,cats,y,1,\n")
    table = read_rankings(tmp_path / "r.csv")
    assert table.to_pylist()[0] == {"query": "7", "item": "x", "rank": 0, "note": "good"}
    pq.write_table(pa.table({"query_id": ["7"], "site": ["x"], "score": [0.5]}), tmp_path / "r.parquet")
    assert read_rankings(tmp_path / "r.parquet", {"site": "item"}).column_names == ["query", "item", "score"]
    with pytest.raises(InputError, match="found columns query_id, site, score, expected query, item, rank or score"):
        read_rankings(tmp_path / "r.parquet")
