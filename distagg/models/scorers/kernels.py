"""Scores of items from feature rows (linear or with hidden layers), their gradient, and LambdaRank's objective.

LambdaRank sums over pairs of differently labelled items, each weighted by how much swapping the two changes a metric:
Volkovs & Zemel 2014, section 3.5.2; Burges, Ragno & Le 2006. Running sums along the ranking give the change of a swap
in O(1). Cost of a query: its entries, plus the items above the lowest label times all items.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.rankings.ordering import falling_order
from distagg.types import NO_LABEL, Floats, Indices, Labels, Offsets


class Rows(NamedTuple):
    """Feature rows of a chunk, query after query."""

    item_offsets: Offsets  # (Q + 1,) items of each query
    offsets: Offsets  # (Q + 1,) rows of each query
    item: Indices  # (N,) position of the item in its query
    expert: Indices  # (N,)
    values: Floats  # (N, width)


class Net(NamedTuple):
    """The learned weights: D layers of the same width. A linear function is one layer of one unit, with output 1."""

    weight: Floats  # (experts, width, units)
    bias: Floats  # (D, units)
    inner: Floats  # (D - 1, units, units), from a layer's units to the next one's
    output: Floats  # (units,)


@kernel
def label_range(labels: Labels) -> tuple[float, float]:
    """The lowest and the highest known label; inf and -inf where all are unknown."""
    low, high = np.inf, -np.inf
    for i in range(len(labels)):
        if labels[i] != NO_LABEL:
            low, high = min(low, labels[i] * 1.0), max(high, labels[i] * 1.0)
    return low, high


@kernel
def unit_state(rows: Rows, net: Net) -> Floats:
    """An array (D + 1, longest query or units, units) that ``forward`` fills with the output of each unit by layer.

    The last layer is scratch memory for ``backward``.
    """
    depth, units = net.bias.shape
    longest = units
    for q in range(len(rows.offsets) - 1):
        longest = max(longest, rows.item_offsets[q + 1] - rows.item_offsets[q])
    return np.empty((depth + 1, longest, units))


@kernel
def forward(q: int, hidden: bool, rows: Rows, net: Net, state: Floats, score: Floats) -> None:
    """Fill ``score`` (I,) for the items of query q, and ``state`` (see ``unit_state``).

    Without ``hidden`` there is one unit, and its input is the score.
    """
    first, size = rows.item_offsets[q], rows.item_offsets[q + 1] - rows.item_offsets[q]
    depth, units = net.bias.shape
    for i in range(size):
        for h in range(units):
            state[0, i, h] = net.bias[0, h]
    for n in range(rows.offsets[q], rows.offsets[q + 1]):
        i, x = rows.item[n], rows.expert[n]
        for f in range(rows.values.shape[1]):
            for h in range(units):
                state[0, i, h] += net.weight[x, f, h] * rows.values[n, f]
    for i in range(size):
        for d in range(depth):
            for h in range(units):
                if d > 0:
                    state[d, i, h] = net.bias[d, h]
                    for g in range(units):
                        state[d, i, h] += net.inner[d - 1, g, h] * state[d - 1, i, g]
                if hidden:
                    state[d, i, h] = np.tanh(state[d, i, h])
        total = 0.0
        for h in range(units):
            total += net.output[h] * state[depth - 1, i, h]
        score[first + i] = total


@kernel
def score_rows(hidden: bool, rows: Rows, net: Net, score: Floats) -> None:
    """Fill ``score`` (I,) for the items of all queries."""
    state = unit_state(rows, net)
    for q in range(len(rows.offsets) - 1):
        forward(q, hidden, rows, net, state, score)


@kernel
def backward(q: int, hidden: bool, step: float, rows: Rows, net: Net, force: Floats, state: Floats, new: Net) -> None:
    """Add ``step`` times the gradient to ``new``, which may be ``net``.

    ``force`` is the gradient by the items' scores, and the state is that of ``forward``. From the last layer to the
    first, the output of each unit is replaced by the gradient of the unit's input.
    """
    begin, size = rows.item_offsets[q], rows.item_offsets[q + 1] - rows.item_offsets[q]
    depth, units = net.bias.shape
    for h in range(units):
        up = 0.0
        for i in range(size):
            unit, push = state[depth - 1, i, h], step * force[begin + i]
            state[depth - 1, i, h] = push * net.output[h] * (1.0 - unit * unit) if hidden else push
            up += push * unit
        if hidden:
            new.output[h] += up
    for d in range(depth - 1, 0, -1):
        slope = state[depth]  # of the weights between two layers, which are still needed
        slope[:units] = 0.0
        for i in range(size):
            for g in range(units):
                unit, back = state[d - 1, i, g], 0.0
                for h in range(units):
                    slope[g, h] += unit * state[d, i, h]
                    back += net.inner[d - 1, g, h] * state[d, i, h]
                state[d - 1, i, g] = back * (1.0 - unit * unit)
        for g in range(units):
            for h in range(units):
                new.inner[d - 1, g, h] += slope[g, h]
    if hidden:
        for d in range(depth):
            for i in range(size):
                for h in range(units):
                    new.bias[d, h] += state[d, i, h]
    for n in range(rows.offsets[q], rows.offsets[q + 1]):
        i, x = rows.item[n], rows.expert[n]
        if force[begin + i] == 0.0:  # most items of large queries
            continue
        for f in range(rows.values.shape[1]):
            for h in range(units):
                new.weight[x, f, h] += state[0, i, h] * rows.values[n, f]


NDCG, MAP, ERR, RBP, RANKNET = 0, 1, 2, 3, 4  # ranknet: every pair counts the same (Burges et al. 2005)
OBJECTIVES = {"ndcg": NDCG, "map": MAP, "err": ERR, "rbp": RBP, "ranknet": RANKNET}
PERSISTENCE = 0.95  # of rbp, Niu et al. 2013


class Goal(NamedTuple):
    """The metric to climb."""

    metric: int  # of OBJECTIVES
    highest: float  # label there is
    whole: Floats  # (Q,) what the metric is divided by; for ranknet, the number of pairs


@kernel
def walk_down(metric: int, highest: float, labels: Labels, order: Offsets) -> Floats:  # (size,), (size,) -> (4, size)
    """Fill the rows gain, run, sums and discount by position, for ``exchange``; discount for labelled items only.

    The gain of rbp is the label, as in Niu et al. 2013. Unlabelled items have gain 0.

    For map, run counts the relevant items so far, and sums adds up 1 / position over them. For err, run is the
    probability that the reader gets to the position, and sums is the metric so far. ndcg and rbp need only discounts.
    """
    room = np.empty((4, len(order)))
    run, total = 0.0 if metric == MAP else 1.0, 0.0
    for r in range(len(order)):
        label = labels[order[r]]
        gain = 0.0
        if label != NO_LABEL:
            room[3, r] = PERSISTENCE**r if metric == RBP else 1.0 / np.log2(r + 2.0)
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
    """The change of the metric, before normalisation, when the items at positions a and b (from 0) are swapped.

    It is 1 for ranknet, which uses no metric.
    """
    if metric == RANKNET:
        return 1.0
    p, q = min(a, b), max(a, b)
    first, second = room[0, p], room[0, q]
    if metric == NDCG:
        return abs((first - second) * (room[3, p] - room[3, q]))
    if metric == RBP:
        return abs((first - second) * (1.0 - PERSISTENCE) * (room[3, p] - room[3, q]))
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
    """The negative gradient of the sum over pairs of |change of metric| log(1 + exp(worse - better)).

    Returns whether any two items have different labels.
    """
    for i in range(len(labels)):
        force[i] = 0.0
    low, high = label_range(labels)
    if not low < high or whole <= 0.0:
        return False
    order = falling_order(score)
    room = walk_down(metric, highest, labels, order)
    labelled = np.empty(len(order), dtype=np.int64)  # positions
    count = 0
    for a in range(len(order)):
        if labels[order[a]] != NO_LABEL:
            labelled[count] = a
            count += 1
    for a in labelled[:count]:
        i = order[a]
        if labels[i] == low:
            continue
        for b in labelled[:count]:
            j = order[b]
            if labels[j] >= labels[i]:
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
