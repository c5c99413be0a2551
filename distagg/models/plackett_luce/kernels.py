"""Plackett-Luce: lists as sequences of choices, their likelihood, and which items they compare.

Items have strengths x = exp(theta). An entry of a list is one choice: the item was chosen from a set of itself and all
items strictly behind it,

    P(entry) = x_i / (x_i + sum of x behind it)

which is the model of Plackett (1975) if no entries are tied. Tied items are not compared with each other: each is
chosen over the items behind the tie, which by Luce's axiom is the exact probability of that choice. An entry with
nothing behind it is no choice. In an *open* list the unlisted items stand behind every entry (top-K lists).

Denominators are suffix sums along the list, and an item's share of them is a prefix sum of 1 / denominator, so one
evaluation costs O(entries). The strength of the unlisted items of an open list is the sum of all strengths minus that
of the listed items, in doubled precision.

The prior is that every item was also chosen ``shape`` times from among all items of the query: the gamma prior of
Caron & Doucet (2012) with that shape, at the maximum of the density of theta; its rate is a scale, which has no effect.

The comparison graph: an item beats all items behind it. The edges of this graph are not stored. The consecutive groups
of a list connect all its items, and an open list connects all items of the query, so the lists themselves serve as the
graph. Cost: O(entries) for a sweep.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.outcome import ISOLATED, OK, UNBEATEN, WINLESS
from distagg.optimise.components import connected
from distagg.types import INDEX, OFFSET, Bools, Floats, Indices, Offsets

LEAST = 1e-100  # when a product of probabilities falls below this, its logarithm is taken


class Choices(NamedTuple):
    """Lists and pairs that contain a choice, all as lists: Q queries -> n lists -> N entries."""

    query: Offsets  # (Q + 1,) over lists
    start: Offsets  # (n + 1,) over entries
    item: Indices  # (N,)
    behind: Indices  # (N,) the first place in the list that is strictly behind the entry
    weight: Floats  # (n,)
    opened: Bools  # (n,) whether the unlisted items stand behind every entry


def gather_choices(
    last: bool,
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    entry_item: Indices,
    entry_rank: Floats,
    pair_offsets: Offsets,
    pair_winner: Indices,
    pair_loser: Indices,
    pair_weight: Floats,
    pair_tie: Bools,
) -> Choices:
    """Choices of every query; ``last`` opens those lists that leave items out. Plain numpy: nothing to compile."""
    sizes, lists = np.diff(entry_offsets), np.diff(list_offsets)
    opened = (sizes > 0) & (sizes < np.repeat(np.diff(item_offsets), lists)) if last else np.zeros(len(sizes), bool)
    edge = np.ones(len(entry_rank) + 1, dtype=bool)  # where a group of tied entries begins
    edge[1:-1] = entry_rank[1:] != entry_rank[:-1]
    edge[entry_offsets] = True
    edges = np.flatnonzero(edge)
    behind = np.repeat(edges[1:], np.diff(edges)) - np.repeat(entry_offsets[:-1], sizes)
    says = opened.copy()
    says[sizes > 0] |= behind[entry_offsets[:-1][sizes > 0]] < sizes[sizes > 0]
    kept = np.repeat(says, sizes)
    query = np.repeat(np.arange(len(lists)), lists)[says]
    item, after, sizes, opened = entry_item[kept], behind[kept].astype(INDEX), sizes[says], opened[says]
    weight = np.ones(len(sizes))
    pairs = ~pair_tie & (pair_weight > 0.0)
    if pairs.any():
        both = np.stack([pair_winner[pairs], pair_loser[pairs]], axis=1)
        query = np.concatenate([query, np.repeat(np.arange(len(lists)), np.diff(pair_offsets))[pairs]])
        weight = np.concatenate([weight, pair_weight[pairs]])
        opened = np.concatenate([opened, np.zeros(len(both), bool)])
        order = np.argsort(query, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.concatenate([sizes, np.full(len(both), 2)]))])
        sizes = np.diff(start)[order]
        entries = np.arange(start[-1]) + np.repeat(start[order] - (np.cumsum(sizes) - sizes), sizes)
        item = np.concatenate([item, both.ravel()])[entries]
        after = np.concatenate([after, np.tile(np.array([1, 2], INDEX), len(both))])[entries]
        query, weight, opened = query[order], weight[order], opened[order]
    start = np.zeros(len(sizes) + 1, dtype=OFFSET)
    np.cumsum(sizes, out=start[1:])
    bounds = np.searchsorted(query, np.arange(len(lists) + 1)).astype(OFFSET)
    return Choices(bounds, start, item, after, weight, opened)


def untied(entry_offsets: Offsets, entry_item: Indices, entry_rank: Floats) -> tuple[Indices, Floats]:  # (E,), (E,)
    """Items of every list with ties broken in the order of the query's items, and places as their ranks."""
    within = np.repeat(np.arange(len(entry_offsets) - 1), np.diff(entry_offsets))
    order = np.lexsort((entry_item, entry_rank, within))
    return entry_item[order], np.arange(1.0, len(order) + 1)


