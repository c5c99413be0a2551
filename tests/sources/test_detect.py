"""The kind of a file is told by its content, and never guessed."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distagg.errors import InputError, UsageError
from distagg.sources.detect import kind_of, kind_of_file

CONTENT = [
    ("letor", "A1.txt", "2 qid:10 1:NULL 2:17 #docid = GX1\n0 qid:10 1:3 2:NULL #docid = GX2\n"),
    ("trec", "input.bm25", "7 Q0 d1 1 9.5 bm25\n7\tQ0\td2\t2\t9.25\tbm25\n"),
    ("trec", "odd.csv", "7 Q0 d1 1 9.5 bm25\n"),
    ("qrels", "qrels.txt", "7 0 d1 1\n7 0 d2 -1\n"),
    ("qrels", "numbers.txt", "7 0 12 1\n7 0 13 0\n"),
    ("qrels", "diversity", "7 3 clueweb-1 1\n"),
    ("qrels", "fractions", "7 0 d1 0.5\n"),
    ("qrels", "test.tsv", "query-id\tcorpus-id\tscore\n7\td1\t1\n"),
    ("qrels", "labels.csv", "query,item,label\n7,d1,1\n"),
    ("qrels", "labels.jsonl", '{"query_id": "7", "doc_id": "d1", "relevance": 1, "iteration": "0"}\n'),
    ("ratings", "u.data", "196\t242\t3\t881250949\n186\t302\t3\t891717742\n"),
    ("ratings", "ratings.dat", "1::1193::5::978300760\n"),
    ("ratings", "ratings.csv", "userId,movieId,rating,timestamp\n1,1,4.0,964982703\n"),
    ("rankings", "lists.csv", "query,expert,item,rank\n7,bm25,d1,1\n"),
    ("rankings", "votes.csv", "user,item,rank\nann,d1,1\n"),
    ("rankings", "run.csv", "qid,docno,rank,score\n7,d1,1,0.5\n"),
    ("rankings", "lists.jsonl", '{"run": "a", "item": "d1", "score": 0.5}\n'),
    ("rankings", "both.csv", "expert,item,rank,label\na,d1,1,0\n"),
    ("rankings", "vote.soc", "# FILE NAME: vote.soc\n"),
    ("pairs", "games.csv", "winner,loser\nx,y\n"),
    ("pairs", "battles.jsonl", '{"model_a": "x", "model_b": "y", "winner": "tie", "turn": 1}\n'),
]


@pytest.mark.parametrize(("kind", "name", "text"), CONTENT, ids=[name for _, name, _ in CONTENT])
def test_kinds(tmp_path: Path, kind: str, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert kind_of_file(file) == kind
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert kind_of([file, packed]) == kind


def test_parquet_by_its_columns(tmp_path: Path) -> None:
    folder = tmp_path / "expert=bm25"
    folder.mkdir()
    for kind, names in (("rankings", ["item", "rank"]), ("pairs", ["winner", "loser"]), ("ratings", ["user", "item"])):
        table = pa.table({name: ["1"] for name in names} | ({"rating": [1.0]} if kind == "ratings" else {}))
        pq.write_table(table, folder / f"{kind}.parquet")
        assert kind_of_file(folder / f"{kind}.parquet") == kind
    shutil.copy(folder / "pairs.parquet", tmp_path / "pairs")
    with pytest.raises(InputError, match=r"found a Parquet file, expected the suffix .parquet; rename it"):
        kind_of_file(tmp_path / "pairs")


def test_named_columns_tell(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("site,by,place\nx,a,1\n")
    assert kind_of_file(file, {"site": "item", "by": "expert", "place": "rank"}) == "rankings"
    with pytest.raises(InputError, match=r"found columns site, by, place, .* as in --columns 'site=expert,by=item'"):
        kind_of_file(file)
    file.write_text("engine,url,pos\ng,x,1\n")
    with pytest.raises(InputError, match=r"as in --columns 'url=item'"):
        kind_of_file(file)
    file.write_text("judge;wine;place\na;x;1\n")
    with pytest.raises(InputError, match=r"found 'judge;wine;place', expected commas .*; replace the semicolons"):
        kind_of_file(file)


@pytest.mark.parametrize("header", ["query,system,doc,score", "topic,engine,docno,pos", "judge,item,place"])
def test_usual_names_of_columns_are_understood(header: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"{header}\na,b,c,1\n")
    assert kind_of_file(tmp_path / "x.csv") == "rankings"


def test_stars_are_ratings(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("user,movie,stars\n1,Alien,5\n")
    assert kind_of_file(tmp_path / "x.csv") == "ratings"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("both.txt", "1 2 3 4\n5 6 7 1\n", "could be qrels or ratings; name the kind"),
        ("short.txt", "1 10 4.5\n2 10 3\n", "could be qrels or ratings; name the kind"),
        ("both.csv", "query,item,score,label\n7,x,1,1\n", "could be qrels or rankings; name the kind"),
        ("two.csv", "query,qid,expert,item,rank\n7,7,a,x,1\n", "columns query, qid, each of which could be the query"),
    ],
)
def test_what_fits_two_kinds_is_asked_about(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=said):
        kind_of([tmp_path / name])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found no lines"),
        ("dear diary\n", "found 'dear diary'"),
        ("1 2\n", "found '1 2'"),
        ("\x00\x01\n", "found "),
    ],
)
def test_what_fits_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(InputError, match=said):
        kind_of([tmp_path / "x"])


def test_files_of_two_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("7 Q0 d1 1 9.5 bm25\n")
    (tmp_path / "b").write_text("7 0 d1 1\n")
    with pytest.raises(UsageError, match=r"a looks like trec, but .*b like qrels; give files of one kind"):
        kind_of([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(UsageError, match="no files given"):
        kind_of([])
