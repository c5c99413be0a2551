"""Counts of blocks, which add up to the counts in the manifest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from distagg.types import NO_LABEL, Labels


@dataclass(slots=True)
class BlockCounts:
    """The counts of some blocks; ``add`` merges two."""

    queries: int = 0
    items: int = 0
    lists: int = 0
    entries: int = 0  # or pairs
    ties: int = 0
    positive: bool = True
    labels: Counter[int] = field(default_factory=Counter)
    list_lengths: Counter[int] = field(default_factory=Counter)
    query_sizes: Counter[int] = field(default_factory=Counter)

    def add(self, other: BlockCounts) -> None:
        self.queries += other.queries
        self.items += other.items
        self.lists += other.lists
        self.entries += other.entries
        self.ties += other.ties
        self.positive &= other.positive
        self.labels.update(other.labels)
        self.list_lengths.update(other.list_lengths)
        self.query_sizes.update(other.query_sizes)

    def label_counts(self) -> dict[str, int]:
        return {str(label): self.labels[label] for label in sorted(self.labels)}


def count_values(values: np.ndarray) -> Counter[int]:
    """How often each value occurs.

    >>> count_values(np.array([3, 1, 3]))
    Counter({3: 2, 1: 1})
    """
    distinct, counts = np.unique(values, return_counts=True)
    return Counter(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))


def count_labels(labels: Labels) -> Counter[int]:
    return count_values(labels[labels != NO_LABEL])


def spread(histogram: Counter[int]) -> dict[str, int]:
    """Smallest, (lower) median and largest value of a histogram; zeros when it is empty.

    >>> spread(Counter({2: 1, 5: 3}))
    {'min': 2, 'median': 5, 'max': 5}
    """
    if not histogram:
        return {"min": 0, "median": 0, "max": 0}
    values = np.array(sorted(histogram))
    seen = np.cumsum([histogram[int(value)] for value in values])
    median = values[np.searchsorted(seen, (int(seen[-1]) + 1) // 2)]
    return {"min": int(values[0]), "median": int(median), "max": int(values[-1])}
