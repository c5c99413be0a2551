"""Mallows' distribution by stages, against enumeration of all rankings and scipy's optimiser."""

import itertools

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st
from strategies import on_chunks

from distagg.models.distances.mallows_kernels import (
    count_stages,
    fit_theta,
    log_likelihood,
    log_normaliser,
    stage_moments,
)

NO_TRACE = np.empty(0)


def discordant(ranking) -> int:
    """Kendall distance to the order 0, 1, 2, ..."""
    return sum(a > b for a, b in itertools.combinations(ranking, 2))


@pytest.mark.parametrize("theta", [0.0, 1e-7, 0.003, 0.2, 1.5, 40.0])
@pytest.mark.parametrize("size", [1, 2, 6])
def test_the_normaliser_is_the_sum_over_all_rankings(size, theta):
    expected = sum(np.exp(-theta * discordant(r)) for r in itertools.permutations(range(size)))
    found = sum(log_normaliser(theta, m) for m in range(1, size + 1))
    assert found == pytest.approx(np.log(expected), abs=1e-12)


@pytest.mark.parametrize("theta", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("top", [1, 3, 5])
def test_the_probability_of_a_top_is_the_sum_over_its_completions(top, theta):
    size = 5
    rankings = list(itertools.permutations(range(size)))
    weights = np.array([np.exp(-theta * discordant(r)) for r in rankings])
    stages = np.zeros(size)
    stages[size - top :] = 1.0
    for head in itertools.permutations(range(size), top):
        rest = [i for i in range(size) if i not in head]
        distance = discordant(head) + sum(i > j for i in head for j in rest)
        expected = weights[[r[:top] == head for r in rankings]].sum() / weights.sum()
        assert log_likelihood(theta, distance, stages) == pytest.approx(np.log(expected))


@given(st.floats(0.0, 30.0), st.integers(1, 200))
def test_moments_are_those_of_the_stage(theta, m):
    odds = np.exp(-theta * np.arange(m))
    mean = (odds * np.arange(m)).sum() / odds.sum()
    variance = (odds * (np.arange(m) - mean) ** 2).sum() / odds.sum()
    assert stage_moments(theta, m) == pytest.approx((mean, variance), rel=1e-6, abs=1e-10)


@pytest.mark.parametrize("theta", [1e-6, 0.02, 0.7])
def test_the_mean_is_minus_the_slope_of_the_normaliser(theta):
    for m in (2, 7, 90):
        step = 1e-6 * max(theta, 1e-3)
        slope = (log_normaliser(theta + step, m) - log_normaliser(max(theta - step, 0.0), m)) / (
            step + min(step, theta)
        )
        assert stage_moments(theta, m)[0] == pytest.approx(-slope, rel=1e-4)


@given(st.integers(0, 10_000))
def test_theta_is_scipys(seed):
    draw = np.random.default_rng(seed)
    stages = draw.integers(0, 9, 12).astype(float)
    stages[5] += 1.0
    chance = (stages * np.arange(12)).sum() / 2
    distance = draw.uniform(0.01, 1.2) * chance
    trace = np.full(100, np.nan)
    theta, steps, slope = fit_theta(distance, stages, 1e-12, 100, 50.0, trace)
    assert slope <= 1e-12
    best = scipy.optimize.minimize_scalar(
        lambda t: -log_likelihood(t, distance, stages), bounds=(0, 50), method="bounded", options={"xatol": 1e-10}
    )
    assert theta == pytest.approx(best.x, abs=1e-5)
    assert (np.diff(trace[:steps]) >= -1e-9).all()
    assert np.isnan(trace[steps:]).all()


def test_the_ends_of_theta():
    stages = np.array([1.0, 1.0, 1.0])
    assert fit_theta(0.0, stages, 1e-10, 100, 50.0, NO_TRACE)[::2] == (50.0, 0.0)
    assert fit_theta(1.5, stages, 1e-10, 100, 50.0, NO_TRACE)[::2] == (0.0, 0.0)  # what chance gives
    assert fit_theta(3.0, stages, 1e-10, 100, 50.0, NO_TRACE)[::2] == (0.0, 0.0)  # turned round
    assert fit_theta(0.0, np.zeros(3), 1e-10, 100, 50.0, NO_TRACE) == (0.0, 0, 0.0)


@pytest.mark.parametrize("unlisted_last", [True, False])
@on_chunks()
def test_stages_are_counted(unlisted_last, drawn):
    made, chunk = drawn
    longest = max(query.size for query in made)
    rows = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
    stages, tied = np.zeros((chunk.n_queries, longest)), np.zeros(chunk.n_queries)
    count_stages(
        unlisted_last, chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.entry_rank, rows, stages, tied
    )
    for q, query in enumerate(made):
        expected = np.zeros(longest)
        for ranks in query.lists.values():
            most = query.size if unlisted_last else len(ranks)
            for place in range(len(ranks)):
                expected[most - place - 1] += 1
        assert stages[q].tolist() == expected.tolist()
        ties = (a == b for ranks in query.lists.values() for a, b in itertools.combinations(ranks.values(), 2))
        assert tied[q] == sum(ties)
