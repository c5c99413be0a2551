"""Kernels on majorities: how many lists put one item over another, sorting by majority, and Markov chains.

The ranks of a query become a table of places, item x list (int32; ties share a place), so that two items are compared
by one pass over two rows. Memory: items x lists of one query.

The score of a Markov chain (Dwork et al. 2001) is its stationary distribution. MC1 to MC3 take a step through all lists
by suffix sums, O(entries) a step, without any matrix. MC4 moves along majorities, which exist between nearly all pairs
of items, so it needs a dense matrix.
"""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.models.lists import Lists, Pairs
from distagg.optimise.linear import copy_to
from distagg.rankings.ordering import falling_order
from distagg.types import Floats, Indices, Offsets

UNLISTED = np.int32(2**31 - 1)  # the place of an item that a list leaves out
ROUNDING = 1e-12  # of a sum of weights, relative to their size


@kernel
def place_table(
    first_list: int, last_list: int, size: int, entry_offsets: Offsets, entry_item: Indices, entry_rank: Floats
) -> Indices:  # (size, lists)
    """Place of every item in every list of one query; UNLISTED where a list leaves the item out."""
    table = np.full((size, last_list - first_list), UNLISTED, dtype=np.int32)
    for a in range(first_list, last_list):
        place = 0
        for e in range(entry_offsets[a], entry_offsets[a + 1]):
            if e > entry_offsets[a] and entry_rank[e] != entry_rank[e - 1]:
                place += 1
            table[entry_item[e], a - first_list] = place
    return table


@kernel
def margin(table: Indices, i: int, j: int, unlisted_last: bool) -> int:
    """The number of lists that put i over j, minus the number of lists that put j over i."""
    total = 0
    for a in range(table.shape[1]):
        left, right = table[i, a], table[j, a]
        if unlisted_last or (left != UNLISTED and right != UNLISTED):
            total += (left < right) - (left > right)
    return total


@kernel
def weighted_margin(table: Indices, weight: Floats, i: int, j: int, unlisted_last: bool) -> float:
    """The same with the weights of lists; 0 if the difference is no larger than rounding errors."""
    total, size = 0.0, 0.0
    for a in range(table.shape[1]):
        left, right = table[i, a], table[j, a]
        if unlisted_last or (left != UNLISTED and right != UNLISTED):
            total += weight[a] * ((left < right) - (left > right))
            size += weight[a]
    return total if abs(total) > ROUNDING * size else 0.0


@kernel
def add_pairs(q: int, pairs: Pairs, matrix: Floats) -> None:
    """Add one query's raw pairs to a matrix of margins; ties add nothing."""
    for p in range(pairs.offsets[q], pairs.offsets[q + 1]):
        if not pairs.tie[p]:
            matrix[pairs.winner[p], pairs.loser[p]] += pairs.weight[p]
            matrix[pairs.loser[p], pairs.winner[p]] -= pairs.weight[p]


@kernel
def margins(table: Indices, weight: Floats, unlisted_last: bool) -> Floats:  # (size, lists) -> (size, size), skew
    """The margins of all pairs of items of one query, list by list, in loops that the compiler can vectorise.

    They are computed in float32, which is exact for counts and places up to 2**24. With 32-bit integers numba would
    compute in 64 bits, and vectors would hold half as many numbers.
    """
    size = table.shape[0]
    if len(weight) > 0:
        weighted = np.zeros((size, size))
        for i in range(size):
            for j in range(i):
                weighted[i, j] = weighted_margin(table, weight, i, j, unlisted_last)
                weighted[j, i] = -weighted[i, j]
        return weighted
    count = np.zeros((size, size), dtype=np.float32)
    place, listed = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32)
    one, none = np.float32(1.0), np.float32(0.0)
    for a in range(table.shape[1]):
        for i in range(size):
            place[i] = table[i, a]
            listed[i] = one if unlisted_last or table[i, a] != UNLISTED else none
        for i in range(size):
            if listed[i] == none:
                continue
            here, row = place[i], count[i]
            for j in range(size):
                over = one if here < place[j] else none
                under = one if here > place[j] else none
                row[j] += (over - under) * listed[j]
    matrix = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            matrix[i, j] = count[i, j]
    return matrix


