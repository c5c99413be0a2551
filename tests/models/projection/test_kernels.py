"""Singular value projection against dense twins: numpy's SVD, matrices built pair by pair."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Query, build_chunk, chunks, on_chunks

from distagg.models import model_named
from distagg.models.projection.kernels import (
    Observed,
    WeightedLists,
    majority_product,
    observe,
    project_observed,
    residual,
    stepped_product,
)


def naive_joint(query: Query, function: str, *, last: bool, mean: bool = True):
    """The joint matrix and the mask of observed pairs, expert by expert."""
    total, count = np.zeros((query.size, query.size)), np.zeros((query.size, query.size))
    for ranks in query.lists.values():
        for i in range(query.size):
            for j in range(query.size):
                if i == j or (not last and (i not in ranks or j not in ranks)):
                    continue
                behind = max(ranks.values()) + 1
                gap = ranks.get(j, behind) - ranks.get(i, behind)
                total[i, j] += np.sign(gap) if function == "binary" else gap
                count[i, j] += 1
    return total / np.maximum(count, 1) if mean else total, count > 0


def rank_two(matrix):
    left, values, right = np.linalg.svd(matrix)
    return (left[:, :2] * values[:2]) @ right[:2]


def naive_svp(joint, observed, *, steps: int, tolerance: float, step: float = 1.0):
    """The paper's iteration with a full decomposition in every step."""
    fitted, before = np.zeros_like(joint), 1.0
    for _ in range(steps):
        fitted = rank_two(fitted - step * np.where(observed, fitted - joint, 0.0))
        now = np.linalg.norm((fitted - joint)[observed]) / np.linalg.norm(joint[observed])
        if abs(now - before) <= tolerance:
            break
        before = now
    return fitted


def drawn_query(seed: int, size: int = 12, experts: int = 6, share: float = 0.7) -> Query:
    draw = np.random.default_rng(seed)
    truth = np.arange(size) + 0.0
    lists = {}
    for e in range(experts):
        noisy = np.argsort(np.argsort(truth + draw.normal(size=size) * 2)) + 1.0
        kept = draw.random(size) < share
        lists[e] = {i: float(noisy[i]) for i in range(size) if kept[i]}
    return Query(size, lists)


def observed_pairs(query: Query, *, sign: bool, mean: bool) -> Observed:
    chunk = build_chunk([query])
    arrays = chunk.list_offsets, chunk.entry_offsets, chunk.entry_item, chunk.entry_rank, chunk.entry_rank
    weight = np.ones(chunk.n_lists)
    weight.setflags(write=False)  # as the model does: one compilation
    return observe(sign, mean, WeightedLists(*arrays, weight), 0, chunk.n_lists, query.size)


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("function", ["binary", "difference"])
@on_chunks(most_queries=1)
def test_observed_pairs_are_those_of_the_experts(function, mean, drawn):
    query = drawn[0][0]
    start, column, joint = observed_pairs(query, sign=function == "binary", mean=mean)
    matrix, seen = np.zeros((query.size, query.size)), np.zeros((query.size, query.size), dtype=bool)
    for i in range(query.size):
        for p in range(start[i], start[i + 1]):
            matrix[i, column[p]], seen[i, column[p]] = joint[p], True
    expected, observed = naive_joint(query, function, last=False, mean=mean)
    np.testing.assert_array_equal(seen | seen.T, observed)
    np.testing.assert_allclose(matrix - matrix.T, expected, atol=1e-12)


@given(drawn=chunks(most_queries=1), seed=st.integers(0, 1000))
def test_products_with_majorities_need_no_matrix(drawn, seed):
    query, chunk = drawn[0][0], drawn[1]
    x, out = np.random.default_rng(seed).normal(size=query.size), np.empty(query.size)
    majority_product(x, 0, chunk.n_lists, chunk.entry_offsets, chunk.entry_item, chunk.entry_rank, out)
    np.testing.assert_allclose(out, naive_joint(query, "binary", last=True)[0] @ x, atol=1e-12)


@given(st.integers(0, 1000))
def test_products_with_a_step_are_low_rank_plus_sparse(seed):
    draw = np.random.default_rng(seed)
    pairs = observed_pairs(drawn_query(seed), sign=False, mean=True)
    u, v, x, out, gap = *(draw.normal(size=12) for _ in range(3)), np.empty(12), np.empty(len(pairs.joint))
    loss = residual(2.0, u, v, pairs, gap)
    fitted = 2.0 * (np.outer(u, v) - np.outer(v, u))
    matrix, observed = naive_joint(drawn_query(seed), "difference", last=False)
    left = np.where(observed, fitted - matrix, 0.0)
    assert loss == pytest.approx(0.25 * np.sum(left**2))
    stepped_product(x, 0.7, 2.0, u, v, pairs, gap, out)
    np.testing.assert_allclose(out, (fitted - 0.7 * left) @ x, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("function", ["binary", "difference"])
def test_the_fit_is_that_of_full_decompositions(function, seed):
    query = drawn_query(seed)
    joint, observed = naive_joint(query, function, last=False)
    expected = naive_svp(joint, observed, steps=20_000, tolerance=1e-11).sum(axis=1) / query.size
    settings = {"pairs": function, "unlisted": "ignore", "tolerance": 1e-12, "steps": 50_000}
    found = model_named("svp", settings).score(build_chunk([query]), {})
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("seed", range(5))
def test_the_projection_of_majorities_is_the_leading_pair(seed):
    query = drawn_query(seed)
    projected = rank_two(naive_joint(query, "binary", last=True)[0])
    found = model_named("svp", {"pairs": "binary"}).score(build_chunk([query]), {})
    np.testing.assert_allclose(found, projected.sum(axis=1) / query.size, atol=1e-7)


def test_the_loss_never_rises():
    pairs = observed_pairs(drawn_query(1, size=30, share=0.3), sign=True, mean=True)
    trace = np.full(200, np.nan)
    project_observed(1.0, 200, 1e-9, pairs, np.zeros(30), trace)
    assert (np.diff(trace[np.isfinite(trace)]) > -1e-12).all()
