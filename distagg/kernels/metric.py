"""What effectiveness metrics need from a walk down the ranking; normalisation is done by ``distagg.metrics``.

Every metric except tau is a sum over positions, cut off at one or more depths: so ``sums_at_cutoffs`` is the one
walk, and the other kernels only turn labels into the summand of each position. All O(items). Callers allocate
(``sums``, ``values``), kernels fill: allocation inside would double their compile time.
"""

from __future__ import annotations

from distagg.kernels import cold
from distagg.kernels.jit import kernel_with
from distagg.types import Floats, Offsets


@kernel_with(cold.sums_at_cutoffs)
def sums_at_cutoffs(item_offsets: Offsets, values: Floats, discounts: Floats, cutoffs: Offsets, sums: Floats) -> None:
    """Sum of ``values * discounts[position]`` over the first ``cutoffs[c]`` positions of each query: ``sums`` (Q, C).

    ``values`` (I,) in ranking order, ``discounts`` (longest query,), ``cutoffs`` (C,) ascending.
    """
    for q in range(len(item_offsets) - 1):
        first = item_offsets[q]
        size = item_offsets[q + 1] - first
        position, total = 0, 0.0
        for c in range(len(cutoffs)):
            depth = min(cutoffs[c], size)
            while position < depth:
                total += values[first + position] * discounts[position]
                position += 1
            sums[q, c] = total


@kernel_with(cold.precision_at_hits)
def precision_at_hits(item_offsets: Offsets, relevant: Floats, values: Floats) -> None:
    """Precision at the position of every relevant item, 0 elsewhere: the summand of average precision.

    ``relevant`` (I,) is 1 or 0, in ranking order; ``values`` (I,).
    """
    for q in range(len(item_offsets) - 1):
        first, hits = item_offsets[q], 0.0
        for i in range(first, item_offsets[q + 1]):
            hits += relevant[i]
            values[i] = relevant[i] * hits / (i - first + 1)


@kernel_with(cold.stop_probability)
def stop_probability(item_offsets: Offsets, satisfied: Floats, values: Floats) -> None:
    """Probability that a reader who goes down the ranking stops at each position: ``values`` (I,).

    ``satisfied`` (I,) is the probability that the item at that position satisfies. The cascade behind ERR, and,
    with certain satisfaction by relevant items, behind the reciprocal rank.
    """
    for q in range(len(item_offsets) - 1):
        reached = 1.0
        for i in range(item_offsets[q], item_offsets[q + 1]):
            values[i] = reached * satisfied[i]
            reached *= 1.0 - satisfied[i]
