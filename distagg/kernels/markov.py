"""Markov chain kernels MC1-MC4 (Dwork et al. 2001): scores are the stationary distribution of a walk to better items.

MC1-MC3 take a step through all lists by suffix sums, O(entries) a step, without any matrix. MC4 walks on the
majority relation, which nearly every pair of items is in: a dense matrix, a row at a time.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.lists import Lists, Pairs
from distagg.kernels.majority import chunk_margins
from distagg.kernels.ordering import falling_order
from distagg.kernels.vectors import copy_to
from distagg.types import Floats


@kernel
def step_lists(
    kind: int,  # 1, 2 or 3
    x: Floats,  # (size,)
    holders: Floats,  # (size,) lists that hold the item
    reach: Floats,  # (size,) entries at or above the item, over its lists
    q: int,
    lists: Lists,
) -> Floats:  # (size,)
    """One step of MC1, MC2 or MC3 within query q."""
    y = np.zeros(len(x))
    mass = np.empty(len(x))  # what each item sends into each of its lists, or to each entry (MC1)
    for i in range(len(x)):
        mass[i] = x[i] / (reach[i] if kind == 1 else holders[i])
        if holders[i] == 0.0:
            y[i] = x[i]  # in no list: nowhere to go but by teleport
    entry_item, entry_rank = lists.entry_item, lists.entry_rank
    for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):  # in one kernel: a call for each list costs more
        first, last = lists.entry_offsets[a], lists.entry_offsets[a + 1]
        end, length = last, float(last - first)
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
def list_reach(q: int, lists: Lists) -> tuple[Floats, Floats]:  # (size,), (size,)
    """For every item of query q: the lists that hold it, and the entries at or above it over those lists."""
    size = lists.item_offsets[q + 1] - lists.item_offsets[q]
    holders, reach = np.zeros(size), np.zeros(size)
    for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):
        first, last = lists.entry_offsets[a], lists.entry_offsets[a + 1]
        start = first
        while start < last:
            end = start + 1
            while end < last and lists.entry_rank[end] == lists.entry_rank[start]:
                end += 1
            for e in range(start, end):
                holders[lists.entry_item[e]] += 1.0
                reach[lists.entry_item[e]] += end - first
            start = end
    return holders, reach


@kernel
def teleported(y: Floats, x: Floats, teleport: float) -> float:
    """Blend a step y (size,) with a jump anywhere, in place; gives the L1 change from x."""
    change = 0.0
    for i in range(len(y)):
        y[i] = (1.0 - teleport) * y[i] + teleport / len(y)
        change += abs(y[i] - x[i])
    return change


@kernel
def list_walks(kind: int, teleport: float, tolerance: float, steps: int, lists: Lists) -> tuple[Floats, int]:
    """Stationary distributions of MC1-MC3 for every query (I,), and how many queries did not converge."""
    score = np.zeros(lists.item_offsets[-1])
    unfinished = 0
    for q in range(len(lists.item_offsets) - 1):
        base, end = lists.item_offsets[q], lists.item_offsets[q + 1]
        holders, reach = list_reach(q, lists)
        x = np.full(end - base, 1.0 / max(end - base, 1))
        change, step = 1.0, 0
        while change > tolerance and step < steps:
            y = step_lists(kind, x, holders, reach, q, lists)
            change = teleported(y, x, teleport)
            x = y
            step += 1
        unfinished += change > tolerance
        copy_to(score[base:end], x)
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
    order = falling_order(above)
    x, waiting = np.zeros(size), np.full(size, teleport / max(size, 1))
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
    teleport: float, tolerance: float, steps: int, unlisted_last: bool, lists: Lists, pairs: Pairs
) -> tuple[Floats, int]:
    """Stationary distributions of MC4 for every query (I,), and how many queries did not converge."""
    score = np.zeros(lists.item_offsets[-1])
    unfinished = 0
    for q in range(len(lists.item_offsets) - 1):
        matrix = chunk_margins(q, unlisted_last, lists, pairs)
        x, converged = majority_walk(matrix, teleport, tolerance, steps)
        unfinished += not converged
        copy_to(score[lists.item_offsets[q] : lists.item_offsets[q + 1]], x)
    return score, unfinished
