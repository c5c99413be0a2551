"""The comparison graph, against scipy's."""

import numpy as np
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from distagg.models.pairwise.graph import ISOLATED, OK, UNBEATEN, WINLESS, Graph, examine, reached, strong_in_rows

EDGES = st.integers(1, 9).flatmap(
    lambda size: st.tuples(
        st.just(size), st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=20)
    )
)


def rows_of(wins):
    """Wins (size, size) in rows of lower items."""
    size = len(wins)
    cells = [(i, j) for i in range(size) for j in range(i + 1, size) if wins[i, j] + wins[j, i] > 0]
    offsets = np.array([sum(c[0] < i for c in cells) for i in range(size + 1)])
    other = np.array([j for _, j in cells], dtype=np.int32)
    return (
        offsets,
        other,
        np.array([wins[c] for c in cells], float),
        np.array([wins[c[::-1]] for c in cells], float),
    )


def examined(*wins):
    """Status, component, connected and strong counts of queries that stand behind one another."""
    parts = [rows_of(np.asarray(w)) for w in wins]
    starts = np.cumsum([0, *(len(part[1]) for part in parts)])
    offsets = np.concatenate([[0], *(part[0][1:] + at for part, at in zip(parts, starts, strict=False))])
    item_offsets = np.cumsum([0, *(len(w) for w in wins)])
    item_offsets.setflags(write=False)  # as a chunk's
    edges = [np.concatenate([part[k] for part in parts]) for k in (1, 2, 3)]
    return examine(Graph(item_offsets, offsets, *edges, np.zeros(len(wins))))


def matrix(size, edges):
    wins = np.zeros((size, size))
    for i, j in edges:
        if i != j:
            wins[i, j] += 1
    return wins


@given(EDGES, EDGES)
def test_status_and_components_are_scipys(one, two):
    wins = [matrix(*one), matrix(*two)]
    status, component, connected = examined(*wins)
    at = 0
    for w, count in zip(wins, connected, strict=True):
        here = slice(at, at + len(w))
        at += len(w)
        won, lost = w.sum(1) > 0, w.sum(0) > 0
        assert (
            status[here].tolist()
            == np.where(won & lost, OK, np.where(won, UNBEATEN, np.where(lost, WINLESS, ISOLATED))).tolist()
        )
        expected, labels = connected_components(w, directed=True, connection="weak")
        assert count == expected
        first = [labels.tolist().index(label) for label in labels]
        mine = component[here].tolist()
        assert [mine.index(label) for label in mine] == first
        assert sorted(set(mine)) == list(range(expected))


@given(EDGES)
def test_strong_components_are_scipys(drawn):
    wins = matrix(*drawn)
    rows = rows_of(wins)
    count, label = strong_in_rows(*rows, len(wins))
    expected, labels = connected_components(scipy.sparse.csr_array(wins), directed=True, connection="strong")
    assert count == expected
    assert len(set(zip(label.tolist(), labels.tolist(), strict=True))) == expected
    if reached(*rows, len(wins)):
        assert expected == 1


def test_edges_may_stand_in_rows_of_their_winners():
    """As directed edges, the reverse weights 0: what other models hand over."""
    offsets, other = np.array([0, 1, 2, 3]), np.array([2, 0, 1], dtype=np.int32)  # 0 > 2 > 1 > 0
    assert strong_in_rows(offsets, other, np.ones(3), np.zeros(3), 3)[0] == 1
    assert strong_in_rows(offsets, other, np.array([1.0, 0, 1]), np.zeros(3), 3)[0] == 3
