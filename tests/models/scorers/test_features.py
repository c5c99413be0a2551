"""Features of lists: what the rows hold, the table, what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from strategies import Query, build_chunk

import distagg
from distagg.dataset import Dataset
from distagg.errors import UsageError
from distagg.models.scorers.features import FeatureSettings, chunk_features, kept_features

LISTS = pa.table(
    {
        "query": ["p", "p", "p", "p", "p", "q", "q"],
        "expert": ["a", "a", "b", "b", "b", "a", "a"],
        "item": ["x", "y", "y", "z", "x", "u", "v"],
        "rank": [1.0, 3.0, 1.0, 2.0, 2.0, 4.0, 8.0],
        "label": pa.array([1, 0, 0, 2, 1, 1, None], pa.int32()),
    }
)


def test_the_table_has_a_column_for_every_expert_and_feature():
    table = distagg.features(Dataset.from_arrow(LISTS))
    assert table.column_names == [
        "query", "item", "a:u1", "a:s1", "a:v1", "a:missing", "b:u1", "b:s1", "b:v1", "b:missing", "label",
    ]  # fmt: skip
    rows = {row["item"]: row for row in table.to_pylist()}
    assert set(rows) == {"x", "y", "z", "u", "v"}
    # expert a in query p: Y has the one entry (x, y), 1 after dividing by log 3; three items.
    assert rows["x"]["a:u1"] == pytest.approx(np.sqrt(3))
    assert rows["y"]["a:v1"] == pytest.approx(np.sqrt(3))
    assert rows["x"]["a:s1"] == pytest.approx(1 / 3)
    assert [rows["z"][f"a:{name}"] for name in ("u1", "s1", "v1", "missing")] == [0.0, 0.0, 0.0, 1.0]
    assert rows["u"]["b:missing"] == 1.0
    assert rows["x"]["b:missing"] == 0.0
    assert rows["x"]["b:v1"] == rows["z"]["b:v1"]  # tied there
    assert [rows[i]["label"] for i in "xyzuv"] == [1, 0, 2, 1, None]


def test_other_kinds_of_features():
    data = Dataset.from_arrow(LISTS)
    borda = {row["item"]: row for row in distagg.features(data, kind="borda").to_pylist()}
    assert [borda[i]["b:points"] for i in "yzx"] == pytest.approx([2 / 3, 0.5 / 3, 0.5 / 3])
    combined = distagg.features(data, combined=True)
    assert combined.column_names[2:-1] == ["all:u1", "all:s1", "all:v1", "all:missing"]
    assert distagg.features(data, kind="cp", rank=2).column_names[2:-1] == [
        "all:u1",
        "all:u2",
        "all:v1",
        "all:v2",
        "all:missing",
    ]
    assert len(distagg.features(data, pairs="all", rank=2).column_names) == 3 + 2 * (3 * 6 + 1)


def test_rows_by_entry_agree_with_the_table():
    data = Dataset.from_arrow(LISTS)
    chunk = data.plan()[0].load()
    features = chunk_features(chunk, FeatureSettings())
    assert len(features.item) == chunk.n_entries
    assert (features.values[:, -1] == -1.0).all()
    table = distagg.features(data)
    for n in range(chunk.n_entries):
        expert = data.experts[features.expert[n]]
        row = int(chunk.entry_row()[n])
        assert table[f"{expert}:u1"][row].as_py() == features.values[n, 0]


def test_combined_rows_leave_out_items_in_no_list():
    chunk = build_chunk([Query(4, {0: {0: 1.0, 2: 2.0}}), Query(2)])
    features = chunk_features(chunk, FeatureSettings(kind="borda", combined=True))
    assert features.offsets.tolist() == [0, 2, 2]
    assert features.item.tolist() == [0, 2]
    assert features.expert.tolist() == [0, 0]


def test_what_cannot_be_made_is_refused():
    ratings = build_chunk([Query(2, {0: {0: -5.0, 1: -3.0}})])
    with pytest.raises(UsageError, match="pairs=log needs ranks above 0"):
        chunk_features(ratings, FeatureSettings())
    for kind in ("svd", "cp"):
        assert np.isfinite(chunk_features(ratings, FeatureSettings(kind, pairs="difference")).values).all()
    with pytest.raises(UsageError, match="svd"):
        FeatureSettings(kind="svdd")
    with pytest.raises(UsageError, match="log"):
        FeatureSettings(pairs="logs")
    with pytest.raises(UsageError, match="from 1 on"):
        FeatureSettings(rank=0)
    pairs = pa.table({"winner": ["x"], "loser": ["y"]})
    with pytest.raises(UsageError, match="holds pairs"):
        distagg.features(Dataset.from_arrow(pairs))


@pytest.mark.parametrize("kind", ["svd", "borda", "cp"])
def test_features_of_kept_items_are_those_of_whole_queries(kind):
    rng = np.random.default_rng(3)
    lists = [{e: {int(i): n + 1.0 for n, i in enumerate(rng.permutation(9)[:5])} for e in (0, 2)} for _ in range(4)]
    chunk = build_chunk([Query(9, lists[0]), Query(4, {}), *(Query(9, some) for some in lists[1:])], n_experts=3)
    kept = rng.random(chunk.n_items) < 0.4
    whole = chunk_features(chunk, FeatureSettings(kind))
    some = kept_features(chunk, whole, kept)
    cut = chunk.keep_items(kept)

    def rows(features, offsets, names):
        of = np.repeat(np.arange(chunk.n_queries), np.diff(features.offsets))
        items = names[offsets[of] + features.item]
        return [(int(i), int(e), tuple(v)) for i, e, v in zip(items, features.expert, features.values, strict=True)]

    every = rows(whole, chunk.item_offsets, np.arange(chunk.n_items))
    expected = [row for row in every if kept[row[0]]]
    assert 0 < len(expected) < len(every)
    assert rows(some, cut.item_offsets, np.flatnonzero(kept)) == expected
