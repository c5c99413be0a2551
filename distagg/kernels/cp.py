"""Candecomp/Parafac of a query's item x item x expert tensor, without the tensor: paper 004, section 4.3.3.

T(:, :, a) is the pair matrix Y of list a (``kernels.svd``), and T = sum_r u_r o v_r o w_r. Alternating least squares:
each of U, V, W in turn is the best one given the other two. What that takes of T are the products Y_a v, Y_a' u and
u' Y_a v, running sums along the sorted list: O(entries x components) a step, where the tensor has items^2 x experts
cells. The start is given, so the answer is too.

u and v have length 1 and a non-negative sum (where that is 0, a positive first entry that is not 0); scale and sign
are left to w. Components stand in descending order of the length of w.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.svd import LEVEL, walk
from distagg.types import Floats, Indices, Offsets

RIDGE = 1e-12  # of the largest diagonal entry: components may be alike, or nothing


@kernel
def multiply_grams(parts: int, n: int, one: Floats, m: int, other: Floats, out: Floats) -> None:
    """out (parts, parts): the inner products of one factor's rows times those of the other's."""
    for r in range(parts):
        for s in range(parts):
            a, b = 0.0, 0.0
            for i in range(n):
                a += one[r, i] * one[s, i]
            for i in range(m):
                b += other[r, i] * other[s, i]
            out[r, s] = a * b


@kernel
def solve(parts: int, size: int, square: Floats, factor: Floats) -> None:
    """factor <- square^-1 factor, square (parts, parts) positive; it is overwritten by its Cholesky factor."""
    largest = 0.0
    for r in range(parts):
        largest = max(largest, square[r, r])
    for r in range(parts):
        square[r, r] += RIDGE * largest
        for s in range(r + 1):
            total = square[r, s]
            for k in range(s):
                total -= square[r, k] * square[s, k]
            square[r, s] = np.sqrt(total) if r == s else total / square[s, s]
    for i in range(size if largest > 0.0 else 0):
        for r in range(parts):
            total = factor[r, i]
            for k in range(r):
                total -= square[r, k] * factor[k, i]
            factor[r, i] = total / square[r, r]
        for back in range(parts):
            r = parts - 1 - back
            total = factor[r, i]
            for k in range(r + 1, parts):
                total -= square[k, r] * factor[k, i]
            factor[r, i] = total / square[r, r]


@kernel
def decompose(
    binary: bool,
    steps: int,
    tolerance: float,
    first: int,  # the query's lists
    last: int,
    size: int,  # and items
    entry_offsets: Offsets,  # (L + 1,)
    place: Indices,  # (E,)
    value: Floats,  # (E,)
    u: Floats,  # (parts, >= size) the start, and the answer
    v: Floats,  # (parts, >= size)
    w: Floats,  # (parts, >= lists) filled
    square: Floats,  # (parts, parts): the kernel's own
    spare: Floats,  # (>= size,): the kernel's own
) -> int:
    """One query's factors; gives the steps taken. Ends when what is explained grows by less than ``tolerance``."""
    parts, before = len(u), 0.0
    for step in range(steps + 1):
        for factor in (u, v):
            for r in range(parts):
                length = 0.0
                for i in range(size):
                    length += factor[r, i] * factor[r, i]
                for i in range(size if length > 0.0 else 0):
                    factor[r, i] /= np.sqrt(length)
        for r in range(parts):
            for a in range(first, last):
                begin, end = entry_offsets[a], entry_offsets[a + 1]
                w[r, a - first] = walk(binary, False, begin, end, place, value, 0.0, v[r], u[r], spare)
        multiply_grams(parts, size, u, size, v, square)
        solve(parts, last - first, square, w)
        multiply_grams(parts, size, u, size, v, square)
        explained = 0.0
        for r in range(parts):
            for s in range(parts):
                for a in range(last - first):
                    explained += square[r, s] * w[r, a] * w[s, a]
        if step == steps or explained - before <= tolerance * explained:
            return step
        before = explained
        for turned in (False, True):
            target, other = (v, u) if turned else (u, v)
            multiply_grams(parts, size, other, last - first, w, square)
            for r in range(parts):
                for i in range(size):
                    target[r, i] = 0.0
                for a in range(first, last):
                    begin, end, weight = entry_offsets[a], entry_offsets[a + 1], w[r, a - first]
                    walk(binary, turned, begin, end, place, value, weight, other[r], other[r], target[r])
            solve(parts, size, square, target)
    return steps


@kernel
def sign_of(row: Floats, size: int) -> float:
    """Of a row's sum, or where that is 0 up to rounding of its first entry that is not."""
    total, lead = 0.0, 0.0
    for i in range(size):
        total += row[i]
        lead = row[i] if lead == 0.0 and abs(row[i]) > LEVEL else lead
    return np.copysign(1.0, total if abs(total) > LEVEL * np.sqrt(size) else lead)


@kernel
def fill_factors(
    binary: bool,
    steps: int,
    tolerance: float,
    item_offsets: Offsets,  # (Q + 1,)
    list_offsets: Offsets,  # (Q + 1,)
    entry_offsets: Offsets,  # (L + 1,)
    place: Indices,  # (E,)
    value: Floats,  # (E,)
    rows: Floats,  # (I, 2 parts) the start: u of every component, then v; filled with the answer, times root(items)
    u: Floats,  # (parts, longest query), as v: the kernel's own, as all below
    v: Floats,
    w: Floats,  # (parts, most lists of a query)
    square: Floats,  # (parts, parts)
    spare: Floats,  # (longest query,)
    weight: Floats,  # (Q, parts) filled: the length of w over the number of items
    taken: Offsets,  # (Q,) filled: steps
) -> None:
    """The factors of every query."""
    parts = len(u)
    for q in range(len(item_offsets) - 1):
        base, size, first, last = (
            item_offsets[q],
            item_offsets[q + 1] - item_offsets[q],
            list_offsets[q],
            list_offsets[q + 1],
        )
        for i in range(size):
            for r in range(parts):
                u[r, i], v[r, i] = rows[base + i, r], rows[base + i, parts + r]
        taken[q] = decompose(
            binary, steps, tolerance, first, last, size, entry_offsets, place, value, u, v, w, square, spare
        )
        for r in range(parts):
            square[0, r] = 0.0
            for a in range(last - first):
                square[0, r] += w[r, a] * w[r, a]
        for to in range(parts):
            best = 0
            for r in range(parts):
                best = r if square[0, r] > square[0, best] else best
            weight[q, to] = np.sqrt(max(square[0, best], 0.0)) / max(size, 1)
            over, under = sign_of(u[best], size), sign_of(v[best], size)
            some = np.sqrt(size) if square[0, best] > 0.0 else 0.0
            for i in range(size):
                rows[base + i, to] = over * some * u[best, i]
                rows[base + i, parts + to] = under * some * v[best, i]
            square[0, best] = -1.0
