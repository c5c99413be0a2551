"""Expected utilities of uncertain ranks in closed form: Niu et al. 2013, sections 4.1 and 4.2, without the recursion.

In a list every item meets every other item of the query, and its rank R is the number of contests that it loses. If it
loses each with probability p, E[ratio^R] = prod(1 - p (1 - ratio)). So the expectation of a utility that is a sum of
exponentials, utility(r) = sum_t weight_t ratio_t^r for r = 0 .. size - 1, has a closed form. Smooth, falling utilities
need few terms: 1 / (60 + r) needs about 14 for 20 ranks and 45 for 100,000, to 1e-12.

The probability that the better item wins depends only on the number of places between the two, so sums and products
over contests are running sums and products along the list: O(length) for a linear utility, O(length x terms) for a sum
of exponentials. The paper's recursion is O(length^2) for each item. Tied items get the mean of the places they share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.lists import BEYOND, STEADY, Lists
from distagg.types import OFFSET, Floats, Indices, Offsets

STEP = 0.25  # candidates: rates e^(-u), u a geometric series
SHARPEST, FLATTEST = 36.0, 0.3  # from e^-36 at the scale of the first ranks to nearly 1 at the last
UNSURE = 40  # in lists of at least this many items, a contest depends only on the distance in places
POINTS = 200  # ranks looked at beyond the first hundred, spaced by their logarithm


def exponential_terms(
    utility: Callable[[Floats], Floats], size: int, scale: float, tolerance: float = 1e-14
) -> tuple[Floats, Floats]:
    """Ratios and weights of a positive, falling utility of ranks 0 .. size - 1, by least squares of relative errors.

    Candidates are taken one by one, each time the one that those already taken describe worst, until ``tolerance``.
    ``scale``: by how many ranks the utility changes at its top, at the least. Sums are plain ones, not a library's that
    would depend on the number of its threads.

    >>> ratio, weight = exponential_terms(lambda r: 1.0 / (60.0 + r), 50, 60.0)
    >>> bool(abs((weight * ratio**7).sum() * 67.0 - 1.0) < 1e-12)
    True
    """
    rank = np.zeros(1)
    if size > 1:
        rank = np.unique(np.concatenate([np.arange(min(size, 100.0)), np.geomspace(1.0, size - 1.0, POINTS)]))
    low, high = np.log(FLATTEST / (size + scale)), np.log(SHARPEST / scale)
    rate = np.concatenate([[0.0], np.exp(np.arange(low, high + STEP, STEP))])
    columns = np.exp(-np.outer(rate, rank)) / utility(rank)
    left, rest = columns.copy(), np.ones(len(rank))
    floor = tolerance**2 * float((left * left).sum(axis=1).max())
    taken: list[int] = []
    basis: list[Floats] = []
    share: list[float] = []
    for _ in range(min(columns.shape)):
        square = (left * left).sum(axis=1)
        best = int(square.argmax())
        if square[best] <= floor:
            break
        direction = columns[best]
        for _ in range(2):  # twice, for orthogonality to the last digit
            for other in basis:
                direction = direction - (other * direction).sum() * other
        direction = direction / np.sqrt((direction * direction).sum())
        taken.append(best)
        basis.append(direction)
        share.append(float((direction * rest).sum()))
        rest = rest - share[-1] * direction
        left -= (left * direction).sum(axis=1)[:, None] * direction
    weight = np.zeros(len(taken))
    for i in reversed(range(len(taken))):
        known = sum(weight[j] * (basis[i] * columns[taken[j]]).sum() for j in range(i + 1, len(taken)))
        weight[i] = (share[i] - known) / (basis[i] * columns[taken[i]]).sum()
    return np.exp(-rate[taken]), weight


def terms_by_class(
    utility: Callable[[int], Callable[[Floats], Floats]], largest: int, scale: float, tolerance: float = 1e-14
) -> tuple[Offsets, Floats, Floats]:
    """The terms for sizes up to 2^0, 2^1, .. 2^largest, one after the other: where each class starts, ratios, weights.

    ``utility(size)`` is a function of ranks below that size. Which terms a query takes depends on its own size alone.
    """
    terms = [exponential_terms(utility(1 << n), 1 << n, scale, tolerance) for n in range(largest + 1)]
    starts = np.concatenate([[0], np.cumsum([len(ratio) for ratio, _ in terms])]).astype(OFFSET)
    return starts, np.concatenate([ratio for ratio, _ in terms]), np.concatenate([weight for _, weight in terms])


def size_class(size: int) -> int:
    """The smallest b with size <= 2^b: terms are made for classes of sizes, not for every size."""
    return max(int(size) - 1, 0).bit_length()


@kernel
def class_terms(size: int, starts: Offsets, ratio: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Ratios and weights of the terms for queries of so many items, out of those of ``terms_by_class``, if any."""
    if len(ratio) == 0:
        return ratio, weight
    scope = 0
    while (1 << scope) < size:
        scope += 1
    first, last = starts[scope], starts[scope + 1]
    return ratio[first:last], weight[first:last]


class Utility(NamedTuple):
    """How contests end, and what a rank is worth: the terms of ``exponentials``, or Borda's points without any."""

    steep: float  # how fast a contest becomes sure with the distance; 0: the paper's contest
    average: bool  # items left out are even with all and get the utility of an average rank; else they meet nobody
    discounted: bool  # the utility is that of ``discounted_terms``: points begin at the place of items left out
    starts: Offsets  # (classes + 1,) terms of each class of sizes
    ratio: Floats  # (T,)
    weight: Floats  # (T,)


