"""Mallows' distribution with Kendall's distance, by stages (Fligner & Verducci 1986), and its posterior over orders.

A ranking is built from the front. At a stage with m remaining items, the item that v of the others precede in the
central ranking is taken with probability proportional to exp(-theta v), v = 0 .. m - 1. The sum of all v is the
distance. So the likelihood depends only on the total distance of the lists, and on the number of stages with m items:

    log L(theta) = -theta distance - sum over m of stages(m) log((1 - exp(-m theta)) / (1 - exp(-theta)))

The log likelihood is concave. Its slope is the expected distance minus the observed one, which is a convex, decreasing
function of theta, so Newton's steps from 0 never overshoot.

If lists are scattered around an unknown order, each expert with its own theta, p(order | lists) is proportional to
exp(-sum over lists of theta x discordant pairs). It is determined by the log odds L(i, j): the sum of theta over lists
that put i over j, minus the sum over lists that put j over i. The kernels compute the probability that i stands before
j, which gives expected distances and expected places.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.lists import Lists
from distagg.models.majority.kernels import UNLISTED, place_table
from distagg.types import Floats, Indices, Offsets

SMALL = 0.05  # below this value of m * theta, series are more accurate than closed forms


@kernel
def stage_moments(theta: float, m: int) -> tuple[float, float]:
    """Mean and variance of v at a stage with m items left."""
    if m * theta < SMALL:
        t2, m2 = theta * theta, float(m) * m
        mean = 0.5 * (m - 1) - theta * (m2 - 1) / 12 + theta * t2 * (m2 * m2 - 1) / 720
        mean -= theta * t2 * t2 * (m2 * m2 * m2 - 1) / 30240
        return mean, (m2 - 1) / 12 - t2 * (m2 * m2 - 1) / 240
    one, all_of = np.exp(-theta), np.exp(-m * theta)
    near, far = one / (1.0 - one), m * all_of / (1.0 - all_of)
    return near - far, near / (1.0 - one) - far * m / (1.0 - all_of)


@kernel
def log_normaliser(theta: float, m: int) -> float:
    """The logarithm of the normalising sum of one stage with m remaining items."""
    if theta == 0.0:
        return np.log(m)
    return np.log(-np.expm1(-m * theta)) - np.log(-np.expm1(-theta))


@kernel
def log_likelihood(theta: float, distance: float, stages: Floats) -> float:
    """The log likelihood of theta; ``stages[m - 1]`` counts the stages with m remaining items."""
    value = -theta * distance
    for at in range(len(stages)):
        if stages[at] > 0.0:
            value -= stages[at] * log_normaliser(theta, at + 1)
    return value


@kernel
def fit_theta(
    distance: float, stages: Floats, tolerance: float, steps: int, limit: float, trace: Floats
) -> tuple[float, int, float]:
    """The maximum likelihood theta in [0, limit]; returns theta, the steps taken, and the remaining slope per stage.

    theta is 0 if the distance is no smaller than that of random lists, and ``limit`` if the distance is 0. ``trace``
    (steps or 0,) is filled with the log likelihood after every step.
    """
    theta, step, slope = 0.0, 0, 0.0
    count = 0.0
    for at in range(1, len(stages)):
        count += stages[at]
    if distance == 0.0 and count > 0.0:
        return limit, 0, 0.0
    while count > 0.0:
        mean, variance = 0.0, 0.0
        for at in range(1, len(stages)):
            if stages[at] > 0.0:
                a, b = stage_moments(theta, at + 1)
                mean += stages[at] * a
                variance += stages[at] * b
        slope = (mean - distance) / count
        held = (theta == 0.0 and slope <= 0.0) or (theta == limit and slope >= 0.0)
        if held:
            slope = 0.0
        if abs(slope) <= tolerance or step == steps:
            break
        theta = min(max(theta + slope * count / variance, 0.0), limit)
        if len(trace) > 0:
            trace[step] = log_likelihood(theta, distance, stages)
        step += 1
    return theta, step, abs(slope)


@kernel
def count_stages(
    unlisted_last: bool,
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    entry_rank: Floats,
    row: Offsets,  # (L,) the row that counts a list: its query, or its expert
    stages: Floats,  # (rows, longest) added to: column m - 1 counts the stages with m remaining items
    tied: Floats,  # (rows,) added to: the number of tied pairs of listed items
) -> None:
    """Count the stages and the tied pairs of lists. Unlisted items remain to the end, or do not take part."""
    for q in range(len(item_offsets) - 1):
        size = item_offsets[q + 1] - item_offsets[q]
        for a in range(list_offsets[q], list_offsets[q + 1]):
            start, end = entry_offsets[a], entry_offsets[a + 1]
            left = size if unlisted_last else end - start
            group = 0
            for e in range(start, end):
                group = group + 1 if e > start and entry_rank[e] == entry_rank[e - 1] else 0
                tied[row[a]] += group
                stages[row[a], left - (e - start) - 1] += 1.0


class Sampling(NamedTuple):
    """How lists are read, and how orders are drawn."""

    unlisted_last: bool
    sweeps: int  # that count; 0 if nothing is drawn
    burn: int  # earlier sweeps, which do not count
    seed: int


@kernel
def log_odds(table: Indices, weight: Floats, unlisted_last: bool) -> Floats:  # (size, size)
    """The log odds L(i, j), from the table of places (size, lists) and the theta of every list (lists,)."""
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
    """The probability that i stands before j, with all pairs taken as independent: the logistic function of L."""
    before = np.zeros(odds.shape)
    for i in range(len(odds)):
        for j in range(i):
            before[i, j] = 1.0 / (1.0 + np.exp(-odds[i, j]))
            before[j, i] = 1.0 - before[i, j]
    return before


@kernel
def chances_sampled(odds: Floats, sweeps: int, burn: int, state: np.uint64, order: Offsets) -> Floats:  # (size, size)
    """The same over whole orders, by Gibbs sampling: each item in turn is taken out and put back at a random place.

    Given the order of the other items, the distribution of the place has a closed form. The result is the mean of these
    distributions, not of the places drawn. Sampling starts from ``order`` (size,), which is overwritten.
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
    """Fill ``upto`` (size,) with the cumulative weights of the item's places; the last one is the sum of weights."""
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
    """The first place whose cumulative weight exceeds ``drawn``; the last place if rounding leaves none."""
    for place in range(len(upto) - 1):
        if drawn < upto[place]:
            return place
    return len(upto) - 1


@kernel
def add_chances(item: int, order: Offsets, upto: Floats, before: Floats) -> None:
    """Add to ``before`` the probabilities that the item goes before, and behind, each of the others."""
    total = upto[len(upto) - 1]
    for place in range(len(order) - 1):
        other, chance = order[place], upto[place] / total
        before[item, other] += chance
        before[other, item] += 1.0 - chance


@kernel
def expected_distance(table: Indices, a: int, before: Floats, unlisted_last: bool) -> float:
    """The expected number of pairs that list a and the unknown order rank differently."""
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
    """Fill ``score`` with the expected number of items behind each item; returns the items by descending score."""
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
    """The start of a query's random numbers, which depends only on the seed and the query's position in the dataset."""
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
    """Scores of items (the expected number of items behind), and the lists' expected distances from the unknown order.

    Scores take all pairs as independent; distances are sampled over whole orders, and 0 if nothing is drawn.
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
