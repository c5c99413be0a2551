"""The value of every metric for every query of a chunk, under one of two protocols.

``letor`` is the script of LETOR 4.0: gain 2^label - 1; discount 1 at positions 1 and 2, then log 2 / log(position);
NDCG@k is 0 when the query has fewer than k items or no relevant one; unlabelled items have label 0; equal scores
keep input order; every query counts.

``trec`` is trec_eval's: gain is the label, discount log2(1 + position); judged items that nobody ranked (missed) count
in the ideal ranking and among the relevant; scores are compared in single precision and ties broken by descending
item id; an item whose score is -inf is not retrieved. A query without any judged item has NaN everywhere.
A judged query of which nothing is retrieved has 0 (as with trec_eval -c).

Both protocols:

- An item is relevant when its label is at least 1, or at least N in ``map(rel=N)``; negative labels are not relevant.
  A query without relevant items has 0.
- ``ndcg(linear)`` and ``ndcg(exp)`` set the gain to the label or to 2^label - 1; everything else stays the protocol's.
  ``dcg`` is the sum before it is normalised; under letor it is not set to 0 where a query has fewer than k items.
- ``p@k`` divides by k; ``map`` and ``map@k`` divide by the number of relevant items, and so does ``recall@k``;
  ``f1@k`` is the harmonic mean of ``p@k`` and ``recall@k``, ``f1`` that of the whole ranking (trec_eval's set_F).
- ``rprec`` is the precision at R, the number of relevant items.
- ``bpref``, ``infap`` and ``judged@k`` look at the judgements themselves, as trec_eval does: an item without a label
  is outside the pool, an item with a negative label is in the pool but not judged (``judged@k`` counts it), under
  letor too. ``judged@k`` divides by the number of ranked items where it is below k, as ir-measures does.
- ``rbp(p)`` is (1 - p) times the sum over relevant items of p^(position - 1), the residual not added. ``err`` takes
  (2^label - 1) / 2^(highest grade) as the probability that an item satisfies; gdeval, behind ir-measures' ERR@20,
  fixes the highest grade at 4: ``err(4)@20``.
- ``tau`` is Kendall's tau-b of scores (as given) and labels, NaN when all scores or all labels are equal; under trec
  over judged items only, those not retrieved tied at the end. NaN values are left out of means.

A dataset stores whole grades, and its readers refuse others. ``evaluate_runs`` also takes labels with fractions, for
``ndcg``, ``dcg``, ``judged`` and ``tau``; the other metrics are defined on whole grades and refuse them.

Cost: one sort of the items, a second one of the labels for NDCG, a linear walk per family of metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from distagg.errors import UsageError
from distagg.metrics.metric import Metric, Protocol, check_protocol
from distagg.metrics.ranked import (
    NO_CUTOFF,
    Ranked,
    kendall_tau,
    precision_at_hits,
    rank_chunk,
    span_sums,
    stop_probability,
)
from distagg.rankings.ordering import order_spans
from distagg.types import LABEL, NO_LABEL, OFFSET, RANK, Floats, Labels, Offsets

if TYPE_CHECKING:
    from distagg.dataset.chunk import Chunk

RBP_PERSISTENCE = 0.8
LARGEST_GRADE = 1000  # 2^grade must stay a finite float64
INFAP_EPSILON = 1e-5  # trec_eval's


def score_chunk(
    chunk: Chunk,
    scores: Floats,
    metrics: Sequence[Metric],
    *,
    protocol: Protocol = "letor",
    max_grade: int | None = None,
) -> Floats:
    """Every metric for every query of a chunk.

    Parameters
    ----------
    chunk
        Items and labels; under ``trec`` loaded with item ids.
    scores
        One score per item, shape (I,), larger is better, -inf for items that are not ranked, no NaN.
    metrics
        From ``parse_metric``.
    protocol
        ``"letor"`` or ``"trec"``, see the module.
    max_grade
        The highest label of the whole dataset (see ``highest_label``): needed by ``err`` without a grade of its own.

    Returns
    -------
    Values of shape (Q, len(metrics)); NaN where a metric is undefined.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from distagg.dataset.chunk import chunk_from_tables
    >>> from distagg.metrics import parse_metrics
    >>> from distagg.types import QUERIES_TABLE
    >>> row = {"query": "q", "part": "", "item": ["x", "y", "z"], "label": [0, 2, 1], "missed": []}
    >>> chunk = chunk_from_tables(pa.Table.from_pylist([row], QUERIES_TABLE), None, None, n_experts=0)
    >>> score_chunk(chunk, np.array([3.0, 2.0, 1.0]), parse_metrics(["p@2", "mrr", "ndcg@3"])).round(4).tolist()
    [[0.5, 0.5, 0.9077]]
    """
    ranked = rank_chunk(chunk, scores, check_protocol(protocol), max_grade)
    values = np.empty((chunk.n_queries, len(metrics)))
    groups: dict[Metric, list[int]] = {}
    for column, metric in enumerate(metrics):
        groups.setdefault(replace(metric, cutoff=None), []).append(column)
    for shared, columns in groups.items():
        # The walk wants cutoffs ascending; the columns are put back in the order asked for.
        columns.sort(key=lambda column: metrics[column].cutoff or NO_CUTOFF)
        cutoffs = np.array([min(metrics[c].cutoff or NO_CUTOFF, NO_CUTOFF) for c in columns], dtype=OFFSET)
        values[:, columns] = SCORERS[shared.name](ranked, cutoffs, shared)
    if ranked.protocol == "trec":
        values[ranked.n_judged() == 0] = np.nan
    return values


def mean_over_queries(values: Floats) -> Floats:
    """Mean of every column of (Q, metrics) over the queries that have a value; NaN where none has.

    >>> import numpy as np
    >>> mean_over_queries(np.array([[1.0, np.nan], [0.0, np.nan]])).tolist()
    [0.5, nan]
    """
    known = ~np.isnan(values)
    total, count = np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)
    means: Floats = np.divide(total, count, out=np.full(values.shape[1], np.nan), where=count > 0)
    return means


def _ndcg(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    offsets, pool = ranked.pool
    ideal = order_spans(offsets, _gains(ranked, metric, pool))[1]
    possible = span_sums(offsets, ideal, cutoffs, _discounts(ranked))
    values = _divide(_dcg(ranked, cutoffs, metric), possible)
    if ranked.protocol == "letor":
        values[(ranked.sizes[:, None] < cutoffs) & (cutoffs != NO_CUTOFF)] = 0.0
    return values


def _dcg(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    return ranked.sums(_gains(ranked, metric, ranked.grades), cutoffs, _discounts(ranked))


def _gains(ranked: Ranked, metric: Metric, grades: Labels) -> Floats:
    exponential = (metric.gain or ("exp" if ranked.protocol == "letor" else "linear")) == "exp"
    return _powers(grades) if exponential else grades.astype(RANK)


def _discounts(ranked: Ranked) -> Floats:
    position = np.arange(1.0, ranked.longest + 1)
    discounts: Floats = 1.0 / np.log2(np.maximum(position, 2.0) if ranked.protocol == "letor" else position + 1.0)
    return discounts


def _powers(grades: Labels) -> Floats:
    """2^grade - 1; whole grades are looked up, because they are few."""
    highest = math.ceil(grades.max(initial=0))
    if highest > LARGEST_GRADE:
        raise UsageError(
            f"found the label {highest}, expected at most {LARGEST_GRADE} where the gain is 2^label - 1; "
            "use smaller grades, or ndcg(linear), whose gain is the label"
        )
    if grades.dtype != LABEL:
        return np.exp2(grades) - 1.0
    powers: Floats = np.exp2(np.arange(highest + 1.0)) - 1.0
    return powers[grades]


def _precision(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    return ranked.sums(ranked.relevant(metric.level), cutoffs) / cutoffs


def _recall(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    return _divide(ranked.sums(ranked.relevant(metric.level), cutoffs), ranked.n_relevant(metric.level)[:, None])


def _f1(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    """2 P R / (P + R) = 2 hits / (k + relevant items), with the number of ranked items for k without a cutoff."""
    hits = ranked.sums(ranked.relevant(metric.level), cutoffs)
    depth = np.where(cutoffs == NO_CUTOFF, ranked.retrieved[:, None], cutoffs)
    return _divide(2.0 * hits, depth + ranked.n_relevant(metric.level)[:, None])


def _success(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    return (ranked.sums(ranked.relevant(metric.level), cutoffs) > 0).astype(RANK)


def _average_precision(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    values = precision_at_hits(ranked.offsets, ranked.relevant(metric.level))
    return _divide(ranked.sums(values, cutoffs), ranked.n_relevant(metric.level)[:, None])


def _reciprocal_rank(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    return _cascade(ranked, ranked.relevant(metric.level), cutoffs)


def _r_precision(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    relevant = ranked.n_relevant(metric.level)
    within = ranked.position < np.repeat(relevant, ranked.sizes)
    return _divide(ranked.sums(ranked.relevant(metric.level) * within, cutoffs), relevant[:, None])


def _binary_preference(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    """Buckley and Voorhees 2004, as trec_eval counts it: the share of preferences of relevant over judged items."""
    relevant, irrelevant = ranked.n_relevant(metric.level), ranked.n_judged(below=metric.level)
    above = ranked.so_far((ranked.labels >= 0) & (ranked.labels < metric.level))
    most = np.repeat(np.minimum(irrelevant, relevant), ranked.sizes)
    lost = _divide(np.minimum(above, np.repeat(relevant, ranked.sizes)), most)
    return _divide(ranked.sums(ranked.relevant(metric.level) * (1.0 - lost), cutoffs), relevant[:, None])


def _inferred_average_precision(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    """Yilmaz and Aslam 2006, as trec_eval counts it: the expected precision at relevant items, from a sampled pool."""
    position = ranked.position.astype(RANK)
    in_pool = ranked.so_far(ranked.labels != NO_LABEL) - 1.0
    relevant = ranked.so_far(ranked.labels >= metric.level) - 1.0
    judged = ranked.so_far(ranked.labels >= 0) - 1.0
    pooled = _divide(in_pool, position) * (relevant + INFAP_EPSILON) / (judged + 2.0 * INFAP_EPSILON)
    expected = 1.0 / (position + 1.0) + position / (position + 1.0) * pooled
    terms = ranked.relevant(metric.level) * np.where(position == 0, 1.0, expected)
    return _divide(ranked.sums(terms, cutoffs), ranked.n_relevant(metric.level)[:, None])


def _expected_reciprocal_rank(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    highest = metric.parameter if metric.parameter is not None else ranked.max_grade
    if highest is None:
        raise UsageError("err needs the highest grade of the dataset: give max_grade, or write it like err(2)")
    found = int(ranked.grades.max(initial=0))
    if found > highest or highest > LARGEST_GRADE:
        raise UsageError(
            f"found the label {found} with {highest:g} as the highest grade of err, "
            f"expected labels up to it and at most {LARGEST_GRADE}; write the right one, like err({max(found, 1)})"
        )
    return _cascade(ranked, _powers(ranked.grades) / 2.0**highest, cutoffs)


def _cascade(ranked: Ranked, satisfied: Floats, cutoffs: Offsets) -> Floats:
    stops = stop_probability(ranked.offsets, satisfied)
    return ranked.sums(stops, cutoffs, 1.0 / np.arange(1.0, ranked.longest + 1))


def _rank_biased_precision(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    p = RBP_PERSISTENCE if metric.parameter is None else metric.parameter
    discounts = (1.0 - p) * p ** np.arange(ranked.longest, dtype=RANK)
    return ranked.sums(ranked.relevant(metric.level), cutoffs, discounts)


def _judged(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    judged = ranked.sums((ranked.labels != NO_LABEL).astype(RANK), cutoffs)
    return _divide(judged, np.minimum(ranked.retrieved[:, None], cutoffs))


def _tau(ranked: Ranked, cutoffs: Offsets, metric: Metric) -> Floats:
    known = ranked.chunk.labels != NO_LABEL
    labels = np.where(known, ranked.chunk.labels, 0).astype(RANK)
    used = known if ranked.protocol == "trec" else np.ones(len(known), dtype=bool)
    taus = kendall_tau(ranked.offsets, ranked.scores, labels, used)
    return np.repeat(taus[:, None], len(cutoffs), axis=1)


SCORERS: dict[str, Callable[[Ranked, Offsets, Metric], Floats]] = {
    "ndcg": _ndcg,
    "dcg": _dcg,
    "p": _precision,
    "recall": _recall,
    "f1": _f1,
    "success": _success,
    "map": _average_precision,
    "mrr": _reciprocal_rank,
    "rprec": _r_precision,
    "bpref": _binary_preference,
    "infap": _inferred_average_precision,
    "err": _expected_reciprocal_rank,
    "rbp": _rank_biased_precision,
    "judged": _judged,
    "tau": _tau,
}


def _divide(above: Floats, below: Floats | Offsets) -> Floats:
    """Quotient, 0 where the divisor is 0."""
    quotient: Floats = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
    return quotient
