"""Plackett-Luce kernels against the model written down choice by choice."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_luce import naive_beaten, naive_choices, naive_likelihood, naive_objective
from scipy.sparse.csgraph import connected_components
from strategies import Query, build_chunk, queries

from distagg.models.plackett_luce.kernels import (
    count_choices,
    curvature,
    examine,
    expect,
    gather_choices,
    reach,
)
from distagg.models.plackett_luce.posterior_kernels import digamma, shape_of, trigamma
from distagg.models.plackett_luce.solvers import Fit, climb, flows, repeat
from distagg.optimise.convergence import not_begun

SHAPE = 0.3


@st.composite
def mixed(draw):
    """A query with lists, ties, and pairs with weights."""
    query = draw(queries(most_items=6))
    item = st.integers(0, query.size - 1)
    pairs = draw(st.lists(st.tuples(item, item, st.sampled_from([0.0, 0.5, 2.0]), st.booleans()), max_size=4))
    return Query(query.size, query.lists, (), [p for p in pairs if p[0] != p[1]])


def gathered(query, last):
    chunk = build_chunk([Query(2), query, Query(3, {0: {0: 1, 1: 2}})])
    return chunk.item_offsets, gather_choices(
        last, chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.entry_item, chunk.entry_rank,
        chunk.pair_offsets, chunk.pair_winner, chunk.pair_loser, chunk.pair_weight, chunk.pair_tie,
    )  # fmt: skip


def drawn_theta(size: int, scale: float = 2.0):
    return np.random.default_rng(size).normal(size=size) * scale


@settings(max_examples=40)
@given(query=mixed(), last=st.booleans())
def test_choices_are_the_naive_ones(query, last):
    offsets, choices = gathered(query, last)
    wins, number = count_choices(choices, offsets)
    expected = naive_choices(query, last=last)
    assert number[1] == pytest.approx(sum(w for _, _, w in expected))
    by_item = np.bincount([i for i, _, _ in expected], [w for _, _, w in expected], query.size)
    np.testing.assert_allclose(wins[offsets[1] : offsets[2]], by_item)
    assert number[0] == 0


@settings(max_examples=40)
@given(query=mixed(), last=st.booleans())
def test_likelihood_and_gradient(query, last):
    offsets, choices = gathered(query, last)
    span = slice(offsets[1], offsets[2])
    wins = count_choices(choices, offsets)[0][span]
    theta, x, expected = drawn_theta(query.size), np.empty(query.size), np.empty(query.size)
    naive = naive_choices(query, last=last)
    assert expect(choices, 1, SHAPE, theta, x, expected) == pytest.approx(naive_likelihood(theta, naive), abs=1e-9)
    np.testing.assert_allclose(
        wins + SHAPE - expected,
        scipy.optimize.approx_fprime(theta, lambda t: naive_objective(t, naive, SHAPE), 1e-6),
        atol=2e-5,
    )


@settings(max_examples=40)
@given(query=mixed(), last=st.booleans())
def test_curvature_by_finite_differences(query, last):
    _, choices = gathered(query, last)
    theta, found, x = drawn_theta(query.size, 1.0), np.empty((query.size, query.size)), np.empty(query.size)
    curvature(choices, 1, SHAPE, theta, found)

    def expected(t):
        out = np.empty(query.size)
        expect(choices, 1, SHAPE, t, x, out)
        return out

    naive = scipy.optimize.approx_fprime(theta, expected, 1e-6).reshape(query.size, query.size)
    np.testing.assert_allclose(found, naive, atol=2e-5)
    np.testing.assert_allclose(found.sum(axis=1), 0.0, atol=1e-12)


def test_unlisted_items_far_weaker_than_listed_ones_keep_their_digits():
    """The sum of the unlisted is all less the listed; plain subtraction would leave nothing of it."""
    query = Query(4, {0: {0: 1, 1: 2}, 1: {1: 1, 0: 2}})
    _, choices = gathered(query, True)
    theta, x, expected = np.array([60.0, 0.0, 1.0, 2.0]), np.empty(4), np.empty(4)
    expect(choices, 1, 0.0, theta, x, expected)
    assert expected[2] / expected[3] == pytest.approx(np.exp(-1.0), rel=1e-9)
    expect(choices, 1, 0.0, np.array([20.0, 0.0, -9.0, -8.0]), x, expected)
    assert expected[3] == pytest.approx(np.exp(-8.0) / (1.0 + np.exp(-9.0) + np.exp(-8.0)), rel=1e-6)


@settings(max_examples=40)
@given(query=mixed(), last=st.booleans())
def test_flows_are_those_of_the_dense_chain(query, last):
    _, choices = gathered(query, last)
    size = query.size
    theta, share = drawn_theta(size), np.exp(drawn_theta(size + 10)[:size])
    x = np.exp(theta)
    into, out, rate = np.empty(size), np.empty(size), np.zeros((size, size))
    flows(choices, 1, SHAPE, x, share, into, out)
    everybody = [(i, [j for j in range(size) if j != i], SHAPE) for i in range(size)]
    for i, over, w in naive_choices(query, last=last) + everybody:
        rate[over, i] += w / (x[i] + x[over].sum())
    np.testing.assert_allclose(into, share @ rate, atol=1e-9)
    np.testing.assert_allclose(out, rate.sum(axis=1), atol=1e-9)


@settings(max_examples=20)
@given(query=mixed(), last=st.booleans())
def test_solvers_agree(query, last):
    offsets, choices = gathered(query, last)
    wins, number = count_choices(choices, offsets)
    found = []
    for solver in ("lbfgs", "mm", "ilsr"):
        theta, ended = np.zeros(offsets[-1]), not_begun(3)
        rest = (Fit(SHAPE, 1e-11, 5000), choices, offsets, wins, number, theta, ended)
        if solver == "lbfgs":
            climb(*rest)
        else:
            repeat(solver == "ilsr", *rest)
        assert (ended.gradient <= 1e-11).all()
        own = theta[offsets[1] : offsets[2]]
        found.append(own - own.mean())
    np.testing.assert_allclose(found[1], found[0], atol=1e-7)
    np.testing.assert_allclose(found[2], found[0], atol=1e-7)


@settings(max_examples=60)
@given(query=mixed(), last=st.booleans())
def test_the_graph_is_that_of_the_edges(query, last):
    offsets, choices = gathered(query, last)
    wins, _ = count_choices(choices, offsets)
    status, component = examine(choices, offsets, wins)
    span = slice(offsets[1], offsets[2])
    beats = naive_beaten(query, last=last)
    won, lost = beats.any(axis=1), beats.any(axis=0)
    assert status[span].tolist() == np.where(won, np.where(lost, 0, 1), np.where(lost, 2, 3)).tolist()
    assert component[span].tolist() == connected_components(beats, directed=False)[1].tolist()
    assert component[: offsets[1]].tolist() == [0, 1]
    marks = np.ones((2, offsets[-1]), dtype=bool)
    for forward in (0, 1):
        reach(forward == 1, choices, offsets, component, marks[forward])
    strong, _ = connected_components(beats, directed=True, connection="strong")
    weak, _ = connected_components(beats, directed=False)
    assert marks[:, span].all() == (strong == weak)


@pytest.mark.parametrize("x", [1e-3, 0.1, 0.7, 1.0, 3.3, 8.0, 120.0])
def test_gamma_functions(x):
    assert digamma(x) == pytest.approx(scipy.special.digamma(x), rel=1e-10, abs=1e-10)
    assert trigamma(x) == pytest.approx(scipy.special.polygamma(1, x), rel=1e-10)
    for guess in (0.1 * x, 0.9 * x, 10.0 * x):
        assert shape_of(np.log(x) - digamma(x), guess) == pytest.approx(x, rel=1e-7)
