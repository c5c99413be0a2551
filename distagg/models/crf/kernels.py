"""Kernels of the CRF: potentials of entries, and the exact expectation of a metric over rankings of a few items.

Potentials (Volkovs & Zemel 2014, equation 4) are one row for each entry; cost: O(entries). An item's score is a sum
over the experts that list it. In the paper an expert that does not list the item adds a bias. Here an expert that lists
it subtracts the bias instead: this shifts all items of a query by the same amount, so rankings and probabilities agree.

Expectations (equations 4 and 5): a ranking's log weight is sum_p score(item at p) / log(p + 1). That and every metric
here are sums over positions of terms that depend only on the set placed before and the item placed now, so one pass
backward and one forward over subsets gives the expected metric and its gradient: O(2^e e) for e items instead of
O(e! e). Samples and their normalised gains do not depend on the weights, so they are computed before training.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.lists import BINARY, LOG, NORMALISED, TOP, Lists
from distagg.types import NO_LABEL, Floats, Indices, Labels, Offsets


@kernel
def group_values(function: int, rank: Floats, values: Floats) -> float:
    """Write the value of each tie group of a list to ``values``; returns the sum of the values of all entries."""
    largest = rank[len(rank) - 1]
    scale = 1.0
    if function == NORMALISED:
        scale = 1.0 / largest if largest > 0.0 else 0.0
    elif function == LOG:
        scale = 1.0 / np.log(largest) if largest > 1.0 else 0.0
    total, before, value, group = 0.0, np.nan, 0.0, -1
    for e in range(len(rank)):
        if rank[e] != before:
            before = rank[e]
            group += 1
            value = scale * (np.log(before) if function == LOG else before)
            values[group] = value
        total += value
    return total


@kernel
def count_top(rank: Floats, top: int) -> int:
    """How many entries of a list are among its first ``top``, or tie with the last of these."""
    count = min(top, len(rank))
    while 0 < count < len(rank) and rank[count] == rank[count - 1]:
        count += 1
    return count


@kernel
def score_list(
    functions: Offsets,  # (P,)
    reciprocal: float,
    top: int,
    item: Indices,  # (entries,) of one list, as rank
    rank: Floats,
    weight: Floats,  # (F,)
    values: Floats,  # (P, longest list) to work in: what the ranks of tie groups are worth
    sums: Floats,  # (2, P) to work in: of all values of the list, and of those ahead
    score: Floats,  # (items,) of the query, added to
) -> None:
    """Add one list's weights times potentials to the scores. The potential of a tie group is computed once."""
    count, last, start, group = len(functions), len(item), 0, 0
    share, first = 1.0 / max(len(score), 1), count_top(rank, top)
    for p in range(count):
        if last > 0 and functions[p] != BINARY and functions[p] != TOP:
            sums[0, p], sums[1, p] = group_values(functions[p], rank, values[p]), 0.0
    while start < last:
        end = start + 1
        while end < last and rank[end] == rank[start]:
            end += 1
        ahead, after = start, last - end
        given = weight[0] * -1.0
        for p in range(count):
            if functions[p] == BINARY:
                won, lost = float(after), float(ahead)
            elif functions[p] == TOP:
                won, lost = 0.0, 0.0
                if start < first:
                    won, lost = float(len(score) - first), -float(first)
            else:
                value = values[p, group]
                together = value * (end - start)
                won = max(sums[0, p] - sums[1, p] - together - after * value, 0.0)
                lost = max(ahead * value - sums[1, p], 0.0)
                sums[1, p] += together
            given += weight[1 + 2 * p] * (won * share)
            given += weight[2 + 2 * p] * (-lost * share)
        if reciprocal > 0.0:
            given += weight[1 + 2 * count] * (reciprocal / (reciprocal + rank[start]))
        for e in range(start, end):
            score[item[e]] += given
        start = end
        group += 1


