"""The posterior of an unknown order given lists that are scattered around it, each expert with its own theta.

p(order | lists) is proportional to exp(-sum over lists of theta discordant pairs), so it is given by log odds L(i, j):
the thetas of lists that put i over j less those of lists that put j over i. What is wanted is the chance that i stands
before j, from which expected distances and expected places follow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.lists import Lists
from distagg.models.majority.kernels import UNLISTED, place_table
from distagg.types import Floats, Indices, Offsets


class Sampling(NamedTuple):
    """How lists are read, and how orders are drawn."""

    unlisted_last: bool
    sweeps: int  # 0: nothing is drawn
    burn: int  # sweeps before those, which do not count
    seed: int


@kernel
def log_odds(table: Indices, weight: Floats, unlisted_last: bool) -> Floats:  # (size, size)
    """L from the table of places and the theta of every list."""
    size = len(table)
    odds = np.zeros((size, size))
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
    return odds


@kernel
def chances_apart(odds: Floats) -> Floats:  # (size, size)
    """Chance that i stands before j where every pair is decided by itself: the logistic function of L."""
    before = np.zeros(odds.shape)
    for i in range(len(odds)):
        for j in range(i):
            before[i, j] = 1.0 / (1.0 + np.exp(-odds[i, j]))
            before[j, i] = 1.0 - before[i, j]
    return before


@kernel
def chances_sampled(odds: Floats, sweeps: int, burn: int, state: np.uint64, order: Offsets) -> Floats:  # (size, size)
    """The same by Gibbs sampling of whole orders: each item in turn is taken out and put back at random.

    Where it may go has a closed form given the order of the others, and that distribution is what is averaged, not
    the place that was drawn. ``order`` (size,) is the start, and is changed.
    """
    size = len(odds)
    before, upto = np.zeros((size, size)), np.empty(size)
    for turn in range(burn + sweeps):
        for item in range(size):
            take_out(item, order)
            fill_places(item, odds, order, upto)
            if turn >= burn:
                add_chances(item, order, upto, before)
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            drawn = (state >> np.uint64(11)) * (1.0 / 9007199254740992.0) * upto[size - 1]
            put_in(item, draw_place(upto, drawn), order)
    for i in range(size):
        for j in range(size):
            before[i, j] /= 2.0 * sweeps
    return before


@kernel
def take_out(item: int, order: Offsets) -> None:
    """Take the item out of the order; the last place is then free."""
    at = 0
    while order[at] != item:
        at += 1
    for later in range(at, len(order) - 1):
        order[later] = order[later + 1]


@kernel
def put_in(item: int, place: int, order: Offsets) -> None:
    """Put the item in that place of an order whose last place is free."""
    for later in range(len(order) - 1, place, -1):
        order[later] = order[later - 1]
    order[place] = item


@kernel
def fill_places(item: int, odds: Floats, order: Offsets, upto: Floats) -> None:
    """How likely the item goes to each place or one before it, but for a factor, into ``upto`` (size,)."""
    level, most = 0.0, 0.0
    upto[0] = 0.0
    for place in range(len(order) - 1):
        level -= odds[item, order[place]]
        upto[place + 1] = level
        most = max(most, level)
    total = 0.0
    for place in range(len(order)):
        total += np.exp(upto[place] - most)
        upto[place] = total


@kernel
def draw_place(upto: Floats, drawn: float) -> int:
    """The first place up to which the chances exceed ``drawn``; the last one where rounding leaves none."""
    for place in range(len(upto) - 1):
        if drawn < upto[place]:
            return place
    return len(upto) - 1


@kernel
def add_chances(item: int, order: Offsets, upto: Floats, before: Floats) -> None:
    """Add the chances that the item goes before, and behind, each of the others."""
    total = upto[len(upto) - 1]
    for place in range(len(order) - 1):
        other, chance = order[place], upto[place] / total
        before[item, other] += chance
        before[other, item] += 1.0 - chance


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
def expected_behind(before: Floats, score: Floats) -> Offsets:  # (size,)
    """Expected number of items behind each, into ``score``; returns the items in that order, the most first."""
    order = np.empty(len(before), dtype=np.int64)
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
    return order


@kernel
def stream(seed: int, position: int) -> np.uint64:
    """Where a query's random numbers start: its own place for every seed and position in the dataset."""
    mixed = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(position)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@kernel
def expect_chunk(
    how: Sampling,
    lists: Lists,
    weight: Floats,  # (L,) theta of the list's expert
    positions: Offsets,  # (Q,) of queries in the dataset
) -> tuple[Floats, Floats]:  # (I,), (L,)
    """Scores: the expected number of items behind, every pair by itself; and the lists' expected distances.

    The distances are from the unknown orders, over whole orders; 0 where nothing is drawn.
    """
    item_offsets, list_offsets, entry_offsets, entry_item, entry_rank = lists
    score, distance = np.empty(item_offsets[-1]), np.zeros(len(weight))
    for q in range(len(item_offsets) - 1):
        base, end = item_offsets[q], item_offsets[q + 1]
        first, last = list_offsets[q], list_offsets[q + 1]
        table = place_table(first, last, end - base, entry_offsets, entry_item, entry_rank)
        odds = log_odds(table, weight[first:last], how.unlisted_last)
        order = expected_behind(chances_apart(odds), score[base:end])
        if how.sweeps > 0:
            before = chances_sampled(odds, how.sweeps, how.burn, stream(how.seed, positions[q]), order)
            for a in range(last - first):
                distance[first + a] = expected_distance(table, a, before, how.unlisted_last)
    return score, distance
