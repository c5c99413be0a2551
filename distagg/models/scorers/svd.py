"""Leading singular triplets of pair matrices, without the matrices.

Y(i, j) is the sum over all lists that rank i before j of value_j - value_i, or of 1 if pairs are binary. Along a sorted
list Y x and Y' x are running sums, so a product costs O(entries). If x has no negative entry, only numbers of one sign
are added. Tied items get the same bits.

Power iteration finds one triplet after the other, with the earlier ones projected out. Y has no negative entry, so the
first triplet has none either, and an iteration that starts from positive numbers cannot miss it. The pair matrix of one
list has well separated singular values (about 6 steps); a sum of several lists may need more steps.

Signs: the sum of U is positive. If it is 0, the sum of V is positive. If both are 0, the first nonzero entry of U is
positive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats, Indices, Offsets

NOTHING = 1e-12  # a singular value this small beside the first one is 0 up to rounding
LEAP = 3  # steps from one extrapolation to the next
LEVEL = 1e-9  # a sum this small beside its largest possible value is 0 up to rounding


class SortedLists(NamedTuple):
    """Sorted lists, each of which gives a pair matrix."""

    binary: bool
    entry_offsets: Offsets  # (L + 1,)
    place: Indices  # (E,) row of the entry in its matrix
    value: Floats  # (E,)


class Groups(NamedTuple):
    """Which lists' matrices are added up: one list each, or all lists of a query."""

    lists: Offsets  # (G + 1,)
    rows: Offsets  # (G + 1,) rows of the summed matrix
    scale: Offsets  # (G,) items of the query: U and V are multiplied by its root, singular values divided by it
    ordered: bool  # groups are single lists, and their rows stand in their order


class Room(NamedTuple):
    """The triplets of one group, and scratch arrays to find them. N is the number of rows of the largest group."""

    u: Floats  # (rank, N)
    v: Floats  # (rank, N)
    product: Floats  # (N,) Y' u
    gap: Floats  # (N,) difference between the values of a group of tied items and the group before
    many: Floats  # (N,) items of each group


@kernel
def walk(lists: SortedLists, a: int, turned: bool, weight: float, x: Floats, y: Floats, out: Floats) -> float:
    """Add weight times Y x (Y' x when ``turned``) of list a to ``out``; returns y . Y x."""
    begin, end, place, value = lists.entry_offsets[a], lists.entry_offsets[a + 1], lists.place, lists.value
    step = 1 if turned else -1
    e = begin if turned else end - 1
    passed, total, held, along = 0.0, 0.0, value[e] if end > begin else 0.0, 0.0
    for _ in range(end - begin):
        gap = abs(value[e] - held)
        if not lists.binary:
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
    lists: SortedLists, first: int, last: int, turned: bool, size: int, x: Floats, base: Floats, known: int, out: Floats
) -> float:
    """Write Y x (Y' x when ``turned``) to ``out``, where Y is the sum over the lists first .. last - 1.

    The projection on the first ``known`` rows of ``base`` is subtracted. Returns the length of the result.
    """
    for i in range(size):
        out[i] = 0.0
    for a in range(first, last):
        walk(lists, a, turned, 1.0, x, x, out)
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
def leap(taken: int, move: float, before: float) -> float:
    """The factor by which to lengthen the last step, so that the iteration jumps to its estimated limit.

    After a few steps every step shrinks the error by the same ratio, so the remaining steps form a geometric series.
    Returns 0 (no jump) except at every LEAP-th step.
    """
    ratio = np.sqrt(move / before) if taken % LEAP == 0 else 0.0
    return ratio / (1.0 - ratio) if ratio < 1.0 else 0.0


@kernel
def group_ties(begin: int, size: int, value: Floats, room: Room) -> int:
    """Fill ``gap``, ``many`` and the start of v for every group of tied entries; returns the number of groups."""
    groups = 0
    for i in range(size):
        step = value[begin + i] - value[begin + i - 1] if i > 0 else 0.0
        if i == 0 or step > 0.0:
            room.gap[groups], room.many[groups], room.v[0, groups] = step, 0.0, 1.0 / np.sqrt(size)
            groups += 1
        room.many[groups - 1] += 1.0
    return groups


@kernel
def spread_ties(groups: int, size: int, room: Room) -> None:
    """Copy the values of u and v from each group of tied items to the rows of the group."""
    k, left = groups - 1, room.many[groups - 1]
    for i in range(size - 1, -1, -1):  # from the end: the value of a group is stored at or before its rows
        room.u[0, i], room.v[0, i] = room.u[0, k], room.v[0, k]
        left -= 1.0
        if left == 0.0 and k > 0:
            k -= 1
            left = room.many[k]


