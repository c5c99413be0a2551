"""Rank-2 singular value projection of skew-symmetric matrices (Jain, Meka & Dhillon 2010; Gleich & Lim 2011).

A skew-symmetric A has its singular values in pairs: with A v = t u it is A u = -t v, and u is orthogonal to v. Its
best rank-2 approximation is t (u v' - v u'), skew-symmetric again. Two products with A are one pass of alternating
least squares on u and v, so a pass from where the last projection stood never raises the loss: no decomposition is
computed, and no items x items matrix is held. The start is the vector of ones, so that items in the same position
get the same score in any order.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import Floats, Indices, Offsets

NOTHING = 1e-12  # a matrix this small, relative to its entries, is 0 up to rounding
FIRST_PASSES = 10  # passes for the first projection; later ones start close to their end


@kernel
def unit(x: Floats) -> float:
    """Divide x by its length, unless that is 0; gives the length."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * x[i]
    length = np.sqrt(total)
    if length > 0.0:
        for i in range(len(x)):
            x[i] /= length
    return length


@kernel
def dot(x: Floats, y: Floats) -> float:
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@kernel
def read_scores(t: float, u: Floats, v: Floats, score: Floats) -> None:
    """Row means of t (u v' - v u') into ``score``."""
    size = len(u)
    over, under = 0.0, 0.0
    for i in range(size):
        over += v[i]
        under += u[i]
    for i in range(size):
        score[i] = t * (u[i] * over - v[i] * under) / size


@kernel
def majority_product(
    x: Floats, first: int, last: int, entry_offsets: Offsets, entry_item: Indices, entry_rank: Floats, out: Floats
) -> None:
    """Y x into ``out``, Y(i, j) being the mean over lists of sign(r_j - r_i), unlisted items behind all: O(entries)."""
    size = len(x)
    whole, base, spoke = 0.0, 0.0, 0
    for i in range(size):
        whole += x[i]
        out[i] = 0.0
    for a in range(first, last):
        begin, stop = entry_offsets[a], entry_offsets[a + 1]
        listed = 0.0
        for e in range(begin, stop):
            listed += x[entry_item[e]]
        base -= listed
        spoke += stop > begin
        ahead, start = 0.0, begin
        while start < stop:
            end, group = start, 0.0
            while end < stop and entry_rank[end] == entry_rank[start]:
                group += x[entry_item[end]]
                end += 1
            for e in range(start, end):
                out[entry_item[e]] += whole - 2.0 * ahead - group + listed
            ahead += group
            start = end
    for i in range(size):
        out[i] = (out[i] + base) / max(spoke, 1)


@kernel
def project_majorities(
    steps: int,
    tolerance: float,
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    entry_item: Indices,
    entry_rank: Floats,
    score: Floats,  # (I,) zeros, filled
    iterations: Offsets,  # (Q,) filled
    left: Floats,  # (Q,) filled: how far the last pass moved the unit vector v
    explained: Floats,  # (Q,) filled
    trace: Floats,  # (Q, T) filled: t^2 / 2 after each of the first T passes
) -> None:
    """Every pair is observed: the fit is the projection of Y itself, passes of ``majority_product`` to the end."""
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        first, last = list_offsets[q], list_offsets[q + 1]
        v, u, w = np.full(size, 1.0 / np.sqrt(size)), np.empty(size), np.empty(size)
        t, move, step = 0.0, np.inf, 0
        while step < steps and move > tolerance:
            majority_product(v, first, last, entry_offsets, entry_item, entry_rank, u)
            t = unit(u)
            if t <= NOTHING:
                t, move = 0.0, 0.0
                break
            majority_product(u, first, last, entry_offsets, entry_item, entry_rank, w)
            t = unit(w)
            total = 0.0
            for i in range(size):
                total += (w[i] + v[i]) ** 2
                v[i] = -w[i]
            move = np.sqrt(total)
            if step < trace.shape[1]:
                trace[q, step] = 0.5 * t * t
            step += 1
        iterations[q], left[q], explained[q] = step, move, 0.5 * t * t
        if t > 0.0:
            read_scores(t, u, v, score[base : base + size])


