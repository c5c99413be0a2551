"""MPM: the factored partition function, its gradient and its maximum, against the paper's definition."""

import itertools

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import chunks, on_chunks

from distagg.models.lists import PAIR_FUNCTIONS
from distagg.models.mpm.adherence import adherence_slopes, agreement, log_partition_slopes
from distagg.models.mpm.kernels import Fit, Objective, maximise, objective
from distagg.models.pairs import expert_arrays, list_arrays, list_sums, pair_arrays

PRIOR = 1e-3


def naive_likelihood(s, net, adherence, share, prior):
    """Negative log likelihood per preference, summed over all ordered pairs (Volkovs & Zemel 2014, section 2.5)."""
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
    found = objective(Objective(False, net[None], adherence, share, PRIOR, 0.0), s, np.empty(len(s)))
    assert found == pytest.approx(naive_likelihood(s, net, adherence, share, PRIOR), abs=1e-10)


@given(st.integers(0, 10_000))
def test_gradient_by_finite_differences(seed):
    s, net, adherence, share = drawn_problem(seed)
    gradient = np.empty(len(s))
    objective(Objective(False, net[None], adherence, share, PRIOR, 0.0), s, gradient)
    expected = scipy.optimize.approx_fprime(s, lambda x: naive_likelihood(x, net, adherence, share, PRIOR), 1e-6)
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def naive_spread(x, margins, adherence, share, prior, tightness):
    """The same with variances (sections 2.4 and 2.5), again over all ordered pairs."""
    size = len(margins)
    s, variance = x[:size], np.exp(x[size:])
    value = prior / 2 * np.sum(s**2) + tightness / 2 * np.sum(x[size:] ** 2)
    pairs = list(itertools.permutations(range(size), 2))
    difference = {(k, m): (s[k] - s[m]) / (variance[k] + variance[m]) for k, m in pairs}
    value -= sum(max(margins[pair], 0.0) * difference[pair] for pair in pairs)
    for t, w in zip(adherence, share, strict=True):
        value += w * np.log(sum(np.exp(t * d) for d in difference.values())) if t > 0 else 0.0
    return value


def drawn_spread(seed: int, size: int = 5):
    draw = np.random.default_rng(seed)
    margins = draw.normal(size=(size, size)) * 0.05
    _, _, adherence, share = drawn_problem(seed)
    return np.append(draw.normal(size=size) * 3, draw.normal(size=size)), margins - margins.T, adherence, share


@given(st.integers(0, 10_000))
def test_variances_are_the_papers_with_their_gradient(seed):
    x, margins, adherence, share = drawn_spread(seed)
    gradient = np.empty(len(x))
    found = objective(Objective(True, margins, adherence, share, 1e-3, 1e-2), x, gradient)
    assert found == pytest.approx(naive_spread(x, margins, adherence, share, 1e-3, 1e-2), abs=1e-10)
    expected = scipy.optimize.approx_fprime(x, naive_spread, 1e-6, margins, adherence, share, 1e-3, 1e-2)
    np.testing.assert_allclose(gradient, expected, atol=2e-5)


def solved(net, adherence, share, s, *, prior=PRIOR, tolerance=1e-10, steps=500, rate=0.0, trace=0):
    """``maximise`` without variances, from s."""
    line = np.full(trace, np.nan)
    f, how = Objective(False, net[None], adherence, share, prior, 0.0), Fit(False, prior, 0.0, tolerance, steps, rate)
    return maximise(f, how, s, line), line


@settings(max_examples=30)  # scipy's optimiser takes a tenth of a second
@given(st.integers(0, 10_000))
def test_the_maximum_is_scipys(seed):
    s, net, adherence, share = drawn_problem(seed)
    started = s.copy()
    (steps, left, value), line = solved(net, adherence, share, s, trace=600)
    assert left < 1e-8
    best = scipy.optimize.minimize(naive_likelihood, started, args=(net, adherence, share, PRIOR), tol=1e-10)
    assert value == pytest.approx(naive_likelihood(s, net, adherence, share, PRIOR))
    assert value <= best.fun + 1e-9
    kept = line[np.isfinite(line)]
    assert len(kept) == steps + 1
    assert (np.diff(kept) > -1e-12).all()
    assert kept[-1] == -value


