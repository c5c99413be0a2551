"""Orders from the margins of one query: widest paths, locked pairs, quicksort by majority."""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats, Offsets


@kernel
def widest_paths(matrix: Floats) -> Floats:  # (size, size) margins -> (size, size)
    """Strength of the strongest path between all items: O(size^3).

    A path goes along majorities and is as strong as its smallest margin; 0 where there is no path.
    """
    size = len(matrix)
    strength = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            strength[i, j] = max(matrix[i, j], 0.0)
    for via in range(size):
        onward = strength[via]
        for i in range(size):
            first = strength[i, via]
            if first > 0.0 and i != via:
                row = strength[i]
                for j in range(size):
                    row[j] = max(row[j], min(first, onward[j]))
    return strength


@kernel
def path_scores(strength: Floats) -> Floats:  # (size, size) -> (size,)
    """Minus the items that beat an item by a stronger path; among equals the share of items beaten decides."""
    size = len(strength)
    score = np.zeros(size)
    for i in range(size):
        for j in range(size):
            if i != j:
                score[i] -= (strength[j, i] > strength[i, j]) * 1.0
                score[i] += (strength[i, j] > strength[j, i]) / size
    return score


@kernel
def lock_pairs(winner: Offsets, loser: Offsets, size: int) -> Offsets:  # (pairs,), (pairs,) -> (size,)
    """Lock pairs one after the other, but for those that close a cycle; returns how many items stand over each one.

    A row of bits says which items stand under an item; a new pair adds the loser's row to the rows of all that stand
    over the winner.
    """
    words = (size + 63) // 64
    under = np.zeros((size, words), dtype=np.uint64)
    one = np.uint64(1)
    for p in range(len(winner)):
        w, x = winner[p], loser[p]
        if under[x, w // 64] >> np.uint64(w % 64) & one or under[w, x // 64] >> np.uint64(x % 64) & one:
            continue  # the reverse is locked, or the pair itself follows from others
        for i in range(size):
            over = i == w or under[i, w // 64] >> np.uint64(w % 64) & one
            if over and not under[i, x // 64] >> np.uint64(x % 64) & one:
                for word in range(words):
                    under[i, word] |= under[x, word]
                under[i, x // 64] |= one << np.uint64(x % 64)
    above = np.zeros(size, dtype=np.int64)
    for i in range(size):
        for j in range(size):
            above[j] += np.int64(under[i, j // 64] >> np.uint64(j % 64) & one)
    return above


@kernel
def majority_quicksort(matrix: Floats, start: Offsets, draws: Floats) -> Offsets:  # (size, size), (size,), (size,)
    """Quicksort by majority from a starting order, pivots by uniform draws.

    Items that no majority compares with the pivot stand on the side of the pivot on which they started.
    """
    size = len(start)
    order, spare = start.copy(), np.empty_like(start)
    low, high = np.empty(size + 1, dtype=np.int64), np.empty(size + 1, dtype=np.int64)
    low[0], high[0], depth, drawn = 0, size, 1, 0
    while depth > 0:
        depth -= 1
        first, end = low[depth], high[depth]
        if end - first < 2:
            continue
        at = first + min(int(draws[drawn] * (end - first)), end - first - 1)
        drawn += 1
        pivot, left = order[at], first
        for n in range(first, end):
            ahead = matrix[order[n], pivot]
            if n != at and (ahead > 0.0 or (ahead == 0.0 and n < at)):
                spare[left] = order[n]
                left += 1
        right = left + 1
        for n in range(first, end):
            ahead = matrix[order[n], pivot]
            if n != at and (ahead < 0.0 or (ahead == 0.0 and n > at)):
                spare[right] = order[n]
                right += 1
        spare[left] = pivot
        for n in range(first, end):
            order[n] = spare[n]
        low[depth], high[depth] = first, left
        low[depth + 1], high[depth + 1] = left + 1, end
        depth += 2
    return order
