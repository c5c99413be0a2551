from __future__ import annotations

import itertools
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distagg.errors import UsageError
from distagg.sources.planted import DEPTH, _distinct
from distagg.sources.synthetic import SHAPES, SyntheticSource
from distagg.types import ITEMS


def gather(source: SyntheticSource) -> tuple[pa.Table, pa.Table, list[str]]:
    """Items and entries in one table each, and the part of every item."""
    items, entries, parts = [], [], []
    for table in source.tables():
        plain = table.table.cast(
            pa.schema([(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in table.table.schema])
        )
        (items if table.kind == "items" else entries).append(plain)
        if table.kind == "items":
            assert plain.schema.equals(ITEMS)
            parts += [table.part] * len(plain)
    return pa.concat_tables(items).combine_chunks(), pa.concat_tables(entries).combine_chunks(), parts


@pytest.mark.parametrize("shape", SHAPES)
def test_looks_like_the_real_data(shape: str) -> None:
    like = SHAPES[shape]
    source = SyntheticSource(shape=shape, seed=4)
    items, entries, _ = gather(source)
    n_items = len(items)
    assert abs(n_items / like.queries / like.items - 1) < 0.12
    assert abs(1 - len(entries) / (n_items * like.experts) - like.missing) < 0.01
    labels = items["label"].to_numpy()
    assert abs((labels >= 1).mean() - like.relevant[0]) < 0.02
    assert abs((labels == 2).mean() - like.relevant[1]) < 0.02
    assert len(set(entries["expert"].to_pylist())) == like.experts
    assert source.partition == ("expert" if shape == "movielens" else "query")
    ranks = entries["rank"].to_numpy()
    if shape == "movielens":
        assert set(ranks) == {-1, -2, -3, -4, -5}
    else:
        assert ranks.min() == 1
        assert 450 < ranks.max() < 700
        assert 30 < np.median(ranks) < 90


@pytest.mark.parametrize("shape", SHAPES)
def test_lists_are_lists(shape: str) -> None:
    source = SyntheticSource(None if shape == "movielens" else 60, shape=shape, seed=2)
    items, entries, _ = gather(source)
    known = set(zip(items["query"].to_pylist(), items["item"].to_pylist(), strict=True))
    assert len(known) == len(items)
    rows = list(zip(*(entries[name].to_pylist() for name in ("query", "expert", "item", "rank")), strict=True))
    assert {(query, item) for query, _, item, _ in rows} <= known
    assert len({row[:3] for row in rows}) == len(rows)
    if shape != "movielens":  # no ties inside a list
        assert len({(query, expert, rank) for query, expert, _, rank in rows}) == len(rows)


@pytest.mark.parametrize("shape", SHAPES)
def test_same_seed_same_data_whatever_the_batch(shape: str) -> None:
    size = {"experts": 2500} if shape == "movielens" else {"queries": 601}
    first = gather(SyntheticSource(**size, shape=shape, seed=9))
    for batch in (37, 256, 1000):
        other = gather(SyntheticSource(**size, shape=shape, seed=9, batch=batch))
        assert first[0].equals(other[0])
        assert first[1].equals(other[1])
        assert first[2] == other[2]
    assert not first[1].equals(gather(SyntheticSource(**size, shape=shape, seed=10))[1])


def test_more_queries_begin_with_the_same_ones() -> None:
    few, many = (gather(SyntheticSource(n, seed=1))[1] for n in (50, 300))
    assert many.slice(0, len(few)).equals(few)


def test_parts_share_the_queries_evenly() -> None:
    items, _, parts = gather(SyntheticSource(103))
    queries = [
        (query, part) for (query, part), _ in itertools.groupby(zip(items["query"].to_pylist(), parts, strict=True))
    ]
    assert [query for query, _ in queries] == [f"q{number}" for number in range(103)]
    sizes = [len(list(group)) for _, group in itertools.groupby(part for _, part in queries)]
    assert list(dict.fromkeys(parts)) == ["S1", "S2", "S3", "S4", "S5"]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("queries", [1, 2, 4])
def test_fewer_queries_than_parts(queries: int) -> None:
    items, _, _ = gather(SyntheticSource(queries))
    assert len(items["query"].unique()) == queries


def test_truth_is_what_the_labels_come_from() -> None:
    source = SyntheticSource(300, seed=5)
    items, _, _ = gather(source)
    for query in (0, 255, 256, 299):
        rows = [row for row in items.to_pylist() if row["query"] == f"q{query}"]
        assert [row["item"] for row in rows] == [f"q{query}-d{at}" for at in range(len(rows))]
        truth = source.truth(query)
        assert len(truth) == len(rows)
        labels = np.array([row["label"] for row in rows])
        assert (np.diff(labels[np.argsort(truth)]) >= 0).all()
    with pytest.raises(UsageError, match="query is 300"):
        source.truth(300)


@pytest.mark.parametrize("shape", SHAPES)
def test_experts_are_as_good_as_their_names_say(shape: str) -> None:
    source = SyntheticSource(None if shape == "movielens" else 400, shape=shape, seed=6)
    _, entries, _ = gather(source)
    truth = {}
    for query in range(source.queries):
        for at, score in enumerate(source.truth(query)):
            truth[f"d{at}" if shape == "movielens" else f"q{query}-d{at}"] = score
    scores = np.array([truth[item] for item in entries["item"].to_pylist()])
    experts = np.array(entries["expert"].to_pylist())
    ranks = entries["rank"].to_numpy()
    agreement = {"good": [], "random": [], "adversarial": []}
    busy = [name for name in source.expert_names if (experts == name).sum() >= 150]
    for name in busy:
        of = experts == name
        agreement[name.split("-")[0]].append(-np.corrcoef(ranks[of], scores[of])[0, 1])
    assert np.mean(agreement["good"]) > 0.15
    assert max(agreement["good"]) > 0.4
    assert abs(np.mean(agreement["random"])) < 0.05
    assert np.mean(agreement["adversarial"]) < -0.1
    kinds = [name.split("-")[0] for name in source.expert_names]
    assert [int(name.split("-")[1]) for name in source.expert_names] == list(range(source.experts))
    for kind, quality in zip(kinds, source.qualities, strict=True):
        assert {"good": quality > 0, "random": quality == 0, "adversarial": quality < 0}[kind]


def test_fusion_beats_chance_and_single_experts_differ() -> None:
    """Reciprocal rank fusion puts relevant items first far more often than their share."""
    items, entries, _ = gather(SyntheticSource(400, seed=8))
    label = dict(zip(items["item"].to_pylist(), items["label"].to_pylist(), strict=True))
    fused = dict.fromkeys(label, 0.0)
    for item, rank in zip(entries["item"].to_pylist(), entries["rank"].to_pylist(), strict=True):
        fused[item] += 1 / (60 + rank)
    best = [
        max(group, key=fused.__getitem__) for _, group in itertools.groupby(label, key=lambda item: item.split("-")[0])
    ]
    assert np.mean([label[item] >= 1 for item in best]) > 0.45  # chance: 0.19


def test_missing_nothing_and_other_sizes() -> None:
    items, entries, _ = gather(SyntheticSource(3, 500, 4, missing=0.0, random=0, adversarial=0))
    assert len(entries) == 4 * len(items)
    assert abs(len(items) / 1500 - 1) < 0.95
    _, entries, _ = gather(SyntheticSource(items=3, experts=5, shape="movielens", missing=0.5))
    assert len(entries)


def test_pickles() -> None:
    source = pickle.loads(pickle.dumps(SyntheticSource(20, seed=3)))
    assert gather(source)[1].equals(gather(SyntheticSource(20, seed=3))[1])
    assert source.files == ()
    assert source.locate("q0", None, "q0-d0") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"queries": 0}, "queries is 0"),
        ({"experts": -1}, "experts is -1"),
        ({"batch": 0}, "batch is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"missing": 1.0}, "missing is 1.0"),
        ({"random": 0.8, "adversarial": 0.3}, "add to at most 1"),
        ({"shape": "mq2009"}, "did you mean 'mq2008'"),
        ({"shape": "movielens", "queries": 2}, "one query"),
    ],
)
def test_wrong_arguments(arguments: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SyntheticSource(**arguments)


@settings(max_examples=100)
@given(lists=st.lists(st.lists(st.integers(1, DEPTH[1]), min_size=1, max_size=30), min_size=1, max_size=5))
def test_distinct_positions_against_a_loop(lists: list[list[int]]) -> None:
    wanted = [sorted(one) for one in lists]
    expected = []
    for one in wanted:
        last = 0
        for position in one:
            last = max(position, last + 1)
            expected.append(last)
    a_list = np.repeat(np.arange(len(lists)) * 3, [len(one) for one in lists])
    assert _distinct(np.concatenate(wanted), a_list).tolist() == expected
