"""Functions that walk once along the entries of lists, which are sorted by rank. Cost: O(entries).

Sums by item and positions use numpy, so that models which need nothing else never load numba. ``np.bincount`` adds
numbers one after the other, as a loop does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.types import Bools, Floats, Indices, Offsets

BINARY, DIFFERENCE, NORMALISED, LOG, DISCOUNT, TOP = 0, 1, 2, 3, 4, 5
PAIR_FUNCTIONS = {"binary": BINARY, "difference": DIFFERENCE, "normalised": NORMALISED, "log": LOG}
STEADY = 5.0  # log(STEADY + place): the first places differ little, later ones as the logarithm
BEYOND = 2  # unlisted items stand at most this many lengths of the list behind its last item


class Lists(NamedTuple):
    """The lists of a chunk: Q queries, I items, L lists, E entries."""

    item_offsets: Offsets  # (Q + 1,)
    list_offsets: Offsets  # (Q + 1,)
    entry_offsets: Offsets  # (L + 1,)
    entry_item: Indices  # (E,) position of the item inside its query
    entry_rank: Floats  # (E,) ascending inside a list


class Pairs(NamedTuple):
    """The raw pairs of a chunk: Q queries, P pairs."""

    offsets: Offsets  # (Q + 1,)
    winner: Indices  # (P,) position of the item inside its query
    loser: Indices  # (P,)
    weight: Floats  # (P,)
    tie: Bools  # (P,)


class Experts(NamedTuple):
    """The expert of each list and of each raw pair."""

    of_list: Indices  # (L,)
    of_pair: Indices  # (P,)


class Values(NamedTuple):
    """Values of ranks, from ``pair_values``."""

    entry: Floats  # (E,)
    outside: Floats  # (L,) of each list's unlisted items
    left_out: Offsets  # (L,) the number of unlisted items behind each list; 0 if they are not compared


class Sums(NamedTuple):
    """The row and column sums of the lists' pair matrices, from ``pair_sums``."""

    won: Floats  # (E,)
    lost: Floats  # (E,)
    behind: Floats  # (L,) what each unlisted item lost


def sum_by_item(entry_row: Offsets | Indices, weights: Floats | None, n_items: int) -> Floats:  # (E,), (E,) -> (I,)
    """Sum of the entries' weights for every item, added in list order; without weights the number of entries."""
    return np.bincount(entry_row, weights, n_items).astype(np.float64, copy=False)


@kernel
def weighted_lines(
    entry_row: Offsets,  # (E,)
    entry_expert: Indices,  # (E,)
    points: Floats,  # (E,)
    weights: Floats,  # (experts,)
    expert: int,
    n_items: int,
) -> Floats:  # (2, I)
    """For every item, the sum of weight x points over all experts but one, and the sum of that expert's points."""
    lines = np.zeros((2, n_items))
    for e in range(len(entry_row)):
        if entry_expert[e] == expert:
            lines[1, entry_row[e]] += points[e]
        else:
            lines[0, entry_row[e]] += weights[entry_expert[e]] * points[e]
    return lines


def borda_points(
    discount: bool,
    average: bool,
    item_offsets: Offsets,  # (Q + 1,)
    list_offsets: Offsets,  # (Q + 1,)
    entry_offsets: Offsets,  # (L + 1,)
    entry_row: Offsets,  # (E,)
    entry_rank: Floats,  # (E,)
    list_weight: Floats,  # (L,); empty where each list counts 1
) -> tuple[Floats, Floats, Floats]:  # (I,), (I,), (Q,)
    """Borda points: a list gives an item the number of the query's items minus its position; ties share the mean.

    With ``discount``, points are the differences of ``discounted_places`` between the item and the unlisted items. With
    ``average``, each list divides the points that it did not give equally among its unlisted items. This mean is
    subtracted from its listed items, and the query's sum of means is returned as the leftover, to add to all items.

    Returns every item's points, the number of lists that hold it (by weight), and every query's leftover.
    """
    lists, length = np.diff(list_offsets), np.diff(entry_offsets)
    most: Floats = np.repeat(np.diff(item_offsets).astype(np.float64), lists)  # the most points that a list gives
    leftover = np.zeros(len(lists))
    if discount:
        places, most = discounted_places(entry_offsets, entry_rank, np.repeat(np.diff(item_offsets), lists) - length)
        points = -places
    else:
        points = -mid_positions(entry_offsets, entry_rank)
    if average:
        rest = np.maximum(most - length - 1, 0.0) / 2
        most -= rest
        rest = rest * list_weight if len(list_weight) else rest
        leftover = sum_by_item(np.repeat(np.arange(len(lists)), lists), rest, len(lists))
    points += np.repeat(most, length)
    weight = np.repeat(list_weight, length) if len(list_weight) else None
    held = sum_by_item(entry_row, weight, item_offsets[-1])
    points = points if weight is None else points * weight
    return sum_by_item(entry_row, points, item_offsets[-1]), held, leftover


