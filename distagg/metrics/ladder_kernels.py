"""A metric of many rankings of the same items, from the places of the relevant ones alone.

The place of an item is the number of items above it plus 1, so nothing needs to be sorted. Items with the least score
of a query, such as those that a single list leaves out, stand in the order of their rows behind all others. The cost of
a ranking is relevant items x items with a higher score of each query, in comparisons that processors do several at a
time.
"""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats, Offsets

SUM, HITS, CASCADE = 0, 1, 2


@kernel
def raise_rows(scores: Floats, first: int, last: int, rows: Offsets, raised: Floats) -> int:
    """Fill the rows from ``first`` to ``last`` whose score is not the least, and their scores; returns their number."""
    least = np.inf
    for row in range(first, last):
        least = min(least, scores[row])
    count = 0
    for row in range(first, last):
        rows[count], raised[count] = row, scores[row]
        count += scores[row] > least
    return count


@kernel
def place_of(rows: Offsets, raised: Floats, count: int, first: int, item: int) -> int:
    """The place, from 0, of an item of a query whose rows begin at ``first``, given its ``count`` raised rows.

    Of equal scores, earlier rows stand above.
    """
    at = np.searchsorted(rows[:count], item)
    if at == count or rows[at] != item:  # one of the least
        return int(count + item - first - at)
    mine, above = raised[at], 0
    for other in range(at):
        above += raised[other] >= mine
    for other in range(at + 1, count):
        above += raised[other] > mine
    return above


@kernel
def ladder_sums(
    item_offsets: Offsets,  # (Q + 1,)
    scores: Floats,  # (I,) items in the order in which equal scores stand
    relevant_offsets: Offsets,  # (Q + 1,)
    relevant: Offsets,  # (R,) rows of relevant items
    gain: Floats,  # (R,)
    discount: Floats,  # (longest query,)
    state: int,  # SUM, HITS (1 + the relevant items before) or CASCADE (the chance to get there)
) -> Floats:  # (Q,)
    """The sum over relevant items of gain x discount[place] x state, for every query."""
    queries = len(item_offsets) - 1
    values = np.zeros(queries)
    most, longest = 0, 0
    for q in range(queries):
        most = max(most, relevant_offsets[q + 1] - relevant_offsets[q])
        longest = max(longest, item_offsets[q + 1] - item_offsets[q])
    rows, raised = np.empty(longest, dtype=np.int64), np.empty(longest)
    places, order = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    for q in range(queries):
        begin, first = relevant_offsets[q], item_offsets[q]
        count = relevant_offsets[q + 1] - begin
        higher = raise_rows(scores, first, item_offsets[q + 1], rows, raised) if count else 0
        for r in range(count):
            places[r] = place_of(rows, raised, higher, first, relevant[begin + r])
            at = r
            if state != SUM:  # in the order of places, by insertion
                while at > 0 and places[order[at - 1]] > places[r]:
                    order[at] = order[at - 1]
                    at -= 1
            order[at] = r
        run, total = 1.0, 0.0
        for r in range(count):
            one = order[r]
            total += gain[begin + one] * discount[places[one]] * run
            if state == HITS:
                run += 1.0
            elif state == CASCADE:
                run *= 1.0 - gain[begin + one]
        values[q] = total
    return values
