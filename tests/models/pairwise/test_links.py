"""Links: likelihoods against scipy's plain formulas, derivatives by finite differences, extremes."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from distagg.models.pairwise.graph import Graph
from distagg.models.pairwise.links import (
    DAVIDSON,
    LOGIT,
    PROBIT,
    RAO_KUPPER,
    Slopes,
    edge_slopes,
    log_likelihood,
    mills,
    slopes,
)

LINKS = (LOGIT, PROBIT, DAVIDSON, RAO_KUPPER)
SHARE = {LOGIT: 0.5, PROBIT: 0.5, DAVIDSON: 0.5, RAO_KUPPER: 1.0}
SIZE = 4


def naive_likelihood(link, s, eta, wins, ties):
    """From the definition: wins (size, size), ties (size, size) above the diagonal."""
    total = 0.0
    for i in range(len(s)):
        for j in range(len(s)):
            d = s[i] - s[j]
            if link == DAVIDSON:
                z = math.exp(s[i]) + math.exp(s[j]) + math.exp(eta + (s[i] + s[j]) / 2)
                win, tie = math.exp(s[i]) / z, math.exp(eta + (s[i] + s[j]) / 2) / z
            elif link == RAO_KUPPER:
                win = math.exp(s[i]) / (math.exp(s[i]) + math.exp(eta + s[j]))
                tie = 1 - win - math.exp(s[j]) / (math.exp(s[j]) + math.exp(eta + s[i]))
            else:
                chance = scipy.special.expit if link == LOGIT else lambda x: scipy.special.ndtr(x / math.sqrt(2))
                win = chance(d)
                tie = math.sqrt(win * chance(-d))  # half a win each
            if wins[i, j]:
                total += wins[i, j] * math.log(win)
            if ties[i, j]:
                total += ties[i, j] * math.log(tie)
    return total


def problem(link, seed):
    """Scores, eta, wins, ties, and the counts that kernels take."""
    draw = np.random.default_rng(seed)
    wins = draw.integers(0, 4, (SIZE, SIZE)) * 0.5
    np.fill_diagonal(wins, 0.0)
    ties = np.triu(draw.integers(0, 3, (SIZE, SIZE)), 1) * 1.0
    ties[0, 1] += 1
    low, high = np.triu_indices(SIZE, 1)
    ahead = wins[low, high] + SHARE[link] * ties[low, high]
    behind = wins[high, low] + SHARE[link] * ties[low, high]
    offsets = np.searchsorted(low, np.arange(SIZE + 1))
    return (
        draw.normal(size=SIZE) * 2,
        draw.uniform(0.2, 2.0),
        wins,
        ties,
        (offsets, high.astype(np.int32), ahead, behind),
    )


def graph_of(ties, counts):
    one = np.array([0, SIZE])
    one.setflags(write=False)
    return Graph(one, *counts, np.array([ties], dtype=float))


def evaluated(link, s, eta, ties, counts):
    found = Slopes(np.empty(SIZE + 1), np.empty(SIZE + 1), np.empty(SIZE + 1), np.empty(len(counts[1])))
    slopes(link, graph_of(ties, counts), 0, np.append(s, eta), found)
    return found


def value(link, s, eta, ties, counts):
    return log_likelihood(link, graph_of(ties, counts), s, np.array([eta]))[0]


@pytest.mark.parametrize("link", LINKS)
@given(seed=st.integers(0, 10_000))
def test_the_likelihood_is_the_definitions(link, seed):
    s, eta, wins, ties, counts = problem(link, seed)
    found = value(link, s, eta, ties.sum(), counts)
    assert found == pytest.approx(naive_likelihood(link, s, eta, wins, ties), abs=1e-9)


@pytest.mark.parametrize("link", LINKS)
@given(seed=st.integers(0, 10_000))
def test_derivatives_by_finite_differences(link, seed):
    s, eta, wins, ties, counts = problem(link, seed)
    gradient, diagonal, cross, curve = evaluated(link, s, eta, ties.sum(), counts)

    def plain(x):
        return -naive_likelihood(link, x[:-1], x[-1], wins, ties)

    def slope(x):
        return evaluated(link, x[:-1], x[-1], ties.sum(), counts)[0]

    at = np.append(s, eta)
    expected = scipy.optimize.approx_fprime(at, plain, 1e-6)
    np.testing.assert_allclose(gradient, expected, atol=2e-4)
    hessian = np.diag(diagonal)
    low, high = np.triu_indices(SIZE, 1)
    hessian[low, high] = hessian[high, low] = -curve
    hessian[:SIZE, SIZE] = hessian[SIZE, :SIZE] = cross[:SIZE]
    numeric = np.array([(slope(at + 1e-5 * e) - slope(at - 1e-5 * e)) / 2e-5 for e in np.eye(SIZE + 1)])
    np.testing.assert_allclose(hessian, numeric, atol=1e-6)


@given(st.floats(0.0, 1e6))
def test_mills_is_scipys(y):
    ratio, over = mills(y)
    expected = math.sqrt(2 / math.pi) / scipy.special.erfcx(y / math.sqrt(2))
    assert ratio == pytest.approx(expected, rel=1e-12)
    assert over == pytest.approx(expected - y, rel=1e-9, abs=1e-9 * max(1.0, 1e-3 * y))
    assert 0.0 < over <= 1.0


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("gap", [40.0, 900.0, 1e5])
def test_extreme_gaps_stay_finite_and_signed(link, gap):
    """A sure win leaves no slope; a sure loss pulls with its full weight (or, in the normal tail, in proportion)."""
    for won in (True, False):
        counts = (
            np.array([0, 1, 1, 1, 1]),
            np.array([1], np.int32),
            np.array([float(won)]),
            np.array([float(not won)]),
        )
        s = np.array([gap, 0.0, 0.0, 0.0])
        gradient, diagonal, _, _ = evaluated(link, s, 0.5, 0.0, counts)
        assert np.isfinite(value(link, s, 0.5, 0.0, counts))
        assert np.isfinite(gradient).all()
        assert (diagonal >= 0).all()
        full = gap / 2 if link == PROBIT else 1.0
        assert gradient[0] == pytest.approx(0.0 if won else full, rel=0.01, abs=1e-8)


def test_a_wide_spread_of_scores_needs_no_strengths():
    """Neighbours near each other, ends apart by more than exp can hold."""
    s = np.array([-900.0, -899.0, 899.0, 900.0])
    counts = (np.array([0, 1, 1, 2, 2]), np.array([1, 3], np.int32), np.array([2.0, 1.0]), np.array([1.0, 3.0]))
    gradient, diagonal, _, _ = evaluated(LOGIT, s, 0.0, 0.0, counts)
    p = scipy.special.expit(-1.0)
    np.testing.assert_allclose(gradient[:4], [3 * p - 2, 2 - 3 * p, 4 * p - 1, 1 - 4 * p])
    np.testing.assert_allclose(diagonal[:4], np.array([3, 3, 4, 4]) * p * (1 - p))
    expected = 2 * math.log(p) + math.log(1 - p) + math.log(p) + 3 * math.log(1 - p)
    assert value(LOGIT, s, 0.0, 0.0, counts) == pytest.approx(expected)


def test_a_pair_has_slopes_of_its_own():
    assert edge_slopes(PROBIT, 0.0, 0.0, 1.0, 1.0)[0] == 0.0
