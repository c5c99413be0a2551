"""Pair counts of a query, that is, how often each item beat each other item, from lists and from raw pairs.

Counts are stored in rows. Each pair is stored once, in the row of the item with the lower number: ``ahead`` is how
often this item beat the item ``other``, and ``behind`` how often it lost to it. ``won`` and ``lost`` are an item's
sums. A tie of weight w adds ``share * w`` to both sides. A query with few items and many pairs is counted in a square
matrix (16 bytes for each pair of items); the pairs of other queries are distributed to rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.lists import Lists, Pairs
from distagg.types import Floats, Indices, Offsets

TIE = 2  # the outcome of a pair: 0 if the item with the lower number won, 1 if the other one did, 2 for a tie


class Comparison(NamedTuple):
    """The weight of a list's comparison: ``scale`` if binary, else ``scale`` times the difference of the two values."""

    binary: bool
    unlisted_last: bool  # whether unlisted items tie at the end of the list, or are not compared
    value: Floats  # (E,) ascending inside a list
    outside: Floats  # (L,) value of the unlisted items
    scale: Floats  # (L,) 0 if the list does not count


class Rows(NamedTuple):
    """Counts in rows, for Q queries and I items; see the module's docstring."""

    offsets: Offsets  # (I + 1,)
    other: Indices  # (edges,) the number of the other item within its query, higher than the row's
    ahead: Floats  # (edges,)
    behind: Floats  # (edges,)
    won: Floats  # (I,)
    lost: Floats  # (I,)
    ties: Floats  # (Q,) weight of ties


class Dealt(NamedTuple):
    """Pairs of one query, each in the row of the item with the lower number."""

    start: Offsets  # (size + 1,)
    code: Indices  # (P,) 4 * the other item + the outcome of the pair
    weight: Floats  # (P,) or zero-length if all weights are 1


@kernel
def expand(how: Comparison, lists: Lists, pairs: Pairs, first_query: int, end_query: int, room: int) -> Pairs:
    """Turn the lists of some queries into raw pairs, and append each query's own raw pairs.

    ``room`` is the largest possible number of pairs. Entries of equal rank give a tie, weighted by the list's scale, if
    comparisons are binary; otherwise their difference is 0.
    """
    offsets = np.zeros(end_query - first_query + 1, dtype=np.int64)
    winner, loser = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int32)
    target = Pairs(offsets, winner, loser, np.empty(room), np.empty(room, dtype=np.bool_))
    at = 0
    for q in range(first_query, end_query):
        item = np.empty(lists.item_offsets[q + 1] - lists.item_offsets[q], dtype=np.int32)
        for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):
            if how.scale[a] != 0.0:
                count = order_items(lists, a, how.unlisted_last, item)
                at = write_list(how, lists, a, item[:count], target, at)
        at = copy_pairs(pairs, q, target, at)
        offsets[q - first_query + 1] = at
    return Pairs(offsets, winner[:at], loser[:at], target.weight[:at], target.tie[:at])


@kernel
def order_items(lists: Lists, a: int, unlisted_last: bool, item: Indices) -> int:
    """Fill ``item`` (size,) with the items that list a compares, the best one first; returns their number."""
    first, listed = lists.entry_offsets[a], lists.entry_offsets[a + 1] - lists.entry_offsets[a]
    for e in range(listed):
        item[e] = lists.entry_item[first + e]
    if not unlisted_last:
        return listed
    missing = np.ones(len(item), dtype=np.bool_)
    for e in range(listed):
        missing[item[e]] = False
    count = listed
    for i in range(len(item)):
        if missing[i]:
            item[count] = i
            count += 1
    return count


@kernel
def write_list(how: Comparison, lists: Lists, a: int, item: Indices, target: Pairs, at: int) -> int:
    """Write the pairs of list a to ``target``, from index ``at`` on; returns the index behind the last one.

    ``item`` holds the items of the list, the best one first.
    """
    first, listed = lists.entry_offsets[a], lists.entry_offsets[a + 1] - lists.entry_offsets[a]
    binary, value, outside, scale = how.binary, how.value, how.outside[a], how.scale[a]
    winner, loser, weight, tie = target.winner, target.loser, target.weight, target.tie
    for e in range(listed):
        here = value[first + e]
        for f in range(e + 1, len(item)):
            there = value[first + f] if f < listed else outside
            winner[at], loser[at] = item[e], item[f]
            tie[at] = f < listed and there == here
            weight[at] = scale if binary else scale * (there - here)
            at += 1
    return at


@kernel
def copy_pairs(pairs: Pairs, q: int, target: Pairs, at: int) -> int:
    """Copy the raw pairs of query q to ``target``, from index ``at`` on; returns the index behind the last one."""
    for p in range(pairs.offsets[q], pairs.offsets[q + 1]):
        target.winner[at], target.loser[at] = pairs.winner[p], pairs.loser[p]
        target.weight[at], target.tie[at] = pairs.weight[p], pairs.tie[p]
        at += 1
    return at


