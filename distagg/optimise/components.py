"""Connected and strongly connected components of graphs of items. Cost: O(items + edges)."""

from __future__ import annotations

from typing import Any

import numpy as np

from distagg.jit import kernel
from distagg.types import Indices, Labels, Offsets


@kernel
def join(one: int, other: int, parent: Offsets) -> int:
    """Join the trees of two items in a forest; returns the common root, the first item of both trees."""
    one, other = root_of(one, parent), root_of(other, parent)
    root = min(one, other)
    parent[one] = parent[other] = root
    return root


@kernel
def root_of(i: int, parent: Offsets) -> int:
    """The root of the tree that holds i; halves the path to it."""
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
def connected(item_offsets: Offsets, one: Offsets, other: Offsets) -> Labels:  # (Q + 1,), (edges,), (edges,) -> (I,)
    """The connected component of every item, numbered from 0 in each query in the order of their first items.

    Edge e joins the items ``one[e]`` and ``other[e]`` of the same query; items count through all queries.
    """
    parent = np.arange(item_offsets[-1])
    component = np.empty(len(parent), dtype=np.int32)
    for e in range(len(one)):
        join(one[e], other[e], parent)
    for q in range(len(item_offsets) - 1):
        number_trees(item_offsets[q], item_offsets[q + 1], parent, component)
    return component


def connected_by(size: int, item: np.ndarray, group: np.ndarray) -> Labels:  # (N,), (N,) -> (size,)
    """Connected components of one query's items, where all items of a group are connected.

    Entry n says that ``item[n]`` belongs to ``group[n]``.

    Two graphs laid over one another: the groups are the components of each.
    """
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    item = item.astype(np.int64)
    labels: Any = connected(np.array([0, size]), item, item[first[inverse]])
    return labels


def overlaid(a: Labels, b: Labels) -> Labels:  # (size,), (size,) -> (size,)
    """Connected components of two graphs of the same items laid over one another, from the components of each."""
    everybody = np.arange(len(a))
    return connected_by(len(a), np.concatenate([everybody, everybody]), np.concatenate([a, a.max(initial=-1) + 1 + b]))


@kernel
def strong_components(start: Offsets, other: Indices) -> tuple[int, Labels]:  # (size + 1,), (edges,) -> (size,)
    """Strongly connected components (Tarjan 1972, without recursion): their number, and the label of every item.

    Item i points to ``other[e]`` for e in start[i]:start[i + 1]. A component has a smaller label than all others from
    which it can be reached.
    """
    size = len(start) - 1
    label = np.full(size, -1, dtype=np.int32)
    met = np.zeros(size, dtype=np.int64)  # the order of discovery, from 1
    low = np.zeros(size, dtype=np.int64)  # the first discovered of what is known to be reached
    edge = start[:size].copy()  # the next one of every item to follow
    path, open_items = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
    count, met_items, held = 0, 0, 0
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
            j = next_unmet(i, start, other, edge, met, low, label)
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
def next_unmet(i: int, start: Offsets, other: Indices, edge: Offsets, met: Offsets, low: Offsets, label: Labels) -> int:
    """Follow the edges of item i to one that has not been met, -1 where there is none; lower ``low[i]`` on the way."""
    while edge[i] < start[i + 1]:
        j = other[edge[i]]
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
