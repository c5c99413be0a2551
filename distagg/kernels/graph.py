"""The comparison graph of a query: who can be told apart by what was observed. Cost: O(items + edges).

Edges stand in rows (CSR): row i holds ``other[e]`` for e in offsets[i]:offsets[i + 1], with a weight ``ahead[e]`` for i
over that item and ``behind[e]`` for the reverse. A pair may stand in either row, or in both. Weights of 0 are no edges.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import Floats, Indices, Labels, Offsets

OK, UNBEATEN, WINLESS, ISOLATED = 0, 1, 2, 3  # as distagg.models.outcome.STATUS
SWEEPS = 3


@kernel
def examine(
    item_offsets: Offsets,  # (Q + 1,)
    offsets: Offsets,  # (I + 1,) rows of all queries
    other: Indices,
    ahead: Floats,
    behind: Floats,
    status: Labels,  # (I,) zeros, filled
    component: Labels,  # (I,) filled: connected components, numbered from 0 in the order of their first items
    connected: Offsets,  # (Q,) filled: connected components
) -> None:
    """What the comparisons can say of every item, and in which connected component of its query it stands."""
    parent = np.empty(len(status), dtype=np.int64)  # a forest, whose roots are the first of their trees
    for i in range(len(status)):
        parent[i] = i
    for q in range(len(item_offsets) - 1):
        base, end = item_offsets[q], item_offsets[q + 1]
        for i in range(base, end):
            mine = i
            for e in range(offsets[i], offsets[i + 1]):
                j = base + other[e]
                if parent[j] == mine and status[i] & status[j] == 3:
                    continue  # nothing more to learn
                if ahead[e] > 0.0:
                    status[i] |= 1  # won something
                    status[j] |= 2  # lost something
                if behind[e] > 0.0:
                    status[i] |= 2
                    status[j] |= 1
                theirs = j
                if parent[j] == mine or ahead[e] + behind[e] == 0.0:
                    continue
                while parent[mine] != mine:
                    parent[mine] = parent[parent[mine]]
                    mine = parent[mine]
                while parent[theirs] != theirs:
                    parent[theirs] = parent[parent[theirs]]
                    theirs = parent[theirs]
                root = min(mine, theirs)
                parent[mine] = parent[theirs] = parent[i] = parent[j] = root
                mine = root
        count = 0
        for i in range(base, end):
            said = status[i]
            status[i] = OK if said == 3 else UNBEATEN if said == 1 else WINLESS if said == 2 else ISOLATED
            root = i
            while parent[root] != root:
                root = parent[root]
            parent[i] = root
            if root == i:
                component[i] = count
                count += 1
            else:
                component[i] = component[root]
        connected[q] = count


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
    found = np.zeros(size, dtype=np.int64)  # the order of discovery, from 1
    low = np.zeros(size, dtype=np.int64)
    edge = np.empty(size, dtype=np.int64)
    path, open_items = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
    count, met, held = 0, 0, 0
    for i in range(size):
        label[i], edge[i] = -1, start[i]
    for first in range(size):
        if found[first]:
            continue
        depth, path[0] = 1, first
        while depth > 0:
            i = path[depth - 1]
            if not found[i]:
                met += 1
                found[i] = low[i] = met
                open_items[held] = i
                held += 1
            deeper = False
            while edge[i] < start[i + 1]:
                j = beaten[edge[i]]
                if not found[j]:
                    path[depth] = j
                    depth += 1
                    deeper = True
                    break
                if label[j] < 0:
                    low[i] = min(low[i], low[j])
                edge[i] += 1
            if deeper:
                continue
            depth -= 1
            if low[i] == found[i]:
                while True:
                    held -= 1
                    label[open_items[held]] = count
                    if open_items[held] == i:
                        break
                count += 1
    return count, label


@kernel
def count_strong(
    item_offsets: Offsets, offsets: Offsets, other: Indices, ahead: Floats, behind: Floats, strong: Offsets
) -> None:
    """The number of strongly connected components of every query, into ``strong`` (Q,)."""
    for q in range(len(item_offsets) - 1):
        base, end = item_offsets[q], item_offsets[q + 1]
        strong[q] = strong_components(offsets[base : end + 1], other, ahead, behind, end - base)[0]
