"""Leading singular triplets of pair matrices, without the matrices.

Y(i, j) is what the lists give the pair "i over j": value_j - value_i where i stands before j (binary: 1), summed over
the lists. Along a sorted list Y x and Y' x are running sums: O(entries) a product, only numbers of one sign are added
while x has one, and tied items get the same bits. Triplets come one after the other by power iteration on what the
earlier ones leave. Y has no negative entry, so the first triplet has none either and no start of positive numbers can
miss it; pair matrices of one list have well separated singular values (about 6 steps), sums of lists need not.

Signs: a triplet's U has a non-negative sum; where that is 0 its V has; where both are, the first entry of U that is
not 0 is positive.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import Floats, Indices, Offsets

NOTHING = 1e-12  # a singular value this small beside the first one is 0 up to rounding
LEAP = 3  # steps from one extrapolation to the next
LEVEL = 1e-9  # a sum this small beside its largest possible value is 0 up to rounding


@kernel
def add_product(
    binary: bool, turned: bool, first: int, last: int, place: Indices, value: Floats, x: Floats, out: Floats
) -> None:
    """Add Y x, or Y' x when ``turned``, to ``out`` for the one list of entries first..last; ``place`` indexes x."""
    step = 1 if turned else -1
    e = first if turned else last - 1
    passed, total = x[place[e]], 0.0
    for _ in range(last - first - 1):
        e += step
        gap = abs(value[e] - value[e - step])
        if not binary:
            total += gap * passed
        elif gap > 0.0:
            total = passed
        i = place[e]
        passed += x[i]
        out[i] += total


@kernel
def product(
    binary: bool, turned: bool, lists: tuple[int, int], offsets: Offsets, place: Indices, value: Floats, x: Floats,
    base: Floats, known: int, out: Floats,
) -> float:  # fmt: skip
    """Y x (or Y' x) into ``out``, less its share of the first ``known`` rows of ``base``; gives its length."""
    size = len(x)
    for i in range(size):
        out[i] = 0.0
    for a in range(lists[0], lists[1]):
        if offsets[a + 1] > offsets[a]:
            add_product(binary, turned, offsets[a], offsets[a + 1], place, value, x, out)
    for b in range(known):
        share = 0.0
        for i in range(size):
            share += base[b, i] * out[i]
        for i in range(size):
            out[i] -= share * base[b, i]
    length = 0.0
    for i in range(size):
        length += out[i] * out[i]
    return np.sqrt(length)


@kernel
def fix_sign(u: Floats, v: Floats) -> None:
    over, under, lead = 0.0, 0.0, 0.0
    for i in range(len(u)):
        over += u[i]
        under += v[i]
        if lead == 0.0 and abs(u[i]) > LEVEL:
            lead = u[i]
    edge = LEVEL * np.sqrt(len(u))
    sign = over if abs(over) > edge else under if abs(under) > edge else lead
    if sign < 0.0:
        for i in range(len(u)):
            u[i] = -u[i]
            v[i] = -v[i]


@kernel
def triplets(
    binary: bool, steps: int, tolerance: float, lists: tuple[int, int], offsets: Offsets, place: Indices, value: Floats,
    u: Floats, sigma: Floats, v: Floats,
) -> int:  # fmt: skip
    """Fill ``u`` (p, size), ``sigma`` (p,) and ``v`` (p, size), zeros, for the sum of some lists; gives steps taken.

    Triplet t starts from the column sums to the power t + 1: the same for tied items, whatever their order. The error
    of power iteration soon shrinks by one factor a step, so every LEAP steps all the steps to come are taken at once.
    """
    size, taken = u.shape[1], 0
    start, w = np.ones(size), np.empty(size)
    whole = product(binary, True, lists, offsets, place, value, start, v, 0, w)
    if whole == 0.0:
        return 0
    for i in range(size):
        start[i] = w[i] / whole
    for t in range(len(sigma)):
        length = 0.0
        for i in range(size):
            v[t, i] = start[i] ** (t + 1)
            length += v[t, i] * v[t, i]
        for i in range(size):
            v[t, i] /= np.sqrt(length)
        before, move = np.inf, np.inf
        for step in range(steps):
            length = product(binary, False, lists, offsets, place, value, v[t], u, t, u[t])
            if length <= NOTHING * sigma[0]:
                break
            ratio = np.sqrt(move / before) if step % LEAP == LEAP - 1 else 0.0
            further = ratio / (1.0 - ratio) if ratio < 1.0 else 0.0
            whole = product(binary, True, lists, offsets, place, value, u[t], v, t, w)
            before, move = move, 0.0
            for i in range(size):
                change = w[i] / whole - v[t, i]
                move += change * change
                v[t, i] += (1.0 + further) * change
            taken += 1
            if move <= tolerance * tolerance:
                break
        if length <= NOTHING * sigma[0]:
            for i in range(size):
                u[t, i], v[t, i] = 0.0, 0.0
            break
        sigma[t] = whole / length
        for i in range(size):
            u[t, i] /= length
        fix_sign(u[t], v[t])
    return taken


@kernel
def group_triplets(
    binary: bool,
    steps: int,
    tolerance: float,
    group_lists: Offsets,  # (G + 1,) lists whose matrices are added up
    group_rows: Offsets,  # (G + 1,) rows of the matrix
    scale: Offsets,  # (G,) items of the query: U and V grow by its root, singular values shrink by it
    entry_offsets: Offsets,  # (L + 1,)
    place: Indices,  # (E,) row of the entry in its group
    value: Floats,  # (E,)
    rank: int,
    out: Floats,  # (rows, 3 rank) filled: U, singular values, V
    taken: Offsets,  # (G,) filled
) -> None:
    """The leading triplets of every group of lists: one list each, or all lists of a query."""
    for g in range(len(scale)):
        first, size = group_rows[g], group_rows[g + 1] - group_rows[g]
        if size == 0:
            continue
        u, sigma, v = np.zeros((rank, size)), np.zeros(rank), np.zeros((rank, size))
        lists = (group_lists[g], group_lists[g + 1])
        taken[g] = triplets(binary, steps, tolerance, lists, entry_offsets, place, value, u, sigma, v)
        root = np.sqrt(scale[g])
        for t in range(rank):
            for i in range(size):
                out[first + i, t] = root * u[t, i]
                out[first + i, rank + t] = sigma[t] / scale[g]
                out[first + i, 2 * rank + t] = root * v[t, i]
