"""Kernels of svp: sums of lists and pairs over a query, and the rank-2 projection of the matrix they make.

The sums are net wins of items and margins between items, each expert at its weight. The projection (Jain, Meka &
Dhillon 2010; Gleich & Lim 2011) is of a skew-symmetric A, whose singular values come in pairs: if A v = t u, then
A u = -t v, and u is orthogonal to v. The best rank-2 approximation is t (u v' - v u'), skew-symmetric again. Two
products with A are one pass of alternating least squares on u and v, so a pass that starts from the last projection
never raises the loss: no decomposition is computed, and no items x items matrix is held. The start is the vector of
ones, so that items in the same position get the same score in any order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.lists import Experts, Lists, Pairs, Sums, Values
from distagg.optimise.convergence import Ended
from distagg.optimise.linear import dot
from distagg.types import Floats, Indices, Offsets


@kernel
def net_differences(
    lists: Lists,
    net: Floats,  # (I,) added to: won less lost
    observed: Floats,  # (Q, 1) added to: preferences seen
) -> None:
    """Net wins by rank differences of listed items: ``net_wins`` where all experts count alike and nothing else counts.

    What an item wins less what it loses is the sum of all ranks of its list less so many times its own: ties need no
    care, and nothing is written down for entries.
    """
    for q in range(len(lists.item_offsets) - 1):
        base = lists.item_offsets[q]
        for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):
            first, last = lists.entry_offsets[a], lists.entry_offsets[a + 1]
            total, below, seen = 0.0, 0.0, 0.0
            for e in range(first, last):
                total += lists.entry_rank[e]
            for e in range(first, last):
                rank = lists.entry_rank[e]
                net[base + lists.entry_item[e]] += total - (last - first) * rank
                seen += (e - first) * rank - below
                below += rank
            observed[q, 0] += seen


@kernel
def net_wins(
    lists: Lists,
    pairs: Pairs,
    experts: Experts,
    sums: Sums,
    weight: Floats,  # (experts,)
    level: Indices,  # (experts,) which column of ``observed`` an expert's preferences are counted in
    net: Floats,  # (I,) added to: won less lost, weighted
    observed: Floats,  # (Q, levels) added to: preferences seen, unweighted
) -> None:
    """Add the net wins of items in one pass over lists and raw pairs. Tied pairs add nothing."""
    for q in range(len(lists.item_offsets) - 1):
        base, end = lists.item_offsets[q], lists.item_offsets[q + 1]
        everywhere = 0.0  # what an item left out by all lists has lost
        for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):
            expert, behind, seen = experts.of_list[a], sums.behind[a], 0.0
            for e in range(lists.entry_offsets[a], lists.entry_offsets[a + 1]):
                net[base + lists.entry_item[e]] += weight[expert] * (sums.won[e] - sums.lost[e] + behind)
                seen += sums.won[e]
            everywhere += weight[expert] * behind
            observed[q, level[expert]] += seen
        if everywhere != 0.0:
            for i in range(base, end):
                net[i] -= everywhere
        for p in range(pairs.offsets[q], pairs.offsets[q + 1]):
            if not pairs.tie[p]:
                expert = experts.of_pair[p]
                amount = weight[expert] * pairs.weight[p]
                net[base + pairs.winner[p]] += amount
                net[base + pairs.loser[p]] -= amount
                observed[q, level[expert]] += pairs.weight[p]


@kernel
def pair_margins(
    q: int,
    lists: Lists,
    pairs: Pairs,
    experts: Experts,
    values: Values,
    binary: bool,
    weight: Floats,  # (experts,)
) -> Floats:  # (size, size) weighted preferences for i over j less those for j over i
    """The skew-symmetric matrix of margins of one query. Cost: O(entries^2) for each list."""
    size = lists.item_offsets[q + 1] - lists.item_offsets[q]
    margins = np.zeros((size, size))
    for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):
        w = weight[experts.of_list[a]]
        add_listed(a, lists, values, binary, w, margins)
        if values.left_out[a] > 0:
            add_left_out(a, lists, values, binary, w, margins)
    for p in range(pairs.offsets[q], pairs.offsets[q + 1]):
        if not pairs.tie[p]:
            amount = weight[experts.of_pair[p]] * pairs.weight[p]
            margins[pairs.winner[p], pairs.loser[p]] += amount
            margins[pairs.loser[p], pairs.winner[p]] -= amount
    return margins


@kernel
def add_listed(a: int, lists: Lists, values: Values, binary: bool, weight: float, margins: Floats) -> None:
    """Add one list's preferences among the items that it holds."""
    last = lists.entry_offsets[a + 1]
    for e in range(lists.entry_offsets[a], last):
        i = lists.entry_item[e]
        for f in range(e + 1, last):
            if lists.entry_rank[f] > lists.entry_rank[e]:
                j = lists.entry_item[f]
                amount = weight if binary else weight * (values.entry[f] - values.entry[e])
                margins[i, j] += amount
                margins[j, i] -= amount


