"""Components of graphs, against scipy's."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from distagg.optimise.components import connected, overlaid, strong_components

SIZE = 7
EDGES = st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=14)
LABELS = st.lists(st.integers(0, 4), min_size=SIZE, max_size=SIZE)


def csr(edges):
    """Rows of the items that every item points to."""
    edges = sorted(edges)
    start = np.searchsorted([i for i, _ in edges], np.arange(SIZE + 1))
    return start, np.array([j for _, j in edges], dtype=np.int32)


def matrix(edges):
    cells = np.zeros((SIZE, SIZE))
    for i, j in edges:
        cells[i, j] = 1
    return scipy.sparse.csr_array(cells)


def by_first_items(labels):
    """The same components, numbered in the order of their first items."""
    labels = np.asarray(labels).tolist()
    return [sorted(set(labels), key=labels.index).index(label) for label in labels]


@given(EDGES, EDGES)
def test_connected_components_are_scipys_in_every_query(one, two):
    ends = np.array([*one, *((i + SIZE, j + SIZE) for i, j in two)], dtype=np.int64).reshape(-1, 2)
    found = connected(np.array([0, SIZE, SIZE, 2 * SIZE]), ends[:, 0].copy(), ends[:, 1].copy())
    for edges, here in ((one, found[:SIZE]), (two, found[SIZE:])):
        assert here.tolist() == by_first_items(connected_components(matrix(edges), directed=False)[1])


@given(LABELS, LABELS)
def test_components_laid_over_one_another(a, b):
    edges = [(i, j) for i in range(SIZE) for j in range(SIZE) if a[i] == a[j] or b[i] == b[j]]
    wanted = by_first_items(connected_components(matrix(edges), directed=False)[1])
    assert overlaid(np.array(a, np.int32), np.array(b, np.int32)).tolist() == wanted


@given(EDGES)
def test_strong_components_are_scipys_and_numbered_from_the_far_end(edges):
    count, label = strong_components(*csr(edges))
    expected, labels = connected_components(matrix(edges), directed=True, connection="strong")
    assert count == expected
    assert by_first_items(label) == by_first_items(labels)
    assert all(label[j] <= label[i] for i, j in edges)


@pytest.mark.parametrize("closed", [False, True])
def test_a_long_chain_needs_no_recursion(closed):
    size = 20_000
    order = np.random.default_rng(0).permutation(size)
    after = np.empty(size, dtype=np.int32)
    after[order] = np.roll(order, -1)
    start = np.arange(size + 1)
    if not closed:
        start[order[-1] + 1 :] -= 1
        after = np.delete(after, order[-1])
    assert strong_components(start, after)[0] == (1 if closed else size)
