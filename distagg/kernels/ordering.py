"""Order the items of every query by score: stable, descending, O(n log n), linear memory.

One kernel does every sort: short runs by counting the larger values (quadratic, but without a branch to mispredict
and vectorised: twice as fast as insertion sort on random scores), then bottom-up merges. It also gives the values in
their new order (the ideal ranking, when they are labels) and counts the pairs it had to exchange, which is what
Kendall's tau needs (Knight 1966). Callers allocate, the kernel fills: allocation inside it would double its compile
time.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels import cold
from distagg.kernels.jit import kernel_with
from distagg.types import Floats, Indices, Offsets

RUN = 64  # longest run that is sorted by counting


def order_spans(offsets: Offsets, values: Floats, *, count: bool = False) -> tuple[Indices, Floats, Offsets]:
    """Sort every span of ``values`` (I,) descending; ``offsets`` (S + 1,). Equal values keep their order. No NaN.

    Gives positions inside the span (I,), the sorted values (I,), and, to ``count``, for every span the number of pairs
    that stood in strictly ascending order (S,).
    """
    key, order = np.array(values, dtype=np.float64), np.empty(len(values), dtype=np.int32)
    longest = int(np.diff(offsets).max(initial=0))
    key_buffer, order_buffer = np.empty(longest), np.empty(longest, dtype=np.int32)
    exchanges = np.empty(len(offsets) - 1 if count else 0, dtype=np.int64)
    sort_spans(read_only(offsets), key, order, key_buffer, order_buffer, exchanges)
    return order, key, exchanges


def order_items(item_offsets: Offsets, scores: Floats) -> Indices:
    """Item positions inside their query by descending score, shape (I,); equal scores keep input order.

    ``item_offsets`` (Q + 1,) and ``scores`` (I,), without NaN.

    >>> order_items(np.array([0, 3, 5]), np.array([0.1, 0.7, 0.7, 2.0, 1.0])).tolist()
    [1, 2, 0, 0, 1]
    """
    return order_spans(item_offsets, scores)[0]


@kernel_with(cold.sort_spans)
def sort_spans(
    offsets: Offsets, key: Floats, order: Indices, key_buffer: Floats, order_buffer: Indices, exchanges: Offsets
) -> None:
    """Sort ``key`` (I,) in place; fill ``order`` (I,) and ``exchanges`` (S, or none); buffers hold the longest span."""
    for s in range(len(offsets) - 1):
        first, last = offsets[s], offsets[s + 1]
        exchanged = 0
        low = first
        while low < last:
            size = min(RUN, last - low)
            for i in range(size):
                key_buffer[i] = key[low + i]
                order_buffer[i] = 0  # how many values with i larger ones have been placed
            for i in range(size):
                value, larger = key_buffer[i], 0
                for j in range(size):
                    larger += key_buffer[j] > value
                for j in range(i):
                    exchanged += key_buffer[j] < value
                to = low + larger + order_buffer[larger]
                order_buffer[larger] += 1
                key[to] = value
                order[to] = low - first + i
            low += RUN
        width = RUN
        while first + width < last:
            low = first
            while low + width < last:
                right, end = low + width, min(low + 2 * width, last)
                if key[right - 1] < key[right]:  # otherwise the two halves are in order already
                    for i in range(width):
                        key_buffer[i] = key[low + i]
                        order_buffer[i] = order[low + i]
                    left, to = 0, low
                    while left < width:
                        if right < end and key_buffer[left] < key[right]:
                            key[to] = key[right]
                            order[to] = order[right]
                            right += 1
                            exchanged += width - left
                        else:
                            key[to] = key_buffer[left]
                            order[to] = order_buffer[left]
                            left += 1
                        to += 1
                low += 2 * width
            width *= 2
        if len(exchanges):
            exchanges[s] = exchanged


def read_only(offsets: Offsets) -> Offsets:
    """A read-only view, as offsets of chunks are: kernels see one array type and are compiled once."""
    view = offsets.view()
    view.setflags(write=False)
    return view