@kernel
def add_left_out(a: int, lists: Lists, values: Values, binary: bool, weight: float, margins: Floats) -> None:
    """Add one list's preferences for the items that it holds over those that it leaves out."""
    first, last = lists.entry_offsets[a], lists.entry_offsets[a + 1]
    listed = np.zeros(len(margins), dtype=np.bool_)
    for e in range(first, last):
        listed[lists.entry_item[e]] = True
    for e in range(first, last):
        i = lists.entry_item[e]
        amount = weight if binary else weight * (values.outside[a] - values.entry[e])
        for j in range(len(margins)):
            if not listed[j]:
                margins[i, j] += amount
                margins[j, i] -= amount


NOTHING = 1e-12  # a matrix this small, relative to its entries, is 0 up to rounding
FIRST_PASSES = 10  # passes for the first projection; later ones start close to their end


class WeightedLists(NamedTuple):
    """Lists of a chunk, each with a weight."""

    list_offsets: Offsets  # (Q + 1,)
    entry_offsets: Offsets  # (L + 1,)
    entry_item: Indices  # (E,)
    entry_rank: Floats  # (E,)
    value: Floats  # (E,) what the rank is worth
    weight: Floats  # (L,)


class Observed(NamedTuple):
    """The joint matrix Y of one query on its observed pairs i < j, row by row."""

    start: Offsets  # (size + 1,) where the pairs of each row start
    column: Indices  # (pairs,)
    joint: Floats  # (pairs,) Y(i, j)


@kernel
def unit(x: Floats) -> float:
    """Divide x by its length, unless that is 0; returns the length."""
    length = np.sqrt(dot(x, x))
    if length > 0.0:
        for i in range(len(x)):
            x[i] /= length
    return length


@kernel
def read_scores(t: float, u: Floats, v: Floats, score: Floats) -> None:
    """Write the row means of t (u v' - v u') to ``score``."""
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
    """Write Y x to ``out``, where Y(i, j) is the mean over lists of sign(r_j - r_i). Cost: O(entries).

    Unlisted items stand behind all listed ones.
    """
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
    ended: Ended,  # filled: how far the last pass moved the unit vector v, half the squared norm that is explained
) -> None:
    """Fit every query in which all pairs are observed: the fit is the projection of Y itself, by power iteration."""
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
            if step < ended.trace.shape[1]:
                ended.trace[q, step] = 0.5 * t * t
            step += 1
        ended.iterations[q], ended.gradient[q], ended.objective[q] = step, move, 0.5 * t * t
        if t > 0.0:
            read_scores(t, u, v, score[base : base + size])


@kernel
def entries_by_item(
    lists: WeightedLists, first: int, last: int, size: int
) -> tuple[Offsets, Offsets, Offsets]:  # (size + 1,), (entries,), (entries,)
    """The entries of lists first..last, grouped by item: where each group starts, the entries, and their lists."""
    start = np.zeros(size + 1, dtype=np.int64)
    begin, end = lists.entry_offsets[first], lists.entry_offsets[last]
    for e in range(begin, end):
        start[lists.entry_item[e] + 1] += 1
    for i in range(size):
        start[i + 1] += start[i]
    entry, holder = np.empty(end - begin, dtype=np.int64), np.empty(end - begin, dtype=np.int64)
    at = start.copy()
    for a in range(first, last):
        for e in range(lists.entry_offsets[a], lists.entry_offsets[a + 1]):
            i = lists.entry_item[e]
            entry[at[i]], holder[at[i]] = e, a
            at[i] += 1
    return start, entry, holder


