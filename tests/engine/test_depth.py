"""depth takes the first entries of each list, and top the first items of each ranking, wherever models run."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from distagg import Dataset, Shown, compare, explain, fit, rank, solve
from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models import model_named

DEPTH = 2


def long_table(seed=0, queries=6, items=5, experts=3):
    draw = np.random.default_rng(seed)
    rows = [
        {"query": f"q{q}", "expert": f"e{e}", "item": f"i{item}", "rank": float(place + 1), "label": int(item < 2)}
        for q in range(queries)
        for e in range(experts)
        for place, item in enumerate(draw.permutation(items))
    ]
    return pa.Table.from_pylist(rows)


TABLE = long_table()
WHOLE = Dataset.from_arrow(TABLE)
ITEMS = TABLE.select(["query", "item", "label"]).group_by(["query", "item", "label"]).aggregate([])
CUT = Dataset.from_arrow(TABLE.filter(pc.less_equal(TABLE["rank"], DEPTH)).drop_columns(["label"]), labels=ITEMS)


def by_item(ranking):
    return {(row["query"], row["item"]): row["score"] for row in ranking.to_pylist()}


def test_a_chunk_keeps_the_first_entries_and_those_that_tie_with_the_last():
    table = pa.table({"expert": ["a"] * 4 + ["b"], "item": list("wxyzw"), "rank": [1, 2, 2, 3, 1]})
    (chunk,) = Dataset.from_arrow(table).chunks()
    kept = chunk.shallow(2)
    assert isinstance(kept, Chunk)
    assert (kept.entry_offsets.tolist(), kept.entry_rank.tolist()) == ([0, 3, 4], [1, 2, 2, 1])
    assert kept.n_items == 4
    assert chunk.shallow(0) is chunk
    assert chunk.shallow(4) is chunk


@pytest.mark.parametrize("name", ["rrf", "borda", "mean", "median", "combsum", "condorcet", "mc4"])
def test_depth_equals_lists_cut_before_import(name):
    here, there = by_item(rank(name, WHOLE, depth=DEPTH)), by_item(rank(name, CUT))
    assert here.keys() == there.keys()
    np.testing.assert_allclose([here[key] for key in there], list(there.values()), rtol=1e-9)


def test_depth_of_models_that_learn():
    for name, settings in (("crf", {"rounds": 3}), ("bestinput", {}), ("rrf", {"c": "auto"})):
        fitted = fit(name, WHOLE, depth=DEPTH, **settings)
        other = fit(name, CUT, **settings)
        here, there = by_item(rank(fitted, WHOLE)), by_item(rank(other, CUT))
        np.testing.assert_allclose([here[key] for key in there], list(there.values()), rtol=1e-9)


def test_depth_in_compare_and_explain():
    assert (
        compare(WHOLE, ["rrf"], settings={"rrf": {"depth": DEPTH}}, metrics=["map"])["means"]
        == compare(CUT, ["rrf"], metrics=["map"])["means"]
    )
    fitted = fit("rrf", WHOLE, depth=DEPTH)
    explained = explain(fitted, WHOLE, "q0")
    assert sum(len(row["ranks"]) for row in explained["items"]) == 3 * DEPTH
    folded = compare(WHOLE, ["rrf"], settings={"rrf": {"depth": "1,5"}}, folds="3", metrics=["map"])
    assert {row["depth"] for row in folded["chosen"]["rrf"]} <= {1, 5}


def test_top_keeps_the_first_items():
    everything = rank("rrf", WHOLE).to_pylist()
    assert rank("rrf", WHOLE, top=2).to_pylist() == [row for row in everything if row["rank"] <= 2]
    assert solve("rrf", WHOLE, shown=Shown(top=2, support=True)).ranking.num_rows == 12
    with pytest.raises(UsageError, match="top: found -1"):
        rank("rrf", WHOLE, top=-1)


def test_depth_is_refused_where_there_are_no_lists():
    pairs = Dataset.from_arrow(pa.table({"winner": ["a"], "loser": ["b"]}))
    with pytest.raises(UsageError, match="depth=3 cuts lists, but the dataset holds pairs"):
        rank("borda", pairs, depth=3)
    with pytest.raises(UsageError, match="depth of rrf: found -1"):
        model_named("rrf", {"depth": -1})
