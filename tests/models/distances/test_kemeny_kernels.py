"""Kemeny kernels against enumeration of all orders, and against scipy."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from strategies import on_chunks

from distagg.models.distances.kemeny_kernels import (
    components,
    descend,
    kicked,
    ordered_pairs,
    settle,
    solve_order,
    worth,
)
from distagg.models.distances.triangles import Bound, Search, mirror, sweep
from distagg.models.pairs import list_arrays
from distagg.models.weights import NO_WEIGHTS

SEARCH = Search(1 << 10)


def drawn_margins(seed: int, size: int = 0, *, whole: bool = True) -> np.ndarray:
    draw = np.random.default_rng(seed)
    size = size or int(draw.integers(1, 8))
    half = draw.integers(-4, 5, (size, size)).astype(float) if whole else draw.normal(size=(size, size))
    return np.triu(half, 1) - np.triu(half, 1).T


def naive_worth(matrix, order) -> float:
    return sum(matrix[i, j] for i, j in itertools.combinations(order, 2))


def best_worth(matrix) -> float:
    return max(naive_worth(matrix, order) for order in itertools.permutations(range(len(matrix))))


def best_worth_by_subsets(matrix) -> float:
    """The same by dynamic programming over sets of items placed first."""
    size = len(matrix)
    best = np.full(1 << size, -np.inf)
    best[0] = 0.0
    for placed in range(1 << size):
        rest = [i for i in range(size) if not placed >> i & 1]
        for i in rest:
            after = placed | 1 << i
            best[after] = max(best[after], best[placed] + sum(matrix[i, j] for j in rest))
    return best[-1]


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([0, 10_000]))
def test_orders_are_the_best_of_all_where_that_is_claimed(seed, whole, effort):
    matrix = drawn_margins(seed, whole=whole)
    found = solve_order(matrix, effort, SEARCH)
    assert sorted(found.order) == list(range(len(matrix)))
    assert found.worth == pytest.approx(naive_worth(matrix, found.order))
    best = best_worth(matrix)
    assert found.worth <= best + 1e-9 <= found.bound + 1e-6
    assert effort == 0 or not found.open
    if not found.open:
        assert found.worth == pytest.approx(best)


@pytest.mark.parametrize("seed", range(6))
def test_twelve_items(seed):
    matrix = drawn_margins(seed, 12)
    found = solve_order(matrix, 100_000, SEARCH)
    assert not found.open
    assert found.worth == best_worth_by_subsets(matrix)


@given(st.integers(0, 10_000))
def test_the_search_needs_no_good_start(seed):
    """With nothing but the margins as a bound, and with one by triangles."""
    matrix = drawn_margins(seed)
    size = len(matrix)
    for sweeps in (0, 5) if size > 1 else ():
        reduced, triangles, order = matrix.copy(), np.zeros((size, size, size)), np.arange(size)
        for n in range(sweeps):
            sweep(reduced, triangles, 0.25 * n)
        mirror(reduced, triangles)
        least = worth(matrix, order) + 1.0
        whole, _ = SEARCH.run(Bound(matrix, reduced, triangles), least, 1.0, 10**7, order)
        assert whole
        assert worth(matrix, order) == best_worth(matrix)


@given(st.integers(0, 10_000), st.booleans())
def test_sweeps_lower_a_bound_that_always_holds(seed, whole):
    matrix = drawn_margins(seed, whole=whole)
    size = len(matrix)
    reduced, triangles = matrix.copy(), np.zeros((size, size, size))
    last, best = np.abs(matrix).sum() / 2, best_worth(matrix)
    for n in range(8):
        bound = sweep(reduced, triangles, 0.25 * (n > 0))
        assert best - 1e-9 <= bound <= last + 1e-9
        last = bound
    mirror(reduced, triangles)
    triples = itertools.combinations(range(size), 3)
    np.testing.assert_allclose(reduced, matrix - triangles.sum(axis=2), atol=1e-9)
    assert bound == pytest.approx(np.abs(reduced).sum() / 2 + sum(abs(triangles[t]) for t in triples))


@given(st.integers(0, 10_000))
def test_components_are_scipys_and_break_no_majority(seed):
    matrix = drawn_margins(seed)
    order, starts = components(matrix)
    expected, label = connected_components(matrix > 0, directed=True, connection="strong")
    assert len(starts) == expected + 1
    assert starts[-1] == len(matrix)
    parts = np.split(order, starts[1:-1])
    assert {frozenset(part) for part in parts} == {frozenset(np.flatnonzero(label == c)) for c in range(expected)}
    for before, after in itertools.combinations(parts, 2):
        assert (matrix[np.ix_(before, after)] >= 0).all()


@given(st.integers(0, 10_000))
def test_local_search_ends_where_no_item_can_be_moved_to_gain(seed):
    matrix = drawn_margins(seed)
    size = len(matrix)
    order = np.random.default_rng(seed).permutation(size)
    before = naive_worth(matrix, order)
    descend(matrix, order, 0.25)
    here = naive_worth(matrix, order)
    assert here >= before
    for item, to in itertools.product(range(size), range(size)):
        moved = [i for i in order if i != item]
        moved.insert(to, item)
        assert naive_worth(matrix, moved) <= here


def test_kicks_leave_local_optima_and_never_lose():
    matrix = drawn_margins(5, 30)
    order = np.arange(30)
    descend(matrix, order, 0.25)
    local = worth(matrix, order)
    kicked(matrix, np.inf, 1.0, 200_000, order)
    assert sorted(order) == list(range(30))
    assert worth(matrix, order) > local


@given(st.integers(0, 10_000))
def test_settling_ties_costs_nothing(seed):
    matrix = drawn_margins(seed)
    order = np.random.default_rng(seed).permutation(len(matrix))
    before = worth(matrix, order)
    settle(matrix, order)
    assert worth(matrix, order) == before
    assert all(a < b or matrix[a, b] != 0 for a, b in itertools.pairwise(order))


@pytest.mark.parametrize("unlisted_last", [True, False])
@on_chunks()
def test_ordered_pairs_are_counted(unlisted_last, drawn):
    made, chunk = drawn
    total = ordered_pairs(unlisted_last, NO_WEIGHTS, list_arrays(chunk))
    for query, found in zip(made, total, strict=True):
        expected = 0
        for ranks in query.lists.values():
            places = {i: ranks.get(i, np.inf) for i in (range(query.size) if unlisted_last else ranks)}
            expected += sum(places[i] != places[j] for i, j in itertools.combinations(places, 2))
        assert found == expected
