"""TREC runs and qrels: every way to write them that people use, and the line of everything else."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distagg
from distagg.dataset import Dataset, write_dataset
from distagg.errors import InputError, UsageError
from distagg.sources import delimited as fields
from distagg.sources.delimited import Lines, _parse_exact, _parse_fast
from distagg.sources.trec import JudgedSource, TrecSource, read_qrels

RUN = b"1 Q0 x 1 9.5 bm25\n1 Q0 y 2 7 bm25\n1 Q0 z 3 7 bm25\n2 Q0 x 1 0.5 bm25\n"
BEIR = "query-id\tcorpus-id\tscore\n7\tx\t2\n7\ty\t0\n8\tz\t1\n"
ROWS = [("7", "x", 2), ("7", "y", 0), ("8", "z", 1)]


def _write(folder: Path, name: str, text: bytes) -> Path:
    file = folder / name
    file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return file


def _entries(source: TrecSource) -> list[dict[str, object]]:
    return [row for table in source.tables() if table.kind == "entries" for row in table.table.to_pylist()]


@pytest.mark.parametrize(
    "text",
    [
        RUN,
        RUN.replace(b" ", b"\t"),
        RUN.replace(b"\n", b"\r\n"),
        RUN[:-1],
        RUN.replace(b" 7 ", b"   7\t"),
        RUN.replace(b" 7 ", b"\t 7\t"),
        RUN.replace(b"\n", b" \n"),
        RUN.replace(b"1 Q0", b"  1 Q0"),
        RUN.replace(b"\n2", b"\n\n\n2"),
        b"\xef\xbb\xbf" + RUN,
        RUN.replace(b"7 ", b"+7.0 "),
    ],
)
def test_any_white_space(tmp_path: Path, text: bytes) -> None:
    expected = [("1", "x", 9.5), ("1", "y", 7.0), ("1", "z", 7.0), ("2", "x", 0.5)]
    for name in ("run", "run2.gz"):
        rows = _entries(TrecSource([_write(tmp_path, name, text)]))
        assert [(row["query"], row["item"], row["score"]) for row in rows] == expected
        assert {row["expert"] for row in rows} == {name.removesuffix(".gz")}


def test_blocks_of_any_size_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _write(tmp_path, "run", RUN)
    expected = _entries(TrecSource([file]))
    for size in (1, 20, 30, 40):
        monkeypatch.setattr(fields, "BLOCK_BYTES", size)
        assert _entries(TrecSource([file])) == expected


def test_ranks_follow_scores(tmp_path: Path) -> None:
    text = b"1 Q0 a 1 2.0 t\n1 Q0 b 2 5.0 t\n1 Q0 c 3 2.0 t\n1 Q0 d 4 1.0 t\n"
    write_dataset(TrecSource([_write(tmp_path, "run", text)]), tmp_path / "by-score")
    chunk = next(Dataset.open(tmp_path / "by-score").chunks())
    assert chunk.entry_rank.tolist() == [1.0, 2.0, 2.0, 4.0]
    assert [chunk.item_ids[at].as_py() for at in chunk.entry_item] == ["b", "a", "c", "d"]
    assert chunk.entry_score.tolist() == [5.0, 2.0, 2.0, 1.0]
    write_dataset(TrecSource([tmp_path / "run"], by="rank"), tmp_path / "by-rank")
    chunk = next(Dataset.open(tmp_path / "by-rank").chunks())
    assert chunk.entry_rank.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert chunk.entry_score.tolist() == [2.0, 5.0, 2.0, 1.0]


def test_a_query_that_returns_is_one_list(tmp_path: Path) -> None:
    text = b"1 Q0 a 1 1.0 t\n2 Q0 a 1 1.0 t\n1 Q0 b 1 3.0 t\n"
    write_dataset(TrecSource([_write(tmp_path, "run", text)]), tmp_path / "d")
    dataset = Dataset.open(tmp_path / "d")
    assert (dataset.manifest.queries, dataset.manifest.lists) == (2, 2)
    assert next(dataset.chunks()).entry_rank.tolist() == [1.0, 2.0, 1.0]


def test_runs_and_qrels_make_a_dataset(tmp_path: Path) -> None:
    runs = [_write(tmp_path, "one", RUN), _write(tmp_path, "two.gz", b"2 Q0 w 1 3 t\n1 Q0 z 1 2 t\n")]
    qrels = _write(tmp_path, "qrels", b"1 0 x 2\n1 0 nowhere 1\n1 0 y -1\n3 0 x 1\n")
    manifest = write_dataset(JudgedSource(TrecSource(runs), [qrels]), tmp_path / "d")
    assert (manifest.queries, manifest.items, manifest.experts, manifest.lists) == (2, 5, 2, 4)
    assert manifest.labels == {"-1": 1, "2": 1}
    assert manifest.parts == ("",)
    dataset = Dataset.open(tmp_path / "d")
    chunk = next(dataset.chunks())
    assert dataset.experts == ("one", "two")
    assert chunk.item_ids.to_pylist() == ["x", "y", "z", "x", "w"]
    assert chunk.missed_labels.tolist() == [1]
    assert chunk.missed_offsets.tolist() == [0, 1, 1]


def test_experts_after_tags(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    files = [_write(tmp_path, "run", RUN), _write(tmp_path / "a", "run", b"1 Q0 x 1 1 lm\n2 Q0 x 1 1 lm\n")]
    with pytest.raises(UsageError, match="same name, 'run'"):
        TrecSource(files)
    assert [row["expert"] for row in _entries(TrecSource(files, expert="tag"))] == ["bm25"] * 4 + ["lm"] * 2
    with pytest.raises(UsageError, match="did you mean 'tag'"):
        TrecSource(files, expert="tags")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"1 Q0 y 2 nan t", "score 'nan', expected a finite number"),
        (b"1 Q0 y 2 inf t", "score 'inf', expected a finite number"),
        (b"1 Q0 y 2 1e999 t", "score '1e999', expected a finite number"),
        (b"1 Q0 y 2 high t", "score 'high', expected a finite number"),
        (b"1 Q0 y 2 1_0 t", "score '1_0', expected a finite number"),
        (b"1 Q0 y 2 1.0", "found 5 fields, expected 6 fields: query Q0 item rank score tag"),
        (b"1 Q0 y  1.0 t", "found 5 fields"),
        (b"1  y 1 1.0 t", "found 5 fields"),
        (b"1 Q0 y 1 1.0 ", "found 5 fields"),
        (b" Q0 y 1 1.0 t", "found 5 fields"),
        (b"1 Q0 y 1 1.0 t t", "found 7 fields"),
        (b"1 Q0 y\t1 1 1.0 t", "found 7 fields"),
        (b"1 Q0 \xff 1 1.0 t", "not UTF-8"),
    ],
)
@pytest.mark.parametrize("name", ["run", "run.gz"])
def test_bad_lines_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, line: bytes, said: str
) -> None:
    file = _write(tmp_path, name, b"1 Q0 x 1 2.0 t\n\n1 Q0 w 1 2.0 t\n" + line + b"\n1 Q0 z 3 0.5 t\n")
    for size in (1 << 20, 16):
        monkeypatch.setattr(fields, "BLOCK_BYTES", size)
        with pytest.raises(InputError) as caught:
            _entries(TrecSource([file]))
        assert (caught.value.file, caught.value.line) == (str(file), 4)
        assert said in str(caught.value)


@pytest.mark.parametrize("rank", [b"0", b"-1", b"1.5", b"first"])
def test_ranks_are_checked_when_they_count(tmp_path: Path, rank: bytes) -> None:
    file = _write(tmp_path, "run", b"1 Q0 x 1 2.0 t\n1 Q0 y " + rank + b" 1.0 t\n")
    with pytest.raises(InputError, match=r"run:2: found rank '.*', expected a positive whole number"):
        _entries(TrecSource([file], by="rank"))
    assert len(_entries(TrecSource([file]))) == 2


@pytest.mark.parametrize("label", [b"x", b"1.5", b"99999999999"])
def test_bad_labels(tmp_path: Path, label: bytes) -> None:
    qrels = _write(tmp_path, "qrels", b"1 0 x 1\n1 0 y " + label + b"\n")
    with pytest.raises(InputError, match=r"qrels:2: found label"):
        list(JudgedSource(TrecSource([_write(tmp_path, "run", RUN)]), [qrels]).tables())


def test_the_same_item_twice(tmp_path: Path) -> None:
    file = _write(tmp_path, "run", RUN + b"1 Q0 xx 1 1.0 t\n1 Q0 x 9 0.1 t\n")
    with pytest.raises(InputError, match=r"run:6: found item 'x' again in the list of 'run' for query '1' .*run:1"):
        write_dataset(TrecSource([file]), tmp_path / "d")
    files = [_write(tmp_path, "one", RUN), _write(tmp_path, "two", b"1 Q0 y 9 0.1 bm25\n")]
    with pytest.raises(InputError, match=r"two:1: found item 'y' again in the list of 'bm25'"):
        write_dataset(TrecSource(files, expert="tag"), tmp_path / "d")


def test_a_label_that_changes(tmp_path: Path) -> None:
    qrels = _write(tmp_path, "qrels", b"1 0 x 1\n1 0 x 1\n1 0 x 0\n")
    with pytest.raises(InputError, match=r"qrels:3: found another label for item 'x'"):
        write_dataset(JudgedSource(TrecSource([_write(tmp_path, "run", RUN)]), [qrels]), tmp_path / "d")


def test_files_that_are_not_there_or_broken(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        _entries(TrecSource([tmp_path / "run"]))
    (tmp_path / "run.gz").write_bytes(gzip.compress(RUN * 50)[:-20])
    with pytest.raises(InputError, match="gzip"):
        _entries(TrecSource([tmp_path / "run.gz"]))
    with pytest.raises(UsageError, match="no run files"):
        TrecSource([])
    with pytest.raises(InputError, match="empty"):
        write_dataset(TrecSource([_write(tmp_path, "empty", b"\n")]), tmp_path / "d")


words = st.sampled_from([b"1", b"x", b"0.5", b"-3e2", b"", b" ", b"\t", b"nan", b"\r", b"Q0", b"\xc3\xbc"])
some_lines = st.lists(st.lists(words, min_size=4, max_size=8).map(b" ".join), max_size=4).map(b"\n".join)


@given(some_lines)
def test_the_fast_parser_never_contradicts_the_exact_one(text: bytes) -> None:
    layout = TrecSource(["run"])._layout
    fast = _parse_fast(text, layout) if text else None
    if fast is None:
        return
    exact = _parse_exact(Lines(Path("run"), 0, text), layout)
    assert fast.to_pylist() == exact.to_pylist()
    assert fast.schema.field("score").type == pa.float64()


def test_fusing_runs_loads_neither_pandas_nor_numba(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("1 Q0 a 1 2.5 x\n1 Q0 b 2 1.5 x\n2 Q0 a 1 0.5 x\n")
    script = (
        "import sys, distagg; f = sys.argv[1]; distagg.import_dataset('trec', [f + '/run'], f + '/dataset');"
        "distagg.rank('rrf', distagg.Dataset.open(f + '/dataset'));"
        "print([m for m in ('pandas', 'numba', 'scipy') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


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
    (tmp_path / "test.tsv").write_text(BEIR)
    (tmp_path / "games.csv").write_text("query,winner,loser\n7,x,y\n")
    games = distagg.import_dataset("pairs", [tmp_path / "games.csv"], tmp_path / "g", qrels=tmp_path / "test.tsv")
    assert games.manifest.labels == dataset.manifest.labels
    (tmp_path / "games.csv").write_text("winner,loser\nx,y\n")
    with pytest.raises(InputError, match="found queries 'all' and '7', expected one query"):
        distagg.import_dataset("pairs", [tmp_path / "games.csv"], tmp_path / "h", qrels=tmp_path / "test.tsv")
