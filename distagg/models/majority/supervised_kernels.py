"""The slope of a Markov chain's stationary distribution in the weights of lists, by the adjoint of the walk.

The chain is MC2 (``kernels.step_lists``): from item i a list that holds i is drawn by weight, then any item that is at
least as good in it. Let P be its matrix, t the chance of a jump anywhere, x the stationary distribution, and g the
slope of an objective in x. For v = g - x.g + (1 - t) P v, the slope in the matrix is (1 - t) x_i v_j (Meyer 1975). The
slope in a list's weight then needs only the means of v over the entries at or above each entry: O(entries) a step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.lists import Lists
from distagg.models.majority.kernels import list_reach, step_lists, teleported
from distagg.types import NO_LABEL, Floats, Indices, Labels

UNKNOWN = np.int32(NO_LABEL)


class Walk(NamedTuple):
    """How a walk goes, and when it ends."""

    teleport: float
    tolerance: float
    steps: int


@kernel
def means_above(a: int, v: Floats, lists: Lists, mean: Floats) -> None:
    """For every entry of list a, the mean of ``v`` (size,) over the entries at or above it, into ``mean`` (size,)."""
    first, last = lists.entry_offsets[a], lists.entry_offsets[a + 1]
    total, start = 0.0, first
    while start < last:
        end = start
        while end < last and lists.entry_rank[end] == lists.entry_rank[start]:
            total += v[lists.entry_item[end]]
            end += 1
        for e in range(start, end):
            mean[e - first] = total / (end - first)
        start = end


@kernel
def expected_next(v: Floats, holders: Floats, q: int, weight: Floats, lists: Lists, mean: Floats) -> Floats:  # (size,)
    """P v: the expected ``v`` one step after each item of query q; items in no list stay where they are."""
    after = np.zeros(len(v))
    for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):
        if weight[a] == 0.0:
            continue
        means_above(a, v, lists, mean)
        first = lists.entry_offsets[a]
        for e in range(first, lists.entry_offsets[a + 1]):
            after[lists.entry_item[e]] += weight[a] * mean[e - first]
    for i in range(len(v)):
        after[i] = after[i] / holders[i] if holders[i] > 0.0 else v[i]
    return after


@kernel
def stationary(walk: Walk, holders: Floats, reach: Floats, q: int, weight: Floats, lists: Lists) -> Floats:  # (size,)
    """The stationary distribution of query q."""
    x = np.full(len(holders), 1.0 / max(len(holders), 1))
    change, step = 1.0, 0
    while change > walk.tolerance and step < walk.steps:
        y = step_lists(2, x, holders, reach, q, weight, lists)
        change = teleported(y, x, walk.teleport)
        x = y
        step += 1
    return x


@kernel
def pair_slopes(x: Floats, labels: Labels, slope: Floats) -> tuple[float, int]:  # (size,) each
    """Mean log chance that the logistic function gives to the right order of two items with different labels.

    Items have ``size`` times their mass as score. Returns the mean and the number of pairs; writes the slope in x.
    """
    size, value, pairs = len(x), 0.0, 0
    for i in range(size):
        slope[i] = 0.0
    for i in range(size):
        for j in range(size):
            if labels[j] == UNKNOWN or labels[i] <= labels[j]:
                continue
            gap = size * (x[i] - x[j])
            wrong = 1.0 / (1.0 + np.exp(gap))
            value -= np.log1p(np.exp(-abs(gap))) - min(gap, 0.0)
            slope[i] += size * wrong
            slope[j] -= size * wrong
            pairs += 1
    if pairs == 0:
        return 0.0, 0
    for i in range(size):
        slope[i] /= pairs
    return value / pairs, pairs


@kernel
def query_slopes(
    walk: Walk,
    q: int,
    weight: Floats,  # (L,)
    lists: Lists,
    labels: Labels,  # (I,)
    slope: Floats,  # (L,) written where the list is in query q
) -> tuple[float, int]:
    """The objective of query q, its number of pairs, and its slope in the weight of every list of the query."""
    base, end = lists.item_offsets[q], lists.item_offsets[q + 1]
    holders, reach = list_reach(q, weight, lists)
    x = stationary(walk, holders, reach, q, weight, lists)
    g = np.empty(end - base)
    value, pairs = pair_slopes(x, labels[base:end], g)
    if pairs == 0:
        return 0.0, 0
    centre = 0.0
    for i in range(len(x)):
        centre += x[i] * g[i]
    for i in range(len(x)):
        g[i] -= centre
    mean = np.empty(len(x))
    v, after, change, step = g, g, 1.0, 0
    while change > walk.tolerance * len(x) and step < walk.steps:
        after = expected_next(v, holders, q, weight, lists, mean)
        following = np.empty(len(x))
        change = 0.0
        for i in range(len(x)):
            following[i] = g[i] + (1.0 - walk.teleport) * after[i]
            change += abs(following[i] - v[i])
        v = following
        step += 1
    after = expected_next(v, holders, q, weight, lists, mean)
    for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):
        means_above(a, v, lists, mean)
        first, slope[a] = lists.entry_offsets[a], 0.0
        for e in range(first, lists.entry_offsets[a + 1]):
            i = lists.entry_item[e]
            if holders[i] > 0.0:
                slope[a] += (1.0 - walk.teleport) * x[i] / holders[i] * (mean[e - first] - after[i])
    return value, pairs


@kernel
def climb_chain(
    walk: Walk,
    rate: float,  # 0: the log weights stay, and slopes are summed up
    order: Indices,  # (Q,) queries in the order to go through
    experts: Indices,  # (L,) of lists
    lists: Lists,
    labels: Labels,  # (I,)
    log_weight: Floats,  # (experts,) moved in place
    total: Floats,  # (experts,) the slope in log weights, added to
) -> tuple[float, int]:
    """One pass over the queries: the sum of their objectives, and how many have items with different labels."""
    value, count = 0.0, 0
    weight, slope = np.zeros(len(experts)), np.zeros(len(experts))
    for q in order:
        for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):
            weight[a] = np.exp(log_weight[experts[a]])
        reached, pairs = query_slopes(walk, q, weight, lists, labels, slope)
        if pairs == 0:
            continue
        value += reached
        count += 1
        for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):
            total[experts[a]] += slope[a] * weight[a]
            log_weight[experts[a]] += rate * slope[a] * weight[a]
    return value, count
