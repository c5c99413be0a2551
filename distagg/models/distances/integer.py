"""Kemeny's order by integer programming (HiGHS): proofs where the search of ``triangles`` gives up.

A variable for every pair of items says which one stands first; around a triangle the three directions must not form a
cycle. Of these O(size^3) constraints only those are added that a solution violates: first in the linear relaxation,
whose optimum bounds the worth of every order, then with whole variables. A whole solution without a cycle is the best
order. After the time limit the order of the search stays, and only the bound depends on the speed of the machine.
"""

from __future__ import annotations

import time

import numpy as np

from distagg.models.distances.kemeny_kernels import Solution, descend, worth
from distagg.types import Floats

WIDEST = 400  # items of a component: 80,000 variables
CUTS_PER_ITEM = 20  # constraints that a round adds at most
VIOLATED = 1e-6


class Proving:
    """Proofs for the components of one query, which share its seconds."""

    def __init__(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds

    def prove(self, matrix: Floats, solution: Solution) -> None:
        """Improve the order and the bound of one component until they meet, or the time is over."""
        if len(matrix) <= WIDEST:
            prove_by_integers(Program(matrix, self.deadline), matrix, solution)


def prove_by_integers(program: Program, matrix: Floats, solution: Solution) -> None:
    """Solve, cut off what forms cycles, and solve again: first the relaxation, then with whole variables."""
    best, worth_of_best = solution.order, solution.worth
    for whole in (False, True):
        while True:
            solved = program.solve(whole)
            if solved is None:  # out of time
                return
            directions, bound = solved
            solution.bound = min(solution.bound, bound)
            order = np.argsort(-directions.sum(axis=1), kind="stable")
            descend(matrix, order, 0.25 * solution.step)
            value = worth(matrix, order)
            if value > worth_of_best + 0.5 * solution.step:
                best, worth_of_best = order, value
            if worth_of_best + solution.step > solution.bound:  # proved: only now may the order change
                solution.order, solution.worth, solution.bound = best, worth_of_best, worth_of_best
                return
            if not program.cut(directions):
                break


class Program:
    """The integer program of one component, with the constraints found so far."""

    def __init__(self, matrix: Floats, deadline: float) -> None:
        self.size, self.deadline = len(matrix), deadline
        self.low, self.high = np.triu_indices(self.size, 1)
        self.number = np.zeros((self.size, self.size), dtype=np.int64)  # of the variable of a pair, low item first
        self.number[self.low, self.high] = np.arange(len(self.low))
        self.gain = matrix[self.low, self.high]
        self.triangles = np.zeros((0, 3), dtype=np.int64)  # i < j < k

    def solve(self, whole: bool) -> tuple[Floats, float] | None:
        """The best directions (size, size) under the constraints so far, and their worth; None if time ran out."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        left = self.deadline - time.monotonic()
        if left <= 0.0:
            return None
        i, j, k = self.triangles.T
        count, variables = len(i), len(self.gain)
        columns = np.stack([self.number[i, j], self.number[j, k], self.number[i, k]], axis=1).ravel()
        values, starts = np.tile([1.0, 1.0, -1.0], count), np.arange(0, 3 * count + 1, 3)
        narrow = columns.astype(np.int32), starts.astype(np.int32)  # HiGHS of scipy 1.13 takes no other indices
        rows = csr_array((values, *narrow), shape=(count, variables))
        found = milp(
            -2.0 * self.gain,
            integrality=np.full(variables, int(whole)),
            bounds=Bounds(0.0, 1.0),
            constraints=LinearConstraint(rows, 0.0, 1.0) if count else None,
            options={"time_limit": left, "mip_rel_gap": 0.0},
        )
        if found.status != 0:
            return None
        directions = np.zeros((self.size, self.size))
        directions[self.low, self.high] = np.rint(found.x) if whole else found.x
        directions[self.high, self.low] = 1.0 - directions[self.low, self.high]
        reached = found.mip_dual_bound if whole else found.fun
        return directions, -float(reached) - float(self.gain.sum())

    def cut(self, directions: Floats) -> bool:
        """Add constraints for the most violated triangles; returns whether any triangle was violated."""
        size, found, amount = self.size, [], []
        for i in range(size - 2):
            rest = directions[i + 1 :, i + 1 :]
            ahead, back = directions[i, i + 1 :], directions[i + 1 :, i]
            cycle = ahead[:, None] + rest + back[None, :]  # i -> j -> k -> i; both turns, as j and k go over all items
            j, k = np.nonzero(cycle > 2.0 + VIOLATED)
            distinct = j != k
            j, k = j[distinct], k[distinct]
            found.append(np.stack([np.full(len(j), i), np.minimum(j, k) + i + 1, np.maximum(j, k) + i + 1], axis=1))
            amount.append(cycle[j, k])
        triangles = np.concatenate([np.zeros((0, 3), dtype=np.int64), *found])
        if not len(triangles):
            return False
        worst = np.argsort(-np.concatenate(amount), kind="stable")[: CUTS_PER_ITEM * size]
        self.triangles = np.concatenate([self.triangles, triangles[worst]])
        return True
