"""Positional models against twins written from their definitions, item by item."""

import dataclasses
import math

import numpy as np
import pytest
from strategies import Query, build_chunk, on_chunks

from distagg import rank
from distagg.dataset import Dataset
from distagg.dataset.build.writer import write_dataset
from distagg.engine import evaluate
from distagg.errors import UsageError
from distagg.models import model_named
from distagg.sources.deep import DeepSource


def scores(name, chunk, **settings):
    return model_named(name, settings).score(chunk, {})


def every_item(made, value):
    return [value(query, i) for query in made for i in range(query.size)]


def place(ranks, i):
    """Position from 1, ties sharing the mean."""
    return sum(r < ranks[i] for r in ranks.values()) + (sum(r == ranks[i] for r in ranks.values()) + 1) / 2


@on_chunks()
def test_rrf(drawn):
    made, chunk = drawn
    expected = every_item(made, lambda q, i: sum(1 / (10 + r[i]) for r in q.lists.values() if i in r))
    np.testing.assert_allclose(scores("rrf", chunk, c=10.0), expected)


@pytest.mark.parametrize("rule", ["zero", "average", "ignore"])
@on_chunks()
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

    found = scores("borda", chunk, unlisted=rule, discount=False)
    np.testing.assert_allclose(found, every_item(made, points), atol=1e-9)


@on_chunks()
def test_borda_discounted(drawn):
    made, chunk = drawn

    def points(query, i):
        listed = [ranks for ranks in query.lists.values() if i in ranks]
        return sum(math.log((5 + min(query.size, 3 * len(r))) / (5 + place(r, i))) for r in listed)

    np.testing.assert_allclose(scores("borda", chunk), every_item(made, points), atol=1e-9)


@pytest.mark.parametrize("discount", [False, True])
@on_chunks()
def test_mean_with_unlisted_items_last(discount, drawn):
    made, chunk = drawn

    def rank(ranks, i):
        if not discount:
            return ranks.get(i, max(ranks.values()) + 1)
        return math.log(5 + ranks.get(i, 3 * max(ranks.values())))

    def mean(query, i):
        ranks = [rank(r, i) for r in query.lists.values()]
        return -sum(ranks) / max(len(ranks), 1)

    np.testing.assert_allclose(scores("mean", chunk, discount=discount), every_item(made, mean), atol=1e-9)


PLAIN = {
    "borda": {"discount": False},
    "mean": {"discount": False},
    "mpm": {"pairs": "binary"},
    "svp": {"pairs": "binary"},
    "stagg_bc": {"unlisted": "average"},
    "stagg_rrf": {"unlisted": "average"},
}


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """Lists of 400 out of 4,000 items."""
    folder = tmp_path_factory.mktemp("deep") / "dataset"
    write_dataset(DeepSource(12, items=4000, experts=20, depth=400), folder)
    return Dataset.open(folder)


@pytest.mark.parametrize("name", PLAIN)
def test_deep_lists_are_not_counted_as_votes(name, deep):
    """By plain points the last item of a deep list has nearly as many as the first."""
    ways = {"discounted": (name, {}), "plain": (name, PLAIN[name]), "rrf": ("rrf", {})}
    ndcg = {way: evaluate(rank(m, deep, **how), deep, ["ndcg@10"]).means["ndcg@10"] for way, (m, how) in ways.items()}
    assert ndcg["discounted"] > ndcg["plain"] + 0.02
    assert ndcg["discounted"] > ndcg["rrf"] - 0.03


@pytest.mark.parametrize("name", ["combsum", "combmnz"])
def test_discounted_places_are_better_than_even_ones_where_deep_lists_have_no_scores(name, deep):
    norms = {"discount": 0.0, "rank": 0.0}
    for norm in norms:
        norms[norm] = evaluate(rank(name, deep, norm=norm), deep, ["ndcg@10"]).means["ndcg@10"]
    assert norms["discount"] > norms["rank"] + 0.02


@on_chunks()
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

    np.testing.assert_allclose(scores("combsum", chunk, norm="rank"), every_item(made, by_rank), atol=1e-9)
    np.testing.assert_allclose(scores("combsum", chunk, norm="minmax"), every_item(made, minmax), atol=1e-9)
    expected = every_item(made, lambda q, i: by_rank(q, i) * held(q, i))
    np.testing.assert_allclose(scores("combmnz", chunk, norm="rank"), expected, atol=1e-9)


def zmuv(ranks):
    """Values of a list without scores (minus the ranks stand for them), and what it gives to items it leaves out."""
    mean = sum(ranks.values()) / len(ranks)
    deviation = (sum((r - mean) ** 2 for r in ranks.values()) / len(ranks)) ** 0.5
    value = {i: (mean - r) / (deviation or 1.0) for i, r in ranks.items()}
    return value, min(value.values()) if deviation else -1.0


