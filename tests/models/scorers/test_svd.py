"""Implicit singular triplets against the dense decomposition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_pairs import naive_query_matrix
from strategies import Query, build_chunk

from distagg.dataset.chunk import Chunk
from distagg.models.lists import PAIR_FUNCTIONS
from distagg.models.scorers.features import FeatureSettings, chunk_features

FUNCTIONS = sorted(PAIR_FUNCTIONS)


def by_item(chunk: Chunk, found: np.ndarray, size: int) -> np.ndarray:
    rows = np.zeros((size, found.shape[1]))
    rows[chunk.entry_item] = found
    return rows


def check(rows: np.ndarray, matrix: np.ndarray, rank: int) -> None:
    """Rows (size, 3 rank) hold the leading triplets of the matrix, scaled; signs as documented."""
    size = len(matrix)
    u, s, v = np.linalg.svd(matrix)
    wanted = np.zeros(rank)
    wanted[: min(rank, size)] = s[:rank]
    sigma = rows[:, rank : 2 * rank].max(axis=0) * size
    np.testing.assert_allclose(sigma, wanted, atol=1e-10 * max(s[0], 1e-300))
    for t in range(rank):
        mine = rows[:, t] / np.sqrt(size), rows[:, 2 * rank + t] / np.sqrt(size)
        if t >= size or s[t] <= 1e-9 * s[0] or s[t] == 0.0:
            assert not mine[0].any()
            assert not mine[1].any()
            continue
        after = s[t + 1] if t + 1 < size else 0.0
        if s[t] - after < 1e-3 * s[0] or (t and s[t - 1] - s[t] < 1e-3 * s[0]):
            continue  # nearly equal singular values: no vectors to compare
        turn = 1.0 if mine[0] @ u[:, t] > 0 else -1.0
        np.testing.assert_allclose(turn * mine[0], u[:, t], atol=1e-10)
        np.testing.assert_allclose(turn * mine[1], v[t], atol=1e-10)
        assert mine[0].sum() > -1e-8


RANKS = st.one_of(
    st.lists(st.integers(1, 6).map(float), min_size=1, max_size=14),
    st.lists(st.floats(0.01, 500.0), min_size=1, max_size=14),
)


@pytest.mark.parametrize("function", FUNCTIONS)
@settings(max_examples=120)
@given(drawn=RANKS, left_out=st.integers(0, 3))
def test_triplets_of_a_list_equal_the_dense_ones(function: str, drawn: list[float], left_out: int) -> None:
    if function == "log" and max(drawn) <= 1.0 and len(set(drawn)) > 1:
        return  # the log of the largest rank is not positive: no such list has a scale
    size = len(drawn) + left_out
    ranks = dict(enumerate(drawn))
    chunk = build_chunk([Query(size, {0: ranks})])
    found = chunk_features(chunk, FeatureSettings(pairs=function, rank=3)).values[:, :-1]
    matrix = naive_query_matrix(ranks, size, function) if len(set(drawn)) > 1 else np.zeros((size, size))
    check(by_item(chunk, found, size), matrix, 3)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("size", [2, 30, 200])
def test_long_lists_with_and_without_ties(function: str, size: int) -> None:
    rng = np.random.default_rng(size)
    for ranks in (rng.permutation(size) + 1.0, rng.integers(1, 6, size) * 1.0 + np.arange(size) // (size - 1)):
        chunk = build_chunk([Query(size, {0: dict(enumerate(ranks))})])
        found = chunk_features(chunk, FeatureSettings(pairs=function, rank=3)).values[:, :-1]
        check(by_item(chunk, found, size), naive_query_matrix(dict(enumerate(ranks)), size, function), 3)


def test_nearly_equal_singular_values_are_told_apart() -> None:
    """A large tie between a first and a last item: the two singular values differ by 1 in 50."""
    size = 2502
    ranks = {0: 1.0, size - 1: 3.0} | dict.fromkeys(range(1, size - 1), 2.0)
    chunk = build_chunk([Query(size, {0: ranks})])
    found = chunk_features(chunk, FeatureSettings(pairs="binary")).values[:, :-1]
    matrix = np.array([[size - 1.0, np.sqrt(size - 2)], [np.sqrt(size - 2), size - 2.0]])  # Y Y', first and tied rows
    lead, vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(found[0, 1] * size, np.sqrt(lead[1]), rtol=1e-12)
    expected = np.abs(vectors[:, 1]) * np.sqrt(size) / np.array([1.0, np.sqrt(size - 2)])
    np.testing.assert_allclose(found[:2, 0], expected, rtol=1e-9)


@pytest.mark.parametrize("ranks", [{0: 4.0}, {0: 2.0, 1: 2.0, 2: 2.0}], ids=["one item", "all tied"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_preferred_gives_zeros(function: str, ranks: dict[int, float]) -> None:
    features = chunk_features(build_chunk([Query(4, {0: ranks})]), FeatureSettings(pairs=function, rank=2))
    assert not features.values[:, :-1].any()


def test_tied_items_share_their_bits() -> None:
    ranks = {0: 1.0, 1: 7.0, 2: 7.0, 3: 7.0, 4: 9.0, 5: 9.0}
    for function in FUNCTIONS:
        rows = chunk_features(build_chunk([Query(6, {0: ranks})]), FeatureSettings(pairs=function, rank=2)).values
        assert (rows[1] == rows[2]).all()
        assert (rows[1] == rows[3]).all()
        assert (rows[4] == rows[5]).all()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_combined_triplets_are_those_of_the_sum(function: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        size = int(rng.integers(3, 12))
        lists = {e: dict(enumerate(rng.permutation(size)[: size - e % 2] + 1.0)) for e in range(3)}
        chunk = build_chunk([Query(size, lists)])
        features = chunk_features(chunk, FeatureSettings(pairs=function, combined=True))
        total = sum(naive_query_matrix(ranks, size, function) for ranks in lists.values())
        check(features.values[:, :-1], np.asarray(total), 1)
