"""Every model that turns lists into pairs, with every pair function, on ratings (whose ranks are minus the rating)."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from strategies import Query, build_chunk

from distagg import rank
from distagg.dataset import Dataset
from distagg.engine import fit, solve
from distagg.errors import UsageError
from distagg.models import MODELS
from distagg.models.lists import NORMALISED, PAIR_FUNCTIONS
from distagg.models.pairs import list_sums

QUERIES, ITEMS, USERS, SHIFT = 12, 9, 8, 6.0
QUICK = {"crf": {"rounds": 20, "reciprocal": 0, "top": 3}}  # a third of the items has the highest label


def choices(name):
    """What the model's parameter ``pairs`` may be; nothing where it has none."""
    found = {field.name: field.metadata["choices"] for field in fields(MODELS[name])}
    return found.get("pairs", ())


CASES = [(name, pairs) for name in sorted(MODELS) for pairs in choices(name)]


@cache
def rated():
    """Ratings from 1 to 5 that follow planted labels with some noise; users leave items out."""
    draw = np.random.default_rng(5)
    rows = []
    for q in range(QUERIES):
        for user in range(USERS):
            for item in range(ITEMS):
                if draw.random() < 0.8:
                    rating = float(np.clip(np.round(1.5 + 1.2 * (item % 3) + draw.normal(0, 0.6)), 1, 5))
                    rows.append((f"q{q}", f"u{user}", f"i{item}", SHIFT - rating))
    columns = dict(zip(("query", "expert", "item", "rank"), zip(*rows, strict=True), strict=True))
    labels = {
        "query": np.repeat([f"q{q}" for q in range(QUERIES)], ITEMS),
        "item": [f"i{i}" for i in range(ITEMS)] * QUERIES,
        "label": pa.array([i % 3 for i in range(ITEMS)] * QUERIES, pa.int32()),
    }
    made = Dataset.from_arrow(pa.table(columns), labels=pa.table(labels))
    chunks = tuple(replace(chunk, entry_rank=chunk.entry_rank - SHIFT) for chunk in made.chunks())
    for chunk in chunks:
        chunk.entry_rank.setflags(write=False)
    return Dataset("", replace(made.manifest, positive=False), made.experts, held=chunks)


@pytest.mark.parametrize(("name", "pairs"), CASES)
def test_scores_follow_ratings_or_the_pair_function_is_refused(name, pairs):
    settings = QUICK.get(name, {}) or ({"rounds": 20} if "rounds" in MODELS[name].__dataclass_fields__ else {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few rounds
        if "log" in pairs or pairs == "all" or MODELS[name].positive:
            with pytest.raises(UsageError, match="needs ranks above 0"):
                rank(fit(name, rated(), pairs=pairs, **settings), rated())
            return
        ranking = rank(fit(name, rated(), pairs=pairs, **settings), rated()).to_pandas()
    truth = ranking["item"].str[1:].astype(int) % 3
    for query, rows in ranking.groupby("query"):
        assert rows["score"].nunique() > 1, query
        assert np.corrcoef(rows["score"], truth[rows.index])[0, 1] > 0.5, query


def test_the_largest_difference_of_a_user_s_ratings_counts_one():
    """Whatever the scale: 1 to 5 stars, 0 to 1, or -10 to 10."""
    lists = {0: {0: -5.0, 1: -2.0, 2: -1.0}, 1: {0: -1.0, 1: -0.25, 2: 0.0}, 2: {0: 2.0, 1: 8.0, 2: 10.0}}
    chunk = build_chunk([Query(3, lists)])
    won, lost, _ = list_sums(chunk, np.zeros(3, dtype=np.int64), NORMALISED)
    assert np.allclose(won, [1.75, 0.25, 0.0] * 3)
    assert np.allclose(lost, [0.0, 0.75, 1.25] * 3)


def test_a_user_who_rates_all_items_alike_says_nothing():
    chunk = build_chunk([Query(2, {0: {0: -3.0, 1: -3.0}})])
    won, lost, _ = list_sums(chunk, np.zeros(1, dtype=np.int64), NORMALISED)
    assert not won.any()
    assert not lost.any()


@pytest.mark.parametrize("pairs", sorted(set(PAIR_FUNCTIONS) - {"log"}))
def test_both_routes_of_bradley_terry_count_ratings_alike(crowd, pairs):
    found = [
        solve("bradley_terry", Dataset.open(crowd), pairs=pairs, route=route).ranking.to_pandas().set_index("item")
        for route in ("counts", "lists")
    ]
    assert np.allclose(found[0]["score"], found[1]["score"].loc[found[0].index], atol=1e-6)
    assert found[0]["score"].nunique() > 1
