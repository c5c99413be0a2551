"""A metric of many rankings of one chunk, for searches over settings: thousands of rankings a second.

``Terms`` hold what is the same for all rankings: gains, discounts, the order of items with equal scores, and a factor
for each query. The factor is the metric of one ranking, computed by ``score_chunk``, divided by the plain sum of the
same ranking. So the protocols' rules about ideal rankings, missed items and unjudged queries are written once, in
``score_chunk``. It also computes the metrics that are not such a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_arrow, as_numpy
from distagg.metrics.ladder_kernels import CASCADE, HITS, SUM, ladder_sums
from distagg.metrics.metric import Metric, Protocol
from distagg.metrics.score import RBP_PERSISTENCE, score_chunk
from distagg.types import OFFSET, RANK, Floats, Offsets

if TYPE_CHECKING:
    from distagg.dataset.chunk import Chunk

Form = tuple[Floats, Floats, int]  # gains of grades, discounts of places, state


def _gained(metric: Metric, protocol: Protocol, grade: Floats, place: Floats, highest: float) -> Form:
    letor = protocol == "letor"
    exponential = (metric.gain or ("exp" if letor else "linear")) == "exp"
    discount = 1.0 / np.log2(np.maximum(place, 2.0) if letor else place + 1.0)
    return np.exp2(grade) - 1.0 if exponential else grade, discount, SUM


def _counted(metric: Metric, protocol: Protocol, grade: Floats, place: Floats, highest: float) -> Form:
    return np.ones_like(grade), np.ones_like(place), SUM


def _first(metric: Metric, protocol: Protocol, grade: Floats, place: Floats, highest: float) -> Form:
    return np.ones_like(grade), np.ones_like(place), CASCADE


def _precise(metric: Metric, protocol: Protocol, grade: Floats, place: Floats, highest: float) -> Form:
    return np.ones_like(grade), 1.0 / place, HITS


def _reciprocal(metric: Metric, protocol: Protocol, grade: Floats, place: Floats, highest: float) -> Form:
    return np.ones_like(grade), 1.0 / place, CASCADE


def _satisfied(metric: Metric, protocol: Protocol, grade: Floats, place: Floats, highest: float) -> Form:
    return (np.exp2(grade) - 1.0) / np.exp2(metric.parameter or highest), 1.0 / place, CASCADE


def _persistent(metric: Metric, protocol: Protocol, grade: Floats, place: Floats, highest: float) -> Form:
    return np.ones_like(grade), (metric.parameter or RBP_PERSISTENCE) ** (place - 1.0), SUM


FORMS: dict[str, Callable[[Metric, Protocol, Floats, Floats, float], Form]] = {
    "ndcg": _gained,
    "dcg": _gained,
    "p": _counted,
    "recall": _counted,
    "f1": _counted,
    "success": _first,
    "map": _precise,
    "mrr": _reciprocal,
    "err": _satisfied,
    "rbp": _persistent,
}


class Terms(NamedTuple):
    """What does not change between rankings of a chunk."""

    scale: Floats  # (Q,) what a plain sum is multiplied by; NaN where the metric is undefined
    turn: Offsets  # (I,) rows of items in the order in which equal scores stand; empty where that is their own
    relevant_offsets: Offsets  # (Q + 1,)
    relevant: Offsets  # (R,) relevant items, by their place in that order
    gain: Floats  # (R,)
    discount: Floats  # (longest query,)
    state: np.int64


def ladder_terms(chunk: Chunk, metric: Metric, protocol: Protocol, max_grade: int | None) -> Terms | None:
    """The terms of a metric that has them; under ``trec`` the chunk has its ids."""
    if metric.name not in FORMS:
        return None
    grades = np.maximum(chunk.labels, 0)
    turn = _turn(chunk) if protocol == "trec" else np.zeros(0, dtype=OFFSET)
    turned = grades[turn] if len(turn) else grades
    relevant = np.flatnonzero(turned >= metric.level)
    place = np.arange(1.0, int(np.diff(chunk.item_offsets).max(initial=0)) + 1.0)
    gain, discount, state = FORMS[metric.name](
        metric, protocol, turned[relevant].astype(RANK), place, float(max_grade or 0)
    )
    if metric.cutoff is not None:
        discount = np.where(place <= metric.cutoff, discount, 0.0)
    offsets = np.searchsorted(relevant, chunk.item_offsets).astype(OFFSET)
    terms = Terms(np.ones(chunk.n_queries), turn, offsets, relevant.astype(OFFSET), gain, discount, np.int64(state))
    best = grades.astype(RANK)  # a ranking in which every query with a relevant item has a sum
    value = score_chunk(chunk, best, [metric], protocol=protocol, max_grade=max_grade)[:, 0]
    plain = _sums(chunk, terms, best, protocol)
    scale = np.where(np.isnan(value), np.nan, np.divide(value, plain, out=np.zeros_like(plain), where=plain > 0.0))
    return terms._replace(scale=scale)


def ladder_value(
    chunk: Chunk, scores: Floats, metric: Metric, terms: Terms | None, protocol: Protocol, max_grade: int | None
) -> Floats:
    """The metric (Q,) of scores (I,), a finite one for every item, as ``score_chunk`` gives it."""
    if terms is None:
        return score_chunk(chunk, scores, [metric], protocol=protocol, max_grade=max_grade)[:, 0]
    return _sums(chunk, terms, scores, protocol) * terms.scale


def _sums(chunk: Chunk, terms: Terms, scores: Floats, protocol: Protocol) -> Floats:
    if protocol == "trec":  # which compares in single precision
        scores = scores.astype(np.float32)[terms.turn].astype(RANK)
    return ladder_sums(
        chunk.item_offsets,
        scores,
        terms.relevant_offsets,
        terms.relevant,
        terms.gain,
        terms.discount,
        int(terms.state),
    )


def _turn(chunk: Chunk) -> Offsets:
    """Rows of every query's items, by descending id."""
    table = pa.table({"query": as_arrow(chunk.item_query()), "id": chunk.item_ids})
    return as_numpy(pc.sort_indices(table, [("query", "ascending"), ("id", "descending")])).astype(OFFSET)
