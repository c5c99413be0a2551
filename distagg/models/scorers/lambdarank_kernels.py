"""LambdaRank: pairs of differently labelled items, weighted by what their exchange would do to a metric.

Volkovs & Zemel 2014, section 3.5.2; Burges, Ragno & Le 2006.
Cost of a query: its entries, and the items above the lowest label times all items. Exchanging two
positions changes the metric by O(1) terms, read off running sums along the ranking.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.scorers.kernels import Net, Rows, backward, forward, label_range, unit_state
from distagg.ordering import falling_order
from distagg.types import NO_LABEL, Floats, Labels, Offsets

NDCG, MAP, ERR, RBP = 0, 1, 2, 3
OBJECTIVES = {"ndcg": NDCG, "map": MAP, "err": ERR, "rbp": RBP}
PERSISTENCE = 0.95  # of rbp, Niu et al. 2013


class Goal(NamedTuple):
    """The metric to climb."""

    metric: int  # of OBJECTIVES
    highest: float  # label there is
    whole: Floats  # (Q,) what the metric is divided by


@kernel
def walk_down(metric: int, highest: float, labels: Labels, order: Offsets) -> Floats:  # (size,), (size,) -> (3, size)
    """Rows gain, run and sums, by position: what ``exchange`` needs.

    The gain of rbp is the label, as in Niu et al. 2013.

    map: run counts relevant items, sums adds 1 / position over them. err: run is the probability to get to the
    position, sums adds up the metric. Unlabelled items have gain 0.
    """
    room = np.empty((3, len(order)))
    run, total = 0.0 if metric == MAP else 1.0, 0.0
    for r in range(len(order)):
        label = labels[order[r]]
        gain = 0.0
        if label != NO_LABEL:
            gain = (label >= 1) * 1.0 if metric == MAP else max(label, 0) * 1.0 if metric == RBP else 2.0**label - 1.0
        if metric == MAP:
            run += gain
            total += gain / (r + 1.0)
        elif metric == ERR:
            gain /= 2.0**highest
            total += gain * run / (r + 1.0)
        room[0, r], room[1, r], room[2, r] = gain, run, total
        if metric == ERR:
            run *= 1.0 - gain
    return room


@kernel
def exchange(metric: int, a: int, b: int, room: Floats) -> float:
    """By how much the metric, not yet divided, changes when the items at positions a and b (from 0) change places."""
    p, q = min(a, b), max(a, b)
    first, second = room[0, p], room[0, q]
    if metric == NDCG:
        return abs((first - second) * (1.0 / np.log2(p + 2.0) - 1.0 / np.log2(q + 2.0)))
    if metric == RBP:
        return abs((first - second) * (1.0 - PERSISTENCE) * (PERSISTENCE**p - PERSISTENCE**q))
    run, last = room[1, p] / (p + 1.0), room[1, q] / (q + 1.0)
    if metric == MAP:
        if first == second:
            return 0.0
        between = room[2, q] - second / (q + 1.0) - room[2, p]
        return run + between - last + (0.0 if first > second else 1.0 / (p + 1.0))
    between = room[2, q] - second * last - room[2, p]
    shrink = (1.0 - second) / (1.0 - first)
    return abs((second - first) * run + (shrink - 1.0) * between + (first * shrink - second) * last)


@kernel
def lambdas(
    metric: int,
    highest: float,
    whole: float,  # what the metric is divided by
    labels: Labels,  # (size,) of one query
    score: Floats,  # (size,)
    force: Floats,  # (size,) filled: where the pairs push each item
) -> bool:
    """The gradient of the sum over pairs of |change of metric| log(1 + exp(worse - better)), turned to climb.

    Gives whether any two items have different labels.
    """
    for i in range(len(labels)):
        force[i] = 0.0
    low, high = label_range(labels)
    if not low < high or whole <= 0.0:
        return False
    order = falling_order(score)
    room = walk_down(metric, highest, labels, order)
    for a in range(len(order)):
        i = order[a]
        if labels[i] == NO_LABEL or labels[i] == low:
            continue
        for b in range(len(order)):
            j = order[b]
            if labels[j] == NO_LABEL or labels[j] >= labels[i]:
                continue
            push = exchange(metric, a, b, room) / whole / (1.0 + np.exp(score[i] - score[j]))
            force[i] += push
            force[j] -= push
    return True


@kernel
def climb(
    goal: Goal,
    hidden: bool,
    queries: Offsets,  # in the order in which they are learned from
    labels: Labels,  # (I,)
    rows: Rows,
    net: Net,
    step: float,
    new: Net,  # added to; it may be the net itself: then every query makes a step
) -> int:
    """Add ``step`` times each query's gradient; returns the number of queries that had one."""
    taught = 0
    state, score, force = unit_state(rows, net), np.empty(len(labels)), np.empty(len(labels))
    for q in queries:
        forward(q, hidden, rows, net, state, score)
        begin, end = rows.item_offsets[q], rows.item_offsets[q + 1]
        own = labels[begin:end], score[begin:end], force[begin:end]
        if lambdas(goal.metric, goal.highest, goal.whole[q], *own):
            taught += 1
            backward(q, hidden, step, rows, net, force, state, new)
    return taught
