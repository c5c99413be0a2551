"""The CRF over rankings of a few items, exactly: paper 000, equations 4 and 5.

A ranking's log weight is sum_p score(item at p) / log(p + 1). That and every metric here are sums over positions of
terms that depend only on the set placed before and the item placed now, so one pass back and one forth over subsets
gives the expected metric and its gradient: O(2^e e) for e items instead of O(e! e).
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import NO_LABEL, Floats, Labels, Offsets

# A metric's term is gain[item] * discount[position] * state(set before). States: 1, 1 + the set's relevant items (AP),
# the probability that nothing in the set satisfied (ERR).
ALONE, HITS, CASCADE = 0, 1, 2
# What the gains of a sample are divided by: nothing, the best possible sum (NDCG), the relevant items (AP).
AS_IS, IDEAL, TOTAL = 0, 1, 2
MOST = 12  # items


@kernel
def normalise(how: int, size: int, discount: Floats, gain: Floats, share: Floats) -> None:
    """Fill ``share`` (size,) with a sample's discounts (size,) divided by what its gains (size,) could reach.

    ``gain`` of AP is 1 or 0. ``share`` is 0 where nothing can be reached.
    """
    most = 0.0
    if how == TOTAL:
        for i in range(size):
            most += gain[i]
    elif how == IDEAL:  # the gain at place p of the falling order: that of the item with p items before it
        for i in range(size):
            place = 0
            for j in range(size):
                place += 1 if gain[j] > gain[i] or (gain[j] == gain[i] and j < i) else 0
            most += gain[i] * discount[place]
    else:
        most = 1.0
    for p in range(size):
        share[p] = discount[p] / most if most > 0.0 else 0.0


@kernel
def expected_metric(
    size: int,
    score: Floats,  # (size,)
    gain: Floats,  # (size,)
    discount: Floats,  # (size,)
    kind: int,
    weight: Floats,  # (size,) of positions in the field: 1 / log(position + 1)
    placed: Offsets,  # (2^size,) how many items a set has
    follow: Floats,  # (2^size,) scratch, and so are the next
    ahead: Floats,
    state: Floats,
    reach: Floats,
    behind: Floats,
    choice: Floats,  # (2^size, size) scratch
    slope: Floats,  # (size,) filled in: gradient of the expected metric by score
) -> tuple[float, float]:
    """The expected metric under the CRF and log Z; the gradient goes to ``slope``.

    Back over subsets: log weight of all that may follow a set (in logs: nothing underflows), the probability of each
    next item, the metric still to come. Forth: the probability of reaching a set and the metric gathered on the way.
    """
    full = (1 << size) - 1
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
        p = placed[s]
        top = -np.inf
        for i in range(size):
            if not (s >> i) & 1:
                choice[s, i] = score[i] * weight[p] + follow[s | (1 << i)]
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
                come += choice[s, i] * (gain[i] * discount[p] * state[s] + ahead[s | (1 << i)])
        ahead[s] = come
    mean = ahead[0]
    for s in range(full + 1):
        reach[s], behind[s] = 0.0, 0.0
    for i in range(size):
        slope[i] = 0.0
    reach[0] = 1.0
    for s in range(full):
        p = placed[s]
        for i in range(size):
            if not (s >> i) & 1:
                t = s | (1 << i)
                now = gain[i] * discount[p] * state[s]
                slope[i] += weight[p] * choice[s, i] * (behind[s] + reach[s] * (now + ahead[t] - mean))
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
    kind: int,  # of the metric's state
    how: int,  # its gains are normalised
    order: Offsets,  # queries, in turn
    item_offsets: Offsets,  # (Q + 1,)
    labels: Labels,  # (I,)
    keys: Floats,  # (I,) random
    gain: Floats,  # (I,) of the metric
    discount: Floats,  # (most,) of the metric; its length is that of a sample
    start: Offsets,  # (I + 1,) from index_by_item
    entry: Offsets,  # (E,)
    holder: Offsets,  # (E,)
    potentials: Floats,  # (E, F)
    row: Offsets,  # (L,) the row of weights that each list takes
    weights: Floats,  # (rows, F)
    into: Floats,  # (rows, F) added to: ``weights`` itself for SGD, another array for the gradient
    means: Floats,  # (Q,) filled in: the expected metric of each query's sample; untouched where it teaches nothing
    weight: Floats,  # (most,) as expected_metric has it
    placed: Offsets,  # (2^most,) likewise
    kinds: Offsets,  # (longest query,) scratch
    picked: Offsets,  # (most,) scratch
    few: Floats,  # (4, most) scratch
    many: Floats,  # (5, 2^most) scratch
    choice: Floats,  # (2^most, most) scratch
) -> None:
    """A step of length ``rate`` up the expected metric of a sample of every query."""
    most = len(discount)
    score, gains, share, slope = few[0], few[1], few[2], few[3]
    follow, ahead, state, reach, behind = many[0], many[1], many[2], many[3], many[4]
    for n in range(len(order)):
        q = order[n]
        size = draw_items(item_offsets[q], item_offsets[q + 1], most, labels, keys, kinds, picked)
        if size == 0:
            continue
        for k in range(size):
            i = picked[k]
            gains[k], score[k] = gain[i], 0.0
            for at in range(start[i], start[i + 1]):
                for f in range(potentials.shape[1]):
                    score[k] += weights[row[holder[at]], f] * potentials[entry[at], f]
        normalise(how, size, discount, gains, share)
        means[q], _ = expected_metric(
            size, score, gains, share, kind, weight, placed, follow, ahead, state, reach, behind, choice, slope
        )  # fmt: skip
        for k in range(size):
            i = picked[k]
            for at in range(start[i], start[i + 1]):
                for f in range(potentials.shape[1]):
                    into[row[holder[at]], f] += rate * slope[k] * potentials[entry[at], f]
