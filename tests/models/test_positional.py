"""Positional models against twins written from their definitions, item by item."""

import numpy as np
import pytest
from hypothesis import given
from strategies import Query, build_chunk, chunks

from distagg.errors import UsageError
from distagg.models import model_named


def scores(name, chunk, **settings):
    return model_named(name, settings).score(chunk, {})


def every_item(made, value):
    return [value(query, i) for query in made for i in range(query.size)]


def place(ranks, i):
    """Position from 1, ties sharing the mean."""
    return sum(r < ranks[i] for r in ranks.values()) + (sum(r == ranks[i] for r in ranks.values()) + 1) / 2


@given(drawn=chunks())
def test_rrf(drawn):
    made, chunk = drawn
    expected = every_item(made, lambda q, i: sum(1 / (10 + r[i]) for r in q.lists.values() if i in r))
    np.testing.assert_allclose(scores("rrf", chunk, c=10.0), expected)


@pytest.mark.parametrize("rule", ["zero", "average", "ignore"])
@given(drawn=chunks())
def test_borda(rule, drawn):
    made, chunk = drawn

    def points(query, i):
        given = []
        for ranks in query.lists.values():
            if i in ranks:
                given.append(query.size - place(ranks, i))
            elif rule == "average":
                given.append((query.size - len(ranks) - 1) / 2)
        return sum(given) / (max(len(given), 1) if rule == "ignore" else 1)

    np.testing.assert_allclose(scores("borda", chunk, unlisted=rule), every_item(made, points), atol=1e-9)


@given(drawn=chunks())
def test_mean_with_unlisted_items_last(drawn):
    made, chunk = drawn

    def mean(query, i):
        ranks = [r.get(i, max(r.values()) + 1) for r in query.lists.values()]
        return -sum(ranks) / max(len(ranks), 1)

    np.testing.assert_allclose(scores("mean", chunk), every_item(made, mean), atol=1e-9)


@given(drawn=chunks())
def test_combsum_and_combmnz_by_rank_and_minmax(drawn):
    made, chunk = drawn

    def by_rank(query, i):
        return sum(1 - (place(r, i) - 1) / len(r) for r in query.lists.values() if i in r)

    def minmax(query, i):
        total = 0.0
        for ranks in query.lists.values():
            if i in ranks:
                low, high = min(ranks.values()), max(ranks.values())
                total += 1.0 if low == high else (high - ranks[i]) / (high - low)
        return total

    def held(query, i):
        return sum(i in r for r in query.lists.values())

    np.testing.assert_allclose(scores("combsum", chunk), every_item(made, by_rank), atol=1e-9)
    np.testing.assert_allclose(scores("combsum", chunk, norm="minmax"), every_item(made, minmax), atol=1e-9)
    expected = every_item(made, lambda q, i: by_rank(q, i) * held(q, i))
    np.testing.assert_allclose(scores("combmnz", chunk), expected, atol=1e-9)


@given(drawn=chunks())
def test_other_norms_centre_and_scale_each_list(drawn):
    made, _ = drawn
    one = [Query(q.size, dict([item])) for q in made for item in q.lists.items()]
    for query in one:
        alone = build_chunk([query], n_experts=5)
        listed = [i for i in range(query.size) if i in next(iter(query.lists.values()))]
        zmuv = scores("combsum", alone, norm="zmuv")[listed]
        assert abs(zmuv.mean()) < 1e-9
        assert zmuv.std() == pytest.approx(1.0) or not zmuv.any()
        total = scores("combsum", alone, norm="sum")[listed]
        assert total.sum() == pytest.approx(1.0) or (total == 1.0).all()


def test_pairs_give_their_winner_a_point():
    chunk = build_chunk([Query(3, pairs=[(0, 1, 2.0, False), (1, 2, 1.0, True), (2, 0, 0.5, False)])])
    assert scores("borda", chunk).tolist() == [2.0, 0.5, 1.0]


def test_settings_are_checked():
    with pytest.raises(UsageError, match="one of zero, average, ignore"):
        model_named("borda", {"unlisted": "none"})
    with pytest.raises(UsageError, match="finite"):
        model_named("rrf", {"c": float("nan")})
