"""Lambdas against exchanges made by hand, and gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Query, build_chunk

from distagg.models.scorers.kernels import OBJECTIVES, Goal, Net, Rows, climb, lambdas
from distagg.models.scorers.scorer import different_pairs
from distagg.types import NO_LABEL

METRICS = sorted(OBJECTIVES)
HIGHEST = 2.0


def metric_of(metric: str, labels: list[int]) -> float:
    """The metric of labels in ranking order, not divided."""
    known = [label if label != NO_LABEL else None for label in labels]
    if metric == "ndcg":
        return sum((2.0**v - 1) / np.log2(r + 2) for r, v in enumerate(known) if v is not None)
    if metric == "rbp":
        return sum(0.05 * 0.95**r * max(v, 0) for r, v in enumerate(known) if v is not None)
    total, hits, reach = 0.0, 0, 1.0
    for r, v in enumerate(known):
        if metric == "map" and v is not None and v >= 1:
            hits += 1
            total += hits / (r + 1)
        if metric == "err" and v is not None:
            stop = (2.0**v - 1) / 2.0**HIGHEST
            total += reach * stop / (r + 1)
            reach *= 1 - stop
    return total


def whole_of(metric: str, labels: np.ndarray) -> float:
    known = sorted((int(v) for v in labels if v != NO_LABEL), reverse=True)
    hits = float(sum(v >= 1 for v in known))
    pairs = float(sum(a > b for a in known for b in known))
    return {"ndcg": metric_of("ndcg", known), "map": hits, "err": 1.0, "rbp": 1.0, "ranknet": pairs}[metric]


def naive_deltas(metric: str, labels: np.ndarray, score: np.ndarray) -> dict[tuple[int, int], float]:
    """|change of the metric| for every pair (better, worse), by making the exchange."""
    order = np.argsort(-score, kind="stable")
    ranked = [int(labels[i]) for i in order]
    place = {int(i): r for r, i in enumerate(order)}
    deltas = {}
    for i in range(len(labels)):
        for j in range(len(labels)):
            if NO_LABEL in (labels[i], labels[j]) or labels[i] <= labels[j]:
                continue
            other = ranked.copy()
            other[place[i]], other[place[j]] = other[place[j]], other[place[i]]
            change = 1.0 if metric == "ranknet" else metric_of(metric, other) - metric_of(metric, ranked)
            deltas[i, j] = abs(change) / whole_of(metric, labels)
    return deltas


def surrogate(deltas: dict[tuple[int, int], float], score: np.ndarray) -> float:
    """Pairwise logistic with fixed deltas, turned so that larger is better."""
    return -sum(delta * np.log1p(np.exp(score[j] - score[i])) for (i, j), delta in deltas.items())


def found_lambdas(metric: str, labels: np.ndarray, score: np.ndarray) -> tuple[bool, np.ndarray]:
    labels.setflags(write=False)
    force = np.empty(len(labels))
    return lambdas(OBJECTIVES[metric], HIGHEST, whole_of(metric, labels), labels, score, force), force


LABELS = st.lists(st.sampled_from([0, 0, 1, 2, NO_LABEL]), min_size=1, max_size=9)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=80)
@given(drawn=LABELS, seed=st.integers(0, 1000))
def test_lambdas_are_those_of_exchanges_made_by_hand(metric: str, drawn: list[int], seed: int) -> None:
    labels = np.array(drawn, dtype=np.int32)
    score = np.random.default_rng(seed).integers(-3, 4, len(labels)) / 2.0  # with ties
    taught, force = found_lambdas(metric, labels, score)
    if whole_of(metric, labels) == 0.0 or len({int(v) for v in labels if v != NO_LABEL}) < 2:
        assert not taught
        assert not force.any()
        return
    assert taught
    expected = np.zeros(len(labels))
    for (i, j), delta in naive_deltas(metric, labels, score).items():
        expected[i] += delta / (1 + np.exp(score[i] - score[j]))
        expected[j] -= delta / (1 + np.exp(score[i] - score[j]))
    np.testing.assert_allclose(force, expected, atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_lambdas_are_the_gradient_of_the_surrogate(metric: str) -> None:
    rng = np.random.default_rng(1)
    labels = np.array([0, 2, 1, 0, 1, 0, 2], dtype=np.int32)
    score = rng.normal(size=7)
    deltas, step = naive_deltas(metric, labels, score), 1e-6
    _, force = found_lambdas(metric, labels, score)
    for i in range(7):
        nudge = np.eye(7)[i] * step
        slope = (surrogate(deltas, score + nudge) - surrogate(deltas, score - nudge)) / (2 * step)
        assert force[i] == pytest.approx(slope, abs=1e-8)


def test_pairs_of_different_labels_are_counted_by_query() -> None:
    draw = np.random.default_rng(2)
    drawn = [draw.choice([0, 1, 2, 4, NO_LABEL], size) for size in (6, 1, 9, 3)]
    chunk = build_chunk([Query(len(labels)) for labels in drawn])
    expected = [whole_of("ranknet", labels) for labels in drawn]
    assert different_pairs(chunk, np.concatenate(drawn).astype(np.int32)).tolist() == expected


def scores(hidden: bool, rows: Rows, size: int, net: Net):
    """The scoring function, written down with numpy."""
    units = np.tile(net.bias[0], (size, 1))
    np.add.at(units, rows.item, np.einsum("nf,nfh->nh", rows.values, net.weight[rows.expert]))
    for bias, inner in zip(net.bias[1:], net.inner, strict=True):
        units = bias + np.tanh(units) @ inner
    return np.tanh(units) @ net.output if hidden else units[:, 0]


@pytest.mark.parametrize("layers", [0, 1, 2, 3])
def test_the_gradient_by_weight_equals_finite_differences(layers: int) -> None:
    rng = np.random.default_rng(2)
    size, n_rows, hidden = 6, 14, layers > 0
    depth, units = max(layers, 1), 3 if hidden else 1
    labels = np.array([0, 2, 1, 0, 1, 0], dtype=np.int32)
    item = rng.integers(0, size, n_rows).astype(np.int32)
    expert = rng.integers(0, 4, n_rows).astype(np.int32)
    rows = Rows(np.array([0, size]), np.array([0, n_rows]), item, expert, rng.normal(size=(n_rows, 2)))
    shapes = ((4, 2, units), (depth, units), (depth - 1, units, units), (units,))
    net = Net(*(rng.normal(size=shape) for shape in shapes))
    if not hidden:
        net = net._replace(bias=np.zeros((1, 1)), output=np.ones(1))
    goal = Goal(OBJECTIVES["ndcg"], HIGHEST, np.array([whole_of("ndcg", labels)]))
    for array in (labels, *rows):
        array.setflags(write=False)
    slope = Net(*(np.zeros_like(part) for part in net))
    problem = (goal, hidden, np.arange(1), labels, rows)
    taught = climb(*problem, net, 1.0, slope)
    assert taught == 1
    deltas = naive_deltas("ndcg", labels, scores(hidden, rows, size, net))
    for part in range(4 if hidden else 1):
        for at in np.ndindex(net[part].shape):
            ends = []
            for nudge in (1e-6, -1e-6):
                moved = Net(*(p.copy() for p in net))
                moved[part][at] += nudge
                ends.append(surrogate(deltas, scores(hidden, rows, size, moved)))
            assert slope[part][at] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7)
    stepped = Net(*(p.copy() for p in net))  # a net that is its own target makes the same step
    climb(*problem, stepped, 0.1, stepped)
    for part in range(4):
        np.testing.assert_allclose(stepped[part], net[part] + 0.1 * slope[part], atol=1e-12)