def test_large_scores_do_not_overflow():
    s = np.array([900.0, 0.0, -900.0])
    gradient = np.empty(3)
    value = objective(Objective(False, np.zeros((1, 3)), np.ones(1), np.ones(1), 0.0, 0.0), s, gradient)
    assert value == pytest.approx(1800.0)
    np.testing.assert_allclose(gradient, [1.0, 0.0, -1.0], atol=1e-12)


def test_the_papers_steps_and_the_solver_agree_in_the_limit():
    _, net, adherence, share = drawn_problem(1)
    slow, fast = np.zeros(6), np.zeros(6)
    solved(net, adherence, share, slow, prior=1e-2, tolerance=1e-9, steps=100_000, rate=0.5)
    solved(net, adherence, share, fast, prior=1e-2, tolerance=1e-9)
    np.testing.assert_allclose(slow, fast, atol=1e-5)


@on_chunks()
def test_agreement_is_the_share_of_rightly_ordered_pairs(drawn):
    made, chunk = drawn
    share = agreement(3, list_arrays(chunk), chunk.labels)
    told = ~np.isnan(share)
    total, count = (np.bincount(chunk.list_expert, weight, 5) for weight in (np.nan_to_num(share), told))
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


@given(st.integers(0, 10_000))
def test_slopes_of_adherence_by_finite_differences(seed):
    s, _, _, _ = drawn_problem(seed)

    def log_z(t):
        return np.log(sum(np.exp(t * (s[k] - s[m])) for k, m in itertools.permutations(range(len(s)), 2)))

    h = 1e-4
    for t in (0.0, 0.3, 1.0):
        first, second = log_partition_slopes(t, s)
        assert first == pytest.approx((log_z(t + h) - log_z(t - h)) / (2 * h), abs=1e-5)
        assert second == pytest.approx((log_z(t + h) - 2 * log_z(t) + log_z(t - h)) / h**2, abs=1e-4)


@given(drawn=chunks(), seed=st.integers(0, 100))
def test_slopes_of_the_likelihood_in_adherence(drawn, seed):
    """Against the definition: every pair of every list, at random scores."""
    made, chunk = drawn
    draw = np.random.default_rng(seed)
    theta, score = draw.choice([0.2, 0.5, 1.0], 5), draw.normal(size=chunk.n_items)
    sizes = np.repeat(np.diff(chunk.item_offsets), np.diff(chunk.list_offsets))
    out = sizes - np.diff(chunk.entry_offsets)
    sums = list_sums(chunk, out, PAIR_FUNCTIONS["difference"])
    slope, curve, spread = np.zeros(5), np.zeros(5), np.zeros((5, 2))
    arrays = list_arrays(chunk), pair_arrays(chunk), expert_arrays(chunk), sums
    adherence_slopes(*arrays, theta, score, slope, curve, spread)
    expected, squares = np.zeros(5), np.zeros(5)
    for q, query in enumerate(made):
        before = expected.copy()
        s = score[chunk.item_offsets[q] : chunk.item_offsets[q + 1]]
        for expert, ranks in query.lists.items():
            full = [ranks.get(i, max(ranks.values()) + 1.0) for i in range(query.size)]
            for i, j in itertools.permutations(range(query.size), 2):
                if full[i] < full[j]:
                    first = log_partition_slopes(theta[expert], s)[0]
                    expected[expert] += (full[j] - full[i]) * (s[i] - s[j] - first)
        squares += (expected - before) ** 2
    np.testing.assert_allclose(slope, expected, atol=1e-7)
    np.testing.assert_allclose(spread[:, 0], squares, atol=1e-6)
    assert (curve > -1e-9).all()