@kernel
def count_squares(share: float, first_query: int, item_offsets: Offsets, pairs: Pairs, edges: int, rows: Rows) -> int:
    """Count the pairs of each query that ``pairs`` holds in a square matrix, and write the counts to ``rows``.

    Takes the number of edges that earlier calls wrote, and returns it with the new ones added.
    """
    for n in range(len(pairs.offsets) - 1):
        q = first_query + n
        size = item_offsets[q + 1] - item_offsets[q]
        square = np.zeros((size, size, 2))
        rows.ties[q] = fill_square(share, pairs, n, square)
        edges = read_square(square, item_offsets[q], edges, rows)
    return edges


@kernel
def fill_square(share: float, pairs: Pairs, n: int, square: Floats) -> float:
    """Add the pairs of query n to ``square`` (size, size, 2), and return the total weight of ties.

    Cell (low, high) counts the wins of item low in its first number and those of item high in its second.
    """
    winner, loser, weight, tie = pairs.winner, pairs.loser, pairs.weight, pairs.tie
    ties = 0.0
    for p in range(pairs.offsets[n], pairs.offsets[n + 1]):
        i, j = winner[p], loser[p]
        if i == j:
            continue  # an item compared with itself
        low, high = min(i, j), max(i, j)
        if tie[p]:
            ties += weight[p]
            square[low, high, 0] += share * weight[p]
            square[low, high, 1] += share * weight[p]
        else:
            square[low, high, int(i > j)] += weight[p]
    return ties


@kernel
def read_square(square: Floats, base: int, edges: int, rows: Rows) -> int:
    """Write the counts of one query to ``rows``: its items begin at ``base``, its edges at ``edges``.

    Returns the index behind its last edge.
    """
    offsets, other, ahead, behind, won, lost, _ = rows
    size = len(square)
    for i in range(size):
        for j in range(i + 1, size):
            up, down = square[i, j, 0], square[i, j, 1]
            if up + down > 0.0:
                other[edges], ahead[edges], behind[edges] = j, up, down
                won[base + i] += up
                lost[base + i] += down
                won[base + j] += down
                lost[base + j] += up
                edges += 1
        offsets[base + i + 1] = edges
    return edges


@kernel
def deal(size: int, pairs: Pairs) -> Dealt:
    """Distribute the pairs of one query of ``size`` items to the rows of the items with the lower numbers."""
    _, winner, loser, weight, tie = pairs
    start, code = np.zeros(size + 1, dtype=np.int64), np.empty(len(winner), dtype=np.int32)
    weighted = False
    for p in range(len(winner)):
        start[min(winner[p], loser[p]) + 1] += 1
        weighted = weighted or weight[p] != 1.0
    for i in range(size):
        start[i + 1] += start[i]
    dealt_weight = np.empty(len(winner) if weighted else 0)
    for p in range(len(winner)):
        i, j = winner[p], loser[p]
        low = min(i, j)
        to = start[low]
        start[low] += 1  # moves on to the next row's start
        code[to] = 4 * max(i, j) + (TIE if tie[p] else i > j)
        if weighted:
            dealt_weight[to] = weight[p]
    for i in range(size, 0, -1):
        start[i] = start[i - 1]
    start[0] = 0
    return Dealt(start, code, dealt_weight)


@kernel
def merge_rows(share: float, dealt: Dealt, rows: Rows) -> int:
    """Add up the distributed pairs of one query, and write the counts to ``rows``; returns the number of edges."""
    start, code, weights = dealt
    offsets, other, ahead, behind, won, lost, ties = rows
    place = np.full(len(start) - 1, -1, dtype=np.int64)  # the last edge that leads to each item
    edges, tied = 0, 0.0
    for i in range(len(start) - 1):
        begin = edges
        for p in range(start[i], start[i + 1]):
            j, ending = code[p] >> 2, code[p] & 3
            if i == j:
                continue  # an item compared with itself
            weight = weights[p] if len(weights) > 0 else 1.0
            up = share * weight if ending == TIE else weight * (1 - ending)
            down = share * weight if ending == TIE else weight * ending
            if ending == TIE:
                tied += weight
            if up + down == 0.0:
                continue
            won[i] += up
            lost[i] += down
            won[j] += down
            lost[j] += up
            at = place[j]
            if at >= begin:
                ahead[at] += up
                behind[at] += down
            else:
                place[j] = edges
                other[edges], ahead[edges], behind[edges] = j, up, down
                edges += 1
        offsets[i + 1] = edges
    ties[0] = tied
    return edges
