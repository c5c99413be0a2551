"""Walks down a ranking, and the agreement of two."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.stats

from distagg.metrics import parse_metrics, score_chunk
from distagg.metrics.ranked import kendall_tau, precision_at_hits, stop_probability, sums_at_cutoffs

OFFSETS = np.array([0, 5, 5, 6, 10])
OFFSETS.setflags(write=False)  # as in chunks


def spans() -> list[slice]:
    return [slice(a, b) for a, b in itertools.pairwise(OFFSETS)]


def test_sums_at_cutoffs() -> None:
    rng = np.random.default_rng(0)
    values, discounts = rng.random(10), rng.random(5)
    cutoffs = np.array([1, 2, 2, 4, np.iinfo(np.int64).max])
    sums = sums_at_cutoffs(OFFSETS, values, discounts, cutoffs)
    for q, span in enumerate(spans()):
        products = values[span] * discounts[: len(values[span])]
        np.testing.assert_allclose(sums[q], [products[:k].sum() for k in cutoffs])


def test_precision_at_hits() -> None:
    relevant = (np.random.default_rng(1).random(10) < 0.5).astype(np.float64)
    values = precision_at_hits(OFFSETS, relevant)
    for span in spans():
        own = relevant[span]
        wanted = [own[: i + 1].mean() if own[i] else 0.0 for i in range(len(own))]
        np.testing.assert_allclose(values[span], wanted)


def test_stop_probability() -> None:
    satisfied = np.random.default_rng(2).random(10)
    values = stop_probability(OFFSETS, satisfied)
    for span in spans():
        own = satisfied[span]
        np.testing.assert_allclose(values[span], [own[i] * np.prod(1 - own[:i]) for i in range(len(own))])


@pytest.mark.parametrize("levels", [2, 3, 1000])
@pytest.mark.parametrize("protocol", ["letor", "trec"])
def test_tau_equals_scipy(make_chunk: Any, protocol: Any, levels: int) -> None:
    rng = np.random.default_rng(levels)
    labels = [[int(g) for g in rng.integers(0, levels, n)] for n in rng.integers(2, 120, 60)]
    scores = [rng.integers(0, rng.choice([2, 5, 10_000]), len(row)).astype(float) for row in labels]
    values = score_chunk(make_chunk(labels), np.concatenate(scores), parse_metrics(["tau"]), protocol=protocol)
    wanted = [scipy.stats.kendalltau(s, row).statistic for s, row in zip(scores, labels, strict=True)]
    np.testing.assert_allclose(values[:, 0], wanted, atol=1e-12)


def test_undefined_tau_is_nan(make_chunk: Any) -> None:
    chunk = make_chunk([[1, 1], [0, 1], [1], []])
    values = score_chunk(chunk, np.array([1.0, 2.0, 3.0, 3.0, 1.0]), parse_metrics(["tau"]))
    assert np.isnan(values).all()


def test_unlabelled_is_zero_in_letor_and_left_out_in_trec(make_chunk: Any) -> None:
    chunk = make_chunk([[2, None, 1]])
    scores = np.array([3.0, 2.0, 1.0])
    assert score_chunk(chunk, scores, parse_metrics(["tau"]))[0, 0] == pytest.approx(1 / 3)
    assert score_chunk(chunk, scores, parse_metrics(["tau"]), protocol="trec")[0, 0] == pytest.approx(1.0)


def test_items_not_retrieved_are_tied_at_the_end(make_chunk: Any) -> None:
    scores = np.array([3.0, -np.inf, -np.inf])
    wanted = scipy.stats.kendalltau([3, 0, 0], [2, 1, 0]).statistic
    for protocol in ("letor", "trec"):
        value = score_chunk(make_chunk([[2, 1, 0]]), scores, parse_metrics(["tau"]), protocol=protocol)
        assert value[0, 0] == pytest.approx(wanted)


@pytest.mark.parametrize("seed", range(20))
def test_kendall_tau_counts_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 50))
    scores, labels = rng.integers(0, 6, n).astype(float), rng.integers(0, 4, n).astype(float)
    used = rng.random(n) < 0.8
    offsets = np.array([0, n])
    tau = kendall_tau(offsets, scores, labels, used)[0]
    x, y = scores[used], labels[used]
    dx, dy = np.sign(x[:, None] - x), np.sign(y[:, None] - y)
    scale = np.sqrt((dx**2).sum() * (dy**2).sum())
    assert tau == pytest.approx((dx * dy).sum() / scale if scale else np.nan, nan_ok=True)


def test_kendall_tau_of_a_long_query() -> None:
    rng = np.random.default_rng(3)
    scores, labels = rng.normal(size=100_000), rng.integers(0, 3, 100_000).astype(float)
    offsets = np.array([0, 100_000])
    tau = kendall_tau(offsets, scores, labels, np.ones(100_000, dtype=bool))[0]
    assert tau == pytest.approx(scipy.stats.kendalltau(scores, labels).statistic, abs=1e-12)
