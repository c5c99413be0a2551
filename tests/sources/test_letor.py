from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distagg.dataset import write_dataset
from distagg.errors import InputError
from distagg.sources import letor as letor_lines
from distagg.sources import source
from distagg.sources.letor import LetorSource
from distagg.types import ITEMS

GOOD = """\
2 qid:10 1:1 2:NULL 3:7 #docid = a inc = 1 prob = 0.5
0 qid:10 1:2 2:3 3:NULL #docid = b inc = 1 prob = 0.5
1 qid:11 1:NULL 2:NULL 3:NULL #docid = a
"""


def read(*files: Path) -> tuple[list[dict], list[dict]]:
    """Items and entries as rows."""
    rows: dict[str, list[dict]] = {"items": [], "entries": []}
    for table in LetorSource(files).tables():
        rows[table.kind] += table.table.to_pylist()
        assert table.part in {file.name for file in files}
        if table.kind == "items":
            assert table.table.schema.equals(ITEMS)
    return rows["items"], rows["entries"]


def import_files(folder: Path, *files: Path) -> None:
    write_dataset(LetorSource(files), folder / "dataset")


def write(folder: Path, text: str, name: str = "A1.txt") -> Path:
    file = folder / name
    file.write_text(text, newline="")
    return file


def entry(query: str, expert: str, item: str, rank: float) -> dict:
    return {"query": query, "expert": expert, "item": item, "rank": rank}


def test_items_and_entries(tmp_path: Path) -> None:
    items, entries = read(write(tmp_path, GOOD))
    assert [(row["query"], row["item"], row["label"]) for row in items] == [
        ("10", "a", 2),
        ("10", "b", 0),
        ("11", "a", 1),
    ]
    assert entries == [
        entry("10", "1", "a", 1),
        entry("10", "3", "a", 7),
        entry("10", "1", "b", 2),
        entry("10", "2", "b", 3),
    ]


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("\n", "\r\n"),
        GOOD.rstrip("\n"),
        "\n# made up\n" + GOOD.replace("\n", "\n\n"),
        GOOD.replace(" ", " \t "),
        GOOD.replace("1:2 2:3", "2:3 1:2"),
    ],
    ids=["crlf", "no last newline", "blank lines and comments", "tabs", "features out of order"],
)
def test_odd_but_good_text_reads_the_same(tmp_path: Path, text: str) -> None:
    items, entries = read(write(tmp_path, GOOD, "good.txt"))
    odd_items, odd_entries = read(write(tmp_path, text))
    key = lambda row: sorted(row.items())  # noqa: E731
    assert odd_items == items
    assert sorted(odd_entries, key=key) == sorted(entries, key=key)


def test_gzip(tmp_path: Path) -> None:
    file = tmp_path / "A1.txt.gz"
    file.write_bytes(gzip.compress(GOOD.encode()))
    assert read(file) == read(write(tmp_path, GOOD))


@pytest.mark.parametrize("cut", ["0 qid:1", "0 qid:1 1:2", "0 qid:1 1:2 #doc", "0 qid:1 1:2 #docid = "])
def test_a_last_line_that_is_cut(tmp_path: Path, cut: str) -> None:
    with pytest.raises(InputError, match="a truncated last line") as caught:
        read(write(tmp_path, "1 qid:1 1:1 #docid = a\n" + cut))
    assert caught.value.line == 2
    read(write(tmp_path, "1 qid:1 1:1\n0 qid:1 1:2"))  # no docids, no cut


def test_items_without_docid_are_called_after_their_line(tmp_path: Path) -> None:
    items, entries = read(write(tmp_path, "\n1 qid:1 1:2\n0 qid:1 1:1 #docid = x\n0 qid:1 2:1 # docid=y\n"))
    assert [row["item"] for row in items] == ["L2", "x", "y"]
    assert [row["item"] for row in entries] == ["L2", "x", "y"]


def test_sparse_features_and_fractional_ranks(tmp_path: Path) -> None:
    _, entries = read(write(tmp_path, "0 qid:1 7:1.5 #docid = a\n0 qid:1 #docid = b\n0 qid:1 2:1e2 #docid = c\n"))
    assert entries == [entry("1", "7", "a", 1.5), entry("1", "2", "c", 100)]


