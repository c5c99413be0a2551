"""Bad input: the exit code, the message, and nothing half-written left behind."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from distagg.cli.main import main

Capture = pytest.CaptureFixture[str]

LETOR = "1 qid:7 1:1 2:NULL #docid = a\n0 qid:7 1:2 2:4 #docid = b\n"
RUN = "7 Q0 a 1 2.5 tag\n7 Q0 b 2 1.5 tag\n"
RANKINGS = "query,expert,item,rank\nq,e,a,1\nq,e,b,2\n"
PAIRS = "winner,loser\na,b\nb,c\n"
RATINGS = "1\t10\t3\t0\n1\t11\t4\t0\n"

CASES = {  # kind, file name, content, where in the message, what must be said
    "letor, malformed": ("letor", "x.txt", LETOR + "what is this\n", ":3:", "expected"),
    "letor, label": ("letor", "x.txt", LETOR + "x qid:7 1:1 #docid = c\n", ":3:", "label"),
    "letor, rank of zero": ("letor", "x.txt", LETOR + "0 qid:7 1:0 #docid = c\n", ":3:", "above 0"),
    "letor, rank is nan": ("letor", "x.txt", LETOR + "0 qid:7 1:nan #docid = c\n", ":3:", "above 0"),
    "letor, item twice": ("letor", "x.txt", LETOR + "1 qid:7 1:9 #docid = a\n", ":3", "a"),
    "letor, empty": ("letor", "x.txt", "", "x.txt", "no items"),
    "trec, fields": ("trec", "x.run", RUN + "7 Q0 c\n", ":3:", "expected"),
    "trec, score": ("trec", "x.run", RUN + "7 Q0 c 3 high tag\n", ":3:", "high"),
    "trec, score is nan": ("trec", "x.run", RUN + "7 Q0 c 3 nan tag\n", ":3:", "finite"),
    "trec, score is inf": ("trec", "x.run", RUN + "7 Q0 c 3 inf tag\n", ":3:", "finite"),
    "trec, item twice": ("trec", "x.run", RUN + "7 Q0 a 3 0.5 tag\n", ":3", "a"),
    "trec, empty": ("trec", "x.run", "", "x.run", "empty"),
    "rankings, rank": ("rankings", "x.csv", RANKINGS + "q,e,c,third\n", ":4:", "third"),
    "rankings, negative": ("rankings", "x.csv", RANKINGS + "q,e,c,-3\n", ":4:", "above 0"),
    "rankings, inf": ("rankings", "x.csv", RANKINGS + "q,e,c,inf\n", ":4:", "finite"),
    "rankings, item twice": ("rankings", "x.csv", RANKINGS + "q,e,a,3\n", ":4", "a"),
    "rankings, column": ("rankings", "x.csv", RANKINGS.replace("expert", "expurt"), "x.csv", "expert"),
    "rankings, label changes": (
        "rankings",
        "x.csv",
        "query,expert,item,rank,label\nq,e,a,1,1\nq,f,a,1,2\n",
        "x.csv",
        "label",
    ),
    "rankings, json": ("rankings", "x.jsonl", '{"expert": "e", "item": "a", "rank": 1}\n{"ex', "x.jsonl", ""),
    "pairs, itself": ("pairs", "x.csv", PAIRS + "c,c\n", ":4:", "c"),
    "pairs, column": ("pairs", "x.csv", PAIRS.replace("loser", "looser"), "x.csv", "loser"),
    "ratings, text": ("ratings", "u.data", RATINGS + "2\t10\tgood\t0\n", ":3:", "good"),
    "ratings, twice": ("ratings", "u.data", RATINGS + "1\t10\t5\t0\n", ":3", "10"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_files_exit_3_and_leave_nothing(case: str, tmp_path: Path, capsys: Capture) -> None:
    kind, name, content, where, said = CASES[case]
    (tmp_path / name).write_text(content)
    before = sorted(file.name for file in tmp_path.iterdir())
    code = main(["import", kind, str(tmp_path / name), "-o", str(tmp_path / "data")])
    error = capsys.readouterr().err
    assert code == 3, error
    assert where in error
    assert said in error
    assert "expected" in error
    assert sorted(file.name for file in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("kind", "name", "content"),
    [
        ("letor", "x.txt", LETOR),
        ("trec", "x.run", RUN),
        ("rankings", "x.csv", RANKINGS),
        ("pairs", "x.csv", PAIRS),
        ("ratings", "u.data", RATINGS),
    ],
)
def test_the_same_files_without_the_fault_are_fine(kind: str, name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert main(["import", kind, str(tmp_path / name), "-o", str(tmp_path / "data")]) == 0


def test_a_query_that_returns_is_regrouped(tmp_path: Path, capsys: Capture) -> None:
    lines = "1 qid:7 1:1 #docid = a\n0 qid:8 1:1 #docid = b\n0 qid:7 1:2 #docid = c\n"
    (tmp_path / "x.txt").write_text(lines)
    assert main(["import", "letor", str(tmp_path / "x.txt"), "-o", str(tmp_path / "d"), "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert (info["queries"], info["items"], info["lists"]) == (2, 3, 2)


def test_truncated_gzip(tmp_path: Path, capsys: Capture) -> None:
    whole = gzip.compress((RUN * 1000).replace("a", "doc").encode())
    (tmp_path / "x.run.gz").write_bytes(whole[: len(whole) // 2])
    assert main(["import", "trec", str(tmp_path / "x.run.gz"), "-o", str(tmp_path / "d")]) == 3
    assert "gzip" in capsys.readouterr().err


def test_truncated_parquet(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    copy = tmp_path / "data"
    shutil.copytree(planted, copy)
    part = next(copy.glob("lists-*.parquet"))
    part.write_bytes(part.read_bytes()[:-100])
    assert main(["rank", "rrf", str(copy), "-o", str(tmp_path / "r")]) == 3
    assert part.name in capsys.readouterr().err
    (tmp_path / "x.parquet").write_bytes(part.read_bytes())
    assert main(["import", "rankings", str(tmp_path / "x.parquet"), "-o", str(tmp_path / "d")]) == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "x.parquet"]


def test_damage_that_keeps_the_size_is_found_when_read(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    copy = tmp_path / "data"
    shutil.copytree(planted, copy)
    part = next(copy.glob("lists-*.parquet"))
    body = bytearray(part.read_bytes())
    body[-60:-8] = bytes(52)
    part.write_bytes(bytes(body))
    assert main(["rank", "rrf", str(copy), "-o", str(tmp_path / "r")]) == 3
    assert part.name in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_a_dataset_without_its_marker(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    copy = tmp_path / "data"
    shutil.copytree(planted, copy)
    (copy / "_SUCCESS").unlink()
    assert main(["info", str(copy)]) == 3
    assert "_SUCCESS" in capsys.readouterr().err


def test_a_dataset_of_a_newer_schema(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    copy = tmp_path / "data"
    shutil.copytree(planted, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "schema": 99}))
    assert main(["info", str(copy)]) == 3
    assert "newer" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "not json", "[]", '{"format": "other"}'])
def test_a_broken_manifest(content: str, planted: Path, tmp_path: Path, capsys: Capture) -> None:
    copy = tmp_path / "data"
    shutil.copytree(planted, copy)
    (copy / "manifest.json").write_text(content)
    assert main(["info", str(copy)]) == 3
    assert "manifest.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rank", "rff", "DATA", "-o", "OUT"], "did you mean 'rrf'"),
        (["rank", "rrf", "DATA", "-o", "OUT", "-p", "k=3"], "unknown parameter of rrf 'k'"),
        (["rank", "rrf", "DATA", "-o", "OUT", "-p", "c=many"], "expected a number or auto"),
        (["rank", "rrf", "DATA", "-o", "OUT", "-p", "c=-1"], "at least 0"),
        (["rank", "borda", "DATA", "-o", "OUT", "-p", "unlisted=nil"], "one of zero, average, ignore"),
        (["rank", "mc4", "DATA", "-o", "OUT", "-p", "local_kemeny=maybe"], "true or false"),
        (["rank", "rrf", "DATA", "-o", "OUT", "-p", "c"], "key=value"),
        (["rank", "rrf", "DATA", "-o", "OUT", "-p", "c=auto"], "must be fitted first"),
        (["rank", "rrf", "DATA", "-o", "DATA"], "exists already"),
        (["rank", "rrf", "DATA", "-o", "out.run.gz"], "write out.run and gzip it afterwards"),
        (["rank", "rrf", "DATA", "-o", "OUT", "--workers", "0"], "a whole number from 1 to"),
        (["compare", "DATA", "--models", "rrf", "-m", "ndgc@5"], "ndcg"),
        (["compare", "DATA", "--models", "rrf,rrf"], "twice"),
        (["compare", "DATA", "--models", "bestinput"], "--folds"),
        (["compare", "DATA", "--models", "rrf", "--folds", "2"], "at least 3"),
        (["compare", "DATA", "--models", "rrf", "--baseline", "borda"], "baseline"),
        (["compare", "DATA", "--models", "rrf", "-p", "borda.unlisted=zero"], "MODEL.key=value"),
        (["models", "rff"], "did you mean 'rrf'"),
        (["import", "letor", "DATA", "-o", "DATA"], "exists already"),
    ],
)
def test_wrong_usage_exits_2(words: list[str], said: str, planted: Path, tmp_path: Path, capsys: Capture) -> None:
    places = {"DATA": str(planted), "OUT": str(tmp_path / "out")}
    assert main([places.get(word, word) for word in words]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_ratings_are_not_ranks(crowd: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["rank", "rrf", str(crowd), "-o", str(tmp_path / "r")]) == 2
    assert "ratings" in capsys.readouterr().err
    assert main(["rank", "borda", str(crowd), "-o", str(tmp_path / "r")]) == 0


def test_pairs_go_to_models_that_take_them(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x.csv").write_text("winner,loser,weight\na,b,3\nb,c,2\na,c,1\n")
    assert main(["import", "pairs", str(tmp_path / "x.csv"), "-o", str(tmp_path / "d")]) == 0
    assert main(["rank", "rrf", str(tmp_path / "d"), "-o", str(tmp_path / "r")]) == 2
    assert "models that take them: borda, condorcet, copeland, " in capsys.readouterr().err
    (tmp_path / "qrels").write_text("all 0 a 2\nall 0 b 1\nall 0 c 0\n")
    labelled = ["-o", str(tmp_path / "labelled"), "--qrels", str(tmp_path / "qrels")]
    assert main(["import", "pairs", str(tmp_path / "x.csv"), *labelled]) == 0
    for model in ("lambdamart", "blend", "ssra"):
        assert main(["fit", model, str(tmp_path / "labelled"), "-o", str(tmp_path / "m")]) == 2
        said = capsys.readouterr().err
        assert "models that take them and learn from labels: crf, lambdarank (features=sums), stagg (" in said
    for model in ("borda", "condorcet", "copeland", "mc4"):
        target = tmp_path / f"{model}.csv"
        assert main(["rank", model, str(tmp_path / "d"), "-o", str(target)]) == 0
        assert [line.split(",")[1] for line in target.read_text().splitlines()[1:]] == ["a", "b", "c"]


def test_unlabelled_data_cannot_be_evaluated(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x.csv").write_text(RANKINGS)
    assert main(["import", "rankings", str(tmp_path / "x.csv"), "-o", str(tmp_path / "d")]) == 0
    assert main(["compare", str(tmp_path / "d"), "--models", "rrf"]) == 2
    assert "no labels" in capsys.readouterr().err


def test_rankings_of_other_data_are_refused(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "r.csv").write_text("query,item,rank\nnowhere,x,1\n")
    assert main(["evaluate", str(tmp_path / "r.csv"), str(planted)]) == 3
    assert "nowhere" in capsys.readouterr().err
