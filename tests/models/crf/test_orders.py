"""Expected metrics over drawn orders: against sums over the orders, finite differences, and the exact expectation."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from naive_metric import naive_metric
from strategies import Query, build_chunk

from distagg.errors import UsageError
from distagg.models.crf.kernels import Potentials
from distagg.models.crf.model import Crf, position_weights
from distagg.models.crf.orders import draw_orders
from distagg.models.crf.orders_kernels import Orders, climb_orders
from distagg.types import INDEX, NO_LABEL, OFFSET

METRICS = ("ndcg", "ndcg@3", "p@3", "map", "err", "rbp")
LABELS = ([2, 0, 1, NO_LABEL, 0, 1, 2], [1, 1], [NO_LABEL, 0, 1, 1], [0])


def chunk_of(labels):
    chunk = build_chunk([Query(len(some)) for some in labels])
    return replace(chunk, labels=np.concatenate(labels).astype(np.int32))


def rows_of(orders: Orders, n: int) -> np.ndarray:
    """The orders of a query, (R, size)."""
    count = orders.value.shape[1]
    return orders.order[orders.start[n] * count : orders.start[n + 1] * count].reshape(count, -1)


def climbed(orders: Orders, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expected metrics of the queries, and the gradient of their sum by the scores of the chunk's items."""
    each, slope, means = np.arange(len(scores)), np.zeros((len(scores), 1)), np.zeros(len(orders.value))
    potentials = Potentials(np.arange(len(scores) + 1), each, np.ones((len(scores), 1)), each)
    place = position_weights(int(np.diff(orders.start).max()))
    climb_orders(1.0, np.arange(len(means)), orders, place, potentials, scores[:, None], slope, means)
    return means, slope[:, 0]


@pytest.mark.parametrize("metric", METRICS)
def test_values_are_the_metrics_of_the_orders(metric: str) -> None:
    chunk = chunk_of(LABELS)
    name, _, depth = metric.partition("@")
    orders = Crf(metric=metric, orders=12)._orders(chunk, chunk.labels, 2.0)
    assert orders.item.tolist() == [0, 1, 2, 4, 5, 6, 10, 11, 12]  # queries of one label teach nothing
    for n, value in enumerate(orders.value):
        labels = chunk.labels[orders.item[orders.start[n] : orders.start[n + 1]]]
        expected = [naive_metric(name, int(depth or 12), labels[row].tolist()) for row in rows_of(orders, n)]
        np.testing.assert_allclose(value, expected, atol=1e-12)


def test_slopes_are_finite_differences_of_the_expectation() -> None:
    chunk = chunk_of(LABELS)
    orders, scores = Crf(orders=9)._orders(chunk, chunk.labels, 2.0), np.random.default_rng(1).normal(size=14)
    means, slope = climbed(orders, scores)
    for n, mean in enumerate(means):
        own = scores[orders.item[orders.start[n] : orders.start[n + 1]]]
        weights = [math.exp(sum(own[i] / math.log(p + 2) for p, i in enumerate(row))) for row in rows_of(orders, n)]
        assert mean == pytest.approx(np.average(orders.value[n], weights=weights), abs=1e-12)
    for i in range(14):
        ends = [climbed(orders, scores + sign * 1e-5 * np.eye(14)[i])[0].sum() for sign in (1, -1)]
        assert slope[i] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)


def test_all_orders_give_the_exact_expectation() -> None:
    """Of a query that is its own sample, the gradient of crf without ``orders``."""
    query = Query(4, {0: {0: 1, 1: 2, 2: 3, 3: 4}, 1: {1: 1, 0: 2, 3: 3}, 2: {3: 1, 2: 2, 0: 5}}, [2, 1, 0, 0])
    chunk, exact, drawn = build_chunk([query], n_experts=3), Crf(sample=4), Crf(orders=1)
    every = np.array(list(permutations(range(4))), dtype=INDEX)
    labels = np.array(query.labels)
    value = np.array([[naive_metric("ndcg", 4, labels[row].tolist()) for row in every]])
    orders = Orders(np.array([0, 4], dtype=OFFSET), np.arange(4), every.ravel(), value)
    state = exact.first(3, 2.0)
    state = replace(state, weights={"expert_weights": np.random.default_rng(2).normal(size=(3, 4))})
    expected, _ = exact.slope(chunk, state)
    prepared, slope = drawn.prepared(chunk), np.zeros((3, 4))
    potentials = Potentials(prepared["start"], prepared["holder"], prepared["potentials"], np.arange(3))
    weights = state.weights["expert_weights"]
    climb_orders(1.0, np.arange(1), orders, position_weights(4), potentials, weights, slope, np.zeros(1))
    np.testing.assert_allclose(slope, expected["expert_weights"], atol=1e-12)


def test_a_query_has_the_same_orders_in_any_chunk_and_good_ones_among_them() -> None:
    chunk = chunk_of([*LABELS, [0] * 20 + [1] * 5])
    whole = draw_orders(chunk, chunk.labels, 50, 3)
    alone = chunk.select(np.array([False, False, False, False, True]))
    np.testing.assert_array_equal(rows_of(draw_orders(alone, alone.labels, 50, 3), 0), rows_of(whole, 2))
    assert (np.sort(rows_of(whole, 2), axis=1) == np.arange(25)).all()
    hits = (rows_of(whole, 2)[:, :5] >= 20).sum(axis=1)
    assert hits[-10:].mean() > hits[:10].mean() + 1.0


def test_the_likelihood_needs_all_orders() -> None:
    with pytest.raises(UsageError, match="omit orders"):
        Crf(metric="likelihood", orders=10)
