from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distagg.kernels.ordering import order_items, sort_span


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(-3, 30), max_size=90), max_size=4))
def test_order_is_python_sorted(queries: list[list[int]]) -> None:
    offsets = np.cumsum([0, *(len(q) for q in queries)])
    scores = np.array([s for q in queries for s in q], dtype=np.float64)
    order = order_items(offsets, scores)
    assert order.dtype == np.int32
    for q, own in enumerate(queries):
        wanted = sorted(range(len(own)), key=lambda i, own=own: -own[i])  # sorted() is stable
        assert order[offsets[q] : offsets[q + 1]].tolist() == wanted


def test_infinities_and_long_queries() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 15, 16, 17, 31, 32, 33, 64, 1000, 4097):
        scores = rng.choice([-np.inf, np.inf, 0.0, -0.0, 1.5], n)
        order = order_items(np.array([0, n]), scores)
        np.testing.assert_array_equal(order, np.argsort(-scores, kind="stable"))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 20), max_size=80))
def test_sort_counts_exchanged_pairs(values: list[int]) -> None:
    n = len(values)
    key, index = np.array(values, dtype=np.float64), np.arange(n, dtype=np.int32)
    exchanges = sort_span(key, index, np.empty(n), np.empty(n, dtype=np.int32))
    assert exchanges == sum(values[i] < values[j] for i in range(n) for j in range(i + 1, n))
    assert key.tolist() == sorted(values, reverse=True)
    assert [values[i] for i in index] == key.tolist()
