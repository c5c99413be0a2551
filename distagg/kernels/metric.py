"""What effectiveness metrics need from a walk down the ranking; normalisation is done by ``distagg.metrics``.

Every metric except tau is a sum over positions, cut off at one or more depths: so ``sums_at_cutoffs`` is the one
walk, and the other kernels only turn labels into the summand of each position. All O(items); tau is O(n log n).
"""

from __future__ import annotations

import math

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.ordering import sort_span
from distagg.types import Bools, Floats, Indices, Offsets


@kernel
def sums_at_cutoffs(item_offsets: Offsets, values: Floats, discounts: Floats, cutoffs: Offsets) -> Floats:
    """Sum of ``values * discounts[position]`` over the first ``cutoffs[c]`` positions of each query, shape (Q, C).

    ``values`` (I,) in ranking order, ``discounts`` (longest query,), ``cutoffs`` (C,) ascending.
    """
    n_queries, n_cutoffs = len(item_offsets) - 1, len(cutoffs)
    sums = np.empty((n_queries, n_cutoffs))
    for q in range(n_queries):
        first = item_offsets[q]
        size = item_offsets[q + 1] - first
        position, total = 0, 0.0
        for c in range(n_cutoffs):
            depth = min(cutoffs[c], size)
            while position < depth:
                total += values[first + position] * discounts[position]
                position += 1
            sums[q, c] = total
    return sums


@kernel
def precision_at_hits(item_offsets: Offsets, relevant: Bools) -> Floats:
    """Precision at the position of every relevant item, 0 elsewhere, shape (I,): the summand of average precision."""
    values = np.zeros(len(relevant))
    for q in range(len(item_offsets) - 1):
        first, hits = item_offsets[q], 0
        for i in range(first, item_offsets[q + 1]):
            if relevant[i]:
                hits += 1
                values[i] = hits / (i - first + 1)
    return values


@kernel
def stop_probability(item_offsets: Offsets, satisfied: Floats) -> Floats:
    """Probability that a reader who goes down the ranking stops at each position, shape (I,).

    ``satisfied`` (I,) is the probability that the item at that position satisfies. The cascade behind ERR, and,
    with certain satisfaction by relevant items, behind the reciprocal rank.
    """
    values = np.zeros(len(satisfied))
    for q in range(len(item_offsets) - 1):
        reached = 1.0
        for i in range(item_offsets[q], item_offsets[q + 1]):
            values[i] = reached * satisfied[i]
            reached *= 1.0 - satisfied[i]
    return values


@kernel
def kendall_tau(item_offsets: Offsets, scores: Floats, labels: Floats, used: Bools, order: Indices) -> Floats:
    """Kendall's tau-b between scores and labels over the used items of each query, shape (Q,); NaN if undefined.

    ``scores``, ``labels``, ``used`` (I,) in input order; ``order`` (I,) sorts scores descending. Inside a run of
    equal scores labels are sorted first, so that only pairs with different scores can count as exchanged.
    """
    n_queries = len(item_offsets) - 1
    taus = np.empty(n_queries)
    size = len(scores)
    label, buffer = np.empty(size), np.empty(size)
    index, index_buffer = np.empty(size, np.int32), np.empty(size, np.int32)
    for q in range(n_queries):
        first, n, start = item_offsets[q], 0, 0
        tied_scores, tied_labels, tied_both, previous = 0, 0, 0, 0.0
        for i in range(first, item_offsets[q + 1]):
            row = first + order[i]
            if not used[row]:
                continue
            if n > start and scores[row] != previous:
                sort_span(label[start:n], index[start:n], buffer, index_buffer)
                tied_scores += (n - start) * (n - start - 1) // 2
                tied_both += _equal_pairs(label[start:n])
                start = n
            label[n], previous = labels[row], scores[row]
            n += 1
        sort_span(label[start:n], index[start:n], buffer, index_buffer)
        tied_scores += (n - start) * (n - start - 1) // 2
        tied_both += _equal_pairs(label[start:n])
        exchanged = sort_span(label[:n], index[:n], buffer, index_buffer)
        tied_labels = _equal_pairs(label[:n])
        pairs = n * (n - 1) // 2
        agreement = pairs - tied_scores - tied_labels + tied_both - 2 * exchanged
        # Two roots, not the root of a product: n**4 overflows int64 beyond 77,000 items.
        scale = math.sqrt(pairs - tied_scores) * math.sqrt(pairs - tied_labels)
        taus[q] = agreement / scale if scale > 0.0 else np.nan
    return taus


@kernel
def _equal_pairs(ordered: Floats) -> int:
    """Number of pairs of equal values in a sorted array."""
    pairs, run = 0, 0
    for i in range(1, len(ordered)):
        run = run + 1 if ordered[i] == ordered[i - 1] else 0
        pairs += run
    return pairs
