"""Implicit Candecomp/Parafac against alternating least squares on the dense tensor."""

from __future__ import annotations

import numpy as np
import pytest
from naive_pairs import naive_query_matrix
from strategies import Query, build_chunk

from distagg.dataset.chunk import Chunk
from distagg.models.lists import PAIR_FUNCTIONS, pair_values
from distagg.models.scorers.cp import fill_factors, solve
from distagg.models.scorers.features import FeatureSettings, chunk_features
from distagg.models.scorers.svd import SortedLists

FUNCTIONS = sorted(PAIR_FUNCTIONS)


def drawn_query(seed: int, size: int = 9, experts: int = 5, left_out: int = 3) -> Query:
    """Noisy lists of one truth, each without some of the items, some tied."""
    rng = np.random.default_rng(seed)
    lists = {}
    for e in range(experts):
        items = rng.permutation(size)[: size - int(rng.integers(0, left_out + 1))]
        noisy = items + rng.normal(0.0, 2.0, len(items))
        lists[e] = {int(i): float(1 + (noisy < x).sum() // (1 + e % 2)) for i, x in zip(items, noisy, strict=True)}
    return Query(size, lists)


def tensor_of(query: Query, function: str) -> np.ndarray:
    return np.stack([naive_query_matrix(ranks, query.size, function) for ranks in query.lists.values()], axis=2)


def unit(factor: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(factor, axis=0)
    return factor / np.where(length > 0.0, length, 1.0)


def best_weights(tensor: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """W given U and V, by least squares over all cells."""
    products = np.einsum("ir,jr->ijr", u, v).reshape(-1, u.shape[1])
    return np.linalg.lstsq(products, tensor.reshape(-1, tensor.shape[2]), rcond=None)[0].T


def naive_als(tensor: np.ndarray, parts: int, steps: int) -> tuple[np.ndarray, ...]:
    """Least squares by the dense, unfolded tensor, from the singular vectors of the summed matrix."""
    u, _, vt = np.linalg.svd(tensor.sum(axis=2))
    u, v = u[:, :parts], vt[:parts].T
    for _ in range(steps):
        w = best_weights(tensor, unit(u), unit(v))
        u = best_weights(tensor.transpose(1, 2, 0), unit(v), w)
        v = best_weights(tensor.transpose(0, 2, 1), u, w)
    u, v = unit(u), unit(v)
    return u, v, best_weights(tensor, u, v)


def unexplained(tensor: np.ndarray, u: np.ndarray, v: np.ndarray, w: np.ndarray) -> float:
    return float(np.sum((tensor - np.einsum("ir,jr,er->ije", u, v, w)) ** 2) / np.sum(tensor**2))


def factors(chunk: Chunk, parts: int, function: str) -> tuple[np.ndarray, np.ndarray]:
    """U and V of the chunk's only query, at length 1."""
    features = chunk_features(chunk, FeatureSettings("cp", function, parts))
    rows = np.zeros((chunk.n_items, 2 * parts))
    rows[features.item] = features.values[:, :-1]
    return rows[:, :parts] / np.sqrt(chunk.n_items), rows[:, parts:] / np.sqrt(chunk.n_items)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_leading_component_is_that_of_the_dense_tensor(function: str, seed: int) -> None:
    query = drawn_query(seed)
    tensor = tensor_of(query, function)
    u, v = factors(build_chunk([query]), 1, function)
    wanted = naive_als(tensor, 1, 500)
    np.testing.assert_allclose(u, np.abs(wanted[0]), atol=1e-4)
    np.testing.assert_allclose(v, np.abs(wanted[1]), atol=1e-4)
    assert unexplained(tensor, u, v, best_weights(tensor, u, v)) == pytest.approx(
        unexplained(tensor, *wanted), rel=1e-6
    )


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("function", ["log", "binary"])
def test_steps_are_those_of_the_dense_tensor(function: str, parts: int) -> None:
    """A few steps from the same start: the same factors, up to order and sign; and descending weights."""
    query = drawn_query(7)
    chunk, tensor = build_chunk([query]), tensor_of(query, function)
    nobody = np.zeros(chunk.n_lists, dtype=np.int64)
    value = pair_values(chunk.entry_offsets, chunk.entry_rank, nobody, PAIR_FUNCTIONS[function])[0]
    start = np.linalg.svd(tensor.sum(axis=2))
    rows, weight = np.concatenate([start[0][:, :parts], start[2][:parts].T], axis=1), np.zeros((1, parts))
    taken = np.zeros(1, dtype=np.int64)
    lists = SortedLists(function == "binary", chunk.entry_offsets, chunk.entry_item, value)
    fill_factors(lists, chunk.item_offsets, chunk.list_offsets, 4, 0.0, rows, weight, taken)
    assert taken[0] == 4
    u, v, w = naive_als(tensor, parts, 4)
    order = np.argsort(-np.linalg.norm(w, axis=0))
    np.testing.assert_allclose(weight[0], np.linalg.norm(w, axis=0)[order] / 9, rtol=1e-6)
    for found, wanted in ((rows[:, :parts], u[:, order]), (rows[:, parts:], v[:, order])):
        np.testing.assert_allclose(np.abs(found) / 3.0, np.abs(wanted), atol=1e-6)
        assert (found.sum(axis=0) > -1e-8).all()


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_no_small_change_explains_more(parts: int) -> None:
    """A stationary point: nudged factors, with the weights that suit them, explain no more of the tensor."""
    query = drawn_query(11)
    tensor = tensor_of(query, "log")
    u, v = factors(build_chunk([query]), parts, "log")
    left = unexplained(tensor, u, v, best_weights(tensor, u, v))
    start = np.linalg.svd(tensor.sum(axis=2))
    before = start[0][:, :parts], start[2][:parts].T
    assert left < unexplained(tensor, *before, best_weights(tensor, *before))
    rng = np.random.default_rng(0)
    for _ in range(20):
        moved = [factor + 1e-3 * rng.normal(size=factor.shape) for factor in (u, v)]
        assert unexplained(tensor, *moved, best_weights(tensor, *moved)) > left - 1e-6


def test_more_components_explain_more() -> None:
    query = drawn_query(5, size=12)
    tensor = tensor_of(query, "log")
    left = []
    for parts in (1, 2, 4):
        u, v = factors(build_chunk([query]), parts, "log")
        left.append(unexplained(tensor, u, v, best_weights(tensor, u, v)))
    assert left[0] > left[1] > left[2]


def test_the_linear_system_is_solved() -> None:
    rng = np.random.default_rng(3)
    half = rng.normal(size=(4, 6))
    square, right = half @ half.T, rng.normal(size=(4, 5))
    found = right.copy()
    solve(square.copy(), found)
    np.testing.assert_allclose(found, np.linalg.solve(square, right), rtol=1e-9)


@pytest.mark.parametrize("ranks", [{0: 4.0}, {0: 2.0, 1: 2.0, 2: 2.0}], ids=["one item", "all tied"])
def test_nothing_preferred_gives_zeros(ranks: dict[int, float]) -> None:
    features = chunk_features(build_chunk([Query(4, {0: ranks}), Query(2)]), FeatureSettings("cp", rank=2))
    assert not features.values[:, :-1].any()
    assert np.isfinite(features.values).all()


def test_components_beyond_the_rank_of_the_tensor_are_harmless() -> None:
    """Two items, two lists: one component is all there is."""
    features = chunk_features(
        build_chunk([Query(2, {0: {0: 1.0, 1: 2.0}, 1: {0: 1.0, 1: 9.0}})]), FeatureSettings("cp", rank=3)
    )
    assert np.isfinite(features.values).all()
    np.testing.assert_allclose(features.values[0, 0], np.sqrt(2.0))