@kernel
def observe(
    sign: bool,
    mean: bool,
    first: int,
    last: int,
    entry_offsets: Offsets,
    entry_item: Indices,
    entry_rank: Floats,
    value: Floats,  # (E,)
    weight: Floats,  # (L,)
    start: Offsets,  # (size + 1,) filled: where the observed pairs of each row start
) -> tuple[Indices, Floats]:  # column and value of every observed pair i < j
    """The joint matrix Y of one query on its observed pairs, row by row; memory grows with those pairs only.

    Y(i, j) is the weighted mean (or sum) over the lists that hold both of value_j - value_i, or of its sign.
    """
    size = len(start) - 1
    held = np.zeros(size + 1, dtype=np.int64)  # entries of each item, by item
    most = 0
    for a in range(first, last):
        length = entry_offsets[a + 1] - entry_offsets[a]
        most += length * (length - 1) // 2
        for e in range(entry_offsets[a], entry_offsets[a + 1]):
            held[entry_item[e] + 1] += 1
    for i in range(size):
        held[i + 1] += held[i]
    where, owner = np.empty(held[size], dtype=np.int64), np.empty(held[size], dtype=np.int64)
    at = held.copy()
    for a in range(first, last):
        for e in range(entry_offsets[a], entry_offsets[a + 1]):
            i = entry_item[e]
            where[at[i]] = e
            owner[at[i]] = a
            at[i] += 1
    most = min(most, size * (size - 1) // 2)
    column, joint = np.empty(most, dtype=np.int32), np.empty(most)
    total, count = np.zeros(size), np.zeros(size)
    filled = 0
    for i in range(size):
        start[i] = filled
        for h in range(held[i], held[i + 1]):
            e, a = where[h], owner[h]
            for f in range(entry_offsets[a], entry_offsets[a + 1]):
                j = entry_item[f]
                if j <= i or weight[a] <= 0.0:
                    continue
                if count[j] == 0.0:
                    column[filled] = j
                    filled += 1
                gap = value[f] - value[e]
                if sign:
                    gap = (entry_rank[f] > entry_rank[e]) * 1.0 - (entry_rank[f] < entry_rank[e]) * 1.0
                total[j] += weight[a] * gap
                count[j] += weight[a]
        for p in range(start[i], filled):
            j = column[p]
            joint[p] = total[j] / count[j] if mean else total[j]
            total[j], count[j] = 0.0, 0.0
    start[size] = filled
    return column[:filled], joint[:filled]


@kernel
def residual(t: float, u: Floats, v: Floats, start: Offsets, column: Indices, joint: Floats, gap: Floats) -> float:
    """t (u v' - v u') - Y on the observed pairs into ``gap``; gives half its squared norm."""
    total = 0.0
    for i in range(len(start) - 1):
        for p in range(start[i], start[i + 1]):
            j = column[p]
            gap[p] = t * (u[i] * v[j] - v[i] * u[j]) - joint[p]
            total += gap[p] * gap[p]
    return 0.5 * total


@kernel
def stepped_product(
    x: Floats,
    step: float,
    t: float,
    u: Floats,
    v: Floats,
    start: Offsets,
    column: Indices,
    gap: Floats,
    out: Floats,
) -> None:
    """(t (u v' - v u') - step gap) x into ``out``: low rank plus sparse."""
    size = len(x)
    along, across = t * dot(v, x), t * dot(u, x)
    for i in range(size):
        out[i] = u[i] * along - v[i] * across
    for i in range(size):
        total = 0.0
        for p in range(start[i], start[i + 1]):
            j = column[p]
            total += gap[p] * x[j]
            out[j] += step * gap[p] * x[i]
        out[i] -= step * total


@kernel
def project_observed(
    size_of_step: float,
    steps: int,
    tolerance: float,
    start: Offsets,
    column: Indices,
    joint: Floats,
    score: Floats,  # (size,) zeros, filled
    trace: Floats,  # (T,) filled: what is explained after each of the first T steps
) -> tuple[int, float, float]:
    """X <- P_2(X - step P(X - Y)) over observed pairs; gives steps, the last change and half the norm explained.

    The change is that of the residual relative to Y, from one step to the next.
    """
    size = len(start) - 1
    u, v = np.zeros(size), np.full(size, 1.0 / np.sqrt(size))
    ahead, turned = np.empty(size), np.empty(size)
    gap = np.empty(len(joint))
    t, change, taken = 0.0, np.inf, 0
    none = residual(0.0, u, v, start, column, joint, gap)
    loss = none
    if none == 0.0:
        return 0, 0.0, 0.0
    while taken < steps and change > tolerance:
        x, held = v.copy(), t
        for _ in range(FIRST_PASSES if taken == 0 else 1):
            stepped_product(x, size_of_step, held, u, v, start, column, gap, ahead)
            t = unit(ahead)
            if t <= NOTHING * np.sqrt(none):
                return taken, 0.0, 0.0
            stepped_product(ahead, size_of_step, held, u, v, start, column, gap, turned)
            t = unit(turned)
            for i in range(size):
                x[i] = -turned[i]
        for i in range(size):
            u[i], v[i] = ahead[i], x[i]
        found = residual(t, u, v, start, column, joint, gap)
        change = abs(np.sqrt(found / none) - np.sqrt(loss / none))
        loss = found
        if taken < len(trace):
            trace[taken] = none - loss
        taken += 1
    read_scores(t, u, v, score)
    return taken, change, none - loss


@kernel
def project_queries(
    size_of_step: float,
    steps: int,
    tolerance: float,
    sign: bool,
    mean: bool,
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    entry_item: Indices,
    entry_rank: Floats,
    value: Floats,
    weight: Floats,
    score: Floats,  # (I,) zeros, filled
    iterations: Offsets,  # (Q,) filled
    left: Floats,  # (Q,) filled
    explained: Floats,  # (Q,) filled
    trace: Floats,  # (Q, T) filled
) -> None:
    """Singular value projection of every query over its observed pairs."""
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        start = np.zeros(size + 1, dtype=np.int64)
        column, joint = observe(
            sign, mean, list_offsets[q], list_offsets[q + 1], entry_offsets, entry_item, entry_rank, value, weight,
            start,
        )  # fmt: skip
        iterations[q], left[q], explained[q] = project_observed(
            size_of_step, steps, tolerance, start, column, joint, score[base : base + size], trace[q]
        )