@kernel
def majority_sort(start: np.ndarray, table: Indices, matrix: Floats, unlisted_last: bool) -> np.ndarray:
    """Merge sort of a starting order by majority: O(M log M) comparisons. Tied items keep the starting order.

    Items are compared by the table of places, or by the matrix of margins if the table is empty.
    """
    size = len(start)
    order, spare = start.copy(), np.empty_like(start)
    width = 1
    while width < size:
        for low in range(0, size, 2 * width):
            middle, high = min(low + width, size), min(low + 2 * width, size)
            left, right = low, middle
            for at in range(low, high):
                take_left = right >= high
                if left < middle and right < high:
                    i, j = order[left], order[right]
                    ahead = margin(table, j, i, unlisted_last) if len(matrix) == 0 else matrix[j, i]
                    take_left = ahead <= 0
                if take_left:
                    spare[at] = order[left]
                    left += 1
                else:
                    spare[at] = order[right]
                    right += 1
        order, spare = spare, order
        width *= 2
    return order


@kernel
def local_kemeny(start: np.ndarray, table: Indices, matrix: Floats, unlisted_last: bool) -> np.ndarray:
    """Local Kemenisation (Dwork et al. 2001): move each item up until a majority puts the item above it first."""
    order = start.copy()
    for at in range(1, len(order)):
        item = order[at]
        to = at
        while to > 0:
            above = order[to - 1]
            ahead = margin(table, item, above, unlisted_last) if len(matrix) == 0 else matrix[item, above]
            if ahead <= 0:
                break
            order[to] = above
            to -= 1
        order[to] = item
    return order


@kernel
def copeland_scores(matrix: Floats, score: Floats) -> None:  # (size, size), (size,) of zeros
    """Write to ``score`` how many items each item beats by majority, minus how many beat it."""
    size = len(matrix)
    for i in range(size):
        for j in range(size):
            score[i] += (matrix[i, j] > 0.0) * 1.0 - (matrix[i, j] < 0.0) * 1.0


@kernel
def query_table(q: int, lists: Lists) -> Indices:  # (size, lists)
    """The table of places of query q of a chunk."""
    size = lists.item_offsets[q + 1] - lists.item_offsets[q]
    first, last = lists.list_offsets[q], lists.list_offsets[q + 1]
    return place_table(first, last, size, lists.entry_offsets, lists.entry_item, lists.entry_rank)


@kernel
def query_weight(q: int, weight: Floats, lists: Lists) -> Floats:  # (L,) or empty -> (lists,) or empty
    """The weights of the lists of query q."""
    return weight[lists.list_offsets[q] : lists.list_offsets[q + 1]]  # of an empty array, an empty one


@kernel
def chunk_margins(q: int, unlisted_last: bool, weight: Floats, lists: Lists, pairs: Pairs) -> Floats:  # (size, size)
    """Margins of query q of a chunk, from its lists and its raw pairs."""
    matrix = margins(query_table(q, lists), query_weight(q, weight, lists), unlisted_last)
    add_pairs(q, pairs, matrix)
    return matrix


@kernel
def sort_chunk(
    local: bool,
    start: Indices,  # (I,) the items of every query in the order to start from
    unlisted_last: bool,
    weight: Floats,  # (L,) of lists; empty where each counts 1
    lists: Lists,
    pairs: Pairs,
) -> Floats:  # (I,) M for the first item of a query, down to 1
    """Sort every query by majority, or kemenise it locally, from a starting order.

    Without raw pairs and without weights, items are compared by their places, and no matrix is built.
    """
    score = np.zeros(lists.item_offsets[-1])
    for q in range(len(lists.item_offsets) - 1):
        base, end = lists.item_offsets[q], lists.item_offsets[q + 1]
        table, matrix = query_table(q, lists), np.zeros((0, 0))
        weights = query_weight(q, weight, lists)
        if pairs.offsets[q] < pairs.offsets[q + 1] or len(weight) > 0:
            matrix = margins(table, weights, unlisted_last)
            add_pairs(q, pairs, matrix)
        order = start[base:end].astype(np.int64)
        if local:
            order = local_kemeny(order, table, matrix, unlisted_last)
        else:
            order = majority_sort(order, table, matrix, unlisted_last)
        for place in range(len(order)):
            score[base + order[place]] = len(order) - place
    return score


@kernel
def copeland_chunk(unlisted_last: bool, weight: Floats, lists: Lists, pairs: Pairs) -> Floats:  # (I,)
    """Copeland scores of every query."""
    score = np.zeros(lists.item_offsets[-1])
    for q in range(len(lists.item_offsets) - 1):
        matrix = chunk_margins(q, unlisted_last, weight, lists, pairs)
        copeland_scores(matrix, score[lists.item_offsets[q] : lists.item_offsets[q + 1]])
    return score


