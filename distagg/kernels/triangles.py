"""How good an order of items can be, by triangles of margins, and a search that proves which one is best.

An order is worth the sum of margins M(i, j) over all i before j. With sign(i, j) = 1 where i stands before j and -1
elsewhere, the signs around a triangle add up to 1 or -1, never to 3 or -3, so for any numbers s, one a triangle,

    worth <= sum over pairs |M(i, j) - sum of s over triangles through i -> j| + sum over triangles |s|

The least right side over s is the linear relaxation with triangle inequalities; sweeps over triangles lower it one s
at a time. Whatever s is, the bound also holds for any subset of the items with the triangles inside it, which is what
the search needs: it places items from the front and looks at no set of remaining items from a worse start again.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import Floats, Offsets


@kernel
def sweep(reduced: Floats, triangles: Floats, eager: float) -> float:
    """One pass over all triangles i < j < k, each given its best s (size^3, at [i, j, k]); gives the bound.

    |a - s| + |b - s| + |c - s| + |s| is least anywhere between the two middle ones of a, b, c and 0. The place nearest
    to the old s packs cycles greedily; going on to the middle by a share ``eager`` keeps all four free to move on.
    Only the upper half of ``reduced`` is kept up.
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
                inner = max(low, min(high, c))  # the median of three is always one of the middle two of four
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
    """Fill what the sweeps left out: both are antisymmetric in any two of their indices."""
    size = len(reduced)
    for i in range(size):
        reduced[i, i] = 0.0
        for j in range(i + 1, size):
            reduced[j, i] = -reduced[i, j]
            for k in range(j + 1, size):
                s = triangles[i, j, k]
                triangles[j, k, i] = triangles[k, i, j] = s
                triangles[i, k, j] = triangles[k, j, i] = triangles[j, i, k] = -s


@kernel
def remember(first: np.uint64, second: np.uint64, value: float, sets: np.ndarray, values: Floats, stamp: int) -> bool:
    """Whether a set of placed items (two words) is new, or is reached with more worth than ever before."""
    mask = np.uint64(len(values) - 1)
    mixed = (first ^ (second * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xBF58476D1CE4E5B9)
    at = (mixed ^ (mixed >> np.uint64(31))) & mask
    for _ in range(16):
        if sets[at, 2] != np.uint64(stamp):
            sets[at, 0], sets[at, 1], sets[at, 2] = first, second, np.uint64(stamp)
            values[at] = value
            return True
        if sets[at, 0] == first and sets[at, 1] == second:
            if value <= values[at]:
                return False
            values[at] = value
            return True
        at = (at + np.uint64(1)) & mask
    return True  # too crowded: it may be searched again


@kernel
def search(
    matrix: Floats,  # (size, size) margins, items numbered by a good order
    reduced: Floats,  # (size, size) and
    triangles: Floats,  # (size, size, size), mirrored
    least: float,  # what an order must be worth to be of interest
    step: float,  # by how much another order must then be better
    budget: int,  # pairs to look at
    sets: np.ndarray,  # (power of two, 3) uint64 and
    values: Floats,  # (power of two,): sets met before
    stamp: int,
    order: Offsets,  # (size,) set where a better order is found
    left: Floats,  # (size, size, size) scratch: reduced margins of the items that remain, at every depth
    loss: Floats,  # (size, size) scratch
    rest: Offsets,  # (size, size) scratch
    children: Offsets,  # (size, size) scratch
    count: Offsets,  # (3, size) scratch
    sums: Floats,  # (3, size) zeros
    placed: np.ndarray,  # (size, 2) uint64 zeros
) -> tuple[bool, int]:
    """Depth first from the front, with the bound of the items that remain. Gives (all searched, pairs looked at)."""
    size = len(matrix)
    born, turn, path = count[0], count[1], count[2]
    gained, pairs, threes = sums[0], sums[1], sums[2]
    for i in range(size):
        rest[0, i] = i
        for j in range(size):
            left[0, i, j] = reduced[i, j]
            if j > i:
                pairs[0] += abs(reduced[i, j])
                for k in range(j + 1, size):
                    threes[0] += abs(triangles[i, j, k])
    depth, looked, fresh = 0, 0, True
    while depth >= 0:
        if looked > budget:
            return False, looked
        many = size - depth
        if fresh:  # who may come next, the least loss first
            born[depth], turn[depth], fresh = 0, 0, False
            looked += many * many
            for n in range(many):
                i, lost = rest[depth, n], 0.0
                for other in range(many):
                    lost += max(-left[depth, i, rest[depth, other]], 0.0)
                if gained[depth] + pairs[depth] + threes[depth] - 2.0 * lost < least:
                    continue
                at = born[depth]
                while at > 0 and loss[depth, at - 1] > 2.0 * lost:
                    loss[depth, at], children[depth, at] = loss[depth, at - 1], children[depth, at - 1]
                    at -= 1
                loss[depth, at], children[depth, at] = 2.0 * lost, i
                born[depth] += 1
        if turn[depth] == born[depth]:
            depth -= 1
            continue
        i, lost = children[depth, turn[depth]], loss[depth, turn[depth]]
        turn[depth] += 1
        if gained[depth] + pairs[depth] + threes[depth] - lost < least:
            continue
        path[depth] = i
        below, down = 0, depth + 1
        value = gained[depth]
        for n in range(many):
            j = rest[depth, n]
            if j != i:
                value += matrix[i, j]
                rest[down, below] = j
                below += 1
        if below == 1:  # an order is complete
            for n in range(depth + 1):
                order[n] = path[n]
            order[down] = rest[down, 0]
            least = value + step
            continue
        word, bit = (0, i) if i < 64 else (1, i - 64)
        placed[down, 0], placed[down, 1] = placed[depth, 0], placed[depth, 1]
        placed[down, word] |= np.uint64(1) << np.uint64(bit)
        if not remember(placed[down, 0], placed[down, 1], value, sets, values, stamp):
            continue
        two, three = 0.0, threes[depth]
        looked += below * below
        for n in range(below):
            j = rest[down, n]
            for later in range(n + 1, below):
                k = rest[down, later]
                s = triangles[i, j, k]
                free = left[depth, j, k] + s
                left[down, j, k], left[down, k, j] = free, -free
                two += abs(free)
                three -= abs(s)
            left[down, j, j] = 0.0
        if value + two + three >= least:
            gained[down], pairs[down], threes[down] = value, two, three
            depth, fresh = down, True
    return True, looked


class Search:
    """The search with its memory of sets, which serves one component after another without being cleared."""

    def __init__(self, remembered: int = 1 << 17) -> None:
        self.sets, self.values = np.zeros((remembered, 3), dtype=np.uint64), np.empty(remembered)
        self.stamp = 0

    def run(
        self, matrix: Floats, reduced: Floats, triangles: Floats, least: float, step: float, budget: int, order: Offsets
    ) -> tuple[bool, int]:
        """See ``search``."""
        size = len(matrix)
        self.stamp += 1
        whole, looked = search(
            matrix, reduced, triangles, least, step, budget, self.sets, self.values, self.stamp, order,
            np.empty((size, size, size)), np.empty((size, size)), np.empty((size, size), np.int64),
            np.empty((size, size), np.int64), np.empty((3, size), np.int64), np.zeros((3, size)),
            np.zeros((size, 2), np.uint64),
        )  # fmt: skip
        return whole, looked