class Places(NamedTuple):
    """Scratch arrays indexed by the place in a list, from 0, as long as the longest list."""

    chance: Floats  # the probability that the item this many places ahead wins
    ahead: Floats
    behind: Floats
    value: Floats  # the expected utility


@kernel
def places_for(entry_offsets: Offsets) -> Places:
    """Scratch arrays for lists of these lengths."""
    longest = 1
    for a in range(len(entry_offsets) - 1):
        longest = max(longest, entry_offsets[a + 1] - entry_offsets[a])
    return Places(np.empty(longest), np.empty(longest), np.empty(longest), np.empty(longest))


@kernel
def fill_chances(steep: float, size: int, length: int, chance: Floats) -> None:
    """The chances of contests by distance. With ``steep`` 0 the paper's max(d, 1 - d), d the distance over ``size``."""
    for d in range(1, length):
        gap = d / size
        chance[d] = max(gap, 1.0 - gap) if steep == 0.0 else 1.0 - 0.5 * np.exp(-steep * gap)


@kernel
def fill_points(size: int, length: int, chance: Floats, won: Floats, value: Floats) -> None:
    """size - E[rank] of the item at every place; an unlisted item beats any other item with probability 1/2."""
    won[0] = 0.0
    for d in range(1, length):
        won[d] = won[d - 1] + chance[d]
    for a in range(length):
        behind = length - 1 - a
        value[a] = size - (won[a] + (behind - won[behind]) + 0.5 * (size - length))


@kernel
def fill_exponentials(size: int, length: int, ratio: Floats, weight: Floats, places: Places) -> None:
    """E[sum_t weight_t ratio_t^rank] at every place."""
    chance, ahead, behind, value = places
    for a in range(length):
        value[a] = 0.0
    for t in range(len(ratio)):
        x = 1.0 - ratio[t]
        ahead[0], behind[0] = weight[t] * (1.0 - 0.5 * x) ** (size - length), 1.0
        for d in range(1, length):
            ahead[d] = ahead[d - 1] * (1.0 - x * chance[d])
            behind[d] = behind[d - 1] * (1.0 - x * (1.0 - chance[d]))
        for a in range(length):
            value[a] += ahead[a] * behind[length - 1 - a]


@kernel
def discounted_value(size: int, length: int) -> float:
    """The utility log((c + 2 * class) / (c + rank)) of the items that a list leaves out, c = STEADY + 1.

    They stand at the query's last place, or BEYOND list lengths behind the list where the query is larger.
    """
    scope = 1
    while scope < size:
        scope *= 2
    place = min(size, (1 + BEYOND) * length)
    return np.log((STEADY + 1.0 + 2.0 * scope) / (STEADY + place))


@kernel
def average_value(size: int, ratio: Floats, weight: Floats) -> float:
    """The expected utility of an item that wins each contest with probability half."""
    if len(ratio) == 0:
        return 0.5 * (size + 1)
    value = 0.0
    for t in range(len(ratio)):
        value += weight[t] * (0.5 + 0.5 * ratio[t]) ** (size - 1)
    return value


@kernel
def add_list(
    first: int,  # entry of the list
    last: int,
    item: Indices,  # (E,)
    rank: Floats,  # (E,)
    value: Floats,  # by place
    outside: float,
    share: float,  # the list's weight
    base: int,  # the query's first item
    total: Floats,  # (I,) added to
) -> None:
    """Add to ``total`` what a list gives its items, minus ``outside``; tied items share the mean of their places."""
    start = first
    while start < last:
        end, mean = start + 1, value[start - first]
        while end < last and rank[end] == rank[start]:
            mean += value[end - first]
            end += 1
        mean /= end - start
        for e in range(start, end):
            total[base + item[e]] += share * (mean - outside)
        start = end


@kernel
def sum_expectations(utility: Utility, weights: Floats, lists: Lists) -> Floats:  # (L,) or empty -> (I,)
    """The expected utility of every item, summed over the query's lists."""
    item_offsets, list_offsets, entry_offsets, item, rank = lists
    total, places = np.zeros(item_offsets[-1]), places_for(entry_offsets)
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        ratio, weight = class_terms(size, utility.starts, utility.ratio, utility.weight)
        outside = average_value(size, ratio, weight) if utility.average else 0.0
        known = 0  # the length of the list that the values were computed for
        for a in range(list_offsets[q], list_offsets[q + 1]):
            first, last = entry_offsets[a], entry_offsets[a + 1]
            if last - first != known:
                known = last - first
                met = size if utility.average else known
                sure = utility.steep == 0.0 or utility.average
                fill_chances(utility.steep, met if sure else min(met, UNSURE), known, places.chance)
                if len(ratio) > 0:
                    fill_exponentials(met, known, ratio, weight, places)
                else:
                    fill_points(met, known, places.chance, places.ahead, places.value)
                if utility.discounted:
                    outside = discounted_value(size, known)
            share = weights[a] if len(weights) > 0 else 1.0
            add_list(first, last, item, rank, places.value, outside, share, base, total)
            if utility.average:
                for i in range(base, base + size):
                    total[i] += share * outside
    return total
