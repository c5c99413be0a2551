from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distagg.errors import InputError
from distagg.sources import tables as longtable
from distagg.sources.observed_pairs import PairsSource
from distagg.types import PAIRS


def write(folder: Path, text: str, name: str = "games.csv") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8", newline="")
    return file


def read(*files: Path) -> list[dict]:
    rows = []
    for table in PairsSource(files).tables():
        assert table.kind == "pairs"
        assert table.table.cast(PAIRS).schema.equals(PAIRS)
        rows += table.table.to_pylist()
    return rows


def pair(winner: str, loser: str, **other: object) -> dict:
    return {"query": "all", "expert": "all", "winner": winner, "loser": loser, "weight": 1.0, "tie": False} | other


def test_defaults_and_all_columns(tmp_path: Path) -> None:
    assert read(write(tmp_path, "winner,loser\n01,b\n")) == [pair("01", "b")]
    text = "query\texpert\twinner\tloser\tweight\ttie\nq\te\ta\tb\t0\tTRUE\nq\te\tb\tc\t2.5\t0\n"
    assert read(write(tmp_path, text, "games.tsv")) == [
        pair("a", "b", query="q", expert="e", weight=0.0, tie=True),
        pair("b", "c", query="q", expert="e", weight=2.5),
    ]


def test_partition_and_part(tmp_path: Path) -> None:
    plain, asked = write(tmp_path, "winner,loser\na,b\n"), write(tmp_path, "query,winner,loser\nq,a,b\n", "asked.csv")
    assert PairsSource([plain]).partition == "expert"
    assert PairsSource([asked]).partition == "query"
    assert [table.part for table in PairsSource([plain]).tables()] == ["games.csv"]
    assert [table.part for table in PairsSource([plain, plain]).tables()] == ["", ""]


@pytest.mark.parametrize("tie", [True, 1, "true", "1", 1.0])
def test_ties_in_json_and_parquet(tmp_path: Path, tie: object) -> None:
    rows = [{"winner": "a", "loser": "b", "tie": tie}]
    if tie != 1.0 or isinstance(tie, bool | int):
        assert read(write(tmp_path, json.dumps(rows[0]), "games.jsonl")) == [pair("a", "b", tie=True)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "games.parquet")
    assert read(tmp_path / "games.parquet") == [pair("a", "b", tie=True)]


BATTLES = [
    ("model_a", "x", "y", False),
    ("model_b", "y", "x", False),
    ("tie", "x", "y", True),
    ("tie (bothbad)", "x", "y", True),
    ("both_bad", "x", "y", True),
]


def test_battles(tmp_path: Path) -> None:
    expected = [pair(winner, loser, tie=tie) for _, winner, loser, tie in BATTLES]
    text = "question_id,model_a,model_b,winner,turn\n" + "".join(f"7,x,y,{word},1\n" for word, *_ in BATTLES)
    assert read(write(tmp_path, text)) == expected
    rows = [{"model_a": "x", "model_b": "y", "winner": word, "conversation": [{"role": "u"}]} for word, *_ in BATTLES]
    assert read(write(tmp_path, "\n".join(map(json.dumps, rows)), "games.jsonl")) == expected
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "games.parquet")
    assert read(tmp_path / "games.parquet") == expected


@pytest.mark.parametrize("name", ["judge", "annotator", "worker", "user"])
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_the_judge_is_the_expert(name: str, form: str, tmp_path: Path) -> None:
    rows = [{"model_a": "x", "model_b": "y", "winner": "model_a", name: who, "turn": 1} for who in ("ann", "bob")]
    file = tmp_path / f"games.{form}"
    if form == "csv":
        file.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]) + "\n")
    elif form == "jsonl":
        file.write_text("\n".join(map(json.dumps, rows)))
    else:
        pq.write_table(pa.Table.from_pylist(rows), file)
    assert read(file) == [pair("x", "y", expert="ann"), pair("x", "y", expert="bob")]


