"""What a query's lists and pairs say together: net wins of items, margins between items, each expert at its weight."""

from __future__ import annotations

from distagg.kernels.jit import kernel
from distagg.types import Bools, Floats, Indices, Offsets


@kernel
def net_differences(
    item_offsets: Offsets,  # (Q + 1,)
    list_offsets: Offsets,  # (Q + 1,)
    entry_offsets: Offsets,  # (L + 1,)
    entry_item: Indices,  # (E,)
    entry_rank: Floats,  # (E,) ascending in a list
    net: Floats,  # (I,) added to: won less lost
    observed: Floats,  # (Q, 1) added to: preferences seen
) -> None:
    """Net wins by rank differences of listed items: ``net_wins`` where all experts count alike and nothing else counts.

    What an item wins less what it loses is the sum of all ranks of its list less so many times its own: ties need no
    care, and nothing is written down for entries.
    """
    for q in range(len(item_offsets) - 1):
        base = item_offsets[q]
        for a in range(list_offsets[q], list_offsets[q + 1]):
            first, last = entry_offsets[a], entry_offsets[a + 1]
            total, below, seen = 0.0, 0.0, 0.0
            for e in range(first, last):
                total += entry_rank[e]
            for e in range(first, last):
                rank = entry_rank[e]
                net[base + entry_item[e]] += total - (last - first) * rank
                seen += (e - first) * rank - below
                below += rank
            observed[q, 0] += seen


@kernel
def net_wins(
    weight: Floats,  # (experts,)
    level: Indices,  # (experts,) which column of ``observed`` an expert's preferences are counted in
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    list_expert: Indices,
    entry_item: Indices,
    won: Floats,  # (E,)
    lost: Floats,  # (E,)
    behind: Floats,  # (L,)
    pair_offsets: Offsets,
    pair_expert: Indices,
    pair_winner: Indices,
    pair_loser: Indices,
    pair_weight: Floats,
    pair_tie: Bools,
    net: Floats,  # (I,) added to: won less lost, weighted
    observed: Floats,  # (Q, levels) added to: preferences seen, unweighted
) -> None:
    """One pass over lists and pairs. Tied pairs say nothing."""
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        everywhere = 0.0  # what an item left out by all lists has lost
        for a in range(list_offsets[q], list_offsets[q + 1]):
            w, seen = weight[list_expert[a]], 0.0
            for e in range(entry_offsets[a], entry_offsets[a + 1]):
                net[base + entry_item[e]] += w * (won[e] - lost[e] + behind[a])
                seen += won[e]
            everywhere += w * behind[a]
            observed[q, level[list_expert[a]]] += seen
        if everywhere != 0.0:
            for i in range(size):
                net[base + i] -= everywhere
        for p in range(pair_offsets[q], pair_offsets[q + 1]):
            if not pair_tie[p]:
                w = weight[pair_expert[p]] * pair_weight[p]
                net[base + pair_winner[p]] += w
                net[base + pair_loser[p]] -= w
                observed[q, level[pair_expert[p]]] += pair_weight[p]


@kernel
def pair_margins(
    q: int,
    weight: Floats,  # (experts,)
    binary: bool,
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    list_expert: Indices,
    entry_item: Indices,
    entry_rank: Floats,
    value: Floats,  # (E,)
    outside: Floats,  # (L,)
    left_out: Offsets,  # (L,)
    pair_offsets: Offsets,
    pair_expert: Indices,
    pair_winner: Indices,
    pair_loser: Indices,
    pair_weight: Floats,
    pair_tie: Bools,
    margins: Floats,  # (size, size) added to: weighted preferences for i over j less those for j over i
    listed: Bools,  # (size,) scratch
) -> None:
    """The skew-symmetric matrix of one query. Cost: O(entries^2) a list."""
    size = item_offsets[q + 1] - item_offsets[q]
    for a in range(list_offsets[q], list_offsets[q + 1]):
        first, last, w = entry_offsets[a], entry_offsets[a + 1], weight[list_expert[a]]
        for e in range(first, last):
            i = entry_item[e]
            for f in range(e + 1, last):
                if entry_rank[f] > entry_rank[e]:
                    j = entry_item[f]
                    amount = w if binary else w * (value[f] - value[e])
                    margins[i, j] += amount
                    margins[j, i] -= amount
        if left_out[a] == 0:
            continue
        for i in range(size):
            listed[i] = False
        for e in range(first, last):
            listed[entry_item[e]] = True
        for e in range(first, last):
            i = entry_item[e]
            amount = w if binary else w * (outside[a] - value[e])
            for j in range(size):
                if not listed[j]:
                    margins[i, j] += amount
                    margins[j, i] -= amount
    for p in range(pair_offsets[q], pair_offsets[q + 1]):
        if not pair_tie[p]:
            amount = weight[pair_expert[p]] * pair_weight[p]
            margins[pair_winner[p], pair_loser[p]] += amount
            margins[pair_loser[p], pair_winner[p]] -= amount
