"""Who beat whom how often: pair counts of a query, from lists and from raw pairs.

Counts stand in rows, each pair once, in the row of its lower item: ``ahead`` is what that item won against
``other`` and ``behind`` what it lost; ``won`` and ``lost`` are an item's sums. A tie of weight w adds ``share * w`` to
both sides. Queries whose items x items is small beside their evidence are counted in a square (16 bytes a cell), others
by dealing pairs into rows.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.lists import BINARY, LOG, NORMALISED
from distagg.types import Bools, Floats, Indices, Offsets


@kernel
def expand(
    function: int,
    last: bool,
    first_query: int,
    end_query: int,
    room: int,  # pairs, at the most
    list_weight: Floats,  # (L,)
    list_end: Floats,  # (L,) value of unlisted items, and what NORMALISED and LOG divide by
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    entry_item: Indices,
    entry_value: Floats,  # (E,) ranks, or their logarithms in the LOG function
    pair_offsets: Offsets,
    pair_winner: Indices,
    pair_loser: Indices,
    pair_weight: Floats,
    pair_tie: Bools,
) -> tuple[Offsets, Indices, Indices, Floats, Bools]:  # offsets (queries + 1,), winner, loser, weight, tie
    """Lists as raw pairs, with the raw pairs of their queries behind them.

    How much a pair says is as in ``pair_sums``. With ``last`` unlisted items stand together at the end of a list.
    Entries that share a rank tie with weight 1 in the binary function; in the others their difference is 0.
    """
    offsets = np.zeros(end_query - first_query + 1, dtype=np.int64)
    winner, loser = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int32)
    amount, tie = np.empty(room), np.empty(room, dtype=np.bool_)
    at = 0
    for q in range(first_query, end_query):
        size = item_offsets[q + 1] - item_offsets[q]
        item, missing = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.bool_)
        for a in range(list_offsets[q], list_offsets[q + 1]):
            first, listed, end, weight = (
                entry_offsets[a],
                entry_offsets[a + 1] - entry_offsets[a],
                list_end[a],
                list_weight[a],
            )
            if weight == 0.0:
                continue
            scale = weight
            if function in (NORMALISED, LOG):
                scale = weight / end if end > 0.0 else 0.0
            for i in range(size):
                missing[i] = True
            for e in range(listed):
                item[e] = entry_item[first + e]
                missing[item[e]] = False
            total = listed
            if last:
                for i in range(size):
                    if missing[i]:
                        item[total] = i
                        total += 1
            for e in range(listed):
                here = entry_value[first + e]
                for f in range(e + 1, total):
                    there = entry_value[first + f] if f < listed else end
                    winner[at], loser[at] = item[e], item[f]
                    tie[at] = f < listed and there == here
                    amount[at] = weight if function == BINARY else scale * (there - here)
                    at += 1
        for p in range(pair_offsets[q], pair_offsets[q + 1]):
            winner[at], loser[at], amount[at], tie[at] = pair_winner[p], pair_loser[p], pair_weight[p], pair_tie[p]
            at += 1
        offsets[q - first_query + 1] = at
    return offsets, winner[:at], loser[:at], amount[:at], tie[:at]


@kernel
def count_squares(
    share: float,
    first_query: int,
    item_offsets: Offsets,
    pair_offsets: Offsets,  # (queries + 1,) of queries from the first on
    winner: Indices,
    loser: Indices,
    weight: Floats,
    tie: Bools,
    edges: int,  # counted before
    offsets: Offsets,  # (I + 1,) filled
    other: Indices,  # filled; room for every pair of every query
    ahead: Floats,
    behind: Floats,
    won: Floats,  # (I,) filled
    lost: Floats,
    ties: Floats,  # (Q,) filled: weight of ties
) -> int:  # edges
    """Counts of queries, each in a square whose cell (low, high) holds what the lower won and what the higher won."""
    largest = 0
    for n in range(len(pair_offsets) - 1):
        largest = max(largest, item_offsets[first_query + n + 1] - item_offsets[first_query + n])
    square = np.empty(2 * largest * largest)
    for n in range(len(pair_offsets) - 1):
        q = first_query + n
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        for cell in range(2 * size * size):
            square[cell] = 0.0
        for p in range(pair_offsets[n], pair_offsets[n + 1]):
            i, j = winner[p], loser[p]
            cell = 2 * (min(i, j) * size + max(i, j))
            if i == j:
                continue  # says nothing
            if tie[p]:
                ties[q] += weight[p]
                square[cell] += share * weight[p]
                square[cell + 1] += share * weight[p]
            else:
                square[cell + (i > j)] += weight[p]
        for i in range(size):
            for j in range(i + 1, size):
                up, down = square[2 * (i * size + j)], square[2 * (i * size + j) + 1]
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
    won: Floats,  # (size,) filled
    lost: Floats,
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
            won[i] += up
            lost[i] += down
            won[j] += down
            lost[j] += up
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
