"""The CRF over rankings of a few items, exactly: paper 000, equations 4 and 5.

A ranking's log weight is sum_p score(item at p) / log(p + 1). That and every metric here are sums over positions of
terms that depend only on the set placed before and the item placed now, so one pass back and one forth over subsets
gives the expected metric and its gradient: O(2^e e) for e items instead of O(e! e).
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import NO_LABEL, Floats, Labels, Offsets

# What a metric's gain at a position is multiplied with, given the set placed before.
ALONE, HITS, CASCADE = 0, 1, 2  # 1; 1 + its relevant items; the probability that none of it satisfied
NDCG, PRECISION, MAP, ERR, RBP = 0, 1, 2, 3, 4
METRICS = {"ndcg": NDCG, "p": PRECISION, "map": MAP, "err": ERR, "rbp": RBP}
PERSISTENCE = 0.8  # of rbp
MOST = 12  # items


@kernel
def metric_terms(
    metric: int,
    depth: int,  # positions that count
    highest: float,  # label, for err
    size: int,
    labels: Labels,  # (size,) or more
    gain: Floats,  # (size,) filled in
    discount: Floats,  # (size,) filled in
) -> int:
    """A metric as gain[item] * discount[position] * state(set before): fills the first two, gives the state's kind."""
    relevant = 0.0
    for i in range(size):
        grade = max(labels[i], 0)
        if metric == NDCG:
            gain[i] = 2.0**grade - 1.0
        elif metric == ERR:
            gain[i] = (2.0**grade - 1.0) / 2.0**highest
        else:
            gain[i] = 1.0 if grade > 0 else 0.0
        relevant += 1.0 if grade > 0 else 0.0
    for p in range(size):
        if metric == NDCG:
            discount[p] = np.log(2.0) / np.log(p + 2.0)
        elif metric == PRECISION:
            discount[p] = 1.0 / min(depth, size)
        elif metric == RBP:
            discount[p] = (1.0 - PERSISTENCE) * PERSISTENCE**p
        else:
            discount[p] = 1.0 / (p + 1.0)
        if p >= depth:
            discount[p] = 0.0
    scale = 1.0
    if metric == MAP:
        scale = 1.0 / relevant if relevant > 0.0 else 0.0
    elif metric == NDCG:  # the ideal: gains in falling order, by selection
        ideal, last, seen = 0.0, np.inf, 0
        while seen < size:
            best, count = -1.0, 0
            for i in range(size):
                if gain[i] < last and gain[i] > best:
                    best, count = gain[i], 0
                if gain[i] == best:
                    count += 1
            for p in range(seen, seen + count):
                ideal += best * discount[p]
            seen, last = seen + count, best
        scale = 1.0 / ideal if ideal > 0.0 else 0.0
    for p in range(size):
        discount[p] *= scale
    return HITS if metric == MAP else CASCADE if metric == ERR else ALONE


@kernel
def expected_metric(
    size: int,
    score: Floats,  # (size,)
    gain: Floats,  # (size,)
    discount: Floats,  # (size,)
    kind: int,
    work: Floats,  # (5, 2^size) scratch
    choice: Floats,  # (2^size, size) scratch
    slope: Floats,  # (size,) filled in: gradient of the expected metric by score
) -> tuple[float, float]:
    """The expected metric under the CRF and log Z; the gradient goes to ``slope``.

    Back over subsets: log weight of all that may follow a set (in logs: nothing underflows), the probability of each
    next item, the metric still to come. Forth: the probability of reaching a set and the metric gathered on the way.
    """
    full = (1 << size) - 1
    follow, ahead, state, reach, behind = work[0], work[1], work[2], work[3], work[4]
    state[0] = 1.0
    for s in range(1, full + 1):
        low = 0
        while not (s >> low) & 1:
            low += 1
        rest = state[s & (s - 1)]
        state[s] = rest + gain[low] if kind == HITS else rest * (1.0 - gain[low]) if kind == CASCADE else 1.0
    follow[full], ahead[full] = 0.0, 0.0
    for back in range(full):
        s = full - 1 - back
        placed = 0
        for i in range(size):
            placed += (s >> i) & 1
        weight = 1.0 / np.log(placed + 2.0)
        top = -np.inf
        for i in range(size):
            if not (s >> i) & 1:
                choice[s, i] = score[i] * weight + follow[s | (1 << i)]
                top = max(top, choice[s, i])
        total = 0.0
        for i in range(size):
            if not (s >> i) & 1:
                choice[s, i] = np.exp(choice[s, i] - top)
                total += choice[s, i]
        follow[s] = top + np.log(total)
        come = 0.0
        for i in range(size):
            if not (s >> i) & 1:
                choice[s, i] /= total
                come += choice[s, i] * (gain[i] * discount[placed] * state[s] + ahead[s | (1 << i)])
        ahead[s] = come
    mean = ahead[0]
    for s in range(full + 1):
        reach[s], behind[s] = 0.0, 0.0
    for i in range(size):
        slope[i] = 0.0
    reach[0] = 1.0
    for s in range(full):
        placed = 0
        for i in range(size):
            placed += (s >> i) & 1
        weight = 1.0 / np.log(placed + 2.0)
        for i in range(size):
            if not (s >> i) & 1:
                t = s | (1 << i)
                now = gain[i] * discount[placed] * state[s]
                slope[i] += weight * choice[s, i] * (behind[s] + reach[s] * (now + ahead[t] - mean))
                reach[t] += reach[s] * choice[s, i]
                behind[t] += choice[s, i] * (behind[s] + reach[s] * now)
    return mean, follow[0]


