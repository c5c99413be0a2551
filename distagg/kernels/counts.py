"""Who beat whom how often: pair counts of a query, from lists and from raw pairs.

Counts stand in rows, each pair once, in the row of its lower item: ``ahead`` is what that item won against
``other`` and ``behind`` what it lost. A tie of weight w adds ``share * w`` to both. Queries whose items x items is
small beside their evidence are counted in a square (16 bytes a pair of items), others by dealing pairs into rows.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.lists import BINARY, LOG, NORMALISED
from distagg.types import Bools, Floats, Indices, Offsets


@kernel
def expand_list(
    function: int,
    last: bool,
    size: int,
    entry_item: Indices,  # (k,) of one list
    entry_value: Floats,  # (k,) ranks, or their logarithms in the LOG function
    weight: float,
    end: float,  # value of unlisted items, and what NORMALISED and LOG divide by
    winner: Indices,  # filled from ``at``
    loser: Indices,
    amount: Floats,
    tie: Bools,
    at: int,
) -> int:
    """The pairs of one list, as raw pairs; gives where the next list starts.

    How much a pair says is as in ``pair_sums``. With ``last`` unlisted items stand together at the end.
    Entries that share a rank tie with weight 1 in the binary function; in the others their difference is 0.
    """
    listed = len(entry_item)
    if listed == 0 or weight == 0.0:
        return at
    scale = weight
    if function in (NORMALISED, LOG):
        scale = weight / end if end > 0.0 else 0.0
    item, missing = np.empty(size, dtype=np.int32), np.ones(size, dtype=np.bool_)
    for e in range(listed):
        item[e] = entry_item[e]
        missing[entry_item[e]] = False
    total = listed
    if last:
        for i in range(size):
            if missing[i]:
                item[total] = i
                total += 1
    for e in range(listed):
        here = entry_value[e]
        for f in range(e + 1, total):
            there = entry_value[f] if f < listed else end
            tied = f < listed and there == here
            winner[at], loser[at], tie[at] = item[e], item[f], tied
            amount[at] = weight if function == BINARY else scale * (there - here)
            at += 1
    return at


@kernel
def expanded_size(last: bool, size: int, listed: int) -> int:
    """The most pairs that ``expand_list`` writes."""
    return listed * (listed - 1) // 2 + (listed * (size - listed) if last else 0)


@kernel
def expand_lists(
    function: int, last: bool, size: int, entry_offsets: Offsets, entry_item: Indices, entry_value: Floats,
    list_weight: Floats, list_end: Floats,
) -> tuple[Indices, Indices, Floats, Bools]:  # fmt: skip
    """All lists of one query as raw pairs."""
    room = 0
    for a in range(len(list_weight)):
        room += expanded_size(last, size, entry_offsets[a + 1] - entry_offsets[a])
    winner, loser = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int32)
    amount, tie = np.empty(room), np.empty(room, dtype=np.bool_)
    at = 0
    for a in range(len(list_weight)):
        first, end = entry_offsets[a], entry_offsets[a + 1]
        at = expand_list(
            function, last, size, entry_item[first:end], entry_value[first:end], list_weight[a], list_end[a], winner,
            loser, amount, tie, at,
        )  # fmt: skip
    return winner[:at], loser[:at], amount[:at], tie[:at]


@kernel
def add_to_square(
    share: float, size: int, first: int, last: int, winner: Indices, loser: Indices, weight: Floats, tie: Bools,
    square: Floats,
) -> float:  # weight of ties  # fmt: skip
    """Add pairs to a square whose cell (low, high) holds two numbers: won by the lower item, won by the higher."""
    ties = 0.0
    for p in range(first, last):
        i, j = winner[p], loser[p]
        low, high = min(i, j), max(i, j)
        cell = 2 * (low * size + high)
        if i == j:
            continue  # says nothing
        if tie[p]:
            ties += weight[p]
            square[cell] += share * weight[p]
            square[cell + 1] += share * weight[p]
        else:
            square[cell + (i > j)] += weight[p]
    return ties


@kernel
def count_squares(
    function: int,
    last: bool,
    share: float,
    list_weight: Floats,  # (L,)
    list_end: Floats,  # (L,)
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    entry_item: Indices,
    entry_value: Floats,  # (E,)
    pair_offsets: Offsets,
    pair_winner: Indices,
    pair_loser: Indices,
    pair_weight: Floats,
    pair_tie: Bools,
    offsets: Offsets,  # (I + 1,) filled
    other: Indices,  # filled; room for every pair of every query
    ahead: Floats,
    behind: Floats,
    ties: Floats,  # (Q,) filled: weight of ties
) -> int:  # edges
    """Counts of every query, each in a square."""
    largest, room = 0, 0
    for q in range(len(item_offsets) - 1):
        size = item_offsets[q + 1] - item_offsets[q]
        largest = max(largest, size)
        for a in range(list_offsets[q], list_offsets[q + 1]):
            room = max(room, expanded_size(last, size, entry_offsets[a + 1] - entry_offsets[a]))
    square = np.empty(2 * largest * largest)
    winner, loser = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int32)
    amount, tie = np.empty(room), np.empty(room, dtype=np.bool_)
    edges = 0
    offsets[0] = 0
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        for cell in range(2 * size * size):
            square[cell] = 0.0
        for a in range(list_offsets[q], list_offsets[q + 1]):
            first, end = entry_offsets[a], entry_offsets[a + 1]
            made = expand_list(
                function, last, size, entry_item[first:end], entry_value[first:end], list_weight[a], list_end[a],
                winner, loser, amount, tie, 0,
            )  # fmt: skip
            ties[q] += add_to_square(share, size, 0, made, winner, loser, amount, tie, square)
        ties[q] += add_to_square(
            share, size, pair_offsets[q], pair_offsets[q + 1], pair_winner, pair_loser, pair_weight, pair_tie, square
        )
        for i in range(size):
            for j in range(i + 1, size):
                cell = 2 * (i * size + j)
                if square[cell] + square[cell + 1] > 0.0:
                    other[edges], ahead[edges], behind[edges] = j, square[cell], square[cell + 1]
                    edges += 1
            offsets[base + i + 1] = edges
    return edges


@kernel
def deal(
    size: int,
    winner: Indices,  # (P,)
    loser: Indices,
    weight: Floats,
    tie: Bools,
    start: Offsets,  # (size + 1,) zeros, filled
    code: Indices,  # (P,) filled: 4 * higher item, + 0 where the lower won, 1 where the higher, 2 for a tie
    amount: Floats,  # (P,) filled, or zero-length if all weights are 1
) -> None:
    """Pairs dealt into the rows of their lower items."""
    for p in range(len(winner)):
        start[min(winner[p], loser[p]) + 1] += 1
    for i in range(size):
        start[i + 1] += start[i]
    for p in range(len(winner)):
        i, j = winner[p], loser[p]
        low = min(i, j)
        to = start[low]
        start[low] += 1
        code[to] = 4 * max(i, j) + (2 if tie[p] else i > j)
        if len(amount) > 0:
            amount[to] = weight[p]
    for i in range(size, 0, -1):
        start[i] = start[i - 1]
    start[0] = 0


@kernel
def merge_rows(
    share: float,
    start: Offsets,  # (size + 1,)
    code: Indices,  # (P,)
    amount: Floats,  # (P,) or zero-length
    offsets: Offsets,  # (size + 1,) filled
    other: Indices,  # (P,) filled
    ahead: Floats,
    behind: Floats,
) -> tuple[int, float]:  # edges, weight of ties
    """Counts of one query from dealt pairs."""
    size = len(start) - 1
    where = np.full(size, -1, dtype=np.int64)
    edges, ties = 0, 0.0
    offsets[0] = 0
    for i in range(size):
        begin = edges
        for p in range(start[i], start[i + 1]):
            j, kind = code[p] >> 2, code[p] & 3
            weight = amount[p] if len(amount) > 0 else 1.0
            up = share * weight if kind == 2 else weight * (1 - kind)
            down = share * weight if kind == 2 else weight * kind
            if i == j:
                continue  # says nothing
            if kind == 2:
                ties += weight
            if up + down == 0.0:
                continue
            at = where[j]
            if at >= begin:
                ahead[at] += up
                behind[at] += down
            else:
                where[j] = edges
                other[edges], ahead[edges], behind[edges] = j, up, down
                edges += 1
        offsets[i + 1] = edges
    return edges, ties