def mid_positions(entry_offsets: Offsets, entry_rank: Floats) -> Floats:  # (L + 1,), (E,) -> (E,)
    """Position of every entry in its list, from 1; tied entries share the mean of their positions."""
    position = np.arange(1.0, len(entry_rank) + 1)
    position -= np.repeat(entry_offsets[:-1], np.diff(entry_offsets))
    tied = np.zeros(len(entry_rank) + 1, dtype=np.bool_)  # whether an entry ties with the previous one of its list
    tied[1:-1] = entry_rank[1:] == entry_rank[:-1]
    tied[entry_offsets] = False
    if tied.any():
        edges = np.flatnonzero(tied[1:] != tied[:-1])  # the first and the last entry of every group, alternating
        middle = 0.5 * (position[edges[0::2]] + position[edges[1::2]])
        position[tied[1:] | tied[:-1]] = np.repeat(middle, edges[1::2] - edges[0::2] + 1)
    return position


def discounted_places(
    entry_offsets: Offsets, entry_rank: Floats, left_out: Offsets
) -> tuple[Floats, Floats]:  # (L + 1,), (E,), (L,) -> (E,), (L,)
    """log(STEADY + place in the list) of every entry, and of each list's unlisted items.

    If points fell by one for each place, a deep list would be little more than a vote for each of its items: among
    10,000 items of a query, the last of 1,000 listed items would get nearly as many points as the first. With the
    logarithm the first places differ most at any depth. Unlisted items share the last place of the query, but stand at
    most BEYOND list lengths behind the list, because the number of items in other lists says little about them.
    """
    length = np.diff(entry_offsets)
    place = length + np.minimum(left_out, BEYOND * length)
    return np.log(STEADY + mid_positions(entry_offsets, entry_rank)), np.log(STEADY + place)


@kernel
def pair_values(entry_offsets: Offsets, entry_rank: Floats, left_out: Offsets, function: int) -> tuple[Floats, Floats]:
    """The values of the entries' ranks (E,), and the value of each list's unlisted items (L,).

    If i stands before j, the pair counts value(j) - value(i), or 1 (binary); Volkovs & Zemel 2014, sections 2.1 and
    3.2. A value is the rank itself (difference), the rank divided by the list's largest rank (normalised), or the
    logarithm of the rank divided by that of the largest (log). Unlisted items that are compared (``left_out``) share
    one rank: the last listed one plus 1.
    """
    value, outside = np.empty(len(entry_rank)), np.zeros(len(entry_offsets) - 1)
    for a in range(len(entry_offsets) - 1):
        first, last = entry_offsets[a], entry_offsets[a + 1]
        if first == last:
            continue
        largest = entry_rank[last - 1] + 1.0 if left_out[a] > 0 else entry_rank[last - 1]
        scale = 1.0
        if function == NORMALISED:
            scale = 1.0 / largest if largest > 0.0 else 0.0
        elif function == LOG:
            scale = 1.0 / np.log(largest) if largest > 1.0 else 0.0
        for e in range(first, last):
            value[e] = scale * (np.log(entry_rank[e]) if function == LOG else entry_rank[e])
        outside[a] = scale * (np.log(largest) if function == LOG else largest)
    return value, outside


