"""The posterior of an unknown order given lists that are scattered around it, each expert with its own theta.

p(order | lists) is proportional to exp(-sum over lists of theta discordant pairs), so it is given by log odds L(i, j):
the thetas of lists that put i over j less those of lists that put j over i. What is wanted is the chance that i stands
before j, from which expected distances and expected places follow.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.majority import UNLISTED, place_table
from distagg.types import Floats, Indices, Offsets


@kernel
def log_odds(table: Indices, weight: Floats, unlisted_last: bool, odds: Floats) -> None:
    """L (size, size) from the table of places and the theta of every list."""
    size = len(odds)
    for i in range(size):
        for j in range(size):
            odds[i, j] = 0.0
    for a in range(len(weight)):
        if weight[a] == 0.0:
            continue
        for i in range(size):
            here = table[i, a]
            for j in range(i):
                there = table[j, a]
                if unlisted_last or (here != UNLISTED and there != UNLISTED):
                    more = weight[a] * ((here < there) * 1.0 - (here > there) * 1.0)
                    odds[i, j] += more
                    odds[j, i] -= more


@kernel
def chances_apart(odds: Floats, before: Floats) -> None:
    """Chance that i stands before j where every pair is decided by itself: the logistic function of L."""
    for i in range(len(odds)):
        before[i, i] = 0.0
        for j in range(i):
            before[i, j] = 1.0 / (1.0 + np.exp(-odds[i, j]))
            before[j, i] = 1.0 - before[i, j]


@kernel
def chances_sampled(odds: Floats, sweeps: int, burn: int, state: np.uint64, before: Floats, order: Offsets) -> None:
    """The same by Gibbs sampling of whole orders: each item in turn is taken out and put back at random.

    Where it may go has a closed form given the order of the others, and that distribution is what is averaged, not
    the place that was drawn. ``order`` (size,) is the start, and is changed.
    """
    size = len(odds)
    chance = np.empty(size)
    for i in range(size):
        for j in range(size):
            before[i, j] = 0.0
    for turn in range(burn + sweeps):
        for item in range(size):
            at = 0
            while order[at] != item:
                at += 1
            for later in range(at, size - 1):
                order[later] = order[later + 1]
            level, most = 0.0, 0.0
            chance[0] = 0.0
            for place in range(size - 1):
                level -= odds[item, order[place]]
                chance[place + 1] = level
                most = max(most, level)
            total = 0.0
            for place in range(size):
                chance[place] = np.exp(chance[place] - most)
                total += chance[place]
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            drawn = (state >> np.uint64(11)) * (1.0 / 9007199254740992.0) * total
            upto, to = 0.0, -1
            for place in range(size - 1):
                upto += chance[place]
                if to < 0 and drawn < upto:
                    to = place
                if turn >= burn:
                    other = order[place]
                    before[item, other] += upto / total
                    before[other, item] += 1.0 - upto / total
            to = size - 1 if to < 0 else to
            for later in range(size - 1, to, -1):
                order[later] = order[later - 1]
            order[to] = item
    for i in range(size):
        for j in range(size):
            before[i, j] /= 2.0 * sweeps


@kernel
def expected_distance(table: Indices, a: int, before: Floats, unlisted_last: bool) -> float:
    """Discordant pairs of list a with the unknown order."""
    total = 0.0
    for i in range(len(before)):
        here = table[i, a]
        if here == UNLISTED:
            continue
        for j in range(len(before)):
            there = table[j, a]
            if here < there and (unlisted_last or there != UNLISTED):
                total += before[j, i]
    return total


@kernel
def expected_behind(before: Floats, score: Floats, order: Offsets) -> None:
    """Expected number of items behind each, into ``score``; ``order``: items by it, the most first."""
    for i in range(len(before)):
        behind = 0.0
        for j in range(len(before)):
            behind += before[i, j]
        score[i] = behind
        at = i
        while at > 0 and score[order[at - 1]] < behind:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i


@kernel
def stream(seed: int, position: int) -> np.uint64:
    """Where a query's random numbers start: its own place for every seed and position in the dataset."""
    mixed = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(position)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@kernel
def expect_chunk(
    theta: Floats,  # (experts,)
    sweeps: int,  # 0: only scores are wanted
    burn: int,
    seed: int,
    unlisted_last: bool,
    positions: Offsets,
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    list_expert: Indices,
    entry_item: Indices,
    entry_rank: Floats,
    score: Floats,  # (I,) filled: expected number of items behind, every pair by itself
    distance: Floats,  # (experts,) added to: expected distances, over whole orders
) -> None:
    """What every query's lists say of its items, and how far they are from the unknown order."""
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        first, last = list_offsets[q], list_offsets[q + 1]
        table = place_table(first, last, size, entry_offsets, entry_item, entry_rank)
        weight, odds, before = np.empty(last - first), np.empty((size, size)), np.empty((size, size))
        order = np.empty(size, np.int64)
        for a in range(last - first):
            weight[a] = theta[list_expert[first + a]]
        log_odds(table, weight, unlisted_last, odds)
        chances_apart(odds, before)
        expected_behind(before, score[base : base + size], order)
        if sweeps > 0:
            chances_sampled(odds, sweeps, burn, stream(seed, positions[q]), before, order)
            for a in range(last - first):
                distance[list_expert[first + a]] += expected_distance(table, a, before, unlisted_last)
