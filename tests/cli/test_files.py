"""Commands straight from files: the kind told by content, rankings on stdout, runs evaluated against judgements."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distagg.cli import options
from distagg.cli.main import main

Capture = pytest.CaptureFixture[str]

RUNS = {  # expert: the items of two queries, best first
    "bm25.run": {"q1": "abcd", "q2": "xyz"},
    "dense.run": {"q1": "bade", "q2": "zyx"},
}
QRELS = {"q1": {"a": 2, "b": 0, "e": 1}, "q2": {"z": 1, "x": 0}}
LISTS = "query,expert,item,rank\nq1,e,a,1\nq1,e,b,2\nq1,f,b,1\nq1,f,a,2\nq1,g,b,1\n"
BATTLES = "model_a,model_b,winner\n" + "ada,bert,model_a\n" * 3 + "bert,ada,model_a\n" + "bert,cleo,model_a\n" * 3
BATTLES += "cleo,bert,model_a\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs, judgements, lists and battles, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    for name, lists in RUNS.items():
        lines = [
            f"{query} Q0 {item} {place} {10.5 - place} x\n"
            for query, items in lists.items()
            for place, item in enumerate(items, 1)
        ]
        Path(name).write_text("".join(lines))
    judged = [f"{query} 0 {item} {label}\n" for query, labels in QRELS.items() for item, label in labels.items()]
    Path("qrels.txt").write_text("".join(judged))
    Path("lists.csv").write_text(LISTS)
    Path("battles.csv").write_text(BATTLES)
    return tmp_path


def printed(capsys: Capture, *words: str) -> str:
    capsys.readouterr()
    assert main(words) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_runs_in_runs_out(files: Path, capsys: Capture) -> None:
    """What is printed is what a dataset and ``-o`` write."""
    lines = printed(capsys, "rank", "rrf", "bm25.run", "dense.run")
    assert lines.splitlines()[0].split()[:4] == ["q1", "Q0", "a", "1"]
    assert main(["import", "trec", "bm25.run", "dense.run", "-o", "data"]) == 0
    assert main(["rank", "rrf", "data", "-o", "fused.run"]) == 0
    assert lines == Path("fused.run").read_text()
    assert lines == printed(capsys, "rank", "rrf", "data")


def test_tables_in_tables_out(files: Path, capsys: Capture) -> None:
    table = rows(printed(capsys, "rank", "borda", "lists.csv"))
    assert [(row["query"], row["item"], row["rank"]) for row in table] == [("q1", "b", "1"), ("q1", "a", "2")]
    assert list(table[0]) == ["query", "item", "rank", "score"]


def test_the_format_can_be_said(files: Path, capsys: Capture) -> None:
    assert printed(capsys, "rank", "rrf", "bm25.run", "--format", "csv").startswith("query,item,rank,score\nq1,a,1,")
    assert printed(capsys, "rank", "borda", "lists.csv", "--format", "trec").startswith("q1 Q0 b 1 ")
    assert "experts" in rows(printed(capsys, "rank", "rrf", "bm25.run", "--support"))[0]  # runs have no such column


def test_json_rows(files: Path, capsys: Capture) -> None:
    found = json.loads(printed(capsys, "rank", "rrf", "bm25.run", "--json"))
    assert found[0] == {"query": "q1", "item": "a", "rank": 1, "score": pytest.approx(1 / 61)}
    assert len(found) == 7


def test_a_terminal_sees_the_top(files: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    many = "".join(f"q{q:02d} Q0 d{d} {d} {99 - d} x\n" for q in range(9) for d in range(1, 15))
    Path("many.run").write_text(many)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["rank", "rrf", "many.run"]) == 0
    seen = capsys.readouterr()
    assert seen.out.splitlines()[0].split() == ["query", "item", "rank", "score"]
    assert len(seen.out.splitlines()) == 2 + 3 * 10
    assert "the first 3 of 9 queries, 10 items of a query; for all: '-o FILE' or '| cat'" in seen.err
    assert main(["rank", "rrf", "many.run", "--format", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 9 * 14
    assert main(["rank", "borda", "lists.csv"]) == 0
    assert capsys.readouterr().err == ""  # all is shown


def test_patterns_and_gzip(files: Path, capsys: Capture) -> None:
    plain = printed(capsys, "rank", "rrf", "bm25.run", "dense.run")
    Path("runs").mkdir()
    for name in RUNS:
        Path("runs", f"{name}.gz").write_bytes(gzip.compress(Path(name).read_bytes()))
    assert printed(capsys, "rank", "rrf", "runs/*.run.gz") == plain
    assert printed(capsys, "rank", "rrf", "runs") == plain


def test_pairs_and_lists_without_a_query(files: Path, capsys: Capture) -> None:
    board = rows(printed(capsys, "rank", "bradley_terry", "battles.csv"))
    assert [row["item"] for row in board] == ["ada", "bert", "cleo"]


def test_options_stand_anywhere_and_names_in_any_case(files: Path, capsys: Capture) -> None:
    told = printed(capsys, "rank", "RRF", "bm25.run", "--top", "1", "dense.run")
    assert [line.split()[:3:2] for line in told.splitlines()] == [["q1", "a"], ["q2", "x"]]


def test_shortcuts_of_settings(files: Path, capsys: Capture) -> None:
    by_p = printed(capsys, "rank", "rrf", "bm25.run", "dense.run", "-p", "weights=dense.run:3", "-p", "depth=2")
    assert printed(capsys, "rank", "rrf", "bm25.run", "dense.run", "--weights", "dense:3", "--depth", "2") == by_p
    assert by_p.startswith("q1 Q0 b 1")


def test_columns_are_renamed(files: Path, capsys: Capture) -> None:
    Path("sites.csv").write_text(LISTS.replace("expert", "engine_name").replace("item", "site"))
    renamed = printed(capsys, "rank", "borda", "sites.csv", "--columns", "engine_name=expert,site=item")
    assert renamed == printed(capsys, "rank", "borda", "lists.csv")


def test_compare_and_fit_and_explain(files: Path, capsys: Capture) -> None:
    Path("runs").mkdir()
    for name in RUNS:
        Path(name).rename(Path("runs", name))
    compared = json.loads(
        printed(capsys, "compare", "runs/", "--qrels", "qrels.txt", "--models", "RRF,borda", "--json")
    )
    assert set(compared["means"]) == {"rrf", "borda"}
    assert main(["fit", "rrf", "runs", "--qrels", "qrels.txt", "-p", "c=auto", "-o", "model"]) == 0
    assert printed(capsys, "rank", "model", "runs").startswith("q1 Q0 ")
    assert "bm25.run" in printed(capsys, "explain", "rrf", "runs", "--query", "q1")


def test_info_of_files(files: Path, capsys: Capture) -> None:
    info = json.loads(printed(capsys, "info", "bm25.run", "dense.run", "qrels.txt", "--json"))
    assert (info["queries"], info["experts"], info["labels"]) == (2, 2, {"0": 2, "1": 2, "2": 1})


def test_import_tells_the_kind_too(files: Path, capsys: Capture) -> None:
    told = json.loads(printed(capsys, "import", "bm25.run", "dense.run", "--qrels", "qrels.txt", "-o", "a", "--json"))
    said = printed(capsys, "import", "trec", "bm25.run", "dense.run", "--qrels", "qrels.txt", "-o", "b", "--json")
    assert told == json.loads(said)
    assert main(["import", "--kind", "rankings", "lists.csv", "-o", "c"]) == 0
    assert main(["import", "battles.csv", "-o", "d"]) == 0


def test_large_files_are_said_to_belong_in_a_dataset(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(options, "SMALL", 10)
    monkeypatch.setattr(options, "LARGE", 20)
    assert main(["rank", "rrf", "bm25.run"]) == 0
    assert "distagg import FILE... -o DATASET" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("rank", "rrf"), ("import", "trec"), ("evaluate", "bm25.run"), ("info",)])
def test_pipes_and_devices_are_refused(words: tuple[str, ...], files: Path, capsys: Capture) -> None:
    """A pipe can be read only once, may never open, and a device may never end."""
    os.mkfifo("pipe")
    more = ("-o", "d") if words[0] == "import" else ()
    for special in ("pipe", "/dev/zero"):
        assert main([*words, special, *more]) == 3
        assert f"{special}: found a pipe or device" in capsys.readouterr().err


def test_a_reader_that_has_read_enough(files: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "distagg", "rank", "rrf", "bm25.run"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_evaluate_one_run(files: Path, capsys: Capture) -> None:
    one = json.loads(printed(capsys, "evaluate", "bm25.run", "qrels.txt", "-m", "MRR", "--json", "-o", "one.json"))
    written = json.loads((files / "one.json").read_text())
    assert (written.pop("query_ids"), written.pop("per_query")) == (["q1", "q2"], {"mrr": [1.0, pytest.approx(1 / 3)]})
    assert written == one
    assert one["means"] == {"mrr": pytest.approx((1 + 1 / 3) / 2)}
    assert (one["protocol"], one["queries"]) == ("trec", 2)
    assert printed(capsys, "evaluate", "bm25.run", "qrels.txt").splitlines()[0].split() == ["metric", "mean,", "%"]


def test_evaluate_several_runs(files: Path, capsys: Capture) -> None:
    words = ("bm25.run", "dense.run", "-m", "mrr", "-m", "recip_rank", "-m", "p@1")
    several = json.loads(
        printed(capsys, "evaluate", *words, "--qrels", "qrels.txt", "--json", "--baseline", "bm25.run")
    )
    assert several["means"]["dense.run"] == {"mrr": 0.75, "p@1": 0.5}
    assert {"run": "dense.run", "metric": "mrr", "value": 0.75} in several["results"]
    assert {(row["a"], row["b"], row["metric"]) for row in several["tests"]} == {
        ("dense.run", "bm25.run", metric) for metric in ("mrr", "p@1")
    }
    table = printed(capsys, "evaluate", *words[:4], "qrels.txt")
    assert table.splitlines()[0].split() == ["run", "mrr"]
    assert "mrr against dense.run  difference" in table


def test_evaluate_several_runs_on_a_dataset(files: Path, capsys: Capture) -> None:
    assert main(["import", *RUNS, "--qrels", "qrels.txt", "-o", "data"]) == 0
    from_files = json.loads(printed(capsys, "evaluate", *RUNS, "qrels.txt", "-m", "map", "--json"))
    from_data = json.loads(printed(capsys, "evaluate", *RUNS, "data", "-m", "map", "--json"))
    assert from_data == from_files


def test_two_rankings_compared_without_judgements(files: Path, capsys: Capture) -> None:
    same = json.loads(printed(capsys, "evaluate", "bm25.run", "bm25.run", "-m", "RBO", "-m", "rbo(0.5)", "--json"))
    assert same == {"means": {"rbo": pytest.approx(1.0), "rbo(0.5)": pytest.approx(1.0)}, "queries": 2}
    other = json.loads(printed(capsys, "evaluate", "bm25.run", "dense.run", "-m", "rbo", "--json"))
    assert 0 < other["means"]["rbo"] < 1


def test_missing_queries_are_said(files: Path, capsys: Capture) -> None:
    Path("half.run").write_text("q1 Q0 a 1 1.0 x\n")
    assert main(["evaluate", "half.run", "qrels.txt", "-m", "mrr", "--json"]) == 0
    half = capsys.readouterr()
    assert json.loads(half.out)["means"] == {"mrr": 0.5}
    assert "q2" in half.err
    skipped = printed(capsys, "evaluate", "half.run", "qrels.txt", "-m", "mrr", "--json", "--missing", "skip")
    assert json.loads(skipped)["means"] == {"mrr": 1.0}


WRONG = [  # words, exit code, what must be said
    ("rank rrf nowhere.run", 3, "nowhere.run"),
    ("rank rrf *.nothing", 3, "no file that matches"),
    ("rank rrf empty", 3, "empty directory"),
    ("rank rrf notes.txt", 3, "expected LETOR lines, a TREC run"),
    ("rank rrf mixed.tsv", 2, "--kind"),
    ("rank rrf bm25.run lists.csv", 2, "bm25.run looks like trec, but lists.csv like rankings"),
    ("rank rrf qrels.txt", 2, "only judgements"),
    ("rank rrf bm25.run data", 2, "data is a dataset; give it alone"),
    ("rank rrf data --qrels qrels.txt", 2, "--qrels is for source files"),
    ("rank rrf data --kind trec", 2, "--kind is for source files"),
    ("rank rrf battles.csv", 2, "bradley_terry"),
    ("rank crf bm25.run", 2, "distagg fit crf bm25.run -o MODELDIR"),
    ("rank rff bm25.run", 2, "did you mean 'rrf'?"),
    ("rank rrf bm25.run --format parquet", 2, "-o RANKINGS"),
    ("rank rrf bm25.run --report r.html", 2, "-o RANKINGS"),
    ("rank rrf bm25.run --top -1", 2, "top: found -1"),
    ("rank rrf bm25.run --depth 3 -p depth=3", 2, "expected one of them"),
    ("rank rrf bm25.run --weights dense:2", 2, "unknown expert in weights 'dense'"),
    ("rank rrf bm25.run --weights bm25:2,bm25.run:1", 2, "are both 'bm25.run'"),
    ("rank rrf lists.csv --columns item", 2, "THEIRS=OURS"),
    ("rank rrf bm25.run --kind tables", 2, "'trec'"),
    ("compare bm25.run dense.run --models rrf", 2, "--qrels"),
    ("fit crf bm25.run dense.run -o model", 2, "--qrels"),
    ("evaluate bm25.run dense.run", 2, "dense.run: found trec, expected judgements"),
    ("evaluate bm25.run", 2, "expected judgements"),
    ("evaluate qrels.txt", 2, "RANKINGS... QRELS"),
    ("evaluate data", 2, "RANKINGS... DATASET"),
    ("evaluate bm25.run data", 2, "data has no labels"),
    ("evaluate bm25.run nowhere.txt", 3, "nowhere.txt: found no such file"),
    ("evaluate nowhere.run qrels.txt", 3, "nowhere.run"),
    ("evaluate bm25.run qrels.txt -m ndgc", 2, "did you mean 'ndcg'?"),
    ("evaluate bm25.run dense.run qrels.txt --baseline bm52.run", 2, "did you mean 'bm25.run'?"),
    ("evaluate bm25.run qrels.txt --complete pmf", 2, "dataset"),
    ("evaluate bm25.run dense.run qrels.txt -m rbo", 2, "expected two"),
    ("evaluate bm25.run qrels.txt -m rbo -m map", 2, "rbo compares two rankings"),
    ("import notes.txt -o new", 3, "expected LETOR lines"),
    ("import pairs battles.csv --by rank -o new", 2, "by is an option of trec, found it with pairs"),
]


@pytest.mark.parametrize(("words", "code", "said"), WRONG, ids=[words for words, _, _ in WRONG])
def test_wrong_calls(words: str, code: int, said: str, files: Path, capsys: Capture) -> None:
    Path("empty").mkdir()
    Path("notes.txt").write_text("nothing to rank\n")
    Path("mixed.tsv").write_text("1\t2\t3\t4\n")  # judgements, or ratings with a time
    assert main(["import", "trec", "bm25.run", "-o", "data"]) == 0
    before = sorted(file.name for file in files.iterdir())
    capsys.readouterr()
    assert main(words.split()) == code
    seen = capsys.readouterr()
    assert said in seen.err
    assert seen.out == ""
    assert sorted(file.name for file in files.iterdir()) == before
