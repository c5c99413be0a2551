"""The adherence of experts: how well each agrees with labels, and the slopes of the likelihood in it.

Agreement with labels is a normalised Kendall distance, one linear walk a list.
"""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.models.lists import Experts, Lists, Pairs, Sums
from distagg.types import NO_LABEL, Floats, Labels

UNKNOWN = np.int32(NO_LABEL)


@kernel
def agreement(levels: int, lists: Lists, labels: Labels) -> Floats:  # (I,) -> (L,)
    """The share of pairs that each list orders rightly, nan where it lists no items of different labels.

    A pair is two listed items of different labels; it is right when the higher label has the smaller rank. Tied ranks
    count half. Unlisted and unlabelled items are in no pair. ``levels`` is one more than the highest label.
    """
    share = np.empty(len(lists.entry_offsets) - 1)
    ahead, group = np.empty(levels), np.empty(levels)  # labelled entries before a tie group and in it, by label
    for q in range(len(lists.item_offsets) - 1):
        base = lists.item_offsets[q]
        for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):
            right, pairs = 0.0, 0.0
            ahead[:] = 0.0
            start = lists.entry_offsets[a]
            while start < lists.entry_offsets[a + 1]:
                start = count_group(lists, base, start, lists.entry_offsets[a + 1], labels, group)
                right, pairs = add_group(ahead, group, right, pairs)
            share[a] = right / pairs if pairs > 0.0 else np.nan
    return share


@kernel
def count_group(lists: Lists, base: int, start: int, last: int, labels: Labels, group: Floats) -> int:
    """Count the entries that tie with entry ``start`` by label, into ``group`` (levels,); returns the next entry."""
    group[:] = 0.0
    end = start
    while end < last and lists.entry_rank[end] == lists.entry_rank[start]:
        label = labels[base + lists.entry_item[end]]
        if label != UNKNOWN:
            group[label] += 1.0
        end += 1
    return end


@kernel
def add_group(ahead: Floats, group: Floats, right: float, pairs: float) -> tuple[float, float]:
    """Count the pairs of a tie group's items with each other and with all items ahead, then move the group ahead."""
    for level in range(len(group)):
        if group[level] == 0.0:
            continue
        for other in range(len(group)):
            if other == level:
                continue
            pairs += group[level] * (ahead[other] + 0.5 * group[other])
            right += group[level] * 0.25 * group[other]  # each tied pair is met twice
            if other > level:
                right += group[level] * ahead[other]
    for level in range(len(group)):
        ahead[level] += group[level]
    return right, pairs


@kernel
def log_partition_slopes(t: float, s: Floats) -> tuple[float, float]:
    """First and second derivative of log Z(t, s) in t."""
    size = len(s)
    low, high = s[0], s[0]
    for i in range(size):
        low, high = min(low, s[i]), max(high, s[i])
    up, up1, up2, down, down1, down2 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(size):
        u, v = s[i] - high, low - s[i]
        a, b = np.exp(t * u), np.exp(t * v)
        up += a
        up1 += u * a
        up2 += u * u * a
        down += b
        down1 += v * b
        down2 += v * v * b
    span = low - high
    rest = size * np.exp(t * span)
    z = up * down - rest
    first = (up1 * down + up * down1 - rest * span) / z
    second = (up2 * down + 2.0 * up1 * down1 + up * down2 - rest * span * span) / z
    return first - span, second - first * first


@kernel
def adherence_slopes(
    lists: Lists,
    pairs: Pairs,
    experts: Experts,
    sums: Sums,
    theta: Floats,  # (experts,)
    score: Floats,  # (I,)
    slope: Floats,  # (experts,) added to
    curve: Floats,  # (experts,) added to
    spread: Floats,  # (experts, 2) added to
) -> None:
    """First and minus second derivative of the log likelihood in each expert's adherence, scores fixed.

    ``spread`` gets the squares of the first derivatives of single queries, and the number of queries.
    """
    for q in range(len(lists.item_offsets) - 1):
        s = score[lists.item_offsets[q] : lists.item_offsets[q + 1]]
        if len(s) < 2:
            continue
        observed, here = np.zeros(len(theta)), np.zeros(len(theta))
        add_agreement(q, lists, pairs, experts, sums, s, here, observed)
        known, first, second = -1.0, 0.0, 0.0
        for expert in range(len(theta)):
            if observed[expert] == 0.0:
                continue
            if theta[expert] != known:
                known = theta[expert]
                first, second = log_partition_slopes(known, s)
            here[expert] -= observed[expert] * first
            slope[expert] += here[expert]
            spread[expert, 0] += here[expert] * here[expert]
            spread[expert, 1] += 1.0
            curve[expert] += observed[expert] * second


@kernel
def add_agreement(
    q: int, lists: Lists, pairs: Pairs, experts: Experts, sums: Sums, s: Floats, slope: Floats, observed: Floats
) -> None:
    """Add, for each expert of a query, the score differences of its preferences, and how many those are."""
    total = 0.0
    for i in range(len(s)):
        total += s[i]
    for a in range(lists.list_offsets[q], lists.list_offsets[q + 1]):
        expert, behind = experts.of_list[a], sums.behind[a]
        agreed = -behind * total
        for e in range(lists.entry_offsets[a], lists.entry_offsets[a + 1]):
            agreed += (sums.won[e] - sums.lost[e] + behind) * s[lists.entry_item[e]]
            observed[expert] += sums.won[e]
        slope[expert] += agreed
    for p in range(pairs.offsets[q], pairs.offsets[q + 1]):
        if not pairs.tie[p]:
            expert, weight = experts.of_pair[p], pairs.weight[p]
            slope[expert] += weight * (s[pairs.winner[p]] - s[pairs.loser[p]])
            observed[expert] += weight
