"""How well each expert agrees with the labels: normalised Kendall distance, one linear walk a list."""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.models.lists import Lists
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
    """Add the pairs of a tie group with itself and with what is ahead to ``right`` and ``pairs``; it is ahead then."""
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
