"""Markov chain kernels MC1-MC4 (Dwork et al. 2001): scores are the stationary distribution of a walk to better items.

MC1-MC3 take a step through all lists by suffix sums, O(entries) a step, without any matrix. MC4 walks on the
majority relation, held sparse.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.majority import chunk_margins
from distagg.types import Bools, Floats, Indices, Offsets


@kernel
def step_lists(
    kind: int,  # 1, 2 or 3
    x: Floats,  # (size,)
    lists: Floats,  # (size,) lists that hold the item
    reach: Floats,  # (size,) entries at or above the item, over its lists
    first_list: int,
    last_list: int,
    entry_offsets: Offsets,
    entry_item: Indices,
    entry_rank: Floats,
) -> Floats:  # (size,)
    """One step of MC1, MC2 or MC3 within one query."""
    y = np.zeros(len(x))
    for i in range(len(x)):
        if lists[i] == 0.0:
            y[i] = x[i]  # in no list: nowhere to go but by teleport
    for a in range(first_list, last_list):
        first, end = entry_offsets[a], entry_offsets[a + 1]
        length = float(end - first)
        flow = 0.0  # what comes up from worse entries
        while end > first:
            start = end - 1
            while start > first and entry_rank[start - 1] == entry_rank[end - 1]:
                start -= 1
            group = 0.0
            for e in range(start, end):
                i = entry_item[e]
                if kind == 1:
                    group += x[i] / reach[i]
                elif kind == 2:
                    group += x[i] / (lists[i] * (end - first))
                else:
                    group += x[i] / (lists[i] * length)
                    y[i] += x[i] / lists[i] * (1.0 - (start - first) / length) + flow
            flow += group
            if kind != 3:
                for e in range(start, end):
                    y[entry_item[e]] += flow
            end = start
    return y


@kernel
def list_reach(
    size: int, first_list: int, last_list: int, entry_offsets: Offsets, entry_rank: Floats, entry_item: Indices
) -> tuple[Floats, Floats]:  # (size,), (size,)
    """For every item of one query: the lists that hold it, and the entries at or above it over those lists."""
    lists, reach = np.zeros(size), np.zeros(size)
    for a in range(first_list, last_list):
        start = entry_offsets[a]
        while start < entry_offsets[a + 1]:
            end = start + 1
            while end < entry_offsets[a + 1] and entry_rank[end] == entry_rank[start]:
                end += 1
            for e in range(start, end):
                lists[entry_item[e]] += 1.0
                reach[entry_item[e]] += end - entry_offsets[a]
            start = end
    return lists, reach


@kernel
def teleported(y: Floats, x: Floats, teleport: float) -> float:
    """Blend a step y (size,) with a jump anywhere, in place; gives the L1 change from x."""
    change = 0.0
    for i in range(len(y)):
        y[i] = (1.0 - teleport) * y[i] + teleport / len(y)
        change += abs(y[i] - x[i])
    return change


@kernel
def list_walks(
    kind: int, teleport: float, tolerance: float, steps: int, item_offsets: Offsets, list_offsets: Offsets,
    entry_offsets: Offsets, entry_item: Indices, entry_rank: Floats,
) -> tuple[Floats, int]:  # fmt: skip
    """Stationary distributions of MC1-MC3 for every query (I,), and how many queries did not converge."""
    score = np.zeros(item_offsets[-1])
    unfinished = 0
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        first, last = list_offsets[q], list_offsets[q + 1]
        lists, reach = list_reach(size, first, last, entry_offsets, entry_rank, entry_item)
        x = np.full(size, 1.0 / max(size, 1))
        change, step = 1.0, 0
        while change > tolerance and step < steps:
            y = step_lists(kind, x, lists, reach, first, last, entry_offsets, entry_item, entry_rank)
            change = teleported(y, x, teleport)
            x = y
            step += 1
        unfinished += change > tolerance
        score[base : base + size] = x
    return score, unfinished


@kernel
def majority_walk(margins: Floats, teleport: float, tolerance: float, steps: int) -> tuple[Floats, bool]:
    """Stationary distribution of MC4 for one query, and whether it converged."""
    size = len(margins)
    better = np.empty(size * size, dtype=np.int32)  # items that a majority puts over item i, row after row
    starts = np.zeros(size + 1, dtype=np.int64)
    for i in range(size):
        n = starts[i]
        for j in range(size):
            if margins[j, i] > 0.0:
                better[n] = j
                n += 1
        starts[i + 1] = n
    x = np.full(size, 1.0 / max(size, 1))
    change, step = 1.0, 0
    while change > tolerance and step < steps:
        y = np.empty(size)
        for i in range(size):
            y[i] = x[i] * (1.0 - (starts[i + 1] - starts[i]) / size)
        for i in range(size):
            flow = x[i] / size
            for n in range(starts[i], starts[i + 1]):
                y[better[n]] += flow
        change = teleported(y, x, teleport)
        x = y
        step += 1
    return x, change <= tolerance


@kernel
def majority_walks(
    teleport: float, tolerance: float, steps: int, unlisted_last: bool, item_offsets: Offsets, list_offsets: Offsets,
    entry_offsets: Offsets, entry_item: Indices, entry_rank: Floats, pair_offsets: Offsets, pair_winner: Indices,
    pair_loser: Indices, pair_weight: Floats, pair_tie: Bools,
) -> tuple[Floats, int]:  # fmt: skip
    """Stationary distributions of MC4 for every query (I,), and how many queries did not converge."""
    score = np.zeros(item_offsets[-1])
    unfinished = 0
    for q in range(len(item_offsets) - 1):
        matrix = chunk_margins(
            q, unlisted_last, item_offsets, list_offsets, entry_offsets, entry_item, entry_rank, pair_offsets,
            pair_winner, pair_loser, pair_weight, pair_tie,
        )  # fmt: skip
        x, converged = majority_walk(matrix, teleport, tolerance, steps)
        unfinished += not converged
        score[item_offsets[q] : item_offsets[q + 1]] = x
    return score, unfinished