@kernel
def step_lists(
    kind: int,  # 1, 2 or 3
    x: Floats,  # (size,)
    holders: Floats,  # (size,) lists that hold the item, by weight
    reach: Floats,  # (size,) entries at or above the item, over its lists
    q: int,
    weight: Floats,  # (L,) of lists; empty where each counts 1
    lists: Lists,
) -> Floats:  # (size,)
    """One step of MC1, MC2 or MC3 within query q."""
    y = np.zeros(len(x))
    mass = np.empty(len(x))  # the probability that each item sends to each of its lists, or to each entry (MC1)
    for i in range(len(x)):
        mass[i] = x[i] / (reach[i] if kind == 1 else holders[i])
        if holders[i] == 0.0:
            y[i] = x[i]  # in no list: only teleporting leads away
    entry_item, entry_rank = lists.entry_item, lists.entry_rank
    for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):  # in one kernel: a call for each list costs more
        share = weight[a] if len(weight) > 0 else 1.0
        if share == 0.0:
            continue
        first, last = lists.entry_offsets[a], lists.entry_offsets[a + 1]
        end, length = last, float(last - first)
        flow = 0.0  # what comes up from worse entries
        while end > first:
            start = end - 1
            while start > first and entry_rank[start - 1] == entry_rank[end - 1]:
                start -= 1
            group = 0.0
            within = share * (1.0 if kind == 1 else 1.0 / (end - first if kind == 2 else length))
            stay = share * ((last - start) / length)
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
def list_reach(q: int, weight: Floats, lists: Lists) -> tuple[Floats, Floats]:  # (size,), (size,)
    """For every item of query q, the weight of the lists that hold it, and of the entries at or above it in them."""
    size = lists.item_offsets[q + 1] - lists.item_offsets[q]
    holders, reach = np.zeros(size), np.zeros(size)
    for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):
        share = weight[a] if len(weight) > 0 else 1.0
        first, last = lists.entry_offsets[a], lists.entry_offsets[a + 1]
        start = first
        while start < last:
            end = start + 1
            while end < last and lists.entry_rank[end] == lists.entry_rank[start]:
                end += 1
            for e in range(start, end):
                holders[lists.entry_item[e]] += share
                reach[lists.entry_item[e]] += share * (end - first)
            start = end
    return holders, reach


@kernel
def teleported(y: Floats, x: Floats, teleport: float) -> float:
    """Mix a step y (size,) with teleporting to any item, in place; returns the L1 distance from x."""
    change = 0.0
    for i in range(len(y)):
        y[i] = (1.0 - teleport) * y[i] + teleport / len(y)
        change += abs(y[i] - x[i])
    return change


@kernel
def list_walks(
    kind: int, teleport: float, tolerance: float, steps: int, weight: Floats, lists: Lists
) -> tuple[Floats, int]:
    """Stationary distributions of MC1-MC3 for every query (I,), and how many queries did not converge."""
    score = np.zeros(lists.item_offsets[-1])
    unfinished = 0
    for q in range(len(lists.item_offsets) - 1):
        base, end = lists.item_offsets[q], lists.item_offsets[q + 1]
        holders, reach = list_reach(q, weight, lists)
        x = np.full(end - base, 1.0 / max(end - base, 1))
        change, step = 1.0, 0
        while change > tolerance and step < steps:
            y = step_lists(kind, x, holders, reach, q, weight, lists)
            change = teleported(y, x, teleport)
            x = y
            step += 1
        unfinished += change > tolerance
        copy_to(score[base:end], x)
    return score, unfinished


@kernel
def majority_walk(margins: Floats, teleport: float, tolerance: float, steps: int) -> tuple[Floats, bool]:
    """Stationary distribution of MC4 for one query, and whether it converged.

    Probability moves on item by item, those with most items above them first (Gauss-Seidel on the residual). If
    majorities have no cycle, one sweep is exact. Otherwise the probability that has not arrived bounds the error.
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
    teleport: float, tolerance: float, steps: int, unlisted_last: bool, weight: Floats, lists: Lists, pairs: Pairs
) -> tuple[Floats, int]:
    """Stationary distributions of MC4 for every query (I,), and how many queries did not converge."""
    score = np.zeros(lists.item_offsets[-1])
    unfinished = 0
    for q in range(len(lists.item_offsets) - 1):
        matrix = chunk_margins(q, unlisted_last, weight, lists, pairs)
        x, converged = majority_walk(matrix, teleport, tolerance, steps)
        unfinished += not converged
        copy_to(score[lists.item_offsets[q] : lists.item_offsets[q + 1]], x)
    return score, unfinished
