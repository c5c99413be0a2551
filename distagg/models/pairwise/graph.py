"""The comparison graph of a query: which items the observed pairs can tell apart. Cost: O(items + edges).

Edges stand in rows (CSR): row i holds ``other[e]`` for e in offsets[i]:offsets[i + 1], with a weight ``ahead[e]`` for i
over that item and ``behind[e]`` for the reverse. A pair may stand in either row, or in both. Weights of 0 are no edges.
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
    """Which items were compared: the counts of every query (see ``counts``)."""

    item_offsets: Offsets  # (Q + 1,)
    offsets: Offsets  # (I + 1,) of edges
    other: Indices  # (edges,)
    ahead: Floats  # (edges,) how often the row's item won
    behind: Floats  # (edges,) and lost
    ties: Floats  # (Q,)


@kernel
def examine(graph: Graph) -> tuple[Labels, Labels, Offsets]:  # (I,), (I,), (Q,)
    """What the comparisons can say of every item, its connected component, and the number of components of queries.

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
    """Note who won (1) and who lost (2) in the row of item i, and join the trees of those who were compared."""
    other, ahead, behind = graph.other, graph.ahead, graph.behind
    mine = i
    for e in range(graph.offsets[i], graph.offsets[i + 1]):
        j = base + other[e]
        if parent[j] == mine and status[i] & status[j] == 3:
            continue  # nothing more to learn
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
    """Whether a few sweeps over the edges see every item beat, and be beaten by, the first one along some path.

    It is enough to know that the graph is strongly connected; "no" says nothing.
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
    """Rows of only the items that each item has beaten."""
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
    """Strongly connected components of "i has beaten j", numbered from the beaten end.

    Inside one, everybody beats everybody along some path: scores by maximum likelihood are finite just there.
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
