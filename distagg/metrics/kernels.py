"""What effectiveness metrics need from a walk down the ranking; normalisation is done by ``distagg.metrics``.

Every metric except tau is a sum over positions, cut off at one or more depths: so ``sums_at_cutoffs`` is the one
walk, and the other functions only turn labels into the summand of each position. All O(items). Sums are made from the
first position on, one after the other.
"""

from __future__ import annotations

import numpy as np

from distagg.ordering import by_length
from distagg.types import Floats, Offsets


def sums_at_cutoffs(
    item_offsets: Offsets,  # (Q + 1,)
    values: Floats,  # (I,) in ranking order
    discounts: Floats,  # (longest query,)
    cutoffs: Offsets,  # (C,) ascending
) -> Floats:  # (Q, C)
    """Sum of ``values * discounts[position]`` over the first ``cutoffs[c]`` positions of each query."""
    sizes = np.diff(item_offsets)
    query = np.repeat(np.arange(len(sizes)), sizes)
    position = np.arange(len(values)) - item_offsets[:-1][query]
    terms = values * discounts[position]
    sums = np.empty((len(sizes), len(cutoffs)))
    for c in range(len(cutoffs) - 1, -1, -1):
        within = position < cutoffs[c]
        if not within.all():
            query, position, terms = query[within], position[within], terms[within]
        sums[:, c] = np.bincount(query, terms, len(sizes))
    return sums


def precision_at_hits(item_offsets: Offsets, relevant: Floats) -> Floats:  # (Q + 1,), (I,) -> (I,)
    """Precision at the position of every relevant item, 0 elsewhere: the summand of average precision.

    ``relevant`` (I,) is 1 or 0, in ranking order.
    """
    first = np.repeat(item_offsets[:-1], np.diff(item_offsets))
    hits = np.concatenate([np.zeros(1), np.cumsum(relevant)])
    within = hits[1:] - hits[first]
    return relevant * within / (np.arange(1, len(relevant) + 1) - first)


def stop_probability(item_offsets: Offsets, satisfied: Floats) -> Floats:  # (Q + 1,), (I,) -> (I,)
    """Probability that a reader who goes down the ranking stops at each position.

    ``satisfied`` (I,) is the probability that the item at that position satisfies. The cascade behind ERR, and,
    with certain satisfaction by relevant items, behind the reciprocal rank.
    """
    at, tables = by_length(item_offsets)
    stops, ordered = satisfied.copy(), satisfied[at]
    for span, length in tables:
        rows = ordered[span].reshape(-1, length)
        reached = np.cumprod(1.0 - rows[:, :-1], axis=1)
        stops[at[span].reshape(rows.shape)[:, 1:]] = reached * rows[:, 1:]
    return stops
