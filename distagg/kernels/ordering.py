"""Order the items of every query by score: stable, descending, O(n log n), linear memory.

One sort serves everything: insertion sort on short runs, then bottom-up merges. It also counts the pairs it had
to exchange, which is what Kendall's tau needs (Knight 1966).
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import Floats, Indices, Offsets

RUN = 16  # below this length insertion sort beats merging


@kernel
def sort_span(key: Floats, index: Indices, key_buffer: Floats, index_buffer: Indices) -> int:
    """Sort ``key`` (n,) descending in place, ``index`` (n,) along with it; equal keys keep their order.

    Buffers are at least (n,). Gives the number of pairs that stood in strictly ascending order. No NaN.
    """
    n = len(key)
    exchanges = 0
    for start in range(0, n, RUN):
        for i in range(start + 1, min(start + RUN, n)):
            k, x, j = key[i], index[i], i
            while j > start and key[j - 1] < k:
                key[j], index[j] = key[j - 1], index[j - 1]
                j -= 1
            key[j], index[j] = k, x
            exchanges += i - j
    width = RUN
    while width < n:
        for low in range(0, n - width, 2 * width):
            b, high = low + width, min(low + 2 * width, n)
            if key[b - 1] >= key[b]:
                continue  # already in order
            for a in range(width):
                key_buffer[a], index_buffer[a] = key[low + a], index[low + a]
            a, to = 0, low
            while a < width and b < high:
                if key_buffer[a] >= key[b]:
                    key[to], index[to] = key_buffer[a], index_buffer[a]
                    a += 1
                else:
                    key[to], index[to] = key[b], index[b]
                    b += 1
                    exchanges += width - a
                to += 1
            while a < width:
                key[to], index[to] = key_buffer[a], index_buffer[a]
                a += 1
                to += 1
        width *= 2
    return exchanges


@kernel
def order_items(item_offsets: Offsets, scores: Floats) -> Indices:
    """Item positions inside their query by descending score, shape (I,); equal scores keep input order.

    ``item_offsets`` (Q + 1,), ``scores`` (I,) without NaN.
    """
    longest = 0
    for q in range(len(item_offsets) - 1):
        longest = max(longest, item_offsets[q + 1] - item_offsets[q])
    order = np.empty(len(scores), np.int32)
    key, key_buffer = np.empty(longest, np.float64), np.empty(longest, np.float64)
    index_buffer = np.empty(longest, np.int32)
    for q in range(len(item_offsets) - 1):
        first, last = item_offsets[q], item_offsets[q + 1]
        for i in range(last - first):
            key[i] = scores[first + i]
            order[first + i] = i
        sort_span(key[: last - first], order[first:last], key_buffer, index_buffer)
    return order
