"""Kemeny's order: of all orders of a query's items the one nearest to its lists, by discordant pairs.

Let T be the number of strictly ordered pairs in all lists, and the worth of an order the sum of the margins of earlier
over later items. The distance of the order is then (T - worth) / 2, so only margins matter. A query is divided into the
strongly connected components of its majorities. Each component is solved by local search; the order is proved best if
the bound of ``triangles``, or a search within the budget, proves it. Cost: items^2 for a pass of local search,
items^3 / 6 for a sweep of the bound.

The single steps are kernels; plain Python calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from distagg.jit import kernel
from distagg.models.distances.triangles import Bound, Search, mirror, sweep
from distagg.models.lists import Lists
from distagg.optimise.components import strong_components
from distagg.optimise.linear import copy_to
from distagg.types import Floats, Offsets

WIDEST = 128  # most items of a component for the bound and the search, which store a set in two words of 64 bits
MOST_SWEEPS = 100  # over the triangles of a component
EAGER = 0.25  # the parameter of ``sweep`` after the first sweep, which is greedy
ROUNDING = 1e-9  # relative to the sum of margins, if these are not whole numbers


@kernel
def components(matrix: Floats) -> tuple[Offsets, Offsets]:  # (size,), (components + 1,)
    """Strongly connected components of "a majority puts i over j", best first: their items, and where each starts.

    A best order never breaks a majority between two components, so components are solved separately. Components without
    a majority between them keep the order of their items, because the depth-first walk begins at the last item.
    """
    size = len(matrix)
    start, losers = np.zeros(size + 1, np.int64), np.empty(size * size, np.int32)
    edges = 0
    for a in range(size):
        for b in range(size):
            if matrix[size - 1 - a, size - 1 - b] > 0.0:
                losers[edges] = b
                edges += 1
        start[a + 1] = edges
    count, label = strong_components(start, losers)
    order, starts = np.empty(size, np.int64), np.zeros(count + 1, np.int64)
    for a in range(size):
        starts[count - label[a]] += 1
    for c in range(count):
        starts[c + 1] += starts[c]
    at = starts[:count].copy()
    for i in range(size):
        c = count - 1 - label[size - 1 - i]
        order[at[c]] = i
        at[c] += 1
    return order, starts


@kernel
def worth(matrix: Floats, order: Offsets) -> float:
    """The worth of an order: the sum of the margins of earlier over later items."""
    total = 0.0
    for at in range(len(order)):
        row = matrix[order[at]]
        for later in range(at + 1, len(order)):
            total += row[order[later]]
    return total


@kernel
def descend(matrix: Floats, order: Offsets, tolerance: float) -> int:
    """Move single items to their best places until no move helps; returns the number of pairs looked at."""
    size = len(order)
    looked, since, item = 0, 0, 0
    where = np.empty_like(order)
    for at in range(size):
        where[order[at]] = at
    while since < size:
        row, at = matrix[item], where[item]
        best, to, gain = tolerance, at, 0.0
        for up in range(at - 1, -1, -1):
            gain += row[order[up]]
            if gain > best:
                best, to = gain, up
        gain = 0.0
        for down in range(at + 1, size):
            gain -= row[order[down]]
            if gain > best:
                best, to = gain, down
        looked += size
        since += 1
        if to != at:
            since = 0
            step = 1 if to > at else -1
            while at != to:
                order[at] = order[at + step]
                where[order[at]] = at
                at += step
            order[to] = item
            where[item] = to
        item = item + 1 if item + 1 < size else 0
    return looked


@kernel
def kicked(matrix: Floats, enough: float, step: float, budget: int, order: Offsets) -> int:
    """Kick and descend from the best order so far until it is worth ``enough`` or the budget of pairs is spent.

    A kick moves six random items to random places, by a linear congruential generator of its own, so that the same
    margins give the same order. Returns the pairs looked at.
    """
    size, trial = len(matrix), np.empty_like(order)
    state = np.uint64(size)
    best, looked = worth(matrix, order), 0
    while looked < budget and best + step <= enough:
        copy_to(trial, order)
        for _ in range(6):
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            at = np.int64((state >> np.uint64(33)) % np.uint64(size))
            to = np.int64((state >> np.uint64(11)) % np.uint64(size))
            item = trial[at]
            turn = 1 if to > at else -1
            while at != to:
                trial[at] = trial[at + turn]
                at += turn
            trial[to] = item
        looked += descend(matrix, trial, 0.25 * step) + size * size
        value = worth(matrix, trial)
        if value >= best:
            best = value
            copy_to(order, trial)
    return looked


@kernel
def settle(matrix: Floats, order: Offsets) -> None:
    """Put neighbours without a majority between them in the order of their numbers, which costs nothing."""
    for at in range(1, len(order)):
        item, to = order[at], at
        while to > 0 and order[to - 1] > item and matrix[order[to - 1], item] == 0.0:
            order[to] = order[to - 1]
            to -= 1
        order[to] = item


@kernel
def ordered_pairs(unlisted_last: bool, weight: Floats, lists: Lists) -> Floats:  # (L,) or empty -> (Q,)
    """Pairs that the lists of every query order strictly, by the weights of lists (1 where there are none)."""
    total = np.zeros(len(lists.item_offsets) - 1)
    for q in range(len(total)):
        size = lists.item_offsets[q + 1] - lists.item_offsets[q]
        for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):
            start, end = lists.entry_offsets[a], lists.entry_offsets[a + 1]
            tied, pairs = 0, 0
            for e in range(start, end):
                tied = tied + 1 if e > start and lists.entry_rank[e] == lists.entry_rank[e - 1] else 0
                pairs += e - start - tied
            if unlisted_last:
                pairs += (end - start) * (size - (end - start))
            total[q] += pairs * (weight[a] if len(weight) > 0 else 1.0)
    return total


@dataclass
class Solution:
    """An order of items, its worth, an upper bound on the worth of any order, and the number of pairs looked at."""

    order: Offsets
    worth: float
    bound: float
    step: float  # an order better by less than this is no better
    looked: int = 0

    @property
    def open(self) -> bool:
        return self.worth + self.step <= self.bound

    def descend(self, matrix: Floats, order: Offsets) -> None:
        """Local search from an order; the result replaces the solution if it is better."""
        self.looked += descend(matrix, order, 0.25 * self.step)
        value = worth(matrix, order)
        if value > self.worth:
            self.order, self.worth = order, value


def solve_order(
    matrix: Floats, effort: int, search: Search, prove: Callable[[Floats, Solution], None] | None = None
) -> Solution:
    """Kemeny's order of one query from its margins, items numbered by the order that decides ties.

    The search of a component may look at ``effort`` x size^2 pairs; ``prove`` is called for components left unproved.
    """
    size = len(matrix)
    total = 0.5 * float(np.abs(matrix).sum())
    # Whole margins make worths differ by 2 at least. Half of that leaves room for the rounding of bounds.
    whole = total < 2.0**50 and (matrix == np.rint(matrix)).all()
    step = 1.0 if whole else ROUNDING * total
    order, starts = components(matrix)
    sizes = np.diff(starts)
    bound, looked, proved = total, size * size, True
    for c in np.flatnonzero(sizes > 1):
        items = np.sort(order[starts[c] : starts[c + 1]])
        part = matrix[items[:, None], items]
        solution = solve_component(part, step, effort * len(items) ** 2, search)
        if solution.open and prove is not None:
            prove(part, solution)
        order[starts[c] : starts[c + 1]] = items[solution.order]
        looked += solution.looked
        bound += solution.bound - 0.5 * float(np.abs(part).sum())
        proved = proved and not solution.open
    settle(matrix, order)
    if not proved:
        looked += descend(matrix, order, 0.25 * step)
    value = worth(matrix, order)
    return Solution(order, value, max(bound, value) if not proved else value, step, looked)


def solve_component(matrix: Floats, step: float, budget: int, search: Search) -> Solution:
    """The best order of one component that was found, and the bound on the worth of any order.

    The first local searches and one sweep do not count towards the budget. The budget is spent on more sweeps, kicks
    and searches in turn.
    """
    size = len(matrix)
    solution = Solution(np.arange(size), -np.inf, 0.5 * float(np.abs(matrix).sum()), step)
    solution.descend(matrix, np.arange(size))
    for key in (matrix.sum(axis=1), np.sign(matrix).sum(axis=1)):  # Borda, Copeland
        solution.descend(matrix, np.argsort(-key, kind="stable"))
    if not solution.open:
        return solution
    if size > WIDEST:
        solution.looked += kicked(matrix, solution.bound, step, budget, solution.order)
        solution.worth = worth(matrix, solution.order)
        return solution
    named = solution.order  # items numbered by a good order make good bounds
    solution.order = np.arange(size)
    _prove(matrix[named[:, None], named], budget, search, solution)
    solution.order = named[solution.order]
    return solution


def _prove(matrix: Floats, budget: int, search: Search, solution: Solution) -> None:
    """Tighten the bound by sweeps and search for the best order, perturb the order, then sweep and search again.

    A query that is too large for the budget of the search is swept and perturbed only.
    """
    size = len(matrix)
    bound = Bound(matrix, matrix.copy(), np.zeros((size, size, size)))
    sweeps, a_sweep, deep = 0, size**3 // 3, size**3 <= budget // 4
    for again in (False, True):
        limit = solution.looked + budget // 8
        while solution.open and sweeps < MOST_SWEEPS and (sweeps == 0 or solution.looked + a_sweep <= limit):
            solution.bound = min(solution.bound, sweep(bound.reduced, bound.triangles, EAGER if sweeps > 0 else 0.0))
            solution.looked += a_sweep
            sweeps += 1
        if solution.open and deep:
            mirror(bound.reduced, bound.triangles)
            whole, looked = search.run(
                bound, solution.worth + solution.step, solution.step, budget // 4, solution.order
            )
            solution.looked += looked
            solution.worth = worth(matrix, solution.order)
            solution.bound = solution.worth if whole else solution.bound
        if solution.open and not again:
            share = budget // 4 if deep else budget
            solution.looked += kicked(matrix, solution.bound, solution.step, share, solution.order)
            solution.worth = worth(matrix, solution.order)