@kernel
def pair_sums(
    entry_offsets: Offsets,  # (L + 1,)
    entry_rank: Floats,  # (E,)
    value: Floats,  # (E,) of ``pair_values``
    outside: Floats,  # (L,)
    left_out: Offsets,  # (L,) items that stand behind the list's last one; 0 where they are not compared
    binary: bool,
) -> tuple[Floats, Floats, Floats]:  # (E,), (E,), (L,)
    """What every entry won (E,) and lost (E,), and what each list's unlisted items lost (L,).

    These are the row and column sums of the lists' pair matrices. Tied entries win and lose nothing against each other.
    """
    won = np.zeros(len(entry_rank))
    lost = np.zeros(len(entry_rank))
    behind = np.zeros(len(left_out))
    for a in range(len(entry_offsets) - 1):
        first, last, out = entry_offsets[a], entry_offsets[a + 1], left_out[a]
        below = 0.0  # sum of the values ahead of the tie group
        total = 0.0
        for e in range(first, last):
            total += value[e]
        if out > 0:
            behind[a] = last - first if binary else (last - first) * outside[a] - total
        start = first
        while start < last:
            end = start + 1
            while end < last and entry_rank[end] == entry_rank[start]:
                end += 1
            ahead, after = start - first, last - end
            group = value[start] * (end - start)
            for e in range(start, end):
                if binary:
                    won[e], lost[e] = after + out, ahead
                else:
                    won[e] = max(total - below - group - after * value[e], 0.0) + out * (outside[a] - value[e])
                    lost[e] = max(ahead * value[e] - below, 0.0)
            below += group
            start = end
    return won, lost, behind


@kernel
def by_rank(
    first: int, last: int, top: int, entry_item: Indices, entry_rank: Floats, filled: Offsets, ranks: Floats
) -> None:
    """Sort the ranks of each item of one query, for ranks that are whole numbers.

    Entries are sorted into buckets by rank, then appended to their items in that order.
    """
    bucket = np.zeros(top + 2, dtype=np.int64)
    for e in range(first, last):
        bucket[int(entry_rank[e]) + 1] += 1
    for r in range(top + 1):
        bucket[r + 1] += bucket[r]
    order = np.empty(last - first, dtype=np.int32)
    for e in range(first, last):
        r = int(entry_rank[e])
        order[bucket[r]] = e - first
        bucket[r] += 1
    for n in range(last - first):
        e = first + order[n]
        i = entry_item[e]
        ranks[filled[i]] = entry_rank[e]
        filled[i] += 1


@kernel
def insert_sorted(
    first: int, last: int, entry_item: Indices, entry_rank: Floats, start: Offsets, filled: Offsets, ranks: Floats
) -> None:
    """The same for any ranks, by insertion sort: few lists hold an item."""
    for e in range(first, last):
        i = entry_item[e]
        at = filled[i]
        while at > start[i] and ranks[at - 1] > entry_rank[e]:
            ranks[at] = ranks[at - 1]
            at -= 1
        ranks[at] = entry_rank[e]
        filled[i] += 1


@kernel
def median_ranks(
    item_offsets: Offsets,  # (Q + 1,)
    list_offsets: Offsets,  # (Q + 1,)
    entry_offsets: Offsets,  # (L + 1,)
    entry_item: Indices,  # (E,)
    entry_rank: Floats,  # (E,)
    unlisted_last: bool,
) -> tuple[Floats, Floats]:  # (I,), (I,)
    """The median rank of every item (inf if it is in no list), and the number of lists that hold it.

    With ``unlisted_last`` every list of the query counts, and an unlisted item has rank inf there. The median is then
    inf if fewer than half of the lists hold the item.
    """
    median = np.full(item_offsets[-1], np.inf)
    support = np.zeros(item_offsets[-1])
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        first, last = entry_offsets[list_offsets[q]], entry_offsets[list_offsets[q + 1]]
        start = np.zeros(size + 1, dtype=np.int64)
        whole, top = True, 0.0
        for e in range(first, last):
            start[entry_item[e] + 1] += 1
            top = max(top, entry_rank[e])
            whole = whole and entry_rank[e] >= 0.0 and entry_rank[e] == np.floor(entry_rank[e])
        for i in range(size):
            start[i + 1] += start[i]
        filled = np.empty(size, dtype=np.int64)
        for i in range(size):
            filled[i] = start[i]
        ranks = np.empty(last - first)
        if whole and top <= 4 * (last - first) + 1024:
            by_rank(first, last, int(top), entry_item, entry_rank, filled, ranks)
        else:
            insert_sorted(first, last, entry_item, entry_rank, start, filled, ranks)
        for i in range(size):
            held = start[i + 1] - start[i]
            support[base + i] = held
            count = list_offsets[q + 1] - list_offsets[q] if unlisted_last else held
            low, high = (count - 1) // 2, count // 2
            if high < held:
                median[base + i] = 0.5 * (ranks[start[i] + low] + ranks[start[i] + high])
    return median, support
