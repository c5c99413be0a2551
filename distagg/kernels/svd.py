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
def walk(
    binary: bool, turned: bool, begin: int, end: int, place: Indices, value: Floats, weight: float, x: Floats,
    y: Floats, out: Floats,
) -> float:  # fmt: skip
    """Add weight times Y x (Y' x when ``turned``) of one list, its entries begin..end, to ``out``; gives y . Y x."""
    step = 1 if turned else -1
    e = begin if turned else end - 1
    passed, total, held, along = 0.0, 0.0, value[e] if end > begin else 0.0, 0.0
    for _ in range(end - begin):
        gap = abs(value[e] - held)
        if not binary:
            total += gap * passed
        elif gap > 0.0:
            total = passed
        i, held = place[e], value[e]
        passed += x[i]
        out[i] += weight * total
        along += y[i] * total
        e += step
    return along


@kernel
def multiply(
    binary: bool,
    turned: bool,
    first: int,
    last: int,
    entry_offsets: Offsets,
    place: Indices,
    value: Floats,
    size: int,
    x: Floats,
    base: Floats,
    known: int,
    out: Floats,
) -> float:
    """Y x, or Y' x when ``turned``, into ``out``, less its share of the first ``known`` rows of ``base``; its length.

    Y is the sum of the lists first..last; ``place`` says where in x an entry stands.
    """
    for i in range(size):
        out[i] = 0.0
    for a in range(first, last):
        walk(binary, turned, entry_offsets[a], entry_offsets[a + 1], place, value, 1.0, x, x, out)
    for b in range(known):
        share = 0.0
        for i in range(size):
            share += base[b, i] * out[i]
        for i in range(size):
            out[i] -= share * base[b, i]
    square = 0.0
    for i in range(size):
        square += out[i] * out[i]
    return np.sqrt(square)


@kernel
def first_triplet(
    binary: bool, steps: int, tolerance: float, begin: int, size: int, value: Floats, u: Floats, v: Floats, w: Floats,
    gap: Floats, many: Floats,
) -> tuple[int, float, float]:  # fmt: skip
    """The first triplet of one list, whose rows stand in its order: what ``triplets`` does, in two passes a step.

    Tied items share their numbers, so a step costs as much as there are different values. Fills v, and u times the
    second number given; gives the steps, and the lengths of the last Y v and Y' u.
    """
    groups = 0
    for i in range(size):
        step = value[begin + i] - value[begin + i - 1] if i > 0 else 0.0
        if i == 0 or step > 0.0:
            gap[groups], many[groups], v[groups] = step, 0.0, 1.0 / np.sqrt(size)
            groups += 1
        many[groups - 1] += 1.0
    before, move, along, whole, taken = np.inf, np.inf, 0.0, 0.0, 0
    while taken < steps and not move <= tolerance * tolerance and groups > 1:
        passed, total, square = 0.0, 0.0, 0.0
        for back in range(groups):
            k = groups - 1 - back
            u[k] = total
            square += many[k] * total * total
            passed += many[k] * v[k]
            total = passed if binary else total + gap[k] * passed
        along = np.sqrt(square)
        passed, total, square = 0.0, 0.0, 0.0
        for k in range(groups):
            total = passed if binary else total + gap[k] * passed
            w[k] = total
            square += many[k] * total * total
            passed += many[k] * u[k]
        whole = np.sqrt(square)
        taken += 1
        ratio = np.sqrt(move / before) if taken % LEAP == 0 else 0.0
        further = ratio / (1.0 - ratio) if ratio < 1.0 else 0.0
        before, move, shrink = move, 0.0, 1.0 / whole
        for k in range(groups):
            change = shrink * w[k] - v[k]
            move += many[k] * change * change
            v[k] += (1.0 + further) * change
    if groups < size:
        k, left = groups - 1, many[groups - 1]
        for back in range(size):  # from the end: a group's number stands before its rows
            i = size - 1 - back
            u[i], v[i] = u[k], v[k]
            left -= 1.0
            if left == 0.0 and k > 0:
                k -= 1
                left = many[k]
    return taken, along, whole


