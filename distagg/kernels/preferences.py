"""What a query's lists and pairs say together: net wins of items, margins between items, each expert at its weight."""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.lists import Experts, Lists, Pairs, Sums, Values
from distagg.types import Floats, Indices


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
    """One pass over lists and pairs. Tied pairs say nothing."""
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
    """The skew-symmetric matrix of one query. Cost: O(entries^2) a list."""
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