def count_choices(choices: Choices, item_offsets: Offsets) -> tuple[Floats, Floats]:
    """How often each item was chosen (I,), and the number of choices of each query (Q,)."""
    sizes = np.diff(choices.start)
    counts = np.repeat(choices.opened, sizes) | (choices.behind < np.repeat(sizes, sizes))
    weight = np.repeat(choices.weight, sizes) * counts
    base = np.repeat(item_offsets[:-1], np.diff(choices.start[choices.query]))
    wins = np.bincount(base + choices.item, weight, int(item_offsets[-1])).astype(np.float64)
    total = np.concatenate([[0.0], np.cumsum(weight)])[choices.start[choices.query]]
    return wins, np.diff(total)


@kernel
def take(high: float, low: float, x: float) -> tuple[float, float]:
    """(high + low) - x as two numbers: ``low`` keeps the rounding error of ``high``."""
    s = high - x
    back = s - high
    return s, low + ((high - (s - back)) - (x + back))


@kernel
def exact_sum(x: Floats) -> tuple[float, float]:
    """The sum of x in doubled precision, as two numbers: the sum and its rounding error."""
    high, low = 0.0, 0.0
    for i in range(len(x)):
        high, low = take(high, low, -x[i])
    return high, low


@kernel
def suffix_sums(choices: Choices, a: int, x: Floats, high: float, low: float, suffix: Floats) -> None:
    """Sums of x from every place of list a to its end (and of the unlisted, if open); high + low is the sum of all."""
    item, base, long = choices.item, choices.start[a], choices.start[a + 1] - choices.start[a]
    rest = 0.0
    if choices.opened[a]:
        for e in range(base, base + long):
            high, low = take(high, low, x[item[e]])
        rest = max(high + low, 0.0)
    suffix[long] = rest
    for n in range(long - 1, -1, -1):
        rest += x[item[base + n]]
        suffix[n] = rest


@kernel
def add_outside(item: Indices, first: int, last: int, amount: float, outside: Floats) -> None:
    """Record that an open list, whose entries are first..last, adds ``amount`` to each of its unlisted items.

    ``outside`` (2, size + 1) begins with zeros. Its last column sums the amounts of all lists, the column of an item
    those of the lists that hold it; ``from_outside`` takes the difference.
    """
    everybody = outside.shape[1] - 1
    outside[0, everybody], outside[1, everybody] = take(outside[0, everybody], outside[1, everybody], -amount)
    for e in range(first, last):
        i = item[e]
        outside[0, i], outside[1, i] = take(outside[0, i], outside[1, i], -amount)


@kernel
def from_outside(outside: Floats, i: int) -> float:
    """The sum of the amounts of the open lists that do not hold item i."""
    everybody = outside.shape[1] - 1
    return max((outside[0, everybody] - outside[0, i]) + (outside[1, everybody] - outside[1, i]), 0.0)


@kernel
def fill_strengths(theta: Floats, x: Floats) -> tuple[float, float]:
    """Fill x with exp(theta), scaled so that the largest is 1; returns the ``exact_sum`` of x."""
    top, high, low = theta[0], 0.0, 0.0
    for i in range(len(theta)):
        top = max(top, theta[i])
    for i in range(len(theta)):
        x[i] = np.exp(theta[i] - top)
        high, low = take(high, low, -x[i])
    return high, low


@kernel
def expect(
    choices: Choices,
    q: int,
    shape: float,
    theta: Floats,  # (size,)
    x: Floats,  # (size,) filled: strengths, the largest 1
    expected: Floats,  # (size,) filled: how often theta expects the item to be chosen, prior included
) -> float:
    """Log likelihood of query q (without the prior); wins + shape - expected is the gradient, prior included."""
    size, item, behind = len(theta), choices.item, choices.behind
    outside, suffix = np.zeros((2, size + 1)), np.empty(size + 1)
    high, low = fill_strengths(theta, x)
    expected[:] = 0.0
    value = 0.0
    for a in range(choices.query[q], choices.query[q + 1]):
        base, long, w = choices.start[a], choices.start[a + 1] - choices.start[a], choices.weight[a]
        suffix_sums(choices, a, x, high, low, suffix)
        ahead, group, product = 0.0, 0.0, 1.0
        for n in range(long):
            i, after = item[base + n], behind[base + n]
            share = 0.0
            if after < long or choices.opened[a]:
                share = 1.0 / (x[i] + suffix[after])
                group += share
                product *= x[i] * share
                if product < LEAST:
                    value += w * np.log(product)
                    product = 1.0
            expected[i] += w * (ahead + share)
            if n + 1 == after:
                ahead += group
                group = 0.0
        value += w * np.log(product)
        if choices.opened[a]:
            add_outside(item, base, base + long, w * ahead, outside)
    prior = shape * size / high
    for i in range(size):
        expected[i] = x[i] * (expected[i] + from_outside(outside, i) + prior)
    return value


