"""Tables in memory to datasets and back."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distagg.dataset import Dataset, frames, write_dataset
from distagg.dataset.frames import TableSource
from distagg.errors import InputError, UsageError
from distagg.types import NO_LABEL
from tests.dataset.naive import read_back

ROWS = {
    "query": ["q", "q", "q", "p"],
    "expert": ["a", "a", "b", "b"],
    "item": ["x", "y", "x", "z"],
    "rank": [2.0, 1.0, 1.0, 1.0],
    "label": [1, None, 1, 0],
}


def test_lists_with_labels() -> None:
    dataset = Dataset.from_arrow(pa.table(ROWS))
    manifest = dataset.manifest
    assert (manifest.queries, manifest.items, manifest.lists, manifest.entries) == (2, 3, 3, 4)
    assert manifest.labels == {"0": 1, "1": 1}
    assert (manifest.scores, manifest.positive, manifest.partition) == (False, True, "query")
    assert dataset.experts == ("a", "b")
    queries = read_back(dataset)
    assert queries["q"].lists == {"a": [("y", 1.0, None), ("x", 2.0, None)], "b": [("x", 1.0, None)]}
    assert queries["q"].labels == {"x": 1}


def test_scores_become_competition_ranks() -> None:
    table = pa.table({"expert": ["a"] * 4, "item": list("wxyz"), "score": [0.1, 5.0, 0.1, 0.0]})
    chunk = next(Dataset.from_arrow(table).chunks())
    assert chunk.query_ids.to_pylist() == ["all"]
    assert chunk.entry_rank.tolist() == [1.0, 2.0, 2.0, 4.0]
    assert chunk.entry_score.tolist() == [5.0, 0.1, 0.1, 0.0]


def test_labels_declare_items_and_judgements_do_not() -> None:
    table = pa.table({key: ROWS[key] for key in ("query", "expert", "item", "rank")})
    labels = pa.table({"query": ["q", "q"], "item": ["unlisted", "y"], "label": [2, 0]})
    judgements = pa.table({"query": ["q", "q", "r"], "item": ["x", "elsewhere", "x"], "label": [1, 3, 1]})
    query = read_back(Dataset.from_arrow(table, labels=labels, judgements=judgements))["q"]
    assert query.items == ["unlisted", "y", "x"]
    assert query.labels == {"unlisted": 2, "y": 0, "x": 1}
    assert query.missed == [3]


def test_pairs() -> None:
    table = pa.table({"winner": ["x", "y", "x"], "loser": ["y", "z", "z"], "tie": [False, True, False]})
    dataset = Dataset.from_arrow(table)
    assert (dataset.manifest.kind, dataset.manifest.entries, dataset.manifest.ties) == ("pairs", 3, 1)
    assert dataset.to_arrow().to_pydict() == {
        "query": ["all"] * 3,
        "expert": ["all"] * 3,
        "winner": ["x", "y", "x"],
        "loser": ["y", "z", "z"],
        "weight": [1.0] * 3,
        "tie": [False, True, False],
    }


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    keys = draw(st.lists(st.tuples(*[st.sampled_from("abcd")] * 3), unique=True, min_size=1, max_size=30))
    ranks = draw(st.lists(st.floats(0.5, 9), min_size=len(keys), max_size=len(keys)))
    query, expert, item = (list(column) for column in zip(*keys, strict=True))
    return pa.table({"query": query, "expert": expert, "item": item, "rank": ranks})


@given(tables())
def test_there_and_back(table: pa.Table) -> None:
    dataset = Dataset.from_arrow(table)
    back = dataset.to_arrow()
    assert sorted(map(str, back.to_pylist())) == sorted(map(str, table.to_pylist()))
    again = Dataset.from_arrow(back).to_arrow()
    assert again["query"].to_pylist() == back["query"].to_pylist()
    assert sorted(map(str, again.to_pylist())) == sorted(map(str, back.to_pylist()))
    assert len(dataset.held) == len(dataset.manifest.blocks)


def test_memory_and_disk_hold_the_same(tmp_path: Path) -> None:
    table = pa.table(ROWS)
    write_dataset(TableSource(table), tmp_path / "d")
    assert read_back(Dataset.open(tmp_path / "d")) == read_back(Dataset.from_arrow(table))


def test_many_blocks_match_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "BLOCK_ENTRIES", 2)
    dataset = Dataset.from_arrow(pa.table(ROWS))
    assert [ref.load().n_queries for ref in dataset.plan()] == [1, 1]
    assert [ref.load().positions.tolist() for ref in dataset.plan()] == [[0], [1]]


def test_pandas_and_polars() -> None:
    expected = Dataset.from_arrow(pa.table(ROWS)).to_arrow().to_pylist()
    frame = pd.DataFrame({**ROWS, "expert": pd.Categorical(ROWS["expert"], categories=["b", "unused", "a"])})
    assert frame["label"].dtype == np.float64  # NaN for the missing label
    from_pandas = Dataset.from_pandas(frame)
    assert from_pandas.to_arrow().to_pylist() == expected
    assert from_pandas.experts == ("a", "b")
    assert from_pandas.to_pandas()["item"].tolist() == [row["item"] for row in expected]
    from_polars = Dataset.from_polars(pl.DataFrame(ROWS))
    assert from_polars.to_arrow().to_pylist() == expected
    assert from_polars.to_polars()["item"].to_list() == [row["item"] for row in expected]
    labels = pd.DataFrame({"item": ["x"], "label": [3]})
    plain = pd.DataFrame({"expert": [7], "item": ["x"], "rank": [1]})
    dataset = Dataset.from_pandas(plain, labels=labels)
    assert dataset.experts == ("7",)
    assert dataset.manifest.labels == {"3": 1}


def test_no_label_is_null_on_the_way_back() -> None:
    dataset = Dataset.from_arrow(pa.table(ROWS))
    assert NO_LABEL not in dataset.to_arrow()["label"].to_pylist()


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("rank", 0.0, "rank 0.0"),
        ("rank", -1.0, "rank -1.0"),
        ("rank", math.nan, "rank nan"),
        ("rank", math.inf, "rank inf"),
        ("rank", None, "rank None"),
        ("label", 0.5, "label 0.5"),
        ("item", None, "item None"),
        ("expert", "", "expert ''"),
    ],
)
def test_bad_cells_name_their_row(column: str, value: object, said: str) -> None:
    values = [*ROWS[column][:2], value, *ROWS[column][3:]]
    with pytest.raises(InputError, match=rf"^<table>:3: found {said}, expected"):
        Dataset.from_arrow(pa.table({**ROWS, column: values}))


def test_bad_scores_and_types() -> None:
    with pytest.raises(InputError, match=r"^<table>:2: found score inf"):
        Dataset.from_arrow(pa.table({"expert": ["a", "a"], "item": ["x", "y"], "score": [1.0, math.inf]}))
    with pytest.raises(InputError, match="column item of type double"):
        Dataset.from_arrow(pa.table({"expert": ["a"], "item": [1.5], "rank": [1]}))
    with pytest.raises(InputError, match="column rank of type string"):
        Dataset.from_arrow(pa.table({"expert": ["a"], "item": ["x"], "rank": ["first"]}))


def test_columns_are_checked() -> None:
    with pytest.raises(UsageError, match="unknown column of table 'qery'; did you mean 'query'"):
        Dataset.from_arrow(pa.table({"qery": ["q"], "expert": ["a"], "item": ["x"], "rank": [1]}))
    with pytest.raises(UsageError, match=r"no column expert, rank \(or score\)"):
        Dataset.from_arrow(pa.table({"item": ["x"]}))
    with pytest.raises(UsageError, match="no column loser"):
        Dataset.from_arrow(pa.table({"winner": ["x"]}))
    with pytest.raises(UsageError, match="unknown column of labels 'labels'; did you mean 'label'"):
        Dataset.from_arrow(pa.table(ROWS), labels=pa.table({"item": ["x"], "labels": [1]}))


def test_clashes_name_the_second_row() -> None:
    twice = {key: [*values, values[0]] for key, values in ROWS.items()}
    with pytest.raises(InputError, match=r"^<table>:5: found item 'x' again .*first at <table>:1"):
        Dataset.from_arrow(pa.table(twice))
    with pytest.raises(InputError, match=r"^<table>:3: found another label for item 'x'"):
        Dataset.from_arrow(pa.table({**ROWS, "label": [1, None, 2, 0]}))
    with pytest.raises(InputError, match=r"^<table>:2: found item 'y' of query 'all' paired with itself"):
        Dataset.from_arrow(pa.table({"winner": ["y", "y"], "loser": ["x", "y"]}))


def test_empty_table() -> None:
    with pytest.raises(InputError, match="empty"):
        Dataset.from_arrow(pa.table({"expert": pa.array([], pa.string()), "item": pa.array([], pa.string()),
                                     "rank": pa.array([], pa.float64())}))  # fmt: skip


@pytest.mark.parametrize("block", [1, 3, 1 << 20])
def test_pairs_mention_items_in_their_order(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr("distagg.dataset.build.positions.BLOCK", block)
    table = pa.table({"winner": ["d", "b", "d", "a"], "loser": ["c", "d", "b", "c"]})
    chunk = next(Dataset.from_arrow(pa.concat_tables([table.slice(0, 1), table.slice(1)])).chunks())
    assert chunk.item_ids.to_pylist() == ["d", "c", "b", "a"]
    assert chunk.pair_winner.tolist() == [0, 2, 0, 3]
    assert chunk.pair_loser.tolist() == [1, 0, 2, 1]
    labels = pa.table({"query": ["all", "all"], "item": ["x", "b"], "label": [1, 2]})
    chunk = next(Dataset.from_arrow(table, labels=labels).chunks())
    assert chunk.item_ids.to_pylist() == ["x", "b", "d", "c", "a"]
    assert chunk.pair_loser.tolist() == [3, 2, 1, 3]


@pytest.mark.parametrize("name", ["judge", "annotator", "worker", "user"])
def test_other_names_of_the_expert(name: str) -> None:
    pairs = pa.table({"winner": ["a", "b"], "loser": ["b", "c"], name: ["x", "y"]})
    assert Dataset.from_arrow(pairs).experts == ("x", "y")
    lists = pa.table({"item": ["a", "b"], "rank": [1, 2], name: ["x", "y"]})
    assert Dataset.from_arrow(lists).experts == ("x", "y")
