"""Battles as arenas and evalica write them: outcomes in words, nested JSON, two sides."""

import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from distagg.dataset import Dataset
from distagg.engine.data import as_dataset
from distagg.engine.importing import import_dataset
from distagg.errors import InputError, UsageError

TOKENS = "conv_metadata.sum_assistant_a_tokens-conv_metadata.sum_assistant_b_tokens"


def battle(a, b, winner, tokens, **more):
    counts = {"sum_assistant_a_tokens": tokens[0], "sum_assistant_b_tokens": tokens[1], "bold_count_a": {"**": 1}}
    return {
        "model_a": a,
        "model_b": b,
        "winner": winner,
        "tstamp": 1682351591.5,
        "turn": 2,
        **more,
        "conv_metadata": counts,
    }


BATTLES = [
    battle("x", "y", "model_a", (10, 3), language="en"),
    battle("y", "z", "tie (bothbad)", (7, 30), language="de"),
    battle("z", "x", "model_b", (8, 12), language="en"),
    battle("z", "y", "both_bad", (1, 2), language="en"),
]


def files(folder):
    array, lines, parquet = (folder / f"arena.{ending}" for ending in ("json", "jsonl", "parquet"))
    array.write_text(json.dumps(BATTLES, indent=2))
    lines.write_text("".join(json.dumps(row) + "\n" for row in BATTLES))
    pq.write_table(pa.Table.from_pylist(BATTLES), parquet)
    return array, lines, parquet


def test_json_json_lines_and_parquet_are_the_same(tmp_path):
    wanted = f"{TOKENS},turn,position,language"
    tables = []
    for number, file in enumerate(files(tmp_path)):
        dataset = import_dataset(None, file, tmp_path / f"d{number}", covariates=wanted)
        tables.append(Dataset.open(tmp_path / f"d{number}").to_arrow())
        assert dataset.manifest.covariates[0].name == "conv_metadata.sum_assistant_tokens"
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])
    rows = tables[0].to_pylist()
    assert [(row["winner"], row["loser"], row["tie"]) for row in rows] == [
        ("x", "y", False), ("y", "z", True), ("x", "z", False), ("z", "y", True),
    ]  # fmt: skip
    stem = "conv_metadata.sum_assistant_tokens"
    assert [(row[f"{stem}_winner"], row[f"{stem}_loser"]) for row in rows] == [(10, 3), (7, 30), (12, 8), (1, 2)]
    assert [row["turn"] for row in rows] == [2, 2, -2, 2]


@pytest.mark.parametrize("ending", ["json", "jsonl", "parquet"])
def test_a_missing_cell_is_refused_with_its_row(tmp_path, ending):
    broken = [
        *BATTLES[:2],
        {**BATTLES[2], "conv_metadata": {**BATTLES[2]["conv_metadata"], "sum_assistant_b_tokens": None}},
    ]
    file = tmp_path / f"arena.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(broken), file)
    else:
        file.write_text(json.dumps(broken) if ending == "json" else "".join(json.dumps(row) + "\n" for row in broken))
    with pytest.raises(InputError, match=r":3: found an empty conv_metadata.sum_assistant_b_tokens"):
        import_dataset("pairs", file, covariates=TOKENS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"model_a": "x"}', "expected an array of objects"),
        ('[{"model_a": "x", "model_b": "y", "winner": "model_a"}, {"model_a": ', "broken JSON in object 2"),
        ('[{"model_a": "x", "model_b": "y", "winner": "model_a"}, 5]', ":2: found 5, expected one JSON object"),
        ("[]", "an empty file"),
    ],
)
def test_what_is_no_array_of_objects_is_refused(tmp_path, text, message):
    file = tmp_path / "arena.json"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        import_dataset("pairs", file)


def test_objects_longer_than_a_piece(tmp_path, monkeypatch):
    monkeypatch.setattr("distagg.sources.cells.PIECE", 7)
    assert import_dataset("pairs", files(tmp_path)[0]).manifest.entries == 4


def test_tables_of_evalica(tmp_path):
    file = tmp_path / "food.csv"
    file.write_text(
        "left,right,winner,words_left,words_right\nPizza,Sushi,left,3,5\nBurger,Pizza,Right,2,9\nPizza,Sushi,TIE,4,4\n"
    )
    dataset = import_dataset(None, file, covariates="words")
    rows = dataset.to_arrow().to_pylist()
    assert [(row["winner"], row["loser"], row["tie"]) for row in rows] == [
        ("Pizza", "Sushi", False), ("Pizza", "Burger", False), ("Pizza", "Sushi", True),
    ]  # fmt: skip
    assert [(row["words_winner"], row["words_loser"]) for row in rows] == [(3, 5), (9, 2), (4, 4)]
    frame = pa.csv.read_csv(file).to_pandas()
    assert (
        as_dataset(frame, covariates="words")
        .to_arrow()
        .drop_columns("weight")
        .equals(dataset.to_arrow().drop_columns("weight"))
    )


def test_frames_with_cells_that_are_missing():
    table = pa.table({"left": ["x", "y"], "right": ["y", "x"], "winner": ["left", "left"], "t": [1.0, None]})
    with pytest.raises(InputError, match="<table>:2: found an empty t"):
        as_dataset(table, covariates="t")
    words = table.set_column(3, "t", [["a", None]])
    with pytest.raises(InputError, match="<table>:2: found an empty t"):
        as_dataset(words, covariates="t")
    with pytest.raises(UsageError, match="column for a covariate"):
        as_dataset(table, covariates="u")
