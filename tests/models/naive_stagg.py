"""Niu et al. 2013, section 4, as it is written: contests, the recursion over items, and all outcomes one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, permutations, product

import numpy as np
from strategies import Query


def chance_of_winner(gap: float, contest: str, steep: float) -> float:
    return max(gap, 1.0 - gap) if contest == "paper" else 1.0 - 0.5 * np.exp(-steep * gap)


def contests(order: Sequence[int], item: int, size: int, contest: str = "paper", steep: float = 0.0) -> list[float]:
    """The chances that each other item of the query beats ``item``; ``order`` is a list without ties: equation 11."""
    return [*met_in_list(order, item, size, contest, steep), *[0.5] * (size - len({*order, item}))]


def met_in_list(order: Sequence[int], item: int, scale: int, contest: str, steep: float) -> list[float]:
    """The same for the other listed items alone, distances over ``scale``; an item left out is even with all."""
    if item not in order:
        return [0.5] * len(order)
    place = {listed: n for n, listed in enumerate(order)}
    wins = {n: chance_of_winner(abs(place[item] - place[n]) / scale, contest, steep) for n in order if n != item}
    return [win if place[other] < place[item] else 1.0 - win for other, win in wins.items()]


def recursion(chances: Sequence[float]) -> np.ndarray:
    """P(R = r), r = 0 .. n - 1: equations 9 and 10."""
    known = np.zeros(len(chances) + 1)
    known[0] = 1.0
    for chance in chances:
        beaten = np.concatenate([[0.0], known[:-1]])
        known = beaten * chance + known * (1.0 - chance)
    return known


def enumeration(chances: Sequence[float]) -> np.ndarray:
    """The same, outcome by outcome."""
    known = np.zeros(len(chances) + 1)
    for outcome in product((0, 1), repeat=len(chances)):
        likely = np.prod([c if beaten else 1.0 - c for c, beaten in zip(chances, outcome, strict=True)])
        known[sum(outcome)] += likely
    return known


def orders(ranks: dict[int, float]) -> list[tuple[int, ...]]:
    """Every way to break the ties of a list."""
    return [p for p in permutations(ranks) if all(ranks[a] <= ranks[b] for a, b in pairwise(p))]


def expected(
    query: Query,
    utility: Callable[[np.ndarray, int], np.ndarray],
    *,
    contest: str,
    steep: float,
    average: bool,
    distribution: Callable[[Sequence[float]], np.ndarray] = recursion,
) -> np.ndarray:
    """Sum over lists of the mean, over the orders that its ties allow, of each item's expected utility.

    The utility is a function of ranks and of the number of items that meet: with ``average`` the query's, else the
    list's, and graded contests are then as sure as in a list of at most 40.
    """
    total = np.zeros(query.size)
    for ranks in query.lists.values():
        ways = orders(ranks)
        met = query.size if average else len(ranks)
        for order, item in product(ways, range(query.size)):
            if average:
                chances = contests(order, item, query.size, contest, steep)
            elif item in ranks:
                chances = met_in_list(order, item, met if contest == "paper" else min(met, 40), contest, steep)
            else:
                continue
            total[item] += distribution(chances) @ utility(np.arange(met), met) / len(ways)
    return total