@kernel
def first_triplet(lists: SortedLists, a: int, steps: int, tolerance: float, room: Room) -> tuple[float, float]:
    """Find the first triplet of a single list whose rows are in the order of the list.

    The method and the result are those of ``next_triplet``, but a step takes two passes over the groups of tied items
    only, because tied items have equal values in u and v.
    """
    begin, size = lists.entry_offsets[a], lists.entry_offsets[a + 1] - lists.entry_offsets[a]
    groups = group_ties(begin, size, lists.value, room)
    u, v, product, gap, many = room.u[0], room.v[0], room.product, room.gap, room.many
    before, move, along, whole, taken = np.inf, np.inf, 0.0, 0.0, 0
    while taken < steps and not move <= tolerance * tolerance and groups > 1:
        passed, total, square = 0.0, 0.0, 0.0
        for k in range(groups - 1, -1, -1):
            u[k] = total
            square += many[k] * total * total
            passed += many[k] * v[k]
            total = passed if lists.binary else total + gap[k] * passed
        along = np.sqrt(square)
        passed, total, square = 0.0, 0.0, 0.0
        for k in range(groups):
            total = passed if lists.binary else total + gap[k] * passed
            product[k] = total
            square += many[k] * total * total
            passed += many[k] * u[k]
        whole = np.sqrt(square)
        taken += 1
        further = leap(taken, move, before)
        before, move, shrink = move, 0.0, 1.0 / whole
        for k in range(groups):
            change = shrink * product[k] - v[k]
            move += many[k] * change * change
            v[k] += (1.0 + further) * change
    if groups < size:
        spread_ties(groups, size, room)
    return along, whole


@kernel
def start_triplet(t: int, size: int, root: float, room: Room) -> None:
    """Fill row t of ``room.v`` with the unit vector that the power iteration starts from.

    The first triplet (t = 0) starts from equal values, triplet t from 1 / (1 + t V), where V is that of the first
    triplet. Tied items start from equal values, whatever their order.
    """
    length = 0.0
    for i in range(size):
        room.product[i] = 1.0 / (1.0 + t * root * room.v[0, i]) if t > 0 else 1.0
        length += room.product[i] * room.product[i]
    for i in range(size):
        room.v[t, i] = room.product[i] / np.sqrt(length)


@kernel
def next_triplet(
    lists: SortedLists, groups: Groups, g: int, t: int, steps: int, tolerance: float, least: float, room: Room
) -> tuple[float, float]:
    """Find triplet t of group g by power iteration, with the earlier triplets projected out.

    Fills row t of ``room.v``, and row t of ``room.u`` with Y v, which is not yet divided by its length. Returns the
    lengths of Y v and Y' u in the last step, or two zeros if one of them is at most ``least``: no triplet is left.
    """
    first, last, size = groups.lists[g], groups.lists[g + 1], groups.rows[g + 1] - groups.rows[g]
    start_triplet(t, size, np.sqrt(groups.scale[g]), room)
    u, v, product = room.u[t], room.v[t], room.product
    before, move, along, whole = np.inf, np.inf, 0.0, 0.0
    for taken in range(1, steps + 1):
        along = multiply(lists, first, last, False, size, v, room.u, t, u)
        if along <= least:
            return 0.0, 0.0
        whole = multiply(lists, first, last, True, size, u, room.v, t, product)
        if whole <= least:
            return 0.0, 0.0
        further = leap(taken, move, before)
        before, move, shrink = move, 0.0, 1.0 / whole
        for i in range(size):
            change = shrink * product[i] - v[i]
            move += change * change
            v[i] += (1.0 + further) * change
        if move <= tolerance * tolerance:
            break
    return along, whole


@kernel
def turn(size: int, along: float, u: Floats, v: Floats) -> None:
    """Divide u by its length ``along``, and give u and v the sign that the module's docstring defines."""
    over, under, lead = 0.0, 0.0, 0.0
    for i in range(size):
        u[i] /= along
        over += u[i]
        under += v[i]
        lead = u[i] if lead == 0.0 and abs(u[i]) > LEVEL else lead
    edge = LEVEL * np.sqrt(size)
    sign = np.copysign(1.0, over if abs(over) > edge else under if abs(under) > edge else lead)
    for i in range(size):
        u[i], v[i] = sign * u[i], sign * v[i]


@kernel
def group_triplets(
    lists: SortedLists, groups: Groups, g: int, steps: int, tolerance: float, room: Room, out: Floats, at: int
) -> None:
    """Write the leading triplets of one group to ``out``; columns beyond the rank of its matrix stay unchanged."""
    rank, top, size = len(room.u), groups.rows[g], groups.rows[g + 1] - groups.rows[g]
    largest, root = 0.0, np.sqrt(groups.scale[g])
    for t in range(rank):
        if groups.ordered and t == 0 and size > 0:
            along, whole = first_triplet(lists, groups.lists[g], steps, tolerance, room)
        else:
            along, whole = next_triplet(lists, groups, g, t, steps, tolerance, NOTHING * largest, room)
        if along == 0.0:
            break
        if t == 0:
            largest = whole / along
        turn(size, along, room.u[t], room.v[t])
        for i in range(size):
            out[top + i, at + t] = root * room.u[t, i]
            out[top + i, at + rank + t] = whole / along / groups.scale[g]
            out[top + i, at + 2 * rank + t] = root * room.v[t, i]


@kernel
def triplets(
    lists: SortedLists,
    groups: Groups,
    steps: int,
    tolerance: float,
    rank: int,
    out: Floats,  # (rows, at + 3 rank or more) zeros, filled: U, singular values, V, from column at on
    at: int,
) -> None:
    """The leading triplets of every group of lists."""
    longest = 0
    for g in range(len(groups.scale)):
        longest = max(longest, groups.rows[g + 1] - groups.rows[g])
    u, v = np.empty((rank, longest)), np.empty((rank, longest))
    room = Room(u, v, np.empty(longest), np.empty(longest), np.empty(longest))
    for g in range(len(groups.scale)):
        group_triplets(lists, groups, g, steps, tolerance, room, out, at)