@kernel
def triplets(
    binary: bool,
    ordered: bool,  # groups are single lists, and their rows stand in their order
    steps: int,
    tolerance: float,
    group_lists: Offsets,  # (G + 1,) lists whose matrices are added up
    group_rows: Offsets,  # (G + 1,) rows of the matrix
    scale: Offsets,  # (G,) items of the query: U and V grow by its root, singular values shrink by it
    entry_offsets: Offsets,  # (L + 1,)
    place: Indices,  # (E,) row of the entry in its group
    value: Floats,  # (E,)
    rank: int,
    out: Floats,  # (rows, at + 3 rank or more) filled: U, singular values, V, from column at on
    at: int,
    taken: Offsets,  # (G,) filled: steps
) -> None:
    """The leading triplets of every group of lists: one list each, or all lists of a query.

    The first starts from ones, triplet t from 1 / (1 + t V), V the first one's: the same for tied items, whatever their
    order. The error of power iteration soon shrinks by one factor a step, so every LEAP steps all the steps to come are
    taken at once.
    """
    longest = 0
    for g in range(len(scale)):
        longest = max(longest, group_rows[g + 1] - group_rows[g])
    u, v, w = np.empty((rank, longest)), np.empty((rank, longest)), np.empty(longest)
    gap, many = np.empty(longest), np.empty(longest)
    for g in range(len(scale)):
        top, size = group_rows[g], group_rows[g + 1] - group_rows[g]
        largest, root = 0.0, np.sqrt(scale[g])
        for t in range(rank):
            length, alone = 0.0, ordered and t == 0 and size > 0
            for i in range(0 if alone else size):
                w[i] = 1.0 / (1.0 + t * root * v[0, i]) if t > 0 else 1.0
                length += w[i] * w[i]
            for i in range(0 if alone else size):
                v[t, i] = w[i] / np.sqrt(length)
            before, move, along, whole = np.inf, np.inf, 0.0, 0.0
            if alone:
                begin = entry_offsets[group_lists[g]]
                taken[g], along, whole = first_triplet(
                    binary, steps, tolerance, begin, size, value, u[0], v[0], w, gap, many
                )
            for half in range(0 if alone else 2 * steps):
                turned = half % 2 == 1
                length = multiply(
                    binary, turned, group_lists[g], group_lists[g + 1], entry_offsets, place, value, size,
                    u[t] if turned else v[t], v if turned else u, t, w if turned else u[t],
                )  # fmt: skip
                if length <= NOTHING * largest:
                    along = 0.0
                    break
                if not turned:
                    along = length
                    continue
                ratio = np.sqrt(move / before) if half % (2 * LEAP) == 2 * LEAP - 1 else 0.0
                further = ratio / (1.0 - ratio) if ratio < 1.0 else 0.0
                before, move, whole, shrink = move, 0.0, length, 1.0 / length
                for i in range(size):
                    change = shrink * w[i] - v[t, i]
                    move += change * change
                    v[t, i] += (1.0 + further) * change
                taken[g] += 1
                if move <= tolerance * tolerance:
                    break
            if along == 0.0:
                break
            if t == 0:
                largest = whole / along
            over, under, lead = 0.0, 0.0, 0.0
            for i in range(size):
                u[t, i] /= along
                over += u[t, i]
                under += v[t, i]
                lead = u[t, i] if lead == 0.0 and abs(u[t, i]) > LEVEL else lead
            edge = LEVEL * np.sqrt(size)
            sign = over if abs(over) > edge else under if abs(under) > edge else lead
            for i in range(size):
                u[t, i] = np.copysign(1.0, sign) * u[t, i]
                v[t, i] = np.copysign(1.0, sign) * v[t, i]
                out[top + i, at + t] = root * u[t, i]
                out[top + i, at + rank + t] = whole / along / scale[g]
                out[top + i, at + 2 * rank + t] = root * v[t, i]
