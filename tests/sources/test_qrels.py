"""Judgements in all their files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distagg
from distagg.errors import InputError, UsageError
from distagg.sources.qrels import read_qrels

BEIR = "query-id\tcorpus-id\tscore\n7\tx\t2\n7\ty\t0\n8\tz\t1\n"
ROWS = [("7", "x", 2), ("7", "y", 0), ("8", "z", 1)]


def rows(*files: Path, **options: bool) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in read_qrels(files, **options).to_pylist()]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qrels.txt", "7 0 x 2\n7 0 y 0\n8 0 z 1\n"),
        ("test.tsv", BEIR),
        ("QRELS.TSV", BEIR.replace("query-id", "Query-ID")),
        ("qrels.tsv", "7\t0\tx\t2\n7\t0\ty\t0\n8\t0\tz\t1\n"),
        ("labels.csv", "qid,iteration,docno,relevance\n7,0,x,2\n7,0,y,0\n8,0,z,1.0\n"),
        ("qrels.jsonl", "".join(f'{{"query_id": "{q}", "doc_id": "{d}", "rel": {n}}}\n' for q, d, n in ROWS)),
    ],
)
def test_every_file_gives_the_same(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert rows(tmp_path / name) == rows(tmp_path / name, fractions=True) == ROWS


def test_parquet_of_several_files(tmp_path: Path) -> None:
    names = ("query-id", "corpus-id", "score")
    for at, part in enumerate((ROWS[:1], ROWS[1:])):
        columns = dict(zip(names, map(list, zip(*part, strict=True)), strict=True))
        pq.write_table(
            pa.table({**columns, "score": pa.array(columns["score"], pa.float64())}), tmp_path / f"{at}.parquet"
        )
    assert rows(tmp_path / "0.parquet", tmp_path / "1.parquet") == ROWS


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "test.tsv",
            BEIR + "8\ty\t0.5\n",
            r"test.tsv:5: found score '0.5', expected a whole number: labels are grades",
        ),
        ("test.tsv", BEIR + "8\ty\n", r"test.tsv:5: found 2 values, expected 3 values, as the header has"),
        ("qrels", "7 0 x 0.5\n", r"qrels:1: found label '0.5', expected a whole number"),
        ("qrels", "7 x 1\n", r"qrels:1: found 3 fields, expected 4 fields: query 0 item label"),
        ("qrels.csv", "query,label\n7,1\n", r"qrels.csv: found columns query, label, expected query, item and label"),
    ],
)
def test_bad_judgements_are_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        read_qrels([tmp_path / name])


def test_lists_of_every_kind_are_judged(tmp_path: Path) -> None:
    (tmp_path / "lists.csv").write_text("query,expert,item,rank\n7,a,x,1\n7,a,y,2\n")
    (tmp_path / "test.tsv").write_text(BEIR)
    dataset = distagg.import_dataset("rankings", [tmp_path / "lists.csv"], tmp_path / "d", qrels=tmp_path / "test.tsv")
    assert dataset.manifest.labels == {"0": 1, "2": 1}
    (tmp_path / "test.tsv").write_text(BEIR + "7\tx\t1\n")
    with pytest.raises(InputError, match=r"test.tsv:5: found another label for item 'x'"):
        distagg.import_dataset("rankings", [tmp_path / "lists.csv"], qrels=tmp_path / "test.tsv")
    (tmp_path / "games.csv").write_text("winner,loser\nx,y\n")
    with pytest.raises(UsageError, match="pairs"):
        distagg.import_dataset("pairs", [tmp_path / "games.csv"], qrels=tmp_path / "test.tsv")
