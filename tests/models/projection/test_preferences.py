"""Net wins and margins against the pair-by-pair definition."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_pairs import naive_pair_matrix
from strategies import Query, build_chunk, on_chunks, queries

from distagg.models.lists import PAIR_FUNCTIONS
from distagg.models.mpm.model import Mpm

PAIRS = st.tuples(st.integers(0, 3), st.integers(4, 7), st.floats(0.0, 3.0), st.booleans())


def naive_margins(query: Query, theta: np.ndarray, pairs: str, unlisted: str) -> np.ndarray:
    """Weighted preferences for i over j less those for j over i; pairs are expert 0's."""
    matrix = np.zeros((query.size, query.size))
    for expert, ranks in query.lists.items():
        items = list(ranks) if unlisted == "ignore" else range(query.size)
        full = [ranks.get(i, max(ranks.values()) + 1.0) for i in items]
        for (a, i), (b, j) in itertools.product(enumerate(items), repeat=2):
            matrix[i, j] += theta[expert] * naive_pair_matrix(full, pairs)[a, b]
    for winner, loser, weight, tie in query.pairs:
        matrix[winner, loser] += 0.0 if tie else theta[0] * weight
    return matrix - matrix.T


@pytest.mark.parametrize("unlisted", ["last", "ignore"])
@pytest.mark.parametrize("pairs", PAIR_FUNCTIONS)
@settings(max_examples=40)
@given(query=queries(most_items=6), extra=st.lists(PAIRS, max_size=4), seed=st.integers(0, 99))
def test_margins_and_net_wins_are_the_definitions(pairs, unlisted, query, extra, seed):
    query = Query(8, query.lists, pairs=extra)
    theta = np.random.default_rng(seed).uniform(size=5)
    chunk = build_chunk([Query(3), query], n_experts=5)
    model = Mpm(pairs=pairs, unlisted=unlisted)
    expected = naive_margins(query, theta, pairs, unlisted)
    _, (_, margins) = model._margins(chunk, theta)
    np.testing.assert_allclose(margins, expected, atol=1e-9)
    tally = model._tally(chunk, theta)
    np.testing.assert_allclose(tally["net"][3:], expected.sum(axis=1), atol=1e-9)
    assert tally["observed"][0].sum() == 0.0


def test_what_is_observed_is_counted_by_adherence():
    """Two experts at one adherence share a column; weights count, ties do not."""
    query = Query(3, {0: {0: 1, 1: 3}, 1: {2: 1, 0: 2}, 2: {1: 1, 2: 9}}, pairs=[(0, 1, 2.5, False), (1, 2, 4.0, True)])
    chunk = build_chunk([query])
    model = Mpm(unlisted="ignore", pairs="difference")
    tally = model._tally(chunk, np.array([0.5, 0.1, 0.5]))
    assert tally["observed"].tolist() == [[1.0, 2.0 + 8.0 + 2.5]]
    np.testing.assert_allclose(tally["net"], [0.5 * 2 - 0.1 + 0.5 * 2.5, -0.5 * 2 + 0.5 * 8 - 0.5 * 2.5, 0.1 - 0.5 * 8])


@on_chunks()
def test_differences_alone_take_a_shorter_way(drawn):
    """The same net wins and preferences as by the general kernel, to the last bit on whole numbers."""
    _, chunk = drawn
    model = Mpm(pairs="difference", unlisted="ignore")
    short, general = (model._tally(chunk, theta) for theta in (None, np.ones(chunk.n_experts)))
    np.testing.assert_array_equal(short["net"], general["net"])
    np.testing.assert_array_equal(short["observed"], general["observed"])
