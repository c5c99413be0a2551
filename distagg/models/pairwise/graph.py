"""The comparison graph of a query: which items the observed pairs can tell apart. Cost: O(items + edges).

Edges stand in rows (CSR): row i holds ``other[e]`` for e in offsets[i]:offsets[i + 1], with a weight ``ahead[e]`` for i
over that item and ``behind[e]`` for the reverse. A pair may stand in either row, or in both. Weights of 0 are no edges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats, Indices, Labels, Offsets

OK, UNBEATEN, WINLESS, ISOLATED = 0, 1, 2, 3  # as distagg.models.outcome.STATUS
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
        mine, theirs = root_of(mine, parent), root_of(j, parent)
        root = min(mine, theirs)
        parent[mine] = parent[theirs] = parent[i] = parent[j] = root
        mine = root


@kernel
def root_of(i: int, parent: Offsets) -> int:
    """The root of the tree that holds i; halves the way there."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@kernel
def number_trees(base: int, end: int, parent: Offsets, component: Labels) -> int:
    """Number the trees of the items base..end from 0 on, in the order of their roots; returns their number."""
    count = 0
    for i in range(base, end):
        parent[i] = parent[parent[i]]  # a parent comes before its children: its own parent is its root by now
        if parent[i] == i:
            component[i] = count
            count += 1
        else:
            component[i] = component[parent[i]]
    return count


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
def strong_components(
    offsets: Offsets, other: Indices, ahead: Floats, behind: Floats, size: int
) -> tuple[int, Labels]:  # components, (size,)
    """Strongly connected components (Tarjan 1972, without recursion), numbered from the beaten end.

    Inside one, everybody beats everybody along some path: scores by maximum likelihood are finite just there.
    """
    label = np.zeros(size, dtype=np.int32)
    if size > 0 and reached(offsets, other, ahead, behind, size):
        return 1, label
    start, beaten = directed(offsets, other, ahead, behind, size)
    met = np.zeros(size, dtype=np.int64)  # the order of discovery, from 1
    low = np.zeros(size, dtype=np.int64)  # the first discovered of what is known to be reached
    edge = start[:size].copy()  # the next one of every item to follow
    path, open_items = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
    count, met_items, held = 0, 0, 0
    label[:] = -1
    for first in range(size):
        if met[first]:
            continue
        depth, path[0] = 1, first
        while depth > 0:
            i = path[depth - 1]
            if not met[i]:
                met_items += 1
                met[i] = low[i] = met_items
                open_items[held] = i
                held += 1
            j = next_unmet(i, start, beaten, edge, met, low, label)
            if j >= 0:
                path[depth] = j
                depth += 1
                continue
            depth -= 1
            if low[i] == met[i]:
                held = close_component(i, open_items, held, count, label)
                count += 1
    return count, label


@kernel
def next_unmet(
    i: int, start: Offsets, beaten: Indices, edge: Offsets, met: Offsets, low: Offsets, label: Labels
) -> int:
    """Follow the edges of item i to one that has not been met, -1 where there is none; lower ``low[i]`` on the way."""
    while edge[i] < start[i + 1]:
        j = beaten[edge[i]]
        if not met[j]:
            return j
        if label[j] < 0:
            low[i] = min(low[i], low[j])
        edge[i] += 1
    return -1


@kernel
def close_component(i: int, open_items: Indices, held: int, number: int, label: Labels) -> int:
    """Label the last open items, down to item i, which make one component; returns how many items are open still."""
    while True:
        held -= 1
        label[open_items[held]] = number
        if open_items[held] == i:
            return held


@kernel
def count_strong(graph: Graph) -> Offsets:  # (Q,)
    """The number of strongly connected components of every query."""
    strong = np.empty(len(graph.item_offsets) - 1, dtype=np.int64)
    for q in range(len(strong)):
        base, end = graph.item_offsets[q], graph.item_offsets[q + 1]
        rows = graph.offsets[base : end + 1]
        strong[q] = strong_components(rows, graph.other, graph.ahead, graph.behind, end - base)[0]
    return strong
