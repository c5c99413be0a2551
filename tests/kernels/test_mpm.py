"""MPM: the factored partition function, its gradient and its maximum, against the paper's definition."""

import itertools

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st
from strategies import chunks

from distagg.kernels.adherence import agreement
from distagg.kernels.mpm import fit_queries, likelihood, maximise

PRIOR = 1e-3


def naive_likelihood(s, net, adherence, share, prior):
    """Negative log likelihood for each preference with the sum over all ordered pairs (paper 000, section 2.5)."""
    value = prior / 2 * np.sum(s**2) - net @ s
    for t, w in zip(adherence, share, strict=True):
        pairs = itertools.permutations(range(len(s)), 2)
        value += w * np.log(sum(np.exp(t * (s[k] - s[x])) for k, x in pairs)) if t > 0 else 0.0
    return value


def drawn_problem(seed: int, size: int = 6, groups: int = 3):
    draw = np.random.default_rng(seed)
    share = draw.dirichlet(np.ones(groups))
    net = draw.normal(size=size) * 0.2
    return draw.normal(size=size) * 3, net - net.mean(), np.append(draw.uniform(0.1, 1.0, groups - 1), 0.0), share


@given(st.integers(0, 10_000))
def test_likelihood_is_the_papers(seed):
    s, net, adherence, share = drawn_problem(seed)
    found = likelihood(s, net, adherence, share, PRIOR, np.empty(len(s)))
    assert found == pytest.approx(naive_likelihood(s, net, adherence, share, PRIOR), abs=1e-10)


@given(st.integers(0, 10_000))
def test_gradient_by_finite_differences(seed):
    s, net, adherence, share = drawn_problem(seed)
    gradient = np.empty(len(s))
    likelihood(s, net, adherence, share, PRIOR, gradient)
    expected = scipy.optimize.approx_fprime(s, lambda x: naive_likelihood(x, net, adherence, share, PRIOR), 1e-6)
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


@given(st.integers(0, 10_000))
def test_the_maximum_is_scipys(seed):
    s, net, adherence, share = drawn_problem(seed)
    started = s.copy()
    _, left = maximise(net, adherence, share, PRIOR, 1e-10, 500, 0.0, s)
    assert left < 1e-8
    best = scipy.optimize.minimize(naive_likelihood, started, args=(net, adherence, share, PRIOR), tol=1e-10)
    assert naive_likelihood(s, net, adherence, share, PRIOR) <= best.fun + 1e-9


def test_large_scores_do_not_overflow():
    s = np.array([900.0, 0.0, -900.0])
    gradient = np.empty(3)
    value = likelihood(s, np.zeros(3), np.ones(1), np.ones(1), 0.0, gradient)
    assert value == pytest.approx(1800.0)
    np.testing.assert_allclose(gradient, [1.0, 0.0, -1.0], atol=1e-12)


def test_the_papers_steps_and_the_solver_agree_in_the_limit():
    _, net, adherence, share = drawn_problem(1)
    slow, fast = np.zeros(6), np.zeros(6)
    maximise(net, adherence, share, 1e-2, 1e-9, 100_000, 0.5, slow)
    maximise(net, adherence, share, 1e-2, 1e-9, 500, 0.0, fast)
    np.testing.assert_allclose(slow, fast, atol=1e-5)


@given(drawn=chunks())
def test_agreement_is_the_share_of_rightly_ordered_pairs(drawn):
    made, chunk = drawn
    total, count = np.zeros(5), np.zeros(5)
    agreement(
        3, chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.list_expert, chunk.entry_item,
        chunk.entry_rank, chunk.labels, total, count,
    )  # fmt: skip
    expected, queries = np.zeros(5), np.zeros(5)
    for query in made:
        for expert, ranks in query.lists.items():
            pairs = [
                (ranks[i] < ranks[j]) + 0.5 * (ranks[i] == ranks[j])
                for i, j in itertools.permutations(ranks, 2)
                if query.labels[i] > query.labels[j]
            ]
            if pairs:
                expected[expert] += np.mean(pairs)
                queries[expert] += 1
    np.testing.assert_allclose(total, expected)
    np.testing.assert_array_equal(count, queries)


def test_a_query_that_says_nothing_keeps_scores_of_zero():
    score, left = np.zeros(3), np.zeros(1)
    none = np.zeros(0)
    fit_queries(
        np.ones(2), 1e-6, 1e-8, 100, 0.0, np.array([0, 3]), np.array([0, 0]), np.array([0]), np.zeros(0, np.int32),
        np.zeros(0, np.int32), none, none, score, left,
    )  # fmt: skip
    assert score.tolist() == [0, 0, 0]
    assert left.tolist() == [0]