@kernel
def score_lists(
    functions: Offsets,  # (P,) pair functions
    reciprocal: float,  # c of the last potential, 0 leaves it out
    top: int,  # of the pair function TOP
    lists: Lists,
    row: Offsets,  # (L,) the row of weights that each list takes
    weights: Floats,  # (rows, F)
) -> Floats:  # (I,)
    """Sum of weights times potentials for each item. ``won_and_lost`` gives the same potentials, and stores them."""
    item_offsets, list_offsets, entry_offsets, entry_item, entry_rank = lists
    longest = 0
    for a in range(len(row)):
        longest = max(longest, entry_offsets[a + 1] - entry_offsets[a])
    values, sums = np.empty((len(functions), longest)), np.empty((2, len(functions)))
    score = np.zeros(item_offsets[-1])
    for q in range(len(item_offsets) - 1):
        here = score[item_offsets[q] : item_offsets[q + 1]]
        for a in range(list_offsets[q], list_offsets[q + 1]):
            item = entry_item[entry_offsets[a] : entry_offsets[a + 1]]
            rank = entry_rank[entry_offsets[a] : entry_offsets[a + 1]]
            score_list(functions, reciprocal, top, item, rank, weights[row[a]], values, sums, here)
    return score


@kernel
def index_by_item(
    item_offsets: Offsets,  # (Q + 1,)
    list_offsets: Offsets,  # (Q + 1,)
    entry_offsets: Offsets,  # (L + 1,)
    entry_item: Indices,  # (E,)
    start: Offsets,  # (I + 1,) zeros; filled in: where each item's entries start in ``entry``
    entry: Offsets,  # (E,) filled in: entries item by item
    holder: Offsets,  # (E,) filled in: the list of each of them
) -> None:
    """The entries of every item, in the order of lists."""
    for q in range(len(item_offsets) - 1):
        for e in range(entry_offsets[list_offsets[q]], entry_offsets[list_offsets[q + 1]]):
            start[item_offsets[q] + entry_item[e] + 1] += 1
    for i in range(len(start) - 1):
        start[i + 1] += start[i]
    for q in range(len(item_offsets) - 1):
        for a in range(list_offsets[q], list_offsets[q + 1]):
            for e in range(entry_offsets[a], entry_offsets[a + 1]):
                i = item_offsets[q] + entry_item[e]
                entry[start[i]], holder[start[i]] = e, a
                start[i] += 1  # moves on to the next item's start
    for n in range(len(start) - 1):
        i = len(start) - 1 - n
        start[i] = start[i - 1]
    start[0] = 0


# A metric's term is gain[item] * discount[position] * state(set before). States: 1, 1 + the set's relevant items (AP),
# the probability that nothing in the set satisfied (ERR).
# LIKELIHOOD is no metric: the gains are labels, and the objective is the log likelihood of their order.
ALONE, HITS, CASCADE, LIKELIHOOD = 0, 1, 2, 3
# What the gains of a sample are divided by: nothing, the best possible sum (NDCG), the relevant items (AP).
AS_IS, IDEAL, TOTAL = 0, 1, 2
MOST = 12  # items


def normalise(how: int, discount: Floats, gains: Floats) -> Floats:  # (most,), (N, most) -> (N, most)
    """The discounts of each sample, divided by the normaliser of its gains; 0 where the normaliser is 0.

    ``gains`` are 0 after the end of a sample; for AP they are 1 or 0.
    """
    reached = np.ones(len(gains)) if how == AS_IS else np.zeros(len(gains))
    for i in range(gains.shape[1] if how != AS_IS else 0):  # one after the other: the order of a sum is part of it
        if how == TOTAL:
            reached += gains[:, i]
            continue
        # The gain at place p of the falling order: that of the item with p items before it.
        place = (gains > gains[:, i : i + 1]).sum(axis=1) + (gains[:, :i] == gains[:, i : i + 1]).sum(axis=1)
        reached += gains[:, i] * discount[place]
    return np.divide(discount, reached[:, None], out=np.zeros_like(gains), where=reached[:, None] > 0.0)


