"""Candecomp/Parafac of a query's item x item x expert tensor, without the tensor: Niu et al. 2013, section 4.3.3.

T(:, :, a) is the pair matrix Y of list a (``svd``), and T = sum_r u_r o v_r o w_r. The method is alternating least
squares: each of U, V and W in turn becomes the best one given the other two. This needs only the products Y_a v, Y_a' u
and u' Y_a v of the tensor, which are running sums along the sorted list: O(entries x components) a step, while the
tensor has items^2 x experts cells. The start is fixed, so the result is reproducible.

u and v have length 1 and a non-negative sum (where that is 0, a positive first entry that is not 0); scale and sign
are left to w. Components stand in descending order of the length of w.
"""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.models.scorers.svd import LEVEL, SortedLists, walk
from distagg.optimise.linear import cholesky, solve_factored
from distagg.types import Floats, Offsets

RIDGE = 1e-12  # of the largest diagonal entry: components may be alike, or nothing


@kernel
def multiply_grams(matrix: Floats, other: Floats, out: Floats) -> None:
    """out (parts, parts): the inner products of one factor's rows times those of the other's."""
    for r in range(len(out)):
        for s in range(len(out)):
            a, b = 0.0, 0.0
            for i in range(matrix.shape[1]):
                a += matrix[r, i] * matrix[s, i]
            for i in range(other.shape[1]):
                b += other[r, i] * other[s, i]
            out[r, s] = a * b


@kernel
def solve(square: Floats, factor: Floats) -> None:
    """factor <- square^-1 factor, square (parts, parts) positive; it is overwritten by its Cholesky factor."""
    parts, size = factor.shape
    largest = 0.0
    for r in range(parts):
        largest = max(largest, square[r, r])
    for r in range(parts):
        square[r, r] += RIDGE * largest
    cholesky(square)
    for i in range(size if largest > 0.0 else 0):
        solve_factored(square, factor[:, i])


@kernel
def unit_rows(factor: Floats) -> None:
    """Divide every row by its length, unless that is 0."""
    parts, size = factor.shape
    for r in range(parts):
        length = 0.0
        for i in range(size):
            length += factor[r, i] * factor[r, i]
        for i in range(size if length > 0.0 else 0):
            factor[r, i] /= np.sqrt(length)


@kernel
def fit_lists(lists: SortedLists, first: int, u: Floats, v: Floats, w: Floats, square: Floats) -> float:
    """The best w given u and v; returns the explained sum of squares."""
    parts, n_lists = w.shape
    unused = np.zeros(u.shape[1])
    for r in range(parts):
        for a in range(n_lists):
            w[r, a] = walk(lists, first + a, False, 0.0, v[r], u[r], unused)
    multiply_grams(u, v, square)
    solve(square, w)
    multiply_grams(u, v, square)
    explained = 0.0
    for r in range(parts):
        for s in range(parts):
            for a in range(n_lists):
                explained += square[r, s] * w[r, a] * w[s, a]
    return explained


@kernel
def fit_items(
    lists: SortedLists, first: int, turned: bool, other: Floats, w: Floats, square: Floats, target: Floats
) -> None:
    """The best u given v and w, or v given u and w when ``turned``, into ``target``."""
    multiply_grams(other, w, square)
    for r in range(len(target)):
        for i in range(target.shape[1]):
            target[r, i] = 0.0
        for a in range(w.shape[1]):
            walk(lists, first + a, turned, w[r, a], other[r], other[r], target[r])
    solve(square, target)


@kernel
def decompose(
    lists: SortedLists,
    first: int,  # the query's first list
    steps: int,
    tolerance: float,
    u: Floats,  # (parts, items) the start, and the answer
    v: Floats,  # (parts, items)
    w: Floats,  # (parts, lists) filled
) -> int:
    """Compute one query's factors; returns the number of steps.

    It stops when a step raises the explained sum of squares by less than ``tolerance``.
    """
    square, before = np.empty((len(u), len(u))), 0.0
    for step in range(steps + 1):
        unit_rows(u)
        unit_rows(v)
        explained = fit_lists(lists, first, u, v, w, square)
        if step == steps or explained - before <= tolerance * explained:
            return step
        before = explained
        fit_items(lists, first, False, v, w, square, u)
        fit_items(lists, first, True, u, w, square, v)
    return steps


@kernel
def sign_of(row: Floats) -> float:
    """The sign of a row's sum; if the sum is 0 up to rounding, the sign of the row's first nonzero entry."""
    total, lead = 0.0, 0.0
    for i in range(len(row)):
        total += row[i]
        lead = row[i] if lead == 0.0 and abs(row[i]) > LEVEL else lead
    return np.copysign(1.0, total if abs(total) > LEVEL * np.sqrt(len(row)) else lead)


@kernel
def write_components(u: Floats, v: Floats, w: Floats, rows: Floats, weight: Floats) -> None:
    """Fill ``rows`` (items, 2 parts) and ``weight`` (parts,), in descending order of the length of w."""
    parts, size = u.shape
    length = np.zeros(parts)  # squared
    for r in range(parts):
        for a in range(w.shape[1]):
            length[r] += w[r, a] * w[r, a]
    for to in range(parts):
        best = 0
        for r in range(parts):
            best = r if length[r] > length[best] else best
        weight[to] = np.sqrt(max(length[best], 0.0)) / max(size, 1)
        over, under = sign_of(u[best]), sign_of(v[best])
        some = np.sqrt(size) if length[best] > 0.0 else 0.0
        for i in range(size):
            rows[i, to] = over * some * u[best, i]
            rows[i, parts + to] = under * some * v[best, i]
        length[best] = -1.0  # taken


@kernel
def fill_factors(
    lists: SortedLists,
    item_offsets: Offsets,  # (Q + 1,)
    list_offsets: Offsets,  # (Q + 1,)
    steps: int,
    tolerance: float,
    rows: Floats,  # (I, 2 parts) the start: u of every component, then v; filled with the answer, times root(items)
    weight: Floats,  # (Q, parts) filled: the length of w over the number of items
    taken: Offsets,  # (Q,) filled: steps
) -> None:
    """The factors of every query."""
    parts = weight.shape[1]
    for q in range(len(item_offsets) - 1):
        here, first, last = rows[item_offsets[q] : item_offsets[q + 1]], list_offsets[q], list_offsets[q + 1]
        u, v, w = (
            here[:, :parts].T.copy(),
            here[:, parts:].T.copy(),
            np.empty((parts, last - first)),
        )
        taken[q] = decompose(lists, first, steps, tolerance, u, v, w)
        write_components(u, v, w, here, weight[q])
