"""The letor protocol against a twin written from its text, one query and one position at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distagg.errors import UsageError
from distagg.metrics import Metric, mean_over_queries, parse_metrics, score_chunk

METRICS = [
    "ndcg@3",
    "ndcg",
    "ndcg@1",
    "p@2",
    "p@5",
    "map",
    "map@2",
    "mrr",
    "mrr@2",
    "err",
    "err(3)@2",
    "rbp",
    "rbp(0.5)@3",
    "ndcg(exp)@2",
    "ndcg(linear)@4",
    "dcg@3",
    "dcg(linear)",
    "recall@3",
    "recall",
    "f1@2",
    "success@2",
    "rprec",
    "p(rel=2)@3",
]
GRADES = 3


def naive(labels: list[int], scores: list[float], metric: Metric) -> float:
    name, cutoff, parameter = metric.name, metric.cutoff, metric.parameter
    ranking = [labels[i] for i in sorted(range(len(labels)), key=lambda i: -scores[i])]
    ranking = [max(label, 0) for label in ranking]
    depth = len(ranking) if cutoff is None else cutoff
    relevant = [label >= metric.level for label in ranking]
    if name in ("ndcg", "dcg"):

        def dcg(grades: list[int]) -> float:
            total = 0.0
            for position, grade in enumerate(grades[:depth], start=1):
                gain = grade if metric.gain == "linear" else 2**grade - 1
                total += gain * (1.0 if position <= 2 else math.log(2) / math.log(position))
            return total

        if name == "dcg":
            return dcg(ranking)
        if len(ranking) < depth or not any(relevant):
            return 0.0
        return dcg(ranking) / dcg(sorted(ranking, reverse=True))
    if name == "p":
        return sum(relevant[:depth]) / depth
    if name == "recall":
        return sum(relevant[:depth]) / max(sum(relevant), 1)
    if name == "f1":
        precision, recall = sum(relevant[:depth]) / depth, sum(relevant[:depth]) / max(sum(relevant), 1)
        return 2 * precision * recall / (precision + recall) if precision else 0.0
    if name == "success":
        return float(any(relevant[:depth]))
    if name == "rprec":
        return sum(relevant[: sum(relevant)]) / max(sum(relevant), 1)
    if name == "map":
        hits = [i for i, hit in enumerate(relevant, start=1) if hit]
        return sum(sum(relevant[:i]) / i for i in hits if i <= depth) / len(hits) if hits else 0.0
    if name == "mrr":
        return next((1 / i for i, hit in enumerate(relevant[:depth], start=1) if hit), 0.0)
    if name == "err":
        highest = GRADES if parameter is None else parameter
        total, reached = 0.0, 1.0
        for position, grade in enumerate(ranking[:depth], start=1):
            satisfied = (2**grade - 1) / 2**highest
            total += reached * satisfied / position
            reached *= 1 - satisfied
        return total
    assert name == "rbp"
    p = 0.8 if parameter is None else parameter
    return (1 - p) * sum(p**i for i, hit in enumerate(relevant[:depth]) if hit)


query = st.lists(st.tuples(st.integers(-1, GRADES), st.integers(-3, 3)), max_size=40)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(query, min_size=1, max_size=5))
def test_equals_the_naive_twin(make_chunk: Any, queries: list[list[tuple[int, int]]]) -> None:
    metrics = parse_metrics(METRICS)
    chunk = make_chunk([[label for label, _ in items] for items in queries])
    scores = np.array([score for items in queries for _, score in items], dtype=np.float64)
    values = score_chunk(chunk, scores, metrics, max_grade=GRADES)
    for row, items in zip(values, queries, strict=True):
        labels, own = [label for label, _ in items], [float(score) for _, score in items]
        wanted = [naive(labels, own, metric) for metric in metrics]
        np.testing.assert_allclose(row, wanted, rtol=1e-12, atol=1e-12)


def test_by_hand(make_chunk: Any) -> None:
    chunk = make_chunk([[0, 2, 1, None]])
    names = ["ndcg@3", "p@3", "map", "mrr", "err@2", "rbp(0.5)"]
    values = score_chunk(chunk, np.array([4.0, 3.0, 2.0, 1.0]), parse_metrics(names), max_grade=2)
    ndcg = (3 * 1 + 1 * math.log(2) / math.log(3)) / (3 + 1 * 1)
    np.testing.assert_allclose(values, [[ndcg, 2 / 3, (1 / 2 + 2 / 3) / 2, 1 / 2, 0.75 / 2, 0.5 * (0.5 + 0.25)]])


def test_fewer_items_than_the_cutoff_and_no_relevant_item_count_as_zero(make_chunk: Any) -> None:
    chunk = make_chunk([[1, 0], [0, 0, 0], [1, 0, 0]])
    values = score_chunk(chunk, np.arange(8.0)[::-1].copy(), parse_metrics(["ndcg@3", "ndcg", "map"]))
    np.testing.assert_array_equal(values, [[0, 1, 1], [0, 0, 0], [1, 1, 1]])
    np.testing.assert_allclose(mean_over_queries(values), [1 / 3, 2 / 3, 2 / 3])


def test_equal_scores_keep_input_order_and_unranked_items_come_last(make_chunk: Any) -> None:
    chunk = make_chunk([[0, 1, 0], [1, 0, 0]])
    values = score_chunk(chunk, np.array([5.0, 5.0, 5.0, -np.inf, 1.0, -np.inf]), parse_metrics(["mrr"]))
    np.testing.assert_allclose(values[:, 0], [1 / 2, 1 / 2])


def test_columns_come_in_the_order_asked_for(make_chunk: Any) -> None:
    chunk = make_chunk([[0, 1, 1]])
    values = score_chunk(chunk, np.array([3.0, 2.0, 1.0]), parse_metrics(["p@3", "map", "p@1", "p@2", "p@3"]))
    np.testing.assert_allclose(values[0, [0, 2, 3, 4]], [2 / 3, 0, 1 / 2, 2 / 3])


def test_empty_chunk(make_chunk: Any) -> None:
    metrics = parse_metrics([*METRICS, "f1", "bpref", "infap", "judged@2", "tau"])
    assert score_chunk(make_chunk([]), np.zeros(0), metrics, max_grade=1).shape == (0, len(metrics))
    empty_query = score_chunk(make_chunk([[]]), np.zeros(0), metrics, max_grade=1)
    assert np.isnan(empty_query[0, -1])
    assert not empty_query[0, :-1].any()


def test_refuses_what_it_cannot_score(make_chunk: Any) -> None:
    chunk = make_chunk([[0, 3]])
    with pytest.raises(UsageError, match="NaN among the scores"):
        score_chunk(chunk, np.array([np.nan, 1.0]), parse_metrics(["map"]))
    with pytest.raises(UsageError, match="expected one per item"):
        score_chunk(chunk, np.zeros(3), parse_metrics(["map"]))
    with pytest.raises(UsageError, match="give max_grade"):
        score_chunk(chunk, np.zeros(2), parse_metrics(["err"]))
    with pytest.raises(UsageError, match=r"write the right one, like err\(3\)"):
        score_chunk(chunk, np.zeros(2), parse_metrics(["err(2)"]))
    with pytest.raises(UsageError, match="found the label 2000"):
        score_chunk(make_chunk([[2000]]), np.zeros(1), parse_metrics(["ndcg"]))


def test_mean_leaves_nan_out() -> None:
    values = np.array([[1.0, np.nan], [np.nan, np.nan], [0.0, np.nan]])
    np.testing.assert_array_equal(mean_over_queries(values), [0.5, np.nan])
