"""LambdaRank: pairs of differently labelled items, weighted by what their exchange would do to a metric.

Paper 000, section 3.5.2; Burges, Ragno & Le 2006. A query costs its entries, and the items above the lowest label times
all items: exchanging two positions changes the metric by O(1) terms, read off running sums along the ranking.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.ordering import sort_spans
from distagg.types import NO_LABEL, Floats, Indices, Labels, Offsets

NDCG, MAP, ERR = 0, 1, 2
OBJECTIVES = {"ndcg": NDCG, "map": MAP, "err": ERR}


@kernel
def walk_down(
    metric: int, highest: float, labels: Labels, order: Indices, gain: Floats, run: Floats, sums: Floats
) -> float:
    """Fill what ``exchange`` needs, by position; gives what the metric is divided by (ndcg is left to the caller).

    map: ``run`` counts relevant items, ``sums`` adds 1 / position over them. err: ``run`` is the probability to get
    to the position, ``sums`` adds up the metric. Unlabelled items have gain 0.
    """
    hits, reach, total = 0.0, 1.0, 0.0
    for r in range(len(order)):
        label = labels[order[r]]
        known = label != NO_LABEL
        if metric == MAP:
            gain[r] = 1.0 if known and label >= 1 else 0.0
            hits += gain[r]
            total += gain[r] / (r + 1.0)
            run[r] = hits
        else:
            gain[r] = 2.0**label - 1.0 if known else 0.0
            if metric == ERR:
                gain[r] /= 2.0**highest
                run[r] = reach
                total += gain[r] * reach / (r + 1.0)
                reach *= 1.0 - gain[r]
        sums[r] = total
    return max(hits, 1.0)


@kernel
def exchange(metric: int, a: int, b: int, gain: Floats, run: Floats, sums: Floats) -> float:
    """By how much the metric, not yet divided, changes when the items at positions a and b (from 0) change places."""
    p, q = min(a, b), max(a, b)
    first, second = gain[p], gain[q]
    if metric == NDCG:
        return abs((first - second) * (1.0 / np.log2(p + 2.0) - 1.0 / np.log2(q + 2.0)))
    if metric == MAP:
        if first == second:
            return 0.0
        between = sums[q] - second / (q + 1.0) - sums[p]
        if first > second:
            return run[p] / (p + 1.0) + between - run[q] / (q + 1.0)
        return (run[p] + 1.0) / (p + 1.0) + between - run[q] / (q + 1.0)
    between = sums[q] - second * run[q] / (q + 1.0) - sums[p]
    shrink = (1.0 - second) / (1.0 - first)
    above = (second - first) * run[p] / (p + 1.0)
    return abs(above + (shrink - 1.0) * between + (first * shrink - second) * run[q] / (q + 1.0))


@kernel
def lambdas(metric: int, highest: float, labels: Labels, score: Floats, force: Floats) -> bool:
    """Fill ``force`` (size,): where the pairs push each item. Gives whether any two items have different labels."""
    size = len(score)
    low, high = 0, NO_LABEL
    for i in range(size):
        force[i] = 0.0
        if labels[i] != NO_LABEL:
            low = labels[i] if high == NO_LABEL else min(low, labels[i])
            high = max(high, labels[i])
    if high == NO_LABEL or low == high:
        return False
    bounds, key, order = np.zeros(2, dtype=np.int64), score.copy(), np.empty(size, dtype=np.int32)
    spare, swaps = np.empty(size, dtype=np.int32), np.zeros(1, dtype=np.int64)
    gain, run, sums = np.empty(size), np.empty(size), np.empty(size)
    bounds[1] = size
    whole = 1.0
    if metric == NDCG:
        for i in range(size):
            key[i] = 2.0 ** labels[i] - 1.0 if labels[i] != NO_LABEL else 0.0
        sort_spans(bounds, key, order, gain, spare, swaps)
        whole = 0.0
        for r in range(size):
            whole += max(key[r], 0.0) / np.log2(r + 2.0)
            key[r] = score[r]
    sort_spans(bounds, key, order, gain, spare, swaps)
    hits = walk_down(metric, highest, labels, order, gain, run, sums)
    if metric == MAP:
        whole = hits
    if whole <= 0.0:
        return False
    for a in range(size):
        i = order[a]
        if labels[i] == NO_LABEL or labels[i] == low:
            continue
        for b in range(size):
            j = order[b]
            if labels[j] == NO_LABEL or labels[j] >= labels[i]:
                continue
            push = exchange(metric, a, b, gain, run, sums) / whole / (1.0 + np.exp(score[i] - score[j]))
            force[i] += push
            force[j] -= push
    return True


@kernel
def forward(
    hidden: bool, first: int, last: int, item: Indices, expert: Indices, values: Floats, weight: Floats, bias: Floats,
    output: Floats, state: Floats, score: Floats,
) -> None:  # fmt: skip
    """Fill ``score`` (size,) and ``state`` (size, units) from the rows first..last; without ``hidden`` there is one
    unit and the score is its input."""
    size, units = state.shape
    width = values.shape[1]
    for i in range(size):
        for h in range(units):
            state[i, h] = bias[h] if hidden else 0.0
    for n in range(first, last):
        i, x = item[n], expert[n]
        for f in range(width):
            for h in range(units):
                state[i, h] += weight[x, f, h] * values[n, f]
    for i in range(size):
        score[i] = state[i, 0]
        if hidden:
            score[i] = 0.0
            for h in range(units):
                state[i, h] = np.tanh(state[i, h])
                score[i] += output[h] * state[i, h]


@kernel
def score_rows(
    hidden: bool, item_offsets: Offsets, offsets: Offsets, item: Indices, expert: Indices, values: Floats,
    weight: Floats, bias: Floats, output: Floats, score: Floats,
) -> None:  # fmt: skip
    """Scores of all queries."""
    for q in range(len(offsets) - 1):
        first, last = item_offsets[q], item_offsets[q + 1]
        state = np.empty((last - first, weight.shape[2]))
        forward(
            hidden, offsets[q], offsets[q + 1], item, expert, values, weight, bias, output, state, score[first:last]
        )


@kernel
def climb(
    metric: int,
    highest: float,
    hidden: bool,
    queries: Offsets,  # in the order in which they are learned from
    item_offsets: Offsets,  # (Q + 1,)
    labels: Labels,  # (I,)
    offsets: Offsets,  # (Q + 1,) rows
    item: Indices,  # (N,)
    expert: Indices,  # (N,)
    values: Floats,  # (N, width)
    weight: Floats,  # (experts, width, units)
    bias: Floats,  # (units,)
    output: Floats,  # (units,)
    step: float,
    new_weight: Floats,  # these three are added to; they may be the three above: then every query makes a step
    new_bias: Floats,
    new_output: Floats,
) -> int:
    """Add ``step`` times each query's gradient; gives the number of queries that had one."""
    units, width, taught = weight.shape[2], values.shape[1], 0
    for q in queries:
        begin, end = item_offsets[q], item_offsets[q + 1]
        size = end - begin
        state, score, force = np.empty((size, units)), np.empty(size), np.empty(size)
        forward(hidden, offsets[q], offsets[q + 1], item, expert, values, weight, bias, output, state, score)
        if not lambdas(metric, highest, labels[begin:end], score, force):
            continue
        taught += 1
        for h in range(units):
            up, along = 0.0, 0.0
            for i in range(size):
                unit = state[i, h]
                state[i, h] = step * force[i]
                if hidden:
                    state[i, h] *= output[h] * (1.0 - unit * unit)
                    up += step * force[i] * unit
                    along += state[i, h]
            new_output[h] += up
            new_bias[h] += along
        for n in range(offsets[q], offsets[q + 1]):
            i, x = item[n], expert[n]
            for f in range(width):
                for h in range(units):
                    new_weight[x, f, h] += state[i, h] * values[n, f]
    return taught
