"""Order the items of every query by score: stable, descending, O(n log n).

Spans of equal length form the rows of a table that numpy sorts together. This takes about twice as long as a compiled
merge sort, but needs no compilation.
"""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats, Indices, Offsets


def by_length(offsets: Offsets) -> tuple[Offsets, list[tuple[slice, int]]]:
    """Positions of all values, with spans of equal length side by side (I,), and the range of each length."""
    sizes = np.diff(offsets)
    spans = np.argsort(sizes, kind="stable")
    ends = np.concatenate([[0], np.cumsum(sizes[spans])])
    at = np.arange(ends[-1])
    if len(sizes) and sizes[spans[0]] != sizes[spans[-1]]:
        at += np.repeat(offsets[spans] - ends[:-1], sizes[spans])
    lengths, first = np.unique(sizes[spans], return_index=True)
    bounds = ends[np.append(first, len(sizes))].tolist()
    tables = zip(bounds[:-1], bounds[1:], lengths.tolist(), strict=True)
    return at, [(slice(begin, end), length) for begin, end, length in tables if length > 0]


def order_spans(offsets: Offsets, values: Floats) -> tuple[Indices, Floats]:
    """Sort every span of ``values`` (I,) descending; ``offsets`` (S + 1,). Equal values keep their order. No NaN.

    Returns positions inside the span (I,) and the sorted values (I,).
    """
    at, tables = by_length(offsets)
    keys, order = -values[at], np.empty(len(values), dtype=np.int32)
    for span, length in tables:
        order[at[span]] = keys[span].reshape(-1, length).argsort(axis=1, kind="stable").ravel()
    return order, values[np.repeat(offsets[:-1], np.diff(offsets)) + order]


def order_items(item_offsets: Offsets, scores: Floats) -> Indices:
    """Item positions inside their query by descending score, shape (I,); equal scores keep input order.

    ``item_offsets`` (Q + 1,) and ``scores`` (I,), without NaN.

    >>> order_items(np.array([0, 3, 5]), np.array([0.1, 0.7, 0.7, 2.0, 1.0])).tolist()
    [1, 2, 0, 0, 1]
    """
    return order_spans(item_offsets, scores)[0]


@kernel
def count_ascents(offsets: Offsets, values: Floats) -> Offsets:  # (S + 1,), (I,) -> (S,)
    """The number of pairs of every span in strictly ascending order, by merge sort (Knight 1966)."""
    count = np.zeros(len(offsets) - 1, dtype=np.int64)
    for s in range(len(offsets) - 1):
        size = offsets[s + 1] - offsets[s]
        key, spare = values[offsets[s] : offsets[s + 1]].copy(), np.empty(size)
        width = 1
        while width < size:
            for low in range(0, size, 2 * width):
                middle, high = min(low + width, size), min(low + 2 * width, size)
                left, right = low, middle
                for to in range(low, high):
                    if left < middle and (right >= high or key[left] >= key[right]):
                        spare[to] = key[left]
                        left += 1
                    else:
                        spare[to] = key[right]
                        right += 1
                        count[s] += middle - left
            key, spare = spare, key
            width *= 2
    return count


@kernel
def falling_order(key: Floats) -> Offsets:  # (size,) -> (size,)
    """Positions in descending order of key, by merge sort; equal keys keep their order.

    numba's ``argsort`` does the same and takes two seconds to compile.
    """
    size = len(key)
    order, spare = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    for i in range(size):
        order[i] = i
    width = 1
    while width < size:
        for low in range(0, size, 2 * width):
            middle, high = min(low + width, size), min(low + 2 * width, size)
            left, right = low, middle
            for to in range(low, high):
                if left < middle and (right >= high or key[order[left]] >= key[order[right]]):
                    spare[to] = order[left]
                    left += 1
                else:
                    spare[to] = order[right]
                    right += 1
        order, spare = spare, order
        width *= 2
    return order