@kernel
def draw_items(
    first: int,
    last: int,
    most: int,
    labels: Labels,  # (I,)
    keys: Floats,  # (I,) random
    kinds: Offsets,  # (longest query,) scratch
    picked: Offsets,  # (most,) filled in: items
) -> int:
    """Up to ``most`` labelled items of a query, one of every label among them; how many, or 0 without two labels.

    Smallest keys first: one of every label (of random labels, where there are more than ``most``), then any.
    """
    n_kinds, n_labelled = 0, 0
    for i in range(first, last):  # kinds: the item with the smallest key of each label
        if labels[i] == NO_LABEL:
            continue
        n_labelled += 1
        k = 0
        while k < n_kinds and labels[kinds[k]] != labels[i]:
            k += 1
        if k == n_kinds:
            n_kinds += 1
            kinds[k] = i
        elif keys[i] < keys[kinds[k]]:
            kinds[k] = i
    if n_kinds < 2:
        return 0
    size = 0
    for k in range(n_kinds):
        size = keep_smallest(kinds[k], 0, size, most, keys, picked)
    fixed = size
    for i in range(first, last):
        if labels[i] == NO_LABEL or fixed == most:
            continue
        taken = False
        for k in range(fixed):
            taken = taken or picked[k] == i
        if not taken:
            size = keep_smallest(i, fixed, size, most, keys, picked)
    return size


@kernel
def keep_smallest(item: int, lowest: int, size: int, most: int, keys: Floats, picked: Offsets) -> int:
    """Insert an item among ``picked[lowest:size]``, sorted by key, keeping at most ``most``; the new size."""
    if size == most and keys[item] >= keys[picked[most - 1]]:
        return size
    at = size if size < most else most - 1
    while at > lowest and keys[picked[at - 1]] > keys[item]:
        picked[at] = picked[at - 1]
        at -= 1
    picked[at] = item
    return size + 1 if size < most else size


@kernel
def climb(
    rate: float,
    metric: int,
    depth: int,
    highest: float,
    most: int,  # items of a sample
    order: Offsets,  # queries, in turn
    item_offsets: Offsets,  # (Q + 1,)
    labels: Labels,  # (I,)
    keys: Floats,  # (I,) random
    start: Offsets,  # (I + 1,) from index_by_item
    entry: Offsets,  # (E,)
    holder: Offsets,  # (E,)
    potentials: Floats,  # (E, F)
    row: Offsets,  # (L,) the row of weights that each list takes
    weights: Floats,  # (rows, F)
    into: Floats,  # (rows, F) added to: ``weights`` itself for SGD, another array for the gradient
) -> tuple[int, float]:
    """A step of length ``rate`` up the expected metric of a sample of every query; how many taught, and its sum."""
    longest = 1
    for n in range(len(order)):
        longest = max(longest, item_offsets[order[n] + 1] - item_offsets[order[n]])
    kinds, picked = np.zeros(longest, dtype=np.int64), np.zeros(most, dtype=np.int64)
    grades = np.zeros(most, dtype=np.int32)
    score, gain, discount, slope = np.zeros(most), np.zeros(most), np.zeros(most), np.zeros(most)
    work, choice = np.zeros((5, 1 << most)), np.zeros((1 << most, most))
    count, total = 0, 0.0
    for n in range(len(order)):
        q = order[n]
        size = draw_items(item_offsets[q], item_offsets[q + 1], most, labels, keys, kinds, picked)
        if size == 0:
            continue
        for k in range(size):
            grades[k], score[k] = labels[picked[k]], 0.0
            for at in range(start[picked[k]], start[picked[k] + 1]):
                w = row[holder[at]]
                for f in range(potentials.shape[1]):
                    score[k] += weights[w, f] * potentials[entry[at], f]
        kind = metric_terms(metric, depth, highest, size, grades, gain, discount)
        mean, _ = expected_metric(size, score, gain, discount, kind, work, choice, slope)
        count, total = count + 1, total + mean
        for k in range(size):
            step = rate * slope[k]
            for at in range(start[picked[k]], start[picked[k] + 1]):
                w = row[holder[at]]
                for f in range(potentials.shape[1]):
                    into[w, f] += step * potentials[entry[at], f]
    return count, total
