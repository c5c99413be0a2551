"""How well each expert agrees with the labels: normalised Kendall distance, one linear walk a list."""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import NO_LABEL, Floats, Indices, Labels, Offsets

UNKNOWN = np.int32(NO_LABEL)


@kernel
def agreement(
    levels: int,  # one more than the highest label
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    list_expert: Indices,
    entry_item: Indices,
    entry_rank: Floats,
    labels: Labels,  # (I,) from 0 on, or UNKNOWN
    total: Floats,  # (experts,) added to: share of rightly ordered pairs, summed over queries
    count: Floats,  # (experts,) added to: queries in which the expert listed items of different labels
) -> None:
    """A pair is two listed items of different labels; it is right when the higher label has the smaller rank.

    Tied ranks count half. Unlisted and unlabelled items are in no pair.
    """
    ahead = np.empty(levels)  # labelled entries before the present tie group, by label
    group = np.empty(levels)
    for q in range(len(item_offsets) - 1):
        for a in range(list_offsets[q], list_offsets[q + 1]):
            right, pairs = 0.0, 0.0
            for level in range(levels):
                ahead[level] = 0.0
            start = entry_offsets[a]
            while start < entry_offsets[a + 1]:
                for level in range(levels):
                    group[level] = 0.0
                end = start
                while end < entry_offsets[a + 1] and entry_rank[end] == entry_rank[start]:
                    label = labels[item_offsets[q] + entry_item[end]]
                    if label != UNKNOWN:
                        group[label] += 1.0
                    end += 1
                for level in range(levels):
                    if group[level] == 0.0:
                        continue
                    for other in range(levels):
                        if other == level:
                            continue
                        pairs += group[level] * (ahead[other] + 0.5 * group[other])
                        right += group[level] * 0.25 * group[other]  # each tied pair is met twice
                        if other > level:
                            right += group[level] * ahead[other]
                for level in range(levels):
                    ahead[level] += group[level]
                start = end
            if pairs > 0.0:
                total[list_expert[a]] += right / pairs
                count[list_expert[a]] += 1.0
