"""The coset-permutation distance based stagewise model (Qin, Geng & Liu 2010).

A ranking is drawn stage by stage. Stage i takes an item with probability proportional to exp(-sum_k theta_k d_k), where
d_k is the mean distance between expert k's ranking and all permutations that begin with the items taken so far and this
one. Terms that are the same for all items are left out. For an item at position s of the expert's ranking, with n items
in all and means over the later positions j = i + 1..n, what remains is

    spearman (squared)   (s - i)^2 - mean_j (s - j)^2 = (n + 1 - i) s + constant
    footrule             |s - i| - mean_j |s - j|
    kendall              the number of remaining items that the expert puts over it (a tie counts as half)

because every item that is not taken now is equally likely at every later position.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.lists import Lists
from distagg.types import NO_LABEL, Bools, Floats, Indices, Labels

SPEARMAN, FOOTRULE, KENDALL = 0, 1, 2
DISTANCES = {"spearman": SPEARMAN, "footrule": FOOTRULE, "kendall": KENDALL}
UNKNOWN = np.int32(NO_LABEL)
TIE = 1e-9  # energies this close, relative to the largest possible one, are equal


class Query(NamedTuple):
    """One query while its items are taken one after the other."""

    position: Floats  # (size, lists) of every item in every list
    ahead: Floats  # (size, lists) the number of remaining items that the list puts over the item; a tie is half
    gone: Bools  # (size,) whether the item has been taken


@kernel
def open_query(lists: Lists, q: int, unlisted_last: bool) -> Query:
    """Query q with all its items; the ranks of ``lists`` are positions.

    Unlisted items share the remaining positions, or stand last. In both cases the number of items ahead of them is
    computed as if they shared the remaining positions.
    """
    size = lists.item_offsets[q + 1] - lists.item_offsets[q]
    first, last = lists.list_offsets[q], lists.list_offsets[q + 1]
    position, ahead = np.empty((size, last - first)), np.empty((size, last - first))
    for a in range(first, last):
        begin, end = lists.entry_offsets[a], lists.entry_offsets[a + 1]
        shared = 0.5 * (end - begin + 1 + size)
        for i in range(size):
            position[i, a - first] = float(size) if unlisted_last else shared
            ahead[i, a - first] = shared - 1.0
        for e in range(begin, end):
            position[lists.entry_item[e], a - first] = lists.entry_rank[e]
            ahead[lists.entry_item[e], a - first] = lists.entry_rank[e] - 1.0
    return Query(position, ahead, np.zeros(size, dtype=np.bool_))


@kernel
def stage_distance(distance: int, s: float, ahead: float, stage: int, size: int) -> float:
    """The distance of one list from taking an item at this stage (see the module's docstring).

    ``s`` is the item's position in the list; ``ahead`` is how many of the remaining items the list puts over it.
    """
    if distance == KENDALL:
        return ahead
    if distance == SPEARMAN:
        return (size + 1 - stage) * s
    later = size - stage
    if later == 0:
        return 0.0  # only one item remains
    below = min(max(int(np.floor(s)) - stage, 0), later)  # the number of positions after this stage, up to s
    above = later - below
    total = below * s - below * (stage + 0.5 * (below + 1)) + above * (size - 0.5 * (above - 1)) - above * s
    return abs(s - stage) - total / later


@kernel
def take(query: Query, i: int) -> None:
    """Remove item i: the items that a list puts behind it have one item less ahead of them."""
    position, ahead, gone = query
    gone[i] = True
    for j in range(len(gone)):
        if gone[j]:
            continue
        for k in range(position.shape[1]):
            ahead[j, k] -= (position[i, k] < position[j, k]) * 1.0 + (position[i, k] == position[j, k]) * 0.5


@kernel
def fill_energies(distance: int, stage: int, query: Query, theta: Floats, d: Floats, energy: Floats) -> float:
    """Fill ``d`` (size, lists) with the stage distances of the remaining items, and ``energy`` (size,) with their sums.

    The sums are weighted by theta (lists,). Returns the lowest energy.
    """
    position, ahead, gone = query
    size, lists = position.shape
    lowest = np.inf
    for i in range(size):
        if gone[i]:
            continue
        total = 0.0
        for k in range(lists):
            d[i, k] = stage_distance(distance, position[i, k], ahead[i, k], stage, size)
            total += theta[k] * d[i, k]
        energy[i] = total
        lowest = min(lowest, total)
    return lowest


@kernel
def infer_queries(distance: int, unlisted_last: bool, lists: Lists, theta: Floats) -> Floats:  # (L,) -> (I,)
    """Greedy inference: every stage takes the most probable item, or all of the most probable ones.

    The ranks of ``lists`` are positions. Scores go from M for the first item taken down to 1; items that are taken
    together share the mean of their scores.
    """
    score = np.empty(lists.item_offsets[-1])
    for q in range(len(lists.item_offsets) - 1):
        own_theta = theta[lists.list_offsets[q] : lists.list_offsets[q + 1]]
        own_score = score[lists.item_offsets[q] : lists.item_offsets[q + 1]]
        infer_query(distance, open_query(lists, q, unlisted_last), own_theta, own_score)
    return score


@kernel
def infer_query(distance: int, query: Query, theta: Floats, score: Floats) -> None:
    """The scores of one query, from the theta of its lists."""
    size, lists = query.position.shape
    d, energy, best = np.empty((size, lists)), np.empty(size), np.empty(size, dtype=np.bool_)
    scale = 0.0
    for k in range(lists):
        scale += abs(theta[k]) * size
    stage = 1
    while stage <= size:
        lowest = fill_energies(distance, stage, query, theta, d, energy)
        together = 0
        for i in range(size):
            best[i] = not query.gone[i] and energy[i] <= lowest + TIE * scale
            together += best[i]
        for i in range(size):
            if best[i]:
                score[i] = size + 1 - (stage + 0.5 * (together - 1))
                take(query, i)
        stage += together


class Slopes(NamedTuple):
    """The derivatives of a log likelihood, added up."""

    gradient: Floats  # (experts,)
    curvature: Floats  # (experts, experts) minus the Hessian


@kernel
def stage_terms(
    distance: int, stage: int, query: Query, chosen: Bools, theta: Floats, experts: Indices, slopes: Slopes
) -> float:
    """Log probability of the chosen items (size,) at one stage; adds its derivatives by theta (lists,)."""
    size, lists = query.position.shape
    d, energy, likely, mean = np.empty((size, lists)), np.empty(size), np.empty(size), np.zeros(lists)
    lowest = fill_energies(distance, stage, query, theta, d, energy)
    z, count, value = 0.0, 0.0, 0.0
    for i in range(size):
        likely[i] = 0.0 if query.gone[i] else np.exp(lowest - energy[i])
        z += likely[i]
        count += chosen[i]
    for i in range(size):
        if query.gone[i]:
            continue
        chance = likely[i] / z
        for k in range(lists):
            mean[k] += chance * d[i, k]
        if chosen[i]:
            value += lowest - energy[i] - np.log(z)
            for k in range(lists):
                slopes.gradient[experts[k]] -= d[i, k]
    for k in range(lists):
        slopes.gradient[experts[k]] += count * mean[k]
    for i in range(size):
        if not query.gone[i]:
            add_curvature(count * likely[i] / z, d[i], mean, experts, slopes.curvature)
    return value


@kernel
def add_curvature(weight: float, d: Floats, mean: Floats, experts: Indices, curvature: Floats) -> None:
    """Add to ``curvature`` the weighted products of the deviations of every two lists from their means."""
    for k in range(len(mean)):
        for m in range(len(mean)):
            curvature[experts[k], experts[m]] += weight * (d[k] - mean[k]) * (d[m] - mean[m])


@kernel
def choose_highest(labels: Labels, gone: Bools, chosen: Bools) -> int:
    """Mark the remaining items with the highest label; returns their number, or 0 if all remaining items have it."""
    top = UNKNOWN
    for i in range(len(labels)):
        if not gone[i]:
            top = max(top, labels[i])
    together, left = 0, 0
    for i in range(len(labels)):
        chosen[i] = not gone[i] and labels[i] == top
        together += chosen[i]
        left += not gone[i]
    return together if together < left else 0


@kernel
def likelihood(
    distance: int,
    unlisted_last: bool,
    lists: Lists,  # whose ranks are positions
    list_expert: Indices,  # (L,)
    theta: Floats,  # (experts,)
    labels: Labels,  # (I,)
) -> tuple[float, int, Floats, Floats]:  # (experts,), (experts, experts)
    """Log likelihood of the labels, the number of items taken, the gradient and minus the Hessian.

    Items with the same label are taken together, each out of all items that remain before any of them is taken
    (Breslow's rule for ties). Items with the lowest label are left at the end and add nothing. Unlabelled items count
    as items with the lowest label.
    """
    slopes = Slopes(np.zeros(len(theta)), np.zeros((len(theta), len(theta))))
    value, taken = 0.0, 0
    for q in range(len(lists.item_offsets) - 1):
        experts = list_expert[lists.list_offsets[q] : lists.list_offsets[q + 1]]
        if len(experts) == 0:
            continue
        query, own = open_query(lists, q, unlisted_last), labels[lists.item_offsets[q] : lists.item_offsets[q + 1]]
        chosen, own_theta, stage = np.empty(len(own), dtype=np.bool_), theta[experts], 1
        together = choose_highest(own, query.gone, chosen)
        while together > 0:
            value += stage_terms(distance, stage, query, chosen, own_theta, experts, slopes)
            for i in range(len(own)):
                if chosen[i]:
                    take(query, i)
            stage += together
            taken += together
            together = choose_highest(own, query.gone, chosen)
    return value, taken, slopes.gradient, slopes.curvature
