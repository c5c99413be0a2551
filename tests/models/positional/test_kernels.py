"""Closed forms of expected utilities against the paper's recursion, and that against all outcomes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_stagg import contests, enumeration, expected, met_in_list, recursion
from strategies import Query, build_chunk, queries

from distagg.dataset import Dataset
from distagg.models import model_named
from distagg.models.pairs import list_arrays
from distagg.models.positional.kernels import Utility, exponential_terms, size_class, sum_expectations
from distagg.models.weights import NO_WEIGHTS

UTILITIES = {
    "reciprocal 60": (lambda rank: 1.0 / (60.0 + rank), 60.0),
    "reciprocal 1": (lambda rank: 1.0 / (1.0 + rank), 1.0),
    "ndcg": (lambda rank: 1.0 / np.log2(2.0 + rank), 1.0),
}


@given(st.lists(st.floats(0.0, 1.0), max_size=8))
def test_the_recursion_counts_outcomes(chances: list[float]) -> None:
    np.testing.assert_allclose(recursion(chances), enumeration(chances), atol=1e-14)


@pytest.mark.parametrize("name", UTILITIES)
@pytest.mark.parametrize("size", [1, 2, 3, 20, 64, 1000, 100_000])
def test_terms_give_the_utility_at_every_rank(name: str, size: int) -> None:
    utility, scale = UTILITIES[name]
    ratio, weight = exponential_terms(utility, size, scale)
    rank = np.unique(np.concatenate([np.arange(min(size, 2000)), np.linspace(0, size - 1, 500).astype(int)]))
    found = (weight * ratio ** rank[:, None]).sum(axis=1)
    np.testing.assert_allclose(found, utility(rank.astype(float)), rtol=1e-12 if size <= 1000 else 1e-11)
    assert np.abs(weight).sum() < 2.0 * utility(np.zeros(1))[0]  # nothing large cancels


def test_fewer_terms_where_less_is_asked_for() -> None:
    utility, scale = UTILITIES["ndcg"]
    rough, fine = (exponential_terms(utility, 1000, scale, tolerance) for tolerance in (1e-6, 1e-14))
    assert len(rough[0]) < len(fine[0])
    rank = np.arange(1000)[:, None]
    np.testing.assert_allclose((rough[1] * rough[0] ** rank).sum(axis=1), utility(rank[:, 0]), rtol=1e-5)


def test_classes_of_sizes() -> None:
    assert [size_class(n) for n in (0, 1, 2, 3, 4, 5, 8, 9)] == [0, 0, 1, 2, 2, 3, 3, 4]


def discounted(rank: np.ndarray, met: int, size: int) -> np.ndarray:
    """Points of ranks from 0 in a list of ``met`` items; those left out stand at most two list lengths behind it."""
    return np.log(5.0 + min(size, 3 * met)) - np.log(5.0 + rank + 1.0)


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("contest", ["paper", "graded"])
@settings(max_examples=40)
@given(drawn=queries(most_items=6, most_experts=3))
def test_models_give_the_recursions_expectations(contest: str, average: bool, drawn: Query) -> None:
    """Any lists, with ties: the mean over the orders that they leave open."""
    chunk = build_chunk([drawn], n_experts=5)
    rules = {"contest": contest, "steep": 7.0, "unlisted": "average" if average else "zero"}
    wanted = {"contest": contest, "steep": 7.0, "average": average}
    points = model_named("stagg_bc", rules | {"discount": False}).score(chunk, {})
    np.testing.assert_allclose(points, expected(drawn, lambda rank, met: met - rank, **wanted), rtol=1e-12)
    if not average:
        points = model_named("stagg_bc", rules).score(chunk, {})
        expectations = expected(drawn, lambda rank, met: discounted(rank, met, drawn.size), **wanted)
        np.testing.assert_allclose(points, expectations, rtol=1e-11, atol=1e-13)
    for c in (1.0, 60.0):
        found = model_named("stagg_rrf", rules | {"c": c}).score(chunk, {})
        np.testing.assert_allclose(
            found, expected(drawn, lambda rank, met, c=c: 1.0 / (c + rank), **wanted), rtol=1e-12
        )


@pytest.mark.parametrize("name", UTILITIES)
def test_brute_force_on_a_partial_list(name: str) -> None:
    """Every outcome of every contest, and a utility that no model has."""
    utility, scale = UTILITIES[name]
    query = Query(9, {0: {4: 1.0, 2: 2.0, 7: 3.0, 0: 4.0, 5: 5.0}})
    ratio, weight = exponential_terms(utility, 16, scale)
    starts = np.array([0] * 5 + [len(ratio)])
    how = Utility(0.0, True, False, starts, ratio, weight)
    found = sum_expectations(how, NO_WEIGHTS, list_arrays(build_chunk([query])))
    rules = {"contest": "paper", "steep": 0.0, "average": True}
    wanted = expected(query, lambda rank, met: utility(rank), **rules, distribution=enumeration)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("length", [50, 333])
def test_long_lists(length: int) -> None:
    order = np.random.default_rng(length).permutation(400)[:length]
    chunk = build_chunk([Query(400, {0: {int(i): n + 1.0 for n, i in enumerate(order)}})])
    for contest in ("paper", "graded"):
        found = model_named("stagg_rrf", {"contest": contest, "c": 10.0}).score(chunk, {})
        for item in order[:: length // 10]:
            scale = length if contest == "paper" else 40
            likely = recursion(met_in_list(order.tolist(), int(item), scale, contest, 6.0))
            assert found[item] == pytest.approx(likely @ (1.0 / (10.0 + np.arange(length))), rel=1e-12)


@pytest.mark.real
def test_real_lists(imported: tuple[str, Path]) -> None:
    """The first queries of the real sets: every item, by the recursion."""
    _, target = imported
    chunk = next(iter(Dataset.open(target).chunks()))
    chunk = chunk.select(np.arange(chunk.n_queries) < 4)
    found = model_named("stagg_rrf", {"contest": "paper", "unlisted": "average", "c": 60.0}).score(chunk, {})
    wanted = np.zeros(chunk.n_items)
    for q in range(chunk.n_queries):
        size = int(chunk.item_offsets[q + 1] - chunk.item_offsets[q])
        for a in range(chunk.list_offsets[q], chunk.list_offsets[q + 1]):
            order = chunk.entry_item[chunk.entry_offsets[a] : chunk.entry_offsets[a + 1]].tolist()
            for item in range(size):
                likely = recursion(contests(order, item, size))
                wanted[chunk.item_offsets[q] + item] += likely @ (1.0 / (60.0 + np.arange(size)))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
