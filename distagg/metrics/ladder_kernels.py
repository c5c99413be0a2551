"""A metric of many rankings of the same items, from the places of the relevant ones alone.

The place of an item is the number of items above it plus 1, so nothing needs to be sorted. The cost of a ranking is
relevant items x items of each query, in comparisons that processors do several at a time.
"""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats, Offsets

SUM, HITS, CASCADE = 0, 1, 2


@kernel
def place_of(scores: Floats, first: int, last: int, item: int) -> int:
    """The place, from 0, of an item among rows first to last; of equal scores, earlier rows stand above."""
    mine, above = scores[item], 0
    for other in range(first, item):
        above += scores[other] >= mine
    for other in range(item + 1, last):
        above += scores[other] > mine
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
    most = 0
    for q in range(queries):
        most = max(most, relevant_offsets[q + 1] - relevant_offsets[q])
    places, order = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    for q in range(queries):
        begin = relevant_offsets[q]
        count = relevant_offsets[q + 1] - begin
        for r in range(count):
            places[r] = place_of(scores, item_offsets[q], item_offsets[q + 1], relevant[begin + r])
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
