"""Markov chain kernels MC1-MC4 (Dwork et al. 2001): scores are the stationary distribution of a walk to better items.

MC1-MC3 take a step through all lists by suffix sums, O(entries) a step, without any matrix. MC4 walks on the
majority relation, which nearly every pair of items is in: a dense matrix, a row at a time.
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
    mass = np.empty(len(x))  # what each item sends into each of its lists, or to each entry (MC1)
    for i in range(len(x)):
        mass[i] = x[i] / (reach[i] if kind == 1 else lists[i])
        if lists[i] == 0.0:
            y[i] = x[i]  # in no list: nowhere to go but by teleport
    for a in range(first_list, last_list):
        first, last = entry_offsets[a], entry_offsets[a + 1]
        end = last
        length = float(last - first)
        flow = 0.0  # what comes up from worse entries
        while end > first:
            start = end - 1
            while start > first and entry_rank[start - 1] == entry_rank[end - 1]:
                start -= 1
            group = 0.0
            within = 1.0 if kind == 1 else 1.0 / (end - first if kind == 2 else length)
            stay = (last - start) / length
            for e in range(start, end):
                i = entry_item[e]
                group += mass[i] * within
                if kind == 3:
                    y[i] += mass[i] * stay + flow
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
        for i in range(size):
            score[base + i] = x[i]
    return score, unfinished


@kernel
def majority_walk(margins: Floats, teleport: float, tolerance: float, steps: int) -> tuple[Floats, bool]:
    """Stationary distribution of MC4 for one query, and whether it converged.

    Mass is pushed on item by item, those with most items above them first. Where majorities have no cycle, one
    sweep is exact; what is still on the way bounds the error otherwise (Gauss-Seidel on the residual).
    """
    size = len(margins)
    share = (1.0 - teleport) / max(size, 1)
    move = np.empty((size, size))  # from item (row) to item (column)
    above = np.zeros(size)
    for i in range(size):
        for j in range(size):
            better = 1.0 if margins[i, j] < 0.0 else 0.0
            above[i] += better
            move[i, j] = better * share
    order = np.empty(size, dtype=np.int64)
    for i in range(size):  # by insertion, most items above first
        at = i
        while at > 0 and above[order[at - 1]] < above[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
    x, waiting = np.zeros(size), np.empty(size)
    for i in range(size):
        waiting[i] = teleport / size
    left, step = 1.0, 0
    while left > tolerance and step < steps:
        for n in range(size):
            i = order[n]
            # Staying put happens with (1 - teleport) (1 - above / size): sum that series at once.
            mass = waiting[i] / (1.0 - (1.0 - teleport) + above[i] * share)
            x[i] += mass
            waiting[i] = 0.0
            for j in range(size):
                waiting[j] += mass * move[i, j]
        left = 0.0
        for i in range(size):
            left += waiting[i] / teleport
        step += 1
    return x, left <= tolerance


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
        for i in range(len(x)):
            score[item_offsets[q] + i] = x[i]
    return score, unfinished
