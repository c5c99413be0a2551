"""No file, however hostile, costs much memory: long lines, gzip bombs, wide headers, numbers too large to believe."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from distagg.errors import InputError
from distagg.sources import SOURCES, source
from distagg.sources.cells import json_records
from distagg.sources.detect import kind_of_file
from distagg.sources.ratings import read_about
from distagg.sources.trec import read_qrels

LONG = "x" * 1000
LONG_LINES = {  # kind: the file, and lines before the one that is too long
    "letor": ("a.txt", "0 qid:1 1:1 #docid = a\n", f"0 qid:1 1:2 #docid = {LONG}\n"),
    "trec": ("a.run", "q Q0 a 1 2 t\n", f"q Q0 {LONG} 1 2 t\n"),
    "ratings": ("u.data", "1\t1\t3\t0\n", f"1\t{LONG}\t3\t0\n"),
    "rankings": ("a.csv", "expert,item,rank\ne,a,1\n", f"e,{LONG},2\n"),
    "rankings lines": (
        "a.jsonl",
        '{"expert":"e","item":"a","rank":1}\n',
        f'{{"expert":"e","item":"{LONG}","rank":2}}\n',
    ),
    "rankings preflib": ("a.soc", "# NUMBER ALTERNATIVES: 2\n", f"# {LONG}\n1: 1,2\n"),
    "pairs": ("a.tsv", "winner\tloser\na\tb\n", f"a\t{LONG}\n"),
}


@pytest.mark.parametrize("kind", LONG_LINES)
def test_long_lines_are_refused_by_every_reader(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, before, line = LONG_LINES[kind]
    file = tmp_path / name
    file.write_text(before + line)
    list(SOURCES[kind.split()[0]]([file]).tables())
    monkeypatch.setattr(source, "LINE_BYTES", 500)
    monkeypatch.setattr(source, "BUFFER_BYTES", 100)  # of which no line of 500 bytes is a part
    with pytest.raises(InputError, match="found a line of over 500 bytes") as caught:
        list(SOURCES[kind.split()[0]]([file]).tables())
    assert caught.value.line == 1 + before.count("\n")


@pytest.mark.parametrize("kind", [kind for kind in LONG_LINES if kind != "rankings preflib"])
def test_a_long_line_of_a_later_span_has_its_number_in_the_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, before, line = LONG_LINES[kind]
    many = 100 * before.splitlines(keepends=True)[-1]
    file = tmp_path / name
    file.write_text(before + many + line)
    pieces = SOURCES[kind.split()[0]]([file]).split(300)
    assert len(pieces) > 3
    monkeypatch.setattr(source, "LINE_BYTES", 500)
    monkeypatch.setattr(source, "BUFFER_BYTES", 100)
    with pytest.raises(InputError, match="found a line of over 500 bytes") as caught:
        for piece in pieces:
            list(piece.tables())
    assert caught.value.line == (before + many + line).count("\n")


def test_long_lines_of_judgements_and_of_tables_about_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "qrels.txt").write_text(f"q 0 a 1\nq 0 {LONG} 1\n")
    (tmp_path / "users.csv").write_text(f"user,town\n1,{LONG}\n")
    monkeypatch.setattr(source, "LINE_BYTES", 500)
    monkeypatch.setattr(source, "BUFFER_BYTES", 100)  # of which no line of 500 bytes is a part
    for read in (lambda: read_qrels([tmp_path / "qrels.txt"]), lambda: read_about(tmp_path / "users.csv")):
        with pytest.raises(InputError, match=":2: found a line of over 500 bytes"):
            read()


def test_one_line_of_json_may_be_long_but_no_object_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    file.write_text("[" + ",".join('{"x": 1}' for _ in range(1000)) + "]")
    monkeypatch.setattr(source, "LINE_BYTES", 500)
    monkeypatch.setattr(source, "BUFFER_BYTES", 100)  # of which no line of 500 bytes is a part
    monkeypatch.setattr("distagg.sources.cells.LINE_BYTES", 500)
    monkeypatch.setattr("distagg.sources.cells.PIECE", 100)
    assert len(list(json_records(file))) == 1000
    file.write_text('[{"x": "' + LONG * 4 + '"}, {}')
    with pytest.raises(InputError, match="broken JSON in object 1"):
        list(json_records(file))


@pytest.mark.parametrize("kind", ["letor", "trec", "ratings", "pairs"])
def test_gzip_bombs_are_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "FREE_BYTES", 1 << 18)
    name, before, _ = LONG_LINES[kind]
    file = tmp_path / f"{name}.gz"
    file.write_bytes(gzip.compress(before.encode() + b"\n" * (1 << 20)))
    assert source.MOST_TIMES * file.stat().st_size < 1 << 20
    with pytest.raises(InputError, match=r"gzipped bytes that unpack to more than .* unpack it with gunzip"):
        list(SOURCES[kind]([file]).tables())
    monkeypatch.setattr(source, "FREE_BYTES", 8 << 20)
    list(SOURCES[kind]([file]).tables())


def test_a_bomb_of_one_line_costs_no_memory(tmp_path: Path) -> None:
    """3 GB of zeros in 3 MB, with one gigabyte of memory."""
    file = tmp_path / "bomb.run.gz"
    with file.open("wb") as out, gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1) as packed:
        for _ in range(192):
            packed.write(bytes(1 << 18))
    body = file.read_bytes() * 64  # members of a gzip file follow one another

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

    file.write_bytes(body)
    command = [sys.executable, "-m", "distagg", "import", "trec", str(file), "-o", str(tmp_path / "d")]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, env=environment)
    assert done.returncode == 3, done.stderr
    assert "found a line of over 33,554,432 bytes" in done.stderr


WIDE = ",".join(f"c{n}" for n in range(300_000))


@pytest.mark.parametrize("kind", ["rankings", "pairs", "ratings"])
def test_headers_of_very_many_columns_are_refused(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"user,item,rating,{WIDE}\n")
    with pytest.raises(InputError, match="found 300,003 columns, expected at most 10,000"):
        list(SOURCES[kind]([file]).tables())


def test_wide_tables_about_users_and_files_of_any_kind(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"{WIDE}\n")
    for read in (read_about, kind_of_file):
        with pytest.raises(InputError, match="found 300,000 columns"):
            read(file)
    (tmp_path / "a.jsonl").write_text("{" + ",".join(f'"c{n}": 1' for n in range(20_000)) + "}\n")
    with pytest.raises(InputError, match="found 20,000 columns"):
        kind_of_file(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("# NUMBER ALTERNATIVES: 2000000000\n1: 1,2\n", "2000000000 alternatives"),
        ("# ALTERNATIVE NAME 2000000000: x\n1: 1,2\n", "2000000000 alternatives"),
        (f"# NUMBER ALTERNATIVES: {'9' * 5000}\n1: 1,2\n", "9" * 30 + " alternatives"),
        ("# NUMBER ALTERNATIVES: 2\n999999999999: 1,2\n", "999,999,999,999 voters"),
        ("# NUMBER ALTERNATIVES: 2\n# NUMBER VOTERS: " + "9" * 5000 + "\n1: 1,2\n", "9" * 30 + " voters"),
    ],
)
def test_numbers_of_preflib_too_large_to_believe(lines: str, found: str, tmp_path: Path) -> None:
    file = tmp_path / "a.soc"
    file.write_text(lines)
    with pytest.raises(InputError) as caught:
        list(SOURCES["rankings"]([file]).tables())
    assert caught.value.found == found
    assert "at most 1,000,000 alternatives" in caught.value.expected


def test_tables_about_users_have_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distagg.sources.ratings.ABOUT_BYTES", 1 << 20)
    (tmp_path / "users.csv").write_text("user,age\n" + "1,2\n" * (1 << 19))
    with pytest.raises(InputError, match="found a table of over 1 MB"):
        read_about(tmp_path / "users.csv")


@pytest.mark.parametrize(
    ("lines", "items"),
    [
        ('user,item,rating\n1,"a, b",5\n', ["a, b"]),
        ('user,item,rating\n1, x ,5\n1,"y",4 \n', ["x", "y"]),
        ('user,item,rating\n1,"a ""b""",5\n', ['a "b"']),
    ],
)
def test_quotes_and_blanks_in_ratings(lines: str, items: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(lines)
    tables = list(SOURCES["ratings"]([tmp_path / "a.csv"]).tables())
    assert [item for table in tables for item in table.table["item"].to_pylist()] == items


@pytest.mark.parametrize("row", ['1,a,5"', '1,a"b,5', '1,"a"b,5', '1,"a,5', "1,a"])
def test_stray_quotes_and_lines_that_end_early_in_ratings(row: str, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"user,item,rating\n1,b,5\n{row}\n2,c,3\n")
    with pytest.raises(InputError) as caught:
        list(SOURCES["ratings"]([file]).tables())
    assert caught.value.line == 3


def test_two_byte_order_marks(tmp_path: Path) -> None:
    for name, line in (("a.run", "q Q0 a 1 2 t\n"), ("u.data", "1\t1\t3\t0\n")):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf\xef\xbb\xbf" + line.encode())
        with pytest.raises(InputError, match=":1: found two byte order marks"):
            list(SOURCES["trec" if name == "a.run" else "ratings"]([tmp_path / name]).tables())
