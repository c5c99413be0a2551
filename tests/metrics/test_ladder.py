"""Many rankings at once: the same values as one ranking after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Query, build_chunk

from distagg.dataset.chunk import Chunk
from distagg.metrics import Protocol, parse_metric, score_chunk
from distagg.metrics.ladder import FORMS, ladder_terms, ladder_value
from distagg.metrics.ladder_kernels import place_of, raise_rows
from distagg.metrics.metric import FAMILIES

METRICS = [
    "ndcg@3", "ndcg", "ndcg(exp)@3", "ndcg(linear)", "dcg@3", "p@5", "p(rel=2)@3", "recall@4", "recall", "f1@3", "f1",
    "success@2", "map", "map@4", "map(rel=2)", "mrr", "mrr@2", "err", "err(3)@5", "rbp", "rbp(0.5)@3", "tau", "bpref",
    "infap", "rprec", "judged@3",
]  # fmt: skip


def drawn(seed: int, queries: int = 12) -> Chunk:
    """Queries of all kinds: without items, labels or relevant items, with unjudged and negative labels."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(queries):
        size = int(random.integers(0, 9))
        labels = [None if label == 4 else int(label) for label in random.integers(-1, 5, size)]
        rows.append(Query(size, labels=labels))
    return build_chunk([*rows, Query(3, labels=[None] * 3), Query(3, labels=[0, 0, -1])])


@pytest.mark.parametrize("protocol", ["letor", "trec"])
@pytest.mark.parametrize("name", METRICS)
def test_the_values_of_score_chunk(name: str, protocol: Protocol) -> None:
    chunk, metric = drawn(1), parse_metric(name)
    random = np.random.default_rng(2)
    start, slope = random.integers(0, 4, (2, chunk.n_items)) * 1.0
    start += random.choice([0.0, 1e-9], chunk.n_items)  # tied in single precision
    scores = start + slope * np.array([[0.0], [0.25], [0.5], [1.0], [2.0], [3.0]])  # whole numbers make ties
    terms = ladder_terms(chunk, metric, protocol, 3)
    expected = [score_chunk(chunk, row, [metric], protocol=protocol, max_grade=3)[:, 0] for row in scores]
    found = [ladder_value(chunk, row, metric, terms, protocol, 3) for row in scores]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_every_metric_is_tried_and_every_form_is_one() -> None:
    assert {parse_metric(name).name for name in METRICS} == set(FAMILIES) > set(FORMS)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_places_are_those_of_a_stable_sort(values: list[int]) -> None:
    """Scores with many ties, above all at the bottom, where the items stand that a list leaves out."""
    scores = np.array([0.0, 0.0, *values, 0.0, 9.0])  # the first and the last row belong to other queries
    first, last = 1, len(scores) - 1
    rows, raised = np.empty(len(scores), dtype=np.int64), np.empty(len(scores))
    count = raise_rows(scores, first, last, rows, raised)
    order = np.argsort(-scores[first:last], kind="stable")
    found = [place_of(rows, raised, count, first, item) for item in range(first, last)]
    assert np.argsort(found).tolist() == order.tolist()
