"""The comparison graph of a query, which decides what the observed pairs say about items. Cost: O(items + edges).

Edges are stored in rows (CSR): row i holds ``other[e]`` for e in offsets[i]:offsets[i + 1], where item i beat that item
``ahead[e]`` times and lost to it ``behind[e]`` times. A pair may be in the row of either item, or in both rows. Counts
of 0 make no edge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.outcome import ISOLATED, OK, UNBEATEN, WINLESS
from distagg.optimise.components import join, number_trees, strong_components
from distagg.types import Floats, Indices, Labels, Offsets

SWEEPS = 3


class Graph(NamedTuple):
    """The comparison graphs of Q queries: who beat whom how often (see ``counts``)."""

    item_offsets: Offsets  # (Q + 1,)
    offsets: Offsets  # (I + 1,) of edges
    other: Indices  # (edges,)
    ahead: Floats  # (edges,) how often the row's item won
    behind: Floats  # (edges,) and lost
    ties: Floats  # (Q,)


@kernel
def examine(graph: Graph) -> tuple[Labels, Labels, Offsets]:  # (I,), (I,), (Q,)
    """The status and the connected component of every item, and the number of components of every query.

    Components are numbered from 0 in the order of their first items.
    """
    items, queries = len(graph.offsets) - 1, len(graph.item_offsets) - 1
    status, component = np.zeros(items, dtype=np.int32), np.empty(items, dtype=np.int32)
    connected = np.empty(queries, dtype=np.int64)
    parent = np.arange(items)  # a forest, whose roots are the first of their trees
    for q in range(queries):
        base, end = graph.item_offsets[q], graph.item_offsets[q + 1]
        for i in range(base, end):
            join_row(graph, base, i, status, parent)
        connected[q] = number_trees(base, end, parent, component)
    for i in range(items):
        status[i] = OK if status[i] == 3 else UNBEATEN if status[i] == 1 else WINLESS if status[i] == 2 else ISOLATED
    return status, component, connected


@kernel
def join_row(graph: Graph, base: int, i: int, status: Labels, parent: Offsets) -> None:
    """Mark the items in the row of item i that won (bit 1) or lost (bit 2), and join the trees of compared items."""
    other, ahead, behind = graph.other, graph.ahead, graph.behind
    mine = i
    for e in range(graph.offsets[i], graph.offsets[i + 1]):
        j = base + other[e]
        if parent[j] == mine and status[i] & status[j] == 3:
            continue  # both items have won and lost, and are in one tree
        if ahead[e] > 0.0:
            status[i] |= 1
            status[j] |= 2
        if behind[e] > 0.0:
            status[i] |= 2
            status[j] |= 1
        if parent[j] == mine or ahead[e] + behind[e] == 0.0:
            continue
        mine = join(mine, j, parent)
        parent[i] = parent[j] = mine


@kernel
def reached(offsets: Offsets, other: Indices, ahead: Floats, behind: Floats, size: int) -> bool:
    """Whether a few sweeps over the edges find a path of wins from the first item to every other one, and back.

    True means that the graph is strongly connected; False means that the sweeps did not find out.
    """
    for turn in range(2):
        out, back = (ahead, behind) if turn == 0 else (behind, ahead)
        seen = np.zeros(size, dtype=np.bool_)
        seen[0] = True
        missing = size - 1
        for _ in range(SWEEPS):
            for i in range(size):
                if missing == 0:
                    break
                for e in range(offsets[i], offsets[i + 1]):
                    j = other[e]
                    if seen[i] != seen[j]:
                        if seen[i]:
                            seen[j] = out[e] > 0.0
                        else:
                            seen[i] = back[e] > 0.0
                        missing -= seen[i] and seen[j]
        if missing > 0:
            return False
    return True


@kernel
def directed(
    offsets: Offsets, other: Indices, ahead: Floats, behind: Floats, size: int
) -> tuple[Offsets, Indices]:  # (size + 1,), (edges,)
    """The same graph with one row for each item, of the items that it has beaten."""
    start = np.zeros(size + 2, dtype=np.int64)
    for i in range(size):
        for e in range(offsets[i], offsets[i + 1]):
            start[i + 2] += ahead[e] > 0.0
            start[other[e] + 2] += behind[e] > 0.0
    for i in range(size + 1):
        start[i + 1] += start[i]
    beaten = np.empty(start[size + 1], dtype=np.int32)
    for i in range(size):
        for e in range(offsets[i], offsets[i + 1]):
            j = other[e]
            if ahead[e] > 0.0:
                beaten[start[i + 1]] = j
                start[i + 1] += 1
            if behind[e] > 0.0:
                beaten[start[j + 1]] = i
                start[j + 1] += 1
    return start[: size + 1], beaten


@kernel
def strong_in_rows(
    offsets: Offsets, other: Indices, ahead: Floats, behind: Floats, size: int
) -> tuple[int, Labels]:  # components, (size,)
    """Strongly connected components of "i has beaten j"; a component is numbered before those that beat it.

    In a component there is a path of wins from every item to every other one. Maximum likelihood gives finite scores
    only if the whole query is one component.
    """
    if size > 0 and reached(offsets, other, ahead, behind, size):
        return 1, np.zeros(size, dtype=np.int32)
    start, beaten = directed(offsets, other, ahead, behind, size)
    return strong_components(start, beaten)


@kernel
def count_strong(graph: Graph) -> Offsets:  # (Q,)
    """The number of strongly connected components of every query."""
    strong = np.empty(len(graph.item_offsets) - 1, dtype=np.int64)
    for q in range(len(strong)):
        base, end = graph.item_offsets[q], graph.item_offsets[q + 1]
        rows = graph.offsets[base : end + 1]
        strong[q] = strong_in_rows(rows, graph.other, graph.ahead, graph.behind, end - base)[0]
    return strong