@on_chunks()
def test_zmuv_gives_unlisted_items_the_least_of_every_list(drawn):
    made, chunk = drawn

    def above_least(query, i):
        values = [(*zmuv(r), i in r) for r in query.lists.values() if r]
        return sum((value[i] if listed else least) - least for value, least, listed in values)

    def held(query, i):
        return sum(i in r for r in query.lists.values())

    expected = every_item(made, above_least)
    np.testing.assert_allclose(scores("combsum", chunk, norm="zmuv"), expected, atol=1e-6)
    expected = every_item(made, lambda q, i: held(q, i) * above_least(q, i))
    np.testing.assert_allclose(scores("combmnz", chunk, norm="zmuv"), expected, atol=1e-6)


@on_chunks()
def test_zmuv_with_unlisted_items_at_zero_or_ignored(drawn):
    made, chunk = drawn

    def values(query, i):
        return [zmuv(r)[0][i] for r in query.lists.values() if i in r]

    expected = every_item(made, lambda q, i: sum(values(q, i)))
    np.testing.assert_allclose(scores("combsum", chunk, norm="zmuv", unlisted="zero"), expected, atol=1e-6)
    means = [[np.mean(values(q, i)) if values(q, i) else None for i in range(q.size)] for q in made]
    for of_query in means:
        worst = min((m for m in of_query if m is not None), default=1.0)
        of_query[:] = [worst - 1.0 if m is None else m for m in of_query]
    expected = [m for of_query in means for m in of_query]
    np.testing.assert_allclose(scores("combsum", chunk, norm="zmuv", unlisted="ignore"), expected, atol=1e-6)


@pytest.mark.parametrize("norm", ["rank", "minmax", "sum", "zmuv"])
@pytest.mark.parametrize("model", ["combsum", "combmnz"])
def test_an_item_in_the_middle_of_both_lists_beats_one_that_no_list_holds(model, norm):
    lists = {
        0: {i: i + 1 for i in range(13)},
        1: {**{i: i + 1 for i in range(7)}, **{i + 6: i + 1 for i in range(7, 13)}},
    }
    found = scores(model, build_chunk([Query(20, lists)], n_experts=2), norm=norm)
    assert (found[:13].min() > found[19]) if norm == "rank" else (found[:12].min() > found[19])
    assert found[6] > found[12:].max()  # seventh in both lists


def test_a_list_of_one_item_speaks_for_it_under_every_norm():
    chunk = build_chunk([Query(2, {0: {1: 1}})], n_experts=1)
    for norm in ("discount", "rank", "minmax", "sum", "zmuv"):
        assert scores("combsum", chunk, norm=norm).tolist() == [0.0, 1.0]


def test_scores_count_where_every_list_has_them():
    ranked = build_chunk([Query(3, {0: {0: 1, 1: 2, 2: 3}, 1: {2: 1, 1: 2, 0: 3}})], n_experts=2)
    scored = dataclasses.replace(ranked, entry_score=np.array([9.0, 1.0, 0.0, 9.0, 8.0, 0.0]))
    assert scores("combsum", scored).tolist() == scores("combsum", scored, norm="minmax").tolist()
    assert scores("combsum", scored).tolist() != scores("combsum", ranked).tolist()
    for name, norm in {"combsum": "discount", "combgmnz": "discount", "combanz": "rank", "combmed": "rank"}.items():
        assert scores(name, ranked).tolist() == scores(name, ranked, norm=norm).tolist()


@on_chunks()
def test_discount_norm_runs_from_the_first_place_to_that_of_unlisted_items(drawn):
    made, chunk = drawn

    def value(query, ranks, i):
        last, first = 5 + min(query.size, 3 * len(ranks)), 6
        return math.log(last / (5 + place(ranks, i))) / math.log(last / first) if last > first else 0.0

    def total(query, i):
        return sum(value(query, ranks, i) for ranks in query.lists.values() if i in ranks)

    np.testing.assert_allclose(scores("combsum", chunk, norm="discount"), every_item(made, total), atol=1e-9)


@pytest.mark.parametrize("name", ["combsum", "combmnz", "combgmnz", "combanz", "combmax", "combmin", "combmed"])
def test_ratings_count_by_their_places_without_scores(name):
    chunk = build_chunk([Query(4, {0: {0: -5, 1: -4, 2: -1}, 1: {2: -5, 1: -4}})], n_experts=2)
    assert scores(name, chunk).tolist() == scores(name, chunk, norm="rank").tolist()


def test_combmnz_refuses_to_multiply_values_below_zero():
    with pytest.raises(UsageError, match="unlisted=least"):
        model_named("combmnz", {"norm": "zmuv", "unlisted": "zero"})


@on_chunks()
def test_sum_norm_divides_by_the_sum(drawn):
    made, _ = drawn
    one = [Query(q.size, dict([item])) for q in made for item in q.lists.items()]
    for query in one:
        alone = build_chunk([query], n_experts=5)
        listed = [i for i in range(query.size) if i in next(iter(query.lists.values()))]
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
