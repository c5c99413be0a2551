"""The CRF's potentials, one row for each entry: paper 000, equation 4. Cost: O(entries).

An item's score is a sum over the experts that list it. Those that do not would add their bias; taking it from those
that do instead moves all items of a query by the same amount, which changes no ranking and no probability.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.lists import BINARY, LOG, NORMALISED, Lists
from distagg.types import Floats, Indices, Offsets


@kernel
def group_values(function: int, rank: Floats, values: Floats) -> float:
    """What the ranks of a list's tie groups are worth, into ``values``; gives the sum over its entries."""
    largest = rank[len(rank) - 1]
    scale = 1.0
    if function == NORMALISED:
        scale = 1.0 / largest if largest > 0.0 else 0.0
    elif function == LOG:
        scale = 1.0 / np.log(largest) if largest > 1.0 else 0.0
    total, before, value, group = 0.0, np.nan, 0.0, -1
    for e in range(len(rank)):
        if rank[e] != before:
            before = rank[e]
            group += 1
            value = scale * (np.log(before) if function == LOG else before)
            values[group] = value
        total += value
    return total


@kernel
def score_list(
    functions: Offsets,  # (P,)
    reciprocal: float,
    share: float,  # 1 / items of the query
    item: Indices,  # (entries,) of one list, as rank
    rank: Floats,
    weight: Floats,  # (F,)
    values: Floats,  # (P, longest list) to work in: what the ranks of tie groups are worth
    sums: Floats,  # (2, P) to work in: of all values of the list, and of those ahead
    score: Floats,  # (items,) of the query, added to
) -> None:
    """One list's weights times potentials. Entries that tie have one potential, which is worked out once."""
    count, last, start, group = len(functions), len(item), 0, 0
    for p in range(count):
        if last > 0 and functions[p] != BINARY:
            sums[0, p], sums[1, p] = group_values(functions[p], rank, values[p]), 0.0
    while start < last:
        end = start + 1
        while end < last and rank[end] == rank[start]:
            end += 1
        ahead, after = start, last - end
        given = weight[0] * -1.0
        for p in range(count):
            if functions[p] == BINARY:
                won, lost = float(after), float(ahead)
            else:
                value = values[p, group]
                together = value * (end - start)
                won = max(sums[0, p] - sums[1, p] - together - after * value, 0.0)
                lost = max(ahead * value - sums[1, p], 0.0)
                sums[1, p] += together
            given += weight[1 + 2 * p] * (won * share)
            given += weight[2 + 2 * p] * (-lost * share)
        if reciprocal > 0.0:
            given += weight[1 + 2 * count] * (reciprocal / (reciprocal + rank[start]))
        for e in range(start, end):
            score[item[e]] += given
        start = end
        group += 1


@kernel
def score_lists(
    functions: Offsets,  # (P,) pair functions
    reciprocal: float,  # c of the last potential, 0 leaves it out
    lists: Lists,
    row: Offsets,  # (L,) the row of weights that each list takes
    weights: Floats,  # (rows, F)
) -> Floats:  # (I,)
    """Weights times potentials, summed for each item: the numbers that ``won_and_lost`` gives, none of them written."""
    item_offsets, list_offsets, entry_offsets, entry_item, entry_rank = lists
    longest = 0
    for a in range(len(row)):
        longest = max(longest, entry_offsets[a + 1] - entry_offsets[a])
    values, sums = np.empty((len(functions), longest)), np.empty((2, len(functions)))
    score = np.zeros(item_offsets[-1])
    for q in range(len(item_offsets) - 1):
        here = score[item_offsets[q] : item_offsets[q + 1]]
        share = 1.0 / max(len(here), 1)
        for a in range(list_offsets[q], list_offsets[q + 1]):
            item = entry_item[entry_offsets[a] : entry_offsets[a + 1]]
            rank = entry_rank[entry_offsets[a] : entry_offsets[a + 1]]
            score_list(functions, reciprocal, share, item, rank, weights[row[a]], values, sums, here)
    return score


@kernel
def index_by_item(
    item_offsets: Offsets,  # (Q + 1,)
    list_offsets: Offsets,  # (Q + 1,)
    entry_offsets: Offsets,  # (L + 1,)
    entry_item: Indices,  # (E,)
    start: Offsets,  # (I + 1,) zeros; filled in: where each item's entries start in ``entry``
    entry: Offsets,  # (E,) filled in: entries item by item
    holder: Offsets,  # (E,) filled in: the list of each of them
) -> None:
    """The entries of every item, in the order of lists."""
    for q in range(len(item_offsets) - 1):
        for e in range(entry_offsets[list_offsets[q]], entry_offsets[list_offsets[q + 1]]):
            start[item_offsets[q] + entry_item[e] + 1] += 1
    for i in range(len(start) - 1):
        start[i + 1] += start[i]
    for q in range(len(item_offsets) - 1):
        for a in range(list_offsets[q], list_offsets[q + 1]):
            for e in range(entry_offsets[a], entry_offsets[a + 1]):
                i = item_offsets[q] + entry_item[e]
                entry[start[i]], holder[start[i]] = e, a
                start[i] += 1  # moves on to the next item's start
    for n in range(len(start) - 1):
        i = len(start) - 1 - n
        start[i] = start[i - 1]
    start[0] = 0