@kernel
def draw_samples(
    item_offsets: Offsets,  # (Q + 1,)
    labels: Labels,  # (I,)
    keys: Floats,  # (I,) random, no two the same
    kinds: Offsets,  # (longest query,) scratch
    picked: Offsets,  # (Q, most) zeros; filled in: items
    sizes: Offsets,  # (Q,) filled in
) -> None:
    """Draw a sample of items for every query with ``draw_items``."""
    for q in range(len(sizes)):
        first, last = item_offsets[q], item_offsets[q + 1]
        sizes[q] = draw_items(first, last, picked.shape[1], labels, keys, kinds, picked[q])


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
    """Draw up to ``most`` labelled items of a query; returns their number, or 0 if all labels are equal.

    Items with the smallest random keys are drawn first: one item of every label, then any others. If there are more
    than ``most`` different labels, a random choice of labels is drawn.
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
    """Insert an item into ``picked[lowest:size]``, sorted by key; keep at most ``most`` items, return their number."""
    if size == most and keys[item] >= keys[picked[most - 1]]:
        return size
    at = size if size < most else most - 1
    while at > lowest and keys[picked[at - 1]] > keys[item]:
        picked[at] = picked[at - 1]
        at -= 1
    picked[at] = item
    return size + 1 if size < most else size


class Samples(NamedTuple):
    """Samples of items, one sample per query."""

    sizes: Offsets  # (N,)
    picked: Offsets  # (N, most) their items
    gains: Floats  # (N, most) of the metric
    shares: Floats  # (N, most) from normalise


class Potentials(NamedTuple):
    """Potentials of all entries, grouped by item."""

    start: Offsets  # (I + 1,) from index_by_item
    holder: Offsets  # (E,) the list of each entry, from index_by_item
    value: Floats  # (E, F)
    row: Offsets  # (L,) the row of weights that each list takes


class Field(NamedTuple):
    """Tables that depend only on the number of items of a sample."""

    weight: Floats  # (most,) of positions: 1 / log(position + 1)
    placed: Offsets  # (2^most,) how many items a set has
    absent: Indices  # (2^most, most) the items that a set lacks, ascending


class Room(NamedTuple):
    """Scratch arrays that the passes over the subsets of a sample share."""

    score: Floats  # (most,)
    slope: Floats  # (most,) gradient of the expected metric by score
    state: Floats  # (2^most,) the metric's
    follow: Floats  # (2^most,) log weight of all that may follow; of the empty set: log Z
    ahead: Floats  # (2^most,) the metric still to come
    reach: Floats  # (2^most,) the probability of reaching a set
    behind: Floats  # (2^most,) that times the metric gathered on the way
    choice: Floats  # (2^most, most) the probability of each absent item to be next


@kernel
def climb(
    rate: float,
    kind: int,  # of the metric's state
    samples: Samples,
    potentials: Potentials,
    field: Field,
    room: Room,
    weights: Floats,  # (rows, F)
    into: Floats,  # (rows, F) added to: ``weights`` itself for SGD, another array for the gradient
    means: Floats,  # (N,) filled in: the expected metric, or the log likelihood, of each sample
) -> None:
    """For each sample in turn, take a gradient step of length ``rate`` that raises its objective."""
    for n in range(len(samples.sizes)):
        size, gains, shares = samples.sizes[n], samples.gains[n], samples.shares[n]
        for k in range(size):
            room.score[k] = item_score(potentials, samples.picked[n, k], weights)
        if kind == LIKELIHOOD:
            means[n] = likelihood(size, gains, field, room)
        else:
            fill_states(kind, size, gains, field, room)
            pass_back(size, gains, shares, field, room)
            pass_forth(size, gains, shares, field, room)
            means[n] = room.ahead[0]
        for k in range(size):
            add_potentials(potentials, samples.picked[n, k], rate * room.slope[k], into)


@kernel
def item_score(potentials: Potentials, item: int, weights: Floats) -> float:
    """The sum of an item's potentials, weighted."""
    total = 0.0
    for at in range(potentials.start[item], potentials.start[item + 1]):
        w = potentials.row[potentials.holder[at]]
        for f in range(potentials.value.shape[1]):
            total += weights[w, f] * potentials.value[at, f]
    return total


@kernel
def add_potentials(potentials: Potentials, item: int, times: float, into: Floats) -> None:
    """Add an item's potentials to the rows of weights that they belong to."""
    for at in range(potentials.start[item], potentials.start[item + 1]):
        w = potentials.row[potentials.holder[at]]
        for f in range(potentials.value.shape[1]):
            into[w, f] += times * potentials.value[at, f]


@kernel
def fill_states(kind: int, size: int, gains: Floats, field: Field, room: Room) -> None:
    """The metric's state after every set, from that of the set without its first item."""
    room.state[0] = 1.0
    for s in range(1, 1 << size):
        value = 1.0
        if kind != ALONE:
            i = field.absent[len(field.absent) - 1 - s, 0]  # the first item of the set
            value = room.state[s - (1 << i)]
            value = value + gains[i] if kind == HITS else value * (1.0 - gains[i])
        room.state[s] = value


