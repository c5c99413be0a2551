"""Agreement of two orders of the same items.

Kendall's tau-b (Knight 1966) takes three sorts and counts of ties, O(n log n). Rank-biased overlap (Webber, Moffat and
Zobel 2010) is a sum over the items that both rankings have, O(n).
"""

from __future__ import annotations

import numpy as np

from distagg.metrics.ranked import rows_of, ties_with_previous
from distagg.ordering import count_ascents, order_spans
from distagg.types import OFFSET, RANK, Bools, Floats, Offsets


def kendall_tau(item_offsets: Offsets, scores: Floats, labels: Floats, used: Bools) -> Floats:
    """tau-b over the used items of each query, shape (Q,); NaN where all scores or all labels are equal.

    >>> import numpy as np
    >>> kendall_tau(np.array([0, 3]), np.array([3.0, 2.0, 1.0]), np.array([2.0, 0.0, 1.0]), np.ones(3, bool)).round(3)
    array([0.333])
    """
    offsets = np.concatenate([[0], np.cumsum(used)])[item_offsets].astype(OFFSET)
    order, ordered = order_spans(offsets, scores[used])
    tied_scores = ties_with_previous(offsets, ordered)
    # Labels are sorted inside runs of equal scores first, so that only pairs with different scores are exchanged next.
    runs = np.append(np.flatnonzero(~tied_scores), len(order)).astype(OFFSET)
    in_runs = order_spans(runs, labels[used][rows_of(offsets, order)])[1]
    by_label, exchanged = order_spans(offsets, in_runs)[1], count_ascents(offsets, in_runs)
    of_scores = _pairs(offsets, tied_scores)
    of_labels = _pairs(offsets, ties_with_previous(offsets, by_label))
    of_both = _pairs(offsets, ties_with_previous(offsets, ordered, in_runs))
    n = np.diff(offsets)
    pairs = n * (n - 1) // 2
    agreement = (pairs - of_scores - of_labels + of_both - 2 * exchanged).astype(RANK)
    # Two roots, not the root of a product: n**4 overflows int64 beyond 77,000 items.
    scale = np.sqrt(pairs - of_scores) * np.sqrt(pairs - of_labels)
    taus: Floats = np.divide(agreement, scale, out=np.full(len(n), np.nan), where=scale > 0)
    return taus


def rank_biased_overlap(
    sizes_a: Offsets,  # (Q,) items of the one ranking
    sizes_b: Offsets,  # (Q,) items of the other
    query: Offsets,  # (C,) the query of every common item
    depth: Offsets,  # (C,) the larger of its two ranks: from there on it belongs to the overlap
    p: float,
) -> Floats:  # (Q,)
    """Extrapolated rank-biased overlap of two rankings of each query (equation 32); 0 where nothing is common.

    Beyond the shorter ranking its agreement is carried on, beyond the longer one that of both.
    """
    shorter, longer = np.minimum(sizes_a, sizes_b), np.maximum(sizes_a, sizes_b)
    powers = p ** np.arange(1.0, longer.max(initial=0) + 1)
    before = np.concatenate([[0.0], np.cumsum(powers)])  # sums of p^d up to a depth
    shares = np.concatenate([[0.0], np.cumsum(powers / np.arange(1, len(powers) + 1))])  # sums of p^d / d
    n = len(sizes_a)
    common = np.bincount(query, minlength=n)
    early = np.bincount(query[depth <= shorter[query]], minlength=n)  # within the depth of the shorter ranking
    seen = np.bincount(query, shares[longer[query]] - shares[depth - 1], minlength=n)
    rate = np.divide(early, shorter, out=np.zeros(n), where=shorter > 0)
    beyond = before[longer] - before[shorter] - shorter * (shares[longer] - shares[shorter])
    late = np.divide(common - early, longer, out=np.zeros(n), where=longer > 0)
    overlap: Floats = (1.0 - p) / p * (seen + rate * beyond) + (late + rate) * p**longer
    return overlap


def _pairs(offsets: Offsets, follows: Bools) -> Offsets:
    """Pairs inside runs of ties, per span; ``follows`` says that a position continues the run of the one before."""
    starts = np.flatnonzero(~follows)
    lengths = np.diff(np.append(starts, len(follows)))
    before = np.zeros(len(follows) + 1, dtype=OFFSET)
    before[starts + 1] = lengths * (lengths - 1) // 2
    before = np.cumsum(before)
    return before[offsets[1:]] - before[offsets[:-1]]