def test_a_query_may_return(tmp_path: Path) -> None:
    items, _ = read(write(tmp_path, "0 qid:1 1:1 #docid = a\n0 qid:2 1:1 #docid = a\n0 qid:1 1:2 #docid = b\n"))
    assert [row["query"] for row in items] == ["1", "2", "1"]


@pytest.mark.parametrize("block", [1, 64, 150])
def test_blocks_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    file = write(tmp_path, "# first\n" + GOOD + "\n0 qid:12 1:4\n")
    whole = read(file)
    monkeypatch.setattr(letor_lines, "BLOCK_BYTES", block)
    assert read(file) == whole
    assert whole[0][-1]["item"] == "L6"


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letor_lines, "BLOCK_BYTES", 8)
    monkeypatch.setattr(source, "LINE_BYTES", 64)
    with pytest.raises(InputError, match=r"A1.txt:2: found a line of over 64 bytes"):
        read(write(tmp_path, "# first\n" + "x" * 1000))


BAD = [
    ("x qid:1 1:1", "label 'x'", "a whole number of at least 0"),
    ("-1 qid:1 1:1", "label '-1'", "a whole number of at least 0"),
    ("1.5 qid:1 1:1", "label '1.5'", "a whole number of at least 0"),
    ("1", "the label alone", "'qid:QUERY'"),
    ("1 1:1 2:2", "'1:1'", "'qid:QUERY'"),
    ("1 qid: 1:1", "'qid:'", "'qid:QUERY'"),
    ("1 qid:1 1:0", "rank '0' of feature 1", "a finite number above 0, or NULL"),
    ("1 qid:1 1:-3", "rank '-3' of feature 1", "a finite number above 0, or NULL"),
    ("1 qid:1 1:nan", "rank 'nan' of feature 1", "a finite number above 0, or NULL"),
    ("1 qid:1 1:inf", "rank 'inf' of feature 1", "a finite number above 0, or NULL"),
    ("1 qid:1 1:1e400", "rank '1e400' of feature 1", "a finite number above 0, or NULL"),
    ("1 qid:1 1:null", "rank 'null' of feature 1", "a finite number above 0, or NULL"),
    ("1 qid:1 1:1_0", "rank '1_0' of feature 1", "a finite number above 0, or NULL"),
    ("1 qid:1 1:", "rank '' of feature 1", "a finite number above 0, or NULL"),
    ("1 qid:1 1:2:3", "rank '2:3' of feature 1", "a finite number above 0, or NULL"),
    ("1 qid:1 1:1 1:2", "feature 1 twice", "each feature once"),
    ("1 qid:1 2:1 1:NULL 2:NULL", "feature 2 twice", "each feature once"),
    ("1 qid:1 0:1", "'0:1'", "FEATURE:RANK"),
    ("1 qid:1 x:1", "'x:1'", "FEATURE:RANK"),
    ("1 qid:1 17", "'17'", "FEATURE:RANK"),
    ("1 qid:1 1:1 2", "'2'", "FEATURE:RANK"),
]


@pytest.mark.parametrize(("line", "found", "expected"), BAD, ids=[line for line, _, _ in BAD])
def test_bad_lines(tmp_path: Path, line: str, found: str, expected: str) -> None:
    file = write(tmp_path, GOOD + "\n" + line + "\n" + "0 qid:12 1:1\n")
    with pytest.raises(InputError) as caught:
        read(file)
    assert (caught.value.file, caught.value.line, caught.value.found) == (str(file), 5, found)
    assert expected in caught.value.expected
    assert str(caught.value).startswith(f"{file}:5: found {found}, expected ")


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    file = tmp_path / "A1.txt"
    file.write_bytes(GOOD.encode() + b"0 qid:1 1:1 #docid = \xff\n")
    with pytest.raises(InputError, match=r"A1.txt:4: found byte 0xff at column 22, expected UTF-8"):
        read(file)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_empty_files(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"A1.txt: found no items, expected lines like 'label qid"):
        read(write(tmp_path, text))


def test_missing_and_cut_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "absent.txt")
    (tmp_path / "A1.txt.gz").write_bytes(gzip.compress(GOOD.encode() * 100)[:-20])
    with pytest.raises(InputError, match="a broken gzip stream"):
        read(tmp_path / "A1.txt.gz")


