from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distagg.errors import InputError
from distagg.sources import tables as longtable
from distagg.sources.ranked_lists import RankingsSource

ROWS = [
    {"query": "q1", "expert": "007", "item": "a", "rank": 1.0, "label": 2},
    {"query": "q1", "expert": "007", "item": "b", "rank": 2.5, "label": None},
    {"query": "q1", "expert": "8", "item": "a", "rank": 1.0, "label": 2},
    {"query": "q2", "expert": "8", "item": "01", "rank": 3.0, "label": 0},
]
FORMATS = ["csv", "tsv", "csv.gz", "parquet", "jsonl", "ndjson", "jsonl.gz"]


def write(folder: Path, rows: list[dict], form: str, name: str = "votes") -> Path:
    """The rows as a file of that format."""
    file = folder / f"{name}.{form}"
    kind = form.removesuffix(".gz")
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
        return file
    text = io.StringIO()
    if kind in ("jsonl", "ndjson"):
        text.writelines(json.dumps(row) + "\n" for row in rows)
    else:
        writer = csv.DictWriter(text, list(rows[0]), delimiter="\t" if kind == "tsv" else ",", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    data = text.getvalue().encode()
    file.write_bytes(gzip.compress(data) if form.endswith(".gz") else data)
    return file


def text_file(folder: Path, text: str | bytes, name: str = "votes.csv") -> Path:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def read(*files: Path) -> tuple[list[dict], list[dict]]:
    """Items (declared by PrefLib's files, labelled by tables) and entries as rows."""
    rows: dict[str, list[dict]] = {"items": [], "entries": []}
    for table in RankingsSource(files).tables():
        rows["entries" if table.kind == "entries" else "items"] += table.table.to_pylist()
    return rows["items"], rows["entries"]


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_reads_the_same(tmp_path: Path, form: str) -> None:
    items, entries = read(write(tmp_path, ROWS, form))
    assert entries == [{key: value for key, value in row.items() if key != "label"} for row in ROWS]
    assert items == [
        {"query": "q1", "item": "a", "label": 2},
        {"query": "q1", "item": "b", "label": None},
        {"query": "q2", "item": "01", "label": 0},
    ]


def test_parts_are_files_unless_one_query_spans_them(tmp_path: Path) -> None:
    one, two = (write(tmp_path, ROWS, "csv", name) for name in ("one", "two"))
    assert {table.part for table in RankingsSource([one, two]).tables()} == {"one.csv", "two.csv"}
    ann, bob = (text_file(tmp_path, f"expert,item,rank\n{name},x,1\n", f"{name}.csv") for name in ("ann", "bob"))
    assert {table.part for table in RankingsSource([ann, bob]).tables()} == {""}
    assert {table.part for table in RankingsSource([ann]).tables()} == {"ann.csv"}
    assert read(ann)[1] == [{"query": "all", "expert": "ann", "item": "x", "rank": 1.0}]


def test_scores_alone_leave_ranking_to_the_grouping(tmp_path: Path) -> None:
    _, entries = read(text_file(tmp_path, "expert,item,score\ne,x,-1.5\ne,y,2\n"))
    assert [(row["rank"], row["score"]) for row in entries] == [(None, -1.5), (None, 2.0)]
    _, entries = read(text_file(tmp_path, "expert,item,rank,score\ne,x,1,0.5\n"))
    assert entries == [{"query": "all", "expert": "e", "item": "x", "rank": 1.0, "score": 0.5}]


def test_whole_numbers_may_be_ids(tmp_path: Path) -> None:
    rows = [{"expert": 7, "item": 2**60, "rank": 1}, {"expert": 8, "item": 1, "rank": 2}]
    for form in ("parquet", "jsonl"):
        assert [(row["expert"], row["item"]) for row in read(write(tmp_path, rows, form))[1]] == [
            ("7", str(2**60)),
            ("8", "1"),
        ]
    mixed = [{"expert": "2020-01-01", "item": "a", "rank": "2"}, {"expert": 8, "item": 10**30, "rank": 1}]
    assert [tuple(row.values()) for row in read(write(tmp_path, mixed, "jsonl"))[1]] == [
        ("all", "2020-01-01", "a", 2.0),
        ("all", "8", str(10**30), 1.0),
    ]


def test_frames_written_by_pandas(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, index=[5, 3, 2, 9])
    frame.to_parquet(tmp_path / "votes.parquet")
    assert read(tmp_path / "votes.parquet") == read(write(tmp_path, ROWS, "csv"))
    frame.to_csv(tmp_path / "votes.csv", index=False)  # labels as 2.0 and nothing
    assert read(tmp_path / "votes.csv") == read(tmp_path / "votes.parquet")


def test_byte_order_mark_blank_lines_and_quotes(tmp_path: Path) -> None:
    text = '\ufeffexpert,item,rank\r\n\r\nann,"x, the ""first""\nof all", 1 \r\n'
    assert read(text_file(tmp_path, text))[1] == [
        {"query": "all", "expert": "ann", "item": 'x, the "first"\nof all', "rank": 1.0}
    ]


HEAD = "query,expert,item,rank,label\nq,e,a,1,0\n\n"
ID = "an id"
BAD_ROWS = [
    ("q,e,b,x,0", "rank 'x'", "a finite number above 0"),
    ("q,e,b,nan,0", "rank 'nan'", "a finite number above 0"),
    ("q,e,b,inf,0", "rank 'inf'", "a finite number above 0"),
    ("q,e,b,0,0", "rank '0'", "a finite number above 0"),
    ("q,e,b,-1,0", "rank '-1'", "a finite number above 0"),
    ("q,e,b,,0", "an empty rank", "a finite number above 0"),
    ("q,e,,1,0", "an empty item", ID),
    ("q,,b,1,0", "an empty expert", ID),
    (",e,b,1,0", "an empty query", ID),
    ("q,e,b,1,-1", "label '-1'", "a whole number of at least 0"),
    ("q,e,b,1,0.5", "label '0.5'", "a whole number of at least 0"),
    ("q,e,b,1,x", "label 'x'", "a whole number of at least 0"),
    ("q,e,b,1", "4 values", "5 values, as the header has"),
    ("q,e,b,1,0,0", "6 values", "5 values, as the header has"),
    ("q,e,\udcff,1,0", "bytes that are not UTF-8", "UTF-8 text"),
]


@pytest.mark.parametrize(("row", "found", "expected"), BAD_ROWS, ids=[found for _, found, _ in BAD_ROWS])
def test_bad_rows(tmp_path: Path, row: str, found: str, expected: str) -> None:
    text = HEAD + 'q,e,"two\nlines",2,0\n' * 40 + row + "\nq,e,d,9,0\n"
    file = text_file(tmp_path, text.encode(errors="surrogateescape"))
    with pytest.raises(InputError) as caught:
        read(file)
    assert (caught.value.file, caught.value.line, caught.value.found) == (str(file), 84, found)
    assert caught.value.expected.startswith(expected)
    assert str(caught.value).startswith(f"{file}:84: found {found}, expected {expected}")


BAD_HEADERS = [
    ("votes.csv", "query,expert,itm,rank\n", 1, "unknown column 'itm'", "did you mean 'item'?"),
    ("votes.csv", "query;expert;item;rank\n", 1, "unknown column 'query;expert;item;rank'", ""),
    ("votes.csv", "q1,e1,x,1\n", 1, "unknown column 'q1'", "rename or drop it"),
    ("votes.csv", "query,item,rank\n", 1, "no column 'expert'", ""),
    ("votes.csv", "expert,rank\n", 1, "no column 'item'", ""),
    ("votes.csv", "expert,item\n", 1, "neither rank nor score", ""),
    ("votes.csv", "expert,item,rank,item\n", 1, "column 'item' twice", ""),
    ("votes.csv", "expert,item,rank\n", None, "no rows", ""),
    ("votes.csv", "", None, "an empty file", ""),
    ("votes.jsonl", "\n", None, "an empty file", ""),
    ("votes.doc", "x", None, "suffix '.doc'", ""),
    ("votes.csv.zip", "x", None, "suffix '.zip'", ""),
    ("votes.parquet", "no parquet", None, "a damaged file", ""),
]


@pytest.mark.parametrize(("name", "text", "line", "found", "remedy"), BAD_HEADERS)
def test_bad_headers(tmp_path: Path, name: str, text: str, line: int | None, found: str, remedy: str) -> None:
    file = text_file(tmp_path, text, name)
    with pytest.raises(InputError) as caught:
        read(file)
    assert (caught.value.file, caught.value.line) == (str(file), line)
    assert caught.value.found.startswith(found)
    assert remedy in caught.value.remedy
    assert caught.value.expected


GOOD_JSON = '{"expert": "e", "item": "a", "rank": 1}\n\n'
BAD_JSON = [
    ('{"expert": "e", "item": "b", "rank": }', "broken JSON"),
    ('["e", "b", 1]', """'["e", "b", 1]'"""),
    ('{"expert": "e", "item": "b", "rank": 0}', "rank '0.0'"),
    ('{"expert": "e", "item": "b", "rank": NaN}', "rank 'nan'"),
    ('{"expert": "e", "item": "b", "rank": "x"}', "rank 'x'"),
    ('{"expert": "e", "item": "b", "rank": [1]}', "rank [1]"),
    ('{"expert": "e", "item": "b", "rank": true}', "rank 'True'"),
    ('{"expert": "e", "item": "b"}', "an empty rank"),
    ('{"expert": "e", "item": null, "rank": 1}', "an empty item"),
    ('{"expert": "e", "item": 1.0, "rank": 1}', "item 1.0"),
    ('{"expert": "e", "item": "b", "rank": 1, "query": "q"}', "column 'query'"),
]


@pytest.mark.parametrize(("row", "found"), BAD_JSON, ids=[found for _, found in BAD_JSON])
def test_bad_json(tmp_path: Path, row: str, found: str) -> None:
    file = text_file(tmp_path, GOOD_JSON + row + "\n" + GOOD_JSON, "votes.jsonl")
    with pytest.raises(InputError) as caught:
        read(file)
    assert (caught.value.file, caught.value.line) == (str(file), 3)
    assert caught.value.found.startswith(found)


def test_json_that_is_not_utf8(tmp_path: Path) -> None:
    file = text_file(tmp_path, GOOD_JSON.encode() + b'{"expert": "e", "item": "\xff", "rank": 1}\n', "votes.jsonl")
    with pytest.raises(InputError, match=r"votes.jsonl:3: found .*UTF-8"):
        read(file)


@pytest.mark.parametrize(
    ("column", "values", "row", "found"),
    [
        ("item", [1.5, 2.5], 1, "item '1.5'"),
        ("rank", [True, False], 1, "rank 'True'"),
        ("rank", [1.0, None], 2, "an empty rank"),
        ("expert", ["e", ""], 2, "an empty expert"),
    ],
)
def test_bad_parquet_names_the_row(tmp_path: Path, column: str, values: list, row: int, found: str) -> None:
    columns = {"expert": ["e", "f"], "item": ["a", "b"], "rank": [1.0, 2.0]} | {column: values}
    pq.write_table(pa.table(columns), tmp_path / "votes.parquet")
    with pytest.raises(InputError) as caught:
        read(tmp_path / "votes.parquet")
    assert (caught.value.line, caught.value.found) == (row, found)


def test_cut_gzip(tmp_path: Path) -> None:
    data = gzip.compress(HEAD.encode() * 50)
    with pytest.raises(InputError, match="a broken gzip stream"):
        read(text_file(tmp_path, data[:-12], "votes.csv.gz"))


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_locate(tmp_path: Path, form: str) -> None:
    file = write(tmp_path, ROWS, form)
    source, first = RankingsSource([file]), 2 if form == "csv" else 1
    assert source.locate("q1", "007", "a") == [(str(file), first)]
    assert source.locate("q1", None, "a") == [(str(file), first), (str(file), first + 2)]
    assert source.locate("q1", None, "b") == []  # it has no label
    assert source.locate("q1", "007", "b") == [(str(file), first + 1)]
    assert source.locate("all", None, "a") == []


IDS = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=5)
TABLES = st.lists(
    st.fixed_dictionaries(
        {
            "query": IDS,
            "expert": IDS,
            "item": IDS,
            "rank": st.floats(1e-300, 1e300),
            "score": st.floats(allow_nan=False, allow_infinity=False),
        }
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(rows=TABLES, form=st.sampled_from(FORMATS), block=st.sampled_from([256, 1 << 20]))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[dict], form: str, block: int) -> None:
    file = write(tmp_path_factory.mktemp("rankings"), rows, form)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(longtable, "BLOCK_BYTES", block)
        patch.setattr(longtable, "BLOCK_ROWS", block // 64)
        assert read(file)[1] == rows