@kernel
def pass_back(size: int, gains: Floats, shares: Floats, field: Field, room: Room) -> None:
    """For every set of items already placed: the log weight of all continuations, the probability of each next item,
    and the expected metric of the positions that follow. Logs keep small weights from underflowing."""
    score, follow, ahead, choice = room.score, room.follow, room.ahead, room.choice
    full = (1 << size) - 1
    follow[full], ahead[full] = 0.0, 0.0
    for s in range(full - 1, -1, -1):
        p = field.placed[s]
        left = size - p
        top = -np.inf
        for k in range(left):
            i = field.absent[s, k]
            value = score[i] * field.weight[p] + follow[s | (1 << i)]
            choice[s, k] = value
            top = value if value > top else top
        total = 0.0
        for k in range(left):
            value = math.exp(choice[s, k] - top)
            choice[s, k] = value
            total += value
        follow[s] = top + math.log(total)
        come = 0.0
        for k in range(left):
            i = field.absent[s, k]
            value = choice[s, k] / total
            choice[s, k] = value
            come += value * (gains[i] * shares[p] * room.state[s] + ahead[s | (1 << i)])
        ahead[s] = come


@kernel
def pass_forth(size: int, gains: Floats, shares: Floats, field: Field, room: Room) -> None:
    """For every set: the probability of reaching it and the metric gathered until there; then the gradient by score."""
    reach, behind, slope, mean = room.reach, room.behind, room.slope, room.ahead[0]
    full = (1 << size) - 1
    for s in range(full + 1):
        reach[s], behind[s] = 0.0, 0.0
    for k in range(size):
        slope[k] = 0.0
    reach[0] = 1.0
    for s in range(full):
        p = field.placed[s]
        here, gathered = reach[s], behind[s]
        for k in range(size - p):
            i = field.absent[s, k]
            t = s | (1 << i)
            value = room.choice[s, k]
            now = gains[i] * shares[p] * room.state[s]
            slope[i] += field.weight[p] * value * (gathered + here * (now + room.ahead[t] - mean))
            reach[t] += here * value
            behind[t] += value * (gathered + here * now)


@kernel
def likelihood(size: int, labels: Floats, field: Field, room: Room) -> float:  # labels (most,)
    """The log probability that items are sorted by descending label; items with the same label may be in any order.

    It is the log weight of the orders that agree with the labels, less that of all orders. The slope of either by an
    item's score is the expected weight of the item's position among those orders.
    """
    for k in range(size):
        room.slope[k] = 0.0
    agreeing = add_positions(True, 1.0, size, labels, field, room)
    return agreeing - add_positions(False, -1.0, size, labels, field, room)


@kernel
def add_positions(agreeing: bool, sign: float, size: int, labels: Floats, field: Field, room: Room) -> float:
    """Add ``sign`` times the expected weight of every item's position to the slopes; returns the orders' log weight.

    It sums over all orders, or over those that agree with the labels: there every next item has the highest label left.
    """
    score, follow, reach, choice, slope = room.score, room.follow, room.reach, room.choice, room.slope
    full = (1 << size) - 1
    follow[full] = 0.0
    for s in range(full - 1, -1, -1):
        p = field.placed[s]
        best, top, total = -np.inf, -np.inf, 0.0
        for k in range(size - p):
            best = max(best, labels[field.absent[s, k]])
        for k in range(size - p):
            i = field.absent[s, k]
            choice[s, k] = -np.inf
            if not agreeing or labels[i] == best:
                choice[s, k] = score[i] * field.weight[p] + follow[s | (1 << i)]
            top = max(top, choice[s, k])
        for k in range(size - p):
            choice[s, k] = math.exp(choice[s, k] - top)
            total += choice[s, k]
        follow[s] = top + math.log(total)
        for k in range(size - p):
            choice[s, k] /= total
    for s in range(full + 1):
        reach[s] = 0.0
    reach[0] = 1.0
    for s in range(full):
        p = field.placed[s]
        for k in range(size - p):
            i, value = field.absent[s, k], reach[s] * choice[s, k]
            slope[i] += sign * field.weight[p] * value
            reach[s | (1 << i)] += value
    return follow[0]
