from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats

from distagg.kernels.metric import kendall_tau, precision_at_hits, stop_probability, sums_at_cutoffs
from distagg.kernels.ordering import order_items

OFFSETS = np.array([0, 5, 5, 6, 10])


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
    relevant = np.random.default_rng(1).random(10) < 0.5
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


@pytest.mark.parametrize("seed", range(20))
def test_kendall_tau_counts_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 50))
    scores, labels = rng.integers(0, 6, n).astype(float), rng.integers(0, 4, n).astype(float)
    used = rng.random(n) < 0.8
    offsets = np.array([0, n])
    tau = kendall_tau(offsets, scores, labels, used, order_items(offsets, scores))[0]
    x, y = scores[used], labels[used]
    dx, dy = np.sign(x[:, None] - x), np.sign(y[:, None] - y)
    scale = np.sqrt((dx**2).sum() * (dy**2).sum())
    assert tau == pytest.approx((dx * dy).sum() / scale if scale else np.nan, nan_ok=True)


def test_kendall_tau_of_a_long_query() -> None:
    rng = np.random.default_rng(3)
    scores, labels = rng.normal(size=100_000), rng.integers(0, 3, 100_000).astype(float)
    offsets = np.array([0, 100_000])
    tau = kendall_tau(offsets, scores, labels, np.ones(100_000, dtype=bool), order_items(offsets, scores))[0]
    assert tau == pytest.approx(scipy.stats.kendalltau(scores, labels).statistic, abs=1e-12)