@kernel
def order_items(choices: Choices, a: int, order: Offsets) -> int:
    """Fill ``order`` (size,) with the items of list a, and if it is open with the others; returns their number."""
    base, count = choices.start[a], choices.start[a + 1] - choices.start[a]
    missing = np.ones(len(order), dtype=np.bool_)
    for n in range(count):
        order[n] = choices.item[base + n]
        missing[order[n]] = False
    if choices.opened[a]:
        for i in range(len(order)):
            if missing[i]:
                order[count] = i
                count += 1
    return count


@kernel
def curvature(choices: Choices, q: int, shape: float, theta: Floats, out: Floats) -> None:
    """Minus the Hessian of log likelihood and prior of query q, into out (size, size). O(list length squared)."""
    size, behind = len(theta), choices.behind
    x, expected, suffix, twice = np.empty(size), np.empty(size), np.empty(size + 1), np.empty(size)
    order = np.empty(size, dtype=np.int64)
    expect(choices, q, shape, theta, x, expected)
    high, low = exact_sum(x)
    out[:] = -shape * size / (high * high)
    for a in range(choices.query[q], choices.query[q + 1]):
        base, long, w = choices.start[a], choices.start[a + 1] - choices.start[a], choices.weight[a]
        suffix_sums(choices, a, x, high, low, suffix)
        ahead, group, entered = 0.0, 0.0, 0
        for n in range(order_items(choices, a, order)):
            i, share = order[n], 0.0
            after = behind[base + n] if n < long else n + 1
            if n < long and (after < long or choices.opened[a]):
                share = 1.0 / (x[i] + suffix[after])
            twice[i] = ahead + w * share * share  # over the choices that the item and one behind it share
            group += w * share * share
            out[i, i] -= twice[i]
            for m in range(n):
                common = twice[order[m]] if m < entered else ahead  # tied items share only what was chosen ahead
                out[order[m], i] -= common
                out[i, order[m]] -= common
            if n + 1 == after:
                ahead += group
                group = 0.0
                entered = n + 1
    for i in range(size):
        for j in range(size):
            out[i, j] *= x[i] * x[j]
        out[i, i] += expected[i]


def examine(choices: Choices, item_offsets: Offsets, wins: Floats) -> tuple[Indices, Indices]:
    """The status of every item, and the connected component of its query that it belongs to.

    Components are numbered from 0 in the order of their first items.
    """
    sizes = np.diff(choices.start)
    row = np.repeat(item_offsets[:-1], np.diff(choices.start[choices.query])) + choices.item
    place = np.arange(len(row)) - np.repeat(choices.start[:-1], sizes)
    lost = np.bincount(row, place >= np.repeat(choices.behind[choices.start[:-1]], sizes), len(wins)) > 0
    one, other = row, np.repeat(row[choices.start[:-1]], sizes)
    if choices.opened.any():
        opens = np.diff(np.concatenate([[0], np.cumsum(choices.opened)])[choices.query])
        within = np.repeat(np.arange(len(opens)), np.diff(item_offsets))
        lost |= np.bincount(row, np.repeat(choices.opened, sizes), len(wins)) < opens[within]
        all_of = np.flatnonzero(opens[within] > 0)  # an open list connects all items of its query
        one, other = np.concatenate([one, all_of]), np.concatenate([other, item_offsets[within[all_of]]])
    won = wins > 0.0
    status = np.where(won, np.where(lost, OK, UNBEATEN), np.where(lost, WINLESS, ISOLATED)).astype(INDEX)
    return status, connected(item_offsets, one, other)


@kernel
def reach(forward: bool, choices: Choices, item_offsets: Offsets, component: Indices, reached: Bools) -> None:
    """Mark in ``reached`` (I,) the items that the first item of their component beats along some path.

    If not ``forward``, mark the items that it loses to along some path. Sweeps over the lists are repeated until none
    marks a new item: a few on most data, in the worst case (a chain of pairs) one for each item. A component is
    strongly connected if both directions mark all its items.
    """
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        count, parts = 0, 0
        for i in range(size):
            reached[base + i] = component[base + i] == parts
            if reached[base + i]:
                parts += 1
                count += 1
        listed = np.zeros(size, dtype=np.bool_)
        before = -1
        while before < count < size:
            before = count
            for a in range(choices.query[q], choices.query[q + 1]):
                first, last = choices.start[a], choices.start[a + 1]
                here, least, most = 0, last - first, 0
                for n in range(last - first):
                    if reached[base + choices.item[first + n]]:
                        here += 1
                        least, most = min(least, choices.behind[first + n]), n
                if not forward and choices.opened[a] and count > here:
                    most = last - first
                if (here == 0 and most == 0) or count == size:
                    continue
                for n in range(last - first):
                    i = base + choices.item[first + n]
                    listed[i - base] = True
                    if not reached[i] and (n >= least if forward else choices.behind[first + n] <= most):
                        reached[i] = True
                        count += 1
                if forward and choices.opened[a]:
                    for i in range(size):
                        if not listed[i] and not reached[base + i]:
                            reached[base + i] = True
                            count += 1
                for e in range(first, last):
                    listed[choices.item[e]] = False
