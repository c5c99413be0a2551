"""What effectiveness metrics need from a walk down the ranking; normalisation is done by ``distagg.metrics``.

Every metric except tau is a sum over positions, cut off at one or more depths: so ``sums_at_cutoffs`` is the one
walk, and the other functions only turn labels into the summand of each position. All O(items). Sums are made from the
first position on, one after the other.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.ordering import equal_spans
from distagg.types import Floats, Offsets


def sums_at_cutoffs(
    item_offsets: Offsets,  # (Q + 1,)
    values: Floats,  # (I,) in ranking order
    discounts: Floats,  # (longest query,)
    cutoffs: Offsets,  # (C,) ascending
) -> Floats:  # (Q, C)
    """Sum of ``values * discounts[position]`` over the first ``cutoffs[c]`` positions of each query."""
    sums = np.zeros((len(item_offsets) - 1, len(cutoffs)))
    for queries, at in equal_spans(item_offsets):
        depths = np.minimum(cutoffs, at.shape[1])
        deepest = int(depths[-1])
        sums[queries] = np.cumsum(values[at[:, :deepest]] * discounts[:deepest], axis=1)[:, depths - 1]
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
    stops = satisfied.copy()
    for _, at in equal_spans(item_offsets):
        stops[at[:, 1:]] *= np.cumprod(1.0 - satisfied[at[:, :-1]], axis=1)
    return stops
