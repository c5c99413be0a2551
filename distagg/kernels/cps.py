"""The coset-permutation distance based stagewise model (Qin, Geng & Liu 2010).

A ranking is drawn stage by stage; at stage i an item is taken with probability proportional to
exp(-sum_k theta_k d_k), where d_k is the mean distance to expert k's ranking of all permutations that begin with
the items taken so far and this one. Only what depends on the item matters. With s its position in the expert's
ranking, n items in all, and the means over the positions j = i + 1..n that the others may still take, that is

    spearman (squared)   (s - i)^2 - mean_j (s - j)^2 = (n + 1 - i) s + constant
    footrule             |s - i| - mean_j |s - j|
    kendall              how many of the items left the expert puts over it (a tie is half)

since every item that is not taken now is equally likely at every later position.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import NO_LABEL, Floats, Indices, Labels, Offsets

SPEARMAN, FOOTRULE, KENDALL = 0, 1, 2
DISTANCES = {"spearman": SPEARMAN, "footrule": FOOTRULE, "kendall": KENDALL}
UNKNOWN = np.int32(NO_LABEL)
TIE = 1e-9  # energies this close, relative to the largest possible one, are equal


@kernel
def position_table(
    first: int, last: int, size: int, behind: bool, entry_offsets: Offsets, entry_item: Indices, position: Floats
) -> Floats:  # (size, lists)
    """Position of every item in every list of a query; unlisted ones share the positions left over, or stand last."""
    table = np.empty((size, last - first))
    for a in range(first, last):
        rest = float(size) if behind else 0.5 * (entry_offsets[a + 1] - entry_offsets[a] + 1 + size)
        for i in range(size):
            table[i, a - first] = rest
        for e in range(entry_offsets[a], entry_offsets[a + 1]):
            table[entry_item[e], a - first] = position[e]
    return table


@kernel
def stage_distance(distance: int, s: float, ahead: float, stage: int, size: int) -> float:
    """What one list holds against taking an item now (see the module's head).

    ``s`` is the item's position in the list, ``ahead`` how many of the items left the list puts over it.
    """
    if distance == KENDALL:
        return ahead
    if distance == SPEARMAN:
        return (size + 1 - stage) * s
    later = size - stage
    if later == 0:
        return 0.0  # the last item is taken anyhow
    below = min(max(int(np.floor(s)) - stage, 0), later)  # positions stage + 1.. that are not behind s
    above = later - below
    total = below * s - below * (stage + 0.5 * (below + 1)) + above * (size - 0.5 * (above - 1)) - above * s
    return abs(s - stage) - total / later


@kernel
def take(i: int, gone: Indices, table: Floats, ahead: Floats) -> None:
    """Take item i away: the items that lists put behind it have one less ahead of them."""
    gone[i] = 1
    for j in range(len(table)):
        if gone[j]:
            continue
        for k in range(table.shape[1]):
            ahead[j, k] -= (table[i, k] < table[j, k]) * 1.0 + (table[i, k] == table[j, k]) * 0.5


@kernel
def count_ahead(
    first: int, last: int, size: int, entry_offsets: Offsets, entry_item: Indices, position: Floats
) -> Floats:  # (size, lists)
    """How many items every list puts over an item, ties half: its position less 1, unlisted items sharing theirs."""
    ahead = position_table(first, last, size, False, entry_offsets, entry_item, position)
    for i in range(size):
        for k in range(last - first):
            ahead[i, k] -= 1.0
    return ahead


@kernel
def infer_queries(
    distance: int,
    behind: bool,
    theta: Floats,  # (experts,)
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    list_expert: Indices,
    entry_item: Indices,
    position: Floats,  # (E,)
    score: Floats,  # (I,) filled: M for the item taken first, down to 1; items taken together share theirs
) -> None:
    """Greedy inference: at every stage the item of the highest probability, or all of those, is taken."""
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        first, last = list_offsets[q], list_offsets[q + 1]
        table = position_table(first, last, size, behind, entry_offsets, entry_item, position)
        ahead = count_ahead(first, last, size, entry_offsets, entry_item, position)
        gone, energy = np.zeros(size, dtype=np.int32), np.empty(size)
        scale = 0.0
        for a in range(first, last):
            scale += abs(theta[list_expert[a]]) * size
        stage = 1
        while stage <= size:
            best = np.inf
            for i in range(size):
                if gone[i]:
                    continue
                energy[i] = 0.0
                for k in range(last - first):
                    d = stage_distance(distance, table[i, k], ahead[i, k], stage, size)
                    energy[i] += theta[list_expert[first + k]] * d
                best = min(best, energy[i])
            together = 0
            for i in range(size):
                if not gone[i] and energy[i] <= best + TIE * scale:
                    gone[i] = 2
                    together += 1
            for i in range(size):
                if gone[i] == 2:
                    score[base + i] = size + 1 - (stage + 0.5 * (together - 1))
                    take(i, gone, table, ahead)
            stage += together


@kernel
def stage_terms(
    distance: int,
    stage: int,
    theta: Floats,  # (experts,)
    experts: Indices,  # (lists,)
    table: Floats,  # (size, lists)
    ahead: Floats,  # (size, lists)
    gone: Indices,  # (size,)
    chosen: Indices,  # (size,) 1 for the items taken at this stage
    gradient: Floats,  # (experts,) added to
    curvature: Floats,  # (experts, experts) added to: minus the Hessian
) -> float:
    """Log probability of the chosen items at one stage, with its derivatives by theta."""
    size, lists = table.shape
    d, energy, mean = np.zeros((size, lists)), np.empty(size), np.zeros(lists)
    lowest, count = np.inf, 0.0
    for i in range(size):
        energy[i] = 0.0
        for k in range(lists):
            d[i, k] = stage_distance(distance, table[i, k], ahead[i, k], stage, size)
            energy[i] += theta[experts[k]] * d[i, k]
        if not gone[i]:
            lowest = min(lowest, energy[i])
            count += chosen[i]
    z = 0.0
    for i in range(size):
        if not gone[i]:
            z += np.exp(lowest - energy[i])
    value = 0.0
    for i in range(size):
        if gone[i]:
            continue
        p = np.exp(lowest - energy[i]) / z
        for k in range(lists):
            mean[k] += p * d[i, k]
        if chosen[i]:
            value += lowest - energy[i] - np.log(z)
            for k in range(lists):
                gradient[experts[k]] -= d[i, k]
    for k in range(lists):
        gradient[experts[k]] += count * mean[k]
    for i in range(size):
        if gone[i]:
            continue
        p = count * np.exp(lowest - energy[i]) / z
        for k in range(lists):
            for m in range(lists):
                curvature[experts[k], experts[m]] += p * (d[i, k] - mean[k]) * (d[i, m] - mean[m])
    return value


@kernel
def likelihood(
    distance: int,
    behind: bool,
    theta: Floats,  # (experts,)
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    list_expert: Indices,
    entry_item: Indices,
    position: Floats,  # (E,)
    labels: Labels,  # (I,)
    gradient: Floats,  # (experts,) added to
    curvature: Floats,  # (experts, experts) added to
) -> tuple[float, int]:
    """Log likelihood of the labels and the number of items taken; adds its derivatives.

    Items of one label are taken together, each from all the items left when the first of them is (Breslow's rule for
    ties); the lowest label is what remains, and says nothing. Unlabelled items count as the lowest.
    """
    value, taken = 0.0, 0
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        first, last = list_offsets[q], list_offsets[q + 1]
        if first == last:
            continue
        experts = list_expert[first:last]
        table = position_table(first, last, size, behind, entry_offsets, entry_item, position)
        ahead = count_ahead(first, last, size, entry_offsets, entry_item, position)
        gone, chosen = np.zeros(size, dtype=np.int32), np.zeros(size, dtype=np.int32)
        stage = 1
        while True:
            top = UNKNOWN
            for i in range(size):
                if not gone[i]:
                    top = max(top, labels[base + i])
            several = False
            for i in range(size):
                several = several or (not gone[i] and labels[base + i] != top)
            if not several:
                break
            together = 0
            for i in range(size):
                chosen[i] = not gone[i] and labels[base + i] == top
                together += chosen[i]
            value += stage_terms(distance, stage, theta, experts, table, ahead, gone, chosen, gradient, curvature)
            for i in range(size):
                if chosen[i]:
                    take(i, gone, table, ahead)
            stage += together
            taken += together
    return value, taken