def test_two_that_may_be_the_expert_are_neither(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "model_a,model_b,winner,judge,user\nx,y,model_a,j,u\n"
    with caplog.at_level("INFO", "distagg"):
        assert read(write(tmp_path, text)) == [pair("x", "y")]
    assert "columns that are not read: judge, user" in caplog.text


def test_columns_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "question_id,model_a,model_b,winner,judge,turn\n7,x,y,model_a,ann,1\n"
    with caplog.at_level("INFO", "distagg"):
        read(write(tmp_path, text))
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "column 'judge' is read as expert",
        "columns that are not read: question_id, turn",
    ]


PLAIN = "winner,loser,expert,weight,tie\na,b,e,1,0\n\n"
BAD = [
    (PLAIN, "a,a,e,1,0", "'a' against itself", "two different items"),
    (PLAIN, "a,,e,1,0", "an empty loser", "an id"),
    (PLAIN, "a,b,,1,0", "an empty expert", "an id"),
    (PLAIN, "a,b,e,-1,0", "weight '-1'", "a finite number of at least 0"),
    (PLAIN, "a,b,e,inf,0", "weight 'inf'", "a finite number of at least 0"),
    (PLAIN, "a,b,e,nan,0", "weight 'nan'", "a finite number of at least 0"),
    (PLAIN, "a,b,e,much,0", "weight 'much'", "a finite number of at least 0"),
    (PLAIN, "a,b,e,,0", "an empty weight", "a finite number of at least 0"),
    (PLAIN, "a,b,e,1,2", "tie '2'", "0, 1, true or false"),
    (PLAIN, "a,b,e,1,", "an empty tie", "0, 1, true or false"),
    (PLAIN, "a,b,e,1", "4 values", "5 values"),
    ("model_a,model_b,winner\na,b,tie\n\n", "a,b,a", "winner 'a'", "one of model_a, model_b, tie"),
    ("model_a,model_b,winner\na,b,tie\n\n", "a,a,tie", "'a' against itself", "two different items"),
]


@pytest.mark.parametrize(("head", "row", "found", "expected"), BAD, ids=[found for _, _, found, _ in BAD])
@pytest.mark.parametrize("block", [128, 1 << 20])
def test_bad_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str, row: str, found: str, expected: str, block: int
) -> None:
    monkeypatch.setattr(longtable, "BLOCK_BYTES", block)
    good = head.split("\n")[1] + "\n"
    file = write(tmp_path, head + good * 100 + row + "\n" + good)
    with pytest.raises(InputError) as caught:
        read(file)
    assert (caught.value.file, caught.value.line, caught.value.found) == (str(file), 104, found)
    assert caught.value.expected.startswith(expected)
    assert str(caught.value).startswith(f"{file}:104: found {found}, expected {expected}")


@pytest.mark.parametrize(
    ("header", "found", "remedy"),
    [
        ("winer,loser", "unknown column 'winer'", "did you mean 'winner'?"),
        ("winner,expert", "no column 'loser'", ""),
        ("model_a,winner", "unknown column 'model_a'", ""),
    ],
)
def test_bad_headers(tmp_path: Path, header: str, found: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        PairsSource([write(tmp_path, header + "\na,b\n")])
    assert (caught.value.line, caught.value.found) == (1, found)
    assert remedy in caught.value.remedy


def test_locate(tmp_path: Path) -> None:
    file = write(tmp_path, "query,expert,winner,loser\nq,e,a,b\nq,f,b,c\nr,e,a,b\n")
    source = PairsSource([file])
    assert source.locate("q", None, "b") == [(str(file), 2), (str(file), 3)]
    assert source.locate("q", "f", "b") == [(str(file), 3)]
    assert source.locate("q", "e", "c") == []


IDS = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=5)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"query": IDS, "expert": IDS, "winner": IDS, "loser": IDS, "weight": st.floats(0, 1e300), "tie": st.booleans()}
    ).filter(lambda row: row["winner"] != row["loser"]),
    min_size=1,
    max_size=15,
)


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, form=st.sampled_from(["csv", "jsonl", "parquet"]))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[dict], form: str) -> None:
    file = tmp_path_factory.mktemp("pairs") / f"games.{form}"
    table = pa.Table.from_pylist(rows)
    if form == "csv":
        pa.csv.write_csv(table, file)
    elif form == "parquet":
        pq.write_table(table, file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert read(file) == rows