@kernel
def most_pairs(lists: WeightedLists, first: int, last: int, size: int) -> int:
    """An upper bound on the number of observed pairs of a query."""
    most = 0
    for a in range(first, last):
        length = lists.entry_offsets[a + 1] - lists.entry_offsets[a]
        most += length * (length - 1) // 2
    return min(most, size * (size - 1) // 2)


@kernel
def observe(sign: bool, mean: bool, lists: WeightedLists, first: int, last: int, size: int) -> Observed:
    """The joint matrix of a query of ``size`` items from its lists first..last; memory grows with observed pairs only.

    Y(i, j) is the weighted mean (or sum) over the lists that hold both of value_j - value_i, or of its sign.
    """
    value, rank, weight = lists.value, lists.entry_rank, lists.weight
    held, entry, holder = entries_by_item(lists, first, last, size)
    most = most_pairs(lists, first, last, size)
    start, column, joint = np.zeros(size + 1, dtype=np.int64), np.empty(most, dtype=np.int32), np.empty(most)
    total, count = np.zeros(size), np.zeros(size)
    filled = 0
    for i in range(size):
        start[i] = filled
        for h in range(held[i], held[i + 1]):
            e, a = entry[h], holder[h]
            for f in range(lists.entry_offsets[a], lists.entry_offsets[a + 1]):
                j = lists.entry_item[f]
                if j <= i or weight[a] <= 0.0:
                    continue
                if count[j] == 0.0:
                    column[filled] = j
                    filled += 1
                gap = value[f] - value[e]
                if sign:
                    gap = (rank[f] > rank[e]) * 1.0 - (rank[f] < rank[e]) * 1.0
                total[j] += weight[a] * gap
                count[j] += weight[a]
        for p in range(start[i], filled):
            j = column[p]
            joint[p] = total[j] / count[j] if mean else total[j]
            total[j], count[j] = 0.0, 0.0
    start[size] = filled
    return Observed(start, column[:filled], joint[:filled])


@kernel
def residual(t: float, u: Floats, v: Floats, observed: Observed, gap: Floats) -> float:
    """Write t (u v' - v u') - Y on the observed pairs to ``gap``; returns half its squared norm."""
    total = 0.0
    for i in range(len(u)):
        for p in range(observed.start[i], observed.start[i + 1]):
            j = observed.column[p]
            gap[p] = t * (u[i] * v[j] - v[i] * u[j]) - observed.joint[p]
            total += gap[p] * gap[p]
    return 0.5 * total


@kernel
def stepped_product(
    x: Floats, step: float, t: float, u: Floats, v: Floats, observed: Observed, gap: Floats, out: Floats
) -> None:
    """Write (t (u v' - v u') - step gap) x to ``out``: a low-rank matrix plus a sparse one."""
    size = len(x)
    along, across = t * dot(v, x), t * dot(u, x)
    for i in range(size):
        out[i] = u[i] * along - v[i] * across
    for i in range(size):
        total = 0.0
        for p in range(observed.start[i], observed.start[i + 1]):
            j = observed.column[p]
            total += gap[p] * x[j]
            out[j] += step * gap[p] * x[i]
        out[i] -= step * total


@kernel
def project_observed(
    size_of_step: float,
    steps: int,
    tolerance: float,
    observed: Observed,
    score: Floats,  # (size,) zeros, filled
    trace: Floats,  # (T,) filled: what is explained after each of the first T steps
) -> tuple[int, float, float]:
    """Fit one query by steps X <- P_2(X - step P(X - Y)), where P keeps observed pairs and P_2 projects on rank 2.

    Returns the number of steps, the last change of the residual relative to Y, and half the squared norm explained.
    """
    size = len(score)
    u, v = np.zeros(size), np.full(size, 1.0 / np.sqrt(size))
    ahead, turned = np.empty(size), np.empty(size)
    gap = np.empty(len(observed.joint))
    t, change, taken = 0.0, np.inf, 0
    none = residual(0.0, u, v, observed, gap)
    loss = none
    if none == 0.0:
        return 0, 0.0, 0.0
    while taken < steps and change > tolerance:
        x, held = v.copy(), t
        for _ in range(FIRST_PASSES if taken == 0 else 1):
            stepped_product(x, size_of_step, held, u, v, observed, gap, ahead)
            t = unit(ahead)
            if t <= NOTHING * np.sqrt(none):
                return taken, 0.0, 0.0
            stepped_product(ahead, size_of_step, held, u, v, observed, gap, turned)
            t = unit(turned)
            for i in range(size):
                x[i] = -turned[i]
        for i in range(size):
            u[i], v[i] = ahead[i], x[i]
        before, loss = loss, residual(t, u, v, observed, gap)
        change = abs(np.sqrt(loss / none) - np.sqrt(before / none))
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
    item_offsets: Offsets,  # (Q + 1,)
    lists: WeightedLists,
    score: Floats,  # (I,) zeros, filled
    ended: Ended,  # filled: the last change, half the squared norm that is explained
) -> None:
    """Singular value projection of every query over its observed pairs."""
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        observed = observe(sign, mean, lists, lists.list_offsets[q], lists.list_offsets[q + 1], size)
        ended.iterations[q], ended.gradient[q], ended.objective[q] = project_observed(
            size_of_step, steps, tolerance, observed, score[base : base + size], ended.trace[q]
        )
