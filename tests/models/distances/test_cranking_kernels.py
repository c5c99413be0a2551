"""The posterior of an unknown order, against enumeration of all orders."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import chunks

from distagg.models.distances.mallows_kernels import Sampling, chances_apart, chances_sampled, expect_chunk, stream
from distagg.models.pairs import list_arrays

THETA = np.array([0.7, 0.0, 1.3, 0.2, 0.05])


def drawn_odds(seed: int, size: int) -> np.ndarray:
    half = np.random.default_rng(seed).normal(size=(size, size)) * 1.5
    return np.triu(half, 1) - np.triu(half, 1).T


def enumerated(odds) -> np.ndarray:
    """Chance that i stands before j, over all orders."""
    size = len(odds)
    before, total = np.zeros((size, size)), 0.0
    for order in itertools.permutations(range(size)):
        weight = np.exp(0.5 * sum(odds[i, j] for i, j in itertools.combinations(order, 2)))
        total += weight
        for i, j in itertools.combinations(order, 2):
            before[i, j] += weight
    return before / total


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_sampled_chances_are_those_of_all_orders(size, seed):
    odds = drawn_odds(seed, size)
    before = chances_sampled(odds, 4000, 10, np.uint64(stream(seed, 7)), np.arange(size))
    np.testing.assert_allclose(before, enumerated(odds), atol=0.02)
    np.testing.assert_allclose(before + before.T, 1 - np.eye(size), atol=1e-9)


def test_two_items_need_no_luck():
    odds = drawn_odds(1, 2)
    np.testing.assert_allclose(chances_sampled(odds, 1, 0, np.uint64(5), np.arange(2)), enumerated(odds))


@given(st.integers(0, 10_000))
def test_chances_apart_are_logistic(seed):
    odds = 300 * drawn_odds(seed, 4)
    expected = 0.5 * (1 + np.tanh(odds / 2))
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(chances_apart(odds), expected, atol=1e-12)


def naive_odds(query, unlisted_last: bool) -> np.ndarray:
    odds = np.zeros((query.size, query.size))
    for expert, ranks in query.lists.items():
        for i, j in itertools.permutations(range(query.size), 2):
            if unlisted_last or (i in ranks and j in ranks):
                here, there = ranks.get(i, np.inf), ranks.get(j, np.inf)
                odds[i, j] += THETA[expert] * (float(here < there) - float(here > there))
    return odds


@pytest.mark.parametrize("unlisted_last", [True, False])
@settings(max_examples=15)
@given(drawn=chunks(most_items=4, most_queries=2))
def test_expected_distances_are_those_of_all_orders(unlisted_last, drawn):
    made, chunk = drawn
    how, weight = Sampling(unlisted_last, sweeps=3000, burn=10, seed=0), THETA[chunk.list_expert]
    score, distance = expect_chunk(how, list_arrays(chunk), weight, chunk.positions)
    expected = np.zeros(5)
    for q, query in enumerate(made):
        odds = naive_odds(query, unlisted_last)
        span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
        np.testing.assert_allclose(score[span], (0.5 * (1 + np.tanh(odds / 2))).sum(axis=1) - 0.5, atol=1e-9)
        before = enumerated(odds)
        for expert, ranks in query.lists.items():
            for i, j in itertools.permutations(range(query.size), 2):
                if i in ranks and (unlisted_last or j in ranks) and ranks[i] < ranks.get(j, np.inf):
                    expected[expert] += before[j, i]
    np.testing.assert_allclose(np.bincount(chunk.list_expert, distance, 5), expected, atol=0.15)


def test_streams_differ():
    assert len({stream(seed, position) for seed in range(50) for position in range(50)}) == 2500
