"""Bounds on how good an order of items can be, by triangles of margins, and a search that proves the best order.

The worth of an order is the sum of margins M(i, j) over all i before j. Let sign(i, j) be 1 if i stands before j, else
-1. The signs around a triangle of items add up to 1 or -1, never to 3 or -3. So for any numbers s, one a triangle,

    worth <= sum over pairs |M(i, j) - sum of s over triangles through i -> j| + sum over triangles |s|

The smallest right side over all s is the value of the linear relaxation with triangle inequalities. Sweeps over the
triangles lower the right side, one s at a time. The bound holds for any s, and for any subset of the items with the
triangles inside it. The search uses this: it places items from the front, bounds what the remaining items can add, and
skips a set of placed items that it has already reached with at least the same worth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.optimise.linear import copy_to
from distagg.types import Floats, Offsets


@kernel
def sweep(reduced: Floats, triangles: Floats, eager: float) -> float:
    """Give each triangle i < j < k its best s, in ``triangles[i, j, k]`` (size, size, size); returns the bound.

    |a - s| + |b - s| + |c - s| + |s| is smallest anywhere between the two middle values of a, b, c and 0. Of this
    interval the point nearest to the old s is a greedy choice. A share ``eager`` of the way from there to the middle of
    the interval leaves later triangles more freedom. Only the upper half of ``reduced`` (size, size) is updated.
    """
    size = len(reduced)
    total = 0.0
    for i in range(size):
        for j in range(i + 1, size):
            ij = reduced[i, j]
            for k in range(j + 1, size):
                s = triangles[i, j, k]
                a, b, c = ij + s, reduced[j, k] + s, s - reduced[i, k]
                low, high = min(a, b), max(a, b)
                inner = max(low, min(high, c))  # the median of a, b, c is always one of the two middle values
                other = a + b + c - inner - min(low, min(c, 0.0)) - max(high, max(c, 0.0))
                s = min(max(s, min(inner, other)), max(inner, other))
                s += eager * (0.5 * (inner + other) - s)
                triangles[i, j, k] = s
                total += abs(s)
                ij = a - s
                reduced[j, k] = b - s
                reduced[i, k] = s - c
            reduced[i, j] = ij
    for i in range(size):
        for j in range(i + 1, size):
            total += abs(reduced[i, j])
    return total


@kernel
def mirror(reduced: Floats, triangles: Floats) -> None:
    """Fill the cells that sweeps do not update: both arrays change their sign when two indices are exchanged."""
    size = len(reduced)
    for i in range(size):
        reduced[i, i] = 0.0
        for j in range(i + 1, size):
            reduced[j, i] = -reduced[i, j]
            for k in range(j + 1, size):
                s = triangles[i, j, k]
                triangles[j, k, i] = triangles[k, i, j] = s
                triangles[i, k, j] = triangles[k, j, i] = triangles[j, i, k] = -s


class Bound(NamedTuple):
    """Margins of items that are numbered by a good order, and the arrays that bound the worth of any order."""

    matrix: Floats  # (size, size) margins
    reduced: Floats  # (size, size) mirrored
    triangles: Floats  # (size, size, size) mirrored


class Visited(NamedTuple):
    """A hash table of sets of placed items, each with the largest worth that the search reached it with."""

    sets: np.ndarray  # (power of two, 3) uint64: a set in two words, and the stamp of its search
    values: Floats  # (power of two,)
    stamp: int  # the number of this search; rows with other stamps are free


class Path(NamedTuple):
    """The state of the search at every depth; the depth is the number of items placed."""

    item: Offsets  # (size,) placed there
    placed: np.ndarray  # (size, 2) uint64: the set of items placed before
    rest: Offsets  # (size, size) the items that remain
    left: Floats  # (size, size, size) the reduced margins of the items that remain
    gained: Floats  # (size,) the worth of the placed items, before each other and before all that remain
    pairs: Floats  # (size,) sum of |reduced margin| over pairs of items that remain
    threes: Floats  # (size,) sum of |s| over triangles of items that remain
    child: Offsets  # (size, size) items that may come next, the smallest loss first
    loss: Floats  # (size, size) how much each of them lowers the bound
    children: Offsets  # (size,) the number of items that may come next
    tried: Offsets  # (size,) the number of them that have been tried


@kernel
def search(
    bound: Bound,
    visited: Visited,
    least: float,  # the worth that an order must have to be accepted
    step: float,  # by how much the next order must be better than an accepted one
    budget: int,  # the largest number of pairs to look at
    order: Offsets,  # (size,) filled with the best order, if one is accepted
) -> tuple[bool, int]:
    """Search depth first, placing items from the front, with a bound on what the remaining items can add.

    Returns whether the search was completed, and the number of pairs looked at.
    """
    size = len(bound.matrix)
    path = begin(bound)
    depth, looked, fresh = 0, 0, True
    while depth >= 0:
        if looked > budget:
            return False, looked
        if fresh:
            list_children(path, depth, least)
            looked += (size - depth) ** 2
            fresh = False
        if path.tried[depth] == path.children[depth]:
            depth -= 1
            continue
        n = path.tried[depth]
        path.tried[depth] += 1
        if path.gained[depth] + path.pairs[depth] + path.threes[depth] - path.loss[depth, n] < least:
            continue
        value = place(bound, path, depth, path.child[depth, n])
        down, below = depth + 1, size - depth - 1
        if below == 1:  # an order is complete
            copy_to(order, path.item[:down])
            order[down] = path.rest[down, 0]
            least = value + step
            continue
        if not remember(visited, path.placed[down, 0], path.placed[down, 1], value):
            continue
        reduce_rest(bound, path, down)
        looked += below * below
        if value + path.pairs[down] + path.threes[down] >= least:
            depth, fresh = down, True
    return True, looked


@kernel
def begin(bound: Bound) -> Path:
    """The path before any item is placed."""
    size = len(bound.matrix)
    path = Path(
        np.empty(size, np.int64),
        np.zeros((size, 2), np.uint64),
        np.empty((size, size), np.int64),
        np.empty((size, size, size)),
        np.zeros(size),
        np.zeros(size),
        np.zeros(size),
        np.empty((size, size), np.int64),
        np.empty((size, size)),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
    )
    for i in range(size):
        copy_to(path.left[0, i], bound.reduced[i])
        path.rest[0, i] = i
        for j in range(i + 1, size):
            path.pairs[0] += abs(bound.reduced[i, j])
            for k in range(j + 1, size):
                path.threes[0] += abs(bound.triangles[i, j, k])
    return path


@kernel
def list_children(path: Path, depth: int, least: float) -> None:
    """List the items that may come next, the smallest loss first (insertion sort)."""
    rest, left, child, loss = path.rest[depth], path.left[depth], path.child[depth], path.loss[depth]
    remaining, count = len(path.item) - depth, 0
    top = path.gained[depth] + path.pairs[depth] + path.threes[depth]
    for n in range(remaining):
        i, lost = rest[n], 0.0
        for other in range(remaining):
            lost += max(-left[i, rest[other]], 0.0)
        if top - 2.0 * lost < least:
            continue
        at = count
        while at > 0 and loss[at - 1] > 2.0 * lost:
            loss[at], child[at] = loss[at - 1], child[at - 1]
            at -= 1
        loss[at], child[at] = 2.0 * lost, i
        count += 1
    path.children[depth], path.tried[depth] = count, 0


@kernel
def place(bound: Bound, path: Path, depth: int, item: int) -> float:
    """Place an item at a depth: write what remains to the next depth, and return the worth of the placed items."""
    value, below, down = path.gained[depth], 0, depth + 1
    for n in range(len(path.item) - depth):
        j = path.rest[depth, n]
        if j != item:
            value += bound.matrix[item, j]
            path.rest[down, below] = j
            below += 1
    path.item[depth], path.gained[down] = item, value
    word, bit = (0, item) if item < 64 else (1, item - 64)
    path.placed[down, 0], path.placed[down, 1] = path.placed[depth, 0], path.placed[depth, 1]
    path.placed[down, word] |= np.uint64(1) << np.uint64(bit)
    return value


@kernel
def remember(visited: Visited, first: np.uint64, second: np.uint64, value: float) -> bool:
    """Whether a set of placed items (two words of bits) is new, or is reached with a larger worth than before."""
    sets, values, stamp = visited.sets, visited.values, np.uint64(visited.stamp)
    mask = np.uint64(len(values) - 1)
    mixed = (first ^ (second * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xBF58476D1CE4E5B9)
    at = (mixed ^ (mixed >> np.uint64(31))) & mask
    for _ in range(16):
        if sets[at, 2] != stamp:
            sets[at, 0], sets[at, 1], sets[at, 2] = first, second, stamp
            values[at] = value
            return True
        if sets[at, 0] == first and sets[at, 1] == second:
            if value <= values[at]:
                return False
            values[at] = value
            return True
        at = (at + np.uint64(1)) & mask
    return True  # no free row nearby: the set is not stored, and may be searched again


@kernel
def reduce_rest(bound: Bound, path: Path, down: int) -> None:
    """The reduced margins of the items that remain at a depth, without their triangles with the item just placed."""
    rest, before, after = path.rest[down], path.left[down - 1], path.left[down]
    triangles = bound.triangles[path.item[down - 1]]
    remaining = len(path.item) - down
    two, three = 0.0, path.threes[down - 1]
    for n in range(remaining):
        j = rest[n]
        for later in range(n + 1, remaining):
            k = rest[later]
            s = triangles[j, k]
            free = before[j, k] + s
            after[j, k], after[k, j] = free, -free
            two += abs(free)
            three -= abs(s)
        after[j, j] = 0.0
    path.pairs[down], path.threes[down] = two, three


class Search:
    """The search and its table of sets; the table serves one component after another without being cleared."""

    def __init__(self, remembered: int = 1 << 17) -> None:
        self.visited = Visited(np.zeros((remembered, 3), dtype=np.uint64), np.empty(remembered), 0)

    def run(self, bound: Bound, least: float, step: float, budget: int, order: Offsets) -> tuple[bool, int]:
        """See ``search``."""
        self.visited = self.visited._replace(stamp=self.visited.stamp + 1)
        return search(bound, self.visited, least, step, budget, order)