@pytest.mark.parametrize("block", [1, 30, 60, 1 << 20])
def test_an_item_twice_however_far_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(letor_lines, "BLOCK_BYTES", block)
    lines = [
        f"0 qid:{query} 1:{rank} #docid = {item}"
        for query, item, rank in [(1, "a", 1), (1, "b", 2), (2, "a", 1), (3, "z", 1), (1, "c", 3), (1, "b", 4)]
    ]
    with pytest.raises(InputError, match=r"A1.txt:6: found item 'b' of query '1' again \(first at A1.txt:2\)"):
        import_files(tmp_path, write(tmp_path, "\n".join(lines)))
    near = [lines[0], lines[1], lines[4], lines[5]]
    with pytest.raises(InputError, match=r"A1.txt:4: found item 'b' of query '1' again \(first at A1.txt:2\)"):
        import_files(tmp_path, write(tmp_path, "\n".join(near)))
    one, two = write(tmp_path, lines[1]), write(tmp_path, "\n".join(lines[2:]), "A2.txt")
    with pytest.raises(InputError, match=r"A2.txt:4: found item 'b' of query '1' again \(first at A1.txt:1\)"):
        import_files(tmp_path, one, two)


def test_locate(tmp_path: Path) -> None:
    one, two = write(tmp_path, "\n" + GOOD), write(tmp_path, "0 qid:12 3:1 #docid = a\n", "A2.txt")
    source = LetorSource([one, two])
    assert source.locate("10", None, "a") == [(str(one), 2)]
    assert source.locate("10", "3", "a") == [(str(one), 2)]
    assert source.locate("10", "2", "a") == []
    assert source.locate("12", "3", "a") == [(str(two), 1)]


WORDS = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="#"), min_size=1, max_size=6)
RANKS = st.one_of(st.integers(1, 600), st.floats(1e-3, 1e6))
LINES = st.lists(
    st.tuples(
        st.integers(0, 3), WORDS, WORDS, st.dictionaries(st.integers(1, 30), st.one_of(st.none(), RANKS), max_size=5)
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda line: line[1:3],
)


@settings(max_examples=60, deadline=None)
@given(lines=LINES, block=st.sampled_from([20, 1 << 20]), slowly=st.booleans())
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, lines: list, block: int, slowly: bool) -> None:
    text = "".join(
        f"{label} qid:{query} "
        + " ".join(f"{number}:{'NULL' if rank is None else repr(rank)}" for number, rank in features.items())
        + f" #docid = {item} inc = 1\n"
        for label, query, item, features in lines
    )
    file = tmp_path_factory.mktemp("letor") / "A1.txt"
    file.write_text(text, encoding="utf-8", newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor_lines, "BLOCK_BYTES", block)
        if slowly:  # the line parser reads what the column parser reads
            patch.setattr(letor_lines, "_parse_block", lambda *_: None)
        items, entries = read(file)
    assert [(row["label"], row["query"], row["item"]) for row in items] == [line[:3] for line in lines]
    assert entries == [
        entry(query, str(number), item, rank)
        for _, query, item, features in lines
        for number, rank in features.items()
        if rank is not None
    ]


@pytest.mark.real
@pytest.mark.parametrize(
    ("folder", "queries", "items", "experts", "missing", "labels"),
    [
        ("mq2008-agg", 784, 15211, 25, 0.650, {0: 12279, 1: 2001, 2: 931}),
        ("mq2007-agg", 1692, 69623, 21, 0.348, {0: 51632, 1: 14128, 2: 3863}),
    ],
)
def test_real_facts(
    data_dir: Path, folder: str, queries: int, items: int, experts: int, missing: float, labels: dict[int, int]
) -> None:
    files = [data_dir / folder / f"A{part}.txt" for part in range(1, 6)]
    if not all(file.is_file() for file in files):
        pytest.skip(f"no {folder} in {data_dir}")
    tables = list(LetorSource(files).tables())
    rows = [table.table for table in tables if table.kind == "items"]
    entries = [table.table for table in tables if table.kind == "entries"]
    assert len({query for table in rows for query in table["query"].to_pylist()}) == queries
    assert Counter(label for table in rows for label in table["label"].to_pylist()) == labels
    names = {name for table in entries for name in table["expert"].unique().to_pylist()}
    assert names == {str(number) for number in range(1, experts + 1)}
    assert round(1 - sum(map(len, entries)) / (items * experts), 3) == missing
    assert max(np.max(table["rank"].to_numpy()) for table in entries) >= 530
    assert {table.part for table in tables} == {f"A{part}.txt" for part in range(1, 6)}
