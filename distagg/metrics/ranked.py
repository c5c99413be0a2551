"""A chunk in the order of its scores, walks down that order, and the agreement of two orders: what metrics share.

Every metric except tau is a sum over positions, cut off at one or more depths: ``sums_at_cutoffs`` is the one walk, and
the other functions turn labels into the summand of each position. All O(items) after one sort. Sums start from the
first position and go one after the other.

Kendall's tau-b (Knight 1966) takes three sorts and counts of ties, O(n log n). Rank-biased overlap (Webber, Moffat and
Zobel 2010) is a sum over the items that both rankings have, O(n).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_arrow, as_numpy
from distagg.errors import UsageError
from distagg.metrics.metric import Protocol
from distagg.rankings.ordering import by_length, count_ascents, order_items, order_spans
from distagg.types import LABEL, NO_LABEL, OFFSET, RANK, Bools, Floats, Indices, Labels, Offsets

if TYPE_CHECKING:
    from distagg.dataset.chunk import Chunk

NO_CUTOFF = np.iinfo(OFFSET).max


@dataclass(frozen=True)
class Ranked:
    """Q queries and I items, ranked. Arrays are in ranking order unless said otherwise."""

    chunk: Chunk
    protocol: Protocol
    max_grade: int | None
    scores: Floats  # (I,) as given, in input order
    order: Indices  # (I,)
    grades: Labels  # (I,) in ranking order, 0 where unlabelled, negative, or not retrieved

    @property
    def offsets(self) -> Offsets:
        return self.chunk.item_offsets

    @functools.cached_property
    def sizes(self) -> Offsets:
        return np.diff(self.offsets)

    @functools.cached_property
    def longest(self) -> int:
        """Items of the largest query, missed ones included."""
        return int(np.diff(self.pool[0]).max(initial=0))

    @functools.cached_property
    def retrieved(self) -> Offsets:
        """Ranked items of every query, shape (Q,): all of them under letor."""
        if self.protocol == "letor":
            return self.sizes
        return _count(self.offsets, self.scores != -np.inf)

    @functools.cached_property
    def labels(self) -> Labels:
        """Labels as they are judged, negative ones too, in ranking order; NO_LABEL where unjudged or not retrieved."""
        labels = self.chunk.labels[rows_of(self.offsets, self.order)]
        if self.protocol == "trec":
            labels = np.where(self.position < np.repeat(self.retrieved, self.sizes), labels, LABEL(NO_LABEL))
        return labels

    @functools.cached_property
    def position(self) -> Offsets:
        """The position of every item in its ranking, from 0, shape (I,)."""
        return np.arange(self.chunk.n_items) - np.repeat(self.offsets[:-1], self.sizes)

    def relevant(self, level: int) -> Floats:
        """1 where the item is relevant, that is has a label of at least ``level``, else 0, shape (I,)."""
        return (self.grades >= level).astype(RANK)

    def so_far(self, flags: Bools | Floats) -> Floats:
        """The number of true flags from the first position of the query up to each position, shape (I,)."""
        return counts_so_far(self.offsets, flags)

    @functools.cached_property
    def pool(self) -> tuple[Offsets, Labels]:
        """Offsets (Q + 1,) and grades of all items that an ideal ranking could place: with the missed ones in trec."""
        chunk = self.chunk
        if self.protocol == "letor" or not len(chunk.missed_labels):
            return chunk.item_offsets, np.maximum(chunk.labels, 0)
        offsets = chunk.item_offsets + chunk.missed_offsets
        grades = np.empty(offsets[-1], dtype=LABEL)
        # An item moves by the missed labels of the queries before its own, a missed label by the items up to its own.
        grades[np.arange(chunk.n_items) + np.repeat(chunk.missed_offsets[:-1], self.sizes)] = chunk.labels
        missed = np.diff(chunk.missed_offsets)
        grades[np.arange(len(chunk.missed_labels)) + np.repeat(chunk.item_offsets[1:], missed)] = chunk.missed_labels
        return offsets, np.maximum(grades, 0)

    def n_relevant(self, level: int) -> Offsets:
        """Relevant items of every query, retrieved or not, shape (Q,)."""
        offsets, grades = self.pool
        return _count(offsets, grades >= level)

    def n_judged(self, below: int | None = None) -> Offsets:
        """Judged items of every query, shape (Q,); or only those with a label from 0 to ``below`` - 1."""
        chunk, count = self.chunk, np.zeros(self.chunk.n_queries, dtype=OFFSET)
        for offsets, labels in ((chunk.item_offsets, chunk.labels), (chunk.missed_offsets, chunk.missed_labels)):
            count += _count(offsets, labels != NO_LABEL if below is None else (labels >= 0) & (labels < below))
        return count

    def sums(self, values: Floats, cutoffs: Offsets, discounts: Floats | None = None) -> Floats:
        """Sums of ``values`` (I,), in ranking order, times ``discounts`` (longest,) up to each cutoff, shape (Q, C)."""
        return span_sums(self.offsets, values, cutoffs, discounts)


def rank_chunk(chunk: Chunk, scores: Floats, protocol: Protocol, max_grade: int | None) -> Ranked:
    """Check the scores and put the chunk in their order."""
    if np.shape(scores) != (chunk.n_items,):
        raise UsageError(f"found scores of shape {np.shape(scores)}, expected one per item: ({chunk.n_items},)")
    if np.isnan(scores).any():
        raise UsageError("found NaN among the scores, expected numbers; give items that are not ranked -inf")
    scores = np.ascontiguousarray(scores, dtype=RANK)
    grades = np.maximum(chunk.labels, 0)
    if protocol == "letor":
        order = order_items(chunk.item_offsets, scores)
    else:
        retrieved = scores != -np.inf
        order = _trec_order(chunk, scores, retrieved)
        grades *= retrieved
    return Ranked(chunk, protocol, max_grade, scores, order, grades[rows_of(chunk.item_offsets, order)])


def _trec_order(chunk: Chunk, scores: Floats, retrieved: Bools) -> Indices:
    """By descending score in single precision, ties by descending item id, items that are not retrieved last."""
    if len(chunk.item_ids) != chunk.n_items:
        raise UsageError("the trec protocol breaks ties by item id; load the chunk with its ids")
    with np.errstate(over="ignore"):
        single = scores.astype(np.float32).astype(RANK)
    single[retrieved & (single == -np.inf)] = np.finfo(np.float32).min  # retrieved all the same
    order, ordered = order_spans(chunk.item_offsets, single)
    # Only the ids of tied items are looked at.
    follows = ties_with_previous(chunk.item_offsets, ordered) & (ordered != -np.inf)
    if follows.any():
        tied = follows.copy()
        tied[:-1] |= follows[1:]
        at = np.flatnonzero(tied)
        ids = chunk.item_ids.take(as_arrow(rows_of(chunk.item_offsets, order)[at]))
        runs = as_arrow(np.cumsum(~follows[at]))
        by_id = pc.sort_indices(pa.table({"run": runs, "id": ids}), [("run", "ascending"), ("id", "descending")])
        order[at] = order[at][as_numpy(by_id)]
    return order


def ties_with_previous(offsets: Offsets, *ordered: Floats) -> Bools:
    """Whether each position has the same values as the position before it in the same span, shape (I,)."""
    n = len(ordered[0])
    same = np.ones(n, dtype=bool)
    for values in ordered:
        same[1:] &= values[1:] == values[:-1]
    same[offsets[:-1][offsets[:-1] < n]] = False  # empty spans at the end start beyond the last position
    return same


def rows_of(offsets: Offsets, order: Indices) -> Offsets:
    """Chunk-wide rows of positions inside queries."""
    return np.repeat(offsets[:-1], np.diff(offsets)) + order


def span_sums(offsets: Offsets, values: Floats, cutoffs: Offsets, discounts: Floats | None = None) -> Floats:
    """Sums over the first positions of each span, as ``sums_at_cutoffs`` with undiscounted values by default."""
    if discounts is None:
        discounts = np.ones(np.diff(offsets).max(initial=0))
    return sums_at_cutoffs(offsets, values, discounts, cutoffs)


def _count(offsets: Offsets, flags: Bools) -> Offsets:
    """True flags inside every span, shape (Q,)."""
    before = np.concatenate([np.zeros(1, dtype=OFFSET), np.cumsum(flags)])
    return before[offsets[1:]] - before[offsets[:-1]]


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
    return relevant * counts_so_far(item_offsets, relevant) / (np.arange(1, len(relevant) + 1) - first)


def counts_so_far(item_offsets: Offsets, flags: Bools | Floats) -> Floats:  # (Q + 1,), (I,) -> (I,)
    """The number of flags (1 or 0) from the first position of the query up to each position."""
    counts = np.concatenate([np.zeros(1), np.cumsum(flags, dtype=RANK)])
    return counts[1:] - np.repeat(counts[item_offsets[:-1]], np.diff(item_offsets))


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
    of_scores = _tied_pairs(offsets, tied_scores)
    of_labels = _tied_pairs(offsets, ties_with_previous(offsets, by_label))
    of_both = _tied_pairs(offsets, ties_with_previous(offsets, ordered, in_runs))
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

    Beyond the end of the shorter ranking, its agreement at the end is used; beyond the longer one, that of both.
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


def _tied_pairs(offsets: Offsets, follows: Bools) -> Offsets:
    """Pairs inside runs of ties, per span; ``follows`` says that a position continues the run of the one before."""
    starts = np.flatnonzero(~follows)
    lengths = np.diff(np.append(starts, len(follows)))
    before = np.zeros(len(follows) + 1, dtype=OFFSET)
    before[starts + 1] = lengths * (lengths - 1) // 2
    before = np.cumsum(before)
    return before[offsets[1:]] - before[offsets[:-1]]
