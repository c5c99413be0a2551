from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distagg.rankings.ordering import count_ascents, falling_order, order_items, order_spans


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(-3, 30), max_size=150), max_size=4))
def test_order_is_python_sorted(queries: list[list[int]]) -> None:
    offsets = np.cumsum([0, *(len(q) for q in queries)])
    scores = np.array([s for q in queries for s in q], dtype=np.float64)
    order, ordered = order_spans(offsets, scores)
    ascents = count_ascents(offsets, scores)
    assert order.dtype == np.int32
    for q, own in enumerate(queries):
        span = slice(offsets[q], offsets[q + 1])
        assert order[span].tolist() == sorted(range(len(own)), key=lambda i, own=own: -own[i])  # sorted() is stable
        assert ordered[span].tolist() == sorted(own, reverse=True)
        assert ascents[q] == sum(own[i] < own[j] for i in range(len(own)) for j in range(i + 1, len(own)))


def test_infinities_and_long_queries() -> None:
    rng = np.random.default_rng(0)
    for n in (0, 1, 63, 64, 65, 127, 128, 129, 191, 193, 1000, 4097):
        scores = rng.choice([-np.inf, np.inf, 0.0, -0.0, 1.5], n)
        order = order_items(np.array([0, n]), scores)
        np.testing.assert_array_equal(order, np.argsort(-scores, kind="stable"))
        np.testing.assert_array_equal(falling_order(scores), order)


def test_scores_are_left_alone() -> None:
    scores = np.array([1.0, 3.0, 2.0])
    scores.setflags(write=False)
    assert order_items(np.array([0, 3]), scores).tolist() == [1, 2, 0]
    assert scores.tolist() == [1.0, 3.0, 2.0]
