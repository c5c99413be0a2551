"""Expected utilities of ranks under the rank distribution of lists: paper 004, sections 4.1 and 4.2, in closed form.

In a list every item meets every other item of the query; its rank counts the contests it loses. The chance that the
one before wins depends only on how many places lie between, so along a list sums and products over contests are
running ones: O(length) for a linear utility, O(length x terms) for a sum of exponentials, where the paper's recursion
is O(length^2) for each item. Tied items get the mean of the places they share.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import Floats, Indices, Offsets


@kernel
def fill_chances(steep: float, size: int, length: int, chance: Floats) -> None:
    """chance[d]: that the item d places before wins. With ``steep`` 0 the paper's max(d, 1 - d), d in query sizes."""
    for d in range(1, length):
        gap = d / size
        chance[d] = max(gap, 1.0 - gap) if steep == 0.0 else 1.0 - 0.5 * np.exp(-steep * gap)


@kernel
def points_by_place(size: int, length: int, chance: Floats, won: Floats, value: Floats) -> None:
    """value[a] = size - E[rank] at place a (from 0); items that the list leaves out win half of their contests."""
    won[0] = 0.0
    for d in range(1, length):
        won[d] = won[d - 1] + chance[d]
    for a in range(length):
        behind = length - 1 - a
        value[a] = size - (won[a] + (behind - won[behind]) + 0.5 * (size - length))


@kernel
def exponentials_by_place(
    size: int, length: int, chance: Floats, ratio: Floats, weight: Floats, ahead: Floats, behind: Floats, value: Floats
) -> None:
    """value[a] = E[sum_t weight_t ratio_t^rank] at place a."""
    for a in range(length):
        value[a] = 0.0
    for t in range(len(ratio)):
        x = 1.0 - ratio[t]
        ahead[0], behind[0] = weight[t] * (1.0 - 0.5 * x) ** (size - length), 1.0
        for d in range(1, length):
            ahead[d] = ahead[d - 1] * (1.0 - x * chance[d])
            behind[d] = behind[d - 1] * (1.0 - x * (1.0 - chance[d]))
        for a in range(length):
            value[a] += ahead[a] * behind[length - 1 - a]


@kernel
def add_expectations(
    steep: float,
    average: bool,  # items that a list leaves out get the utility of an average rank, else nothing
    starts: Offsets,  # (classes + 1,) terms of each class of sizes; none at all: Borda's points
    ratio: Floats,  # (T,)
    weight: Floats,  # (T,)
    item_offsets: Offsets,  # (Q + 1,)
    list_offsets: Offsets,  # (Q + 1,)
    entry_offsets: Offsets,  # (L + 1,)
    entry_item: Indices,  # (E,)
    entry_rank: Floats,  # (E,)
    room: Floats,  # (4, longest list): the kernel's own
    total: Floats,  # (I,) added to
) -> None:
    """The expected utility of every item, summed over the query's lists."""
    chance, ahead, behind, value = room[0], room[1], room[2], room[3]
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        first_term, last_term, scope = 0, 0, 0
        if len(ratio) > 0:
            while (1 << scope) < size:
                scope += 1
            first_term, last_term = starts[scope], starts[scope + 1]
        outside = 0.0
        if average and len(ratio) > 0:
            for t in range(first_term, last_term):
                outside += weight[t] * (0.5 + 0.5 * ratio[t]) ** (size - 1)
        elif average:
            outside = 0.5 * (size + 1)
        known = 0  # the length whose values are in place
        for a in range(list_offsets[q], list_offsets[q + 1]):
            first, last = entry_offsets[a], entry_offsets[a + 1]
            if last - first != known:
                known = last - first
                fill_chances(steep, size, known, chance)
                if len(ratio) > 0:
                    terms, shares = ratio[first_term:last_term], weight[first_term:last_term]
                    exponentials_by_place(size, known, chance, terms, shares, ahead, behind, value)
                else:
                    points_by_place(size, known, chance, ahead, value)
            start = first
            while start < last:
                end, mean = start + 1, value[start - first]
                while end < last and entry_rank[end] == entry_rank[start]:
                    mean += value[end - first]
                    end += 1
                mean /= end - start
                for e in range(start, end):
                    total[base + entry_item[e]] += mean - outside
                start = end
            if average:
                for i in range(base, base + size):
                    total[i] += outside
