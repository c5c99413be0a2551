from __future__ import annotations

import inspect
import itertools
import math

import numpy as np
import pytest
import scipy.stats

from distagg.errors import UsageError
from distagg.metrics import compare_all, paired_tests
from distagg.metrics.significance import holm


@pytest.mark.parametrize("n", [2, 5, 30, 400])
def test_t_test_and_interval_equal_scipy(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.random(n), rng.random(n) + 0.1
    wanted = scipy.stats.ttest_rel(a, b)
    test = paired_tests(a, b)
    assert test.queries == n
    assert test.difference == pytest.approx((a - b).mean())
    assert test.t_test == pytest.approx(wanted.pvalue, rel=1e-9)
    interval = wanted.confidence_interval(0.95)
    assert (test.low, test.high) == pytest.approx((interval.low, interval.high))


def test_randomisation_enumerates_few_differences() -> None:
    rng = np.random.default_rng(0)
    for n in range(2, 10):
        d = rng.normal(0.5, 1.0, n)
        sums = [
            abs(sum(s * x for s, x in zip(signs, d, strict=True))) for signs in itertools.product((1, -1), repeat=n)
        ]
        wanted = np.mean(np.array(sums) >= abs(d.sum()) - 1e-9)
        assert paired_tests(d, np.zeros(n)).randomisation == pytest.approx(wanted)


def test_randomisation_draws_agree_with_scipy_and_repeat() -> None:
    rng = np.random.default_rng(1)
    d = rng.normal(0.15, 1.0, 200)
    random = "rng" if "rng" in inspect.signature(scipy.stats.permutation_test).parameters else "random_state"
    wanted = scipy.stats.permutation_test(
        (d, np.zeros(200)),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        **{random: np.random.default_rng(2)},
    ).pvalue
    draws = [paired_tests(d, np.zeros(200), seed).randomisation for seed in range(20)]
    assert draws == [paired_tests(d, np.zeros(200), seed).randomisation for seed in range(20)]
    # Two seeds may give the same count by chance; twenty must spread as binomial draws do.
    binomial = math.sqrt(wanted * (1 - wanted) / 10_000)
    assert 0.5 * binomial < np.std(draws) < 2.0 * binomial
    assert np.mean(draws) == pytest.approx(wanted, abs=0.015)


def test_batches_cover_all_draws() -> None:
    d = np.random.default_rng(5).normal(0.0, 1.0, 3000)
    p = paired_tests(d, np.zeros(3000)).randomisation
    assert p == pytest.approx(paired_tests(d, np.zeros(3000)).t_test, abs=0.02)


def test_no_difference_no_queries_and_constant_difference() -> None:
    same = paired_tests(np.full(20, 0.3), np.full(20, 0.3))
    assert (same.difference, same.low, same.high, same.t_test, same.randomisation) == (0.0, 0.0, 0.0, 1.0, 1.0)
    none = paired_tests(np.array([np.nan]), np.array([1.0]))
    assert none.queries == 0
    assert math.isnan(none.difference)
    assert none.t_test == none.randomisation == 1.0
    one = paired_tests(np.array([0.5]), np.array([0.25]))
    assert (one.queries, one.difference, one.t_test) == (1, 0.25, 1.0)
    shifted = paired_tests(np.full(4, 0.75), np.full(4, 0.25))
    assert (shifted.t_test, shifted.randomisation) == (0.0, 0.125)


def test_nan_is_dropped_pairwise() -> None:
    a = np.array([0.1, np.nan, 0.3, 0.9, 0.4])
    b = np.array([0.2, 0.5, np.nan, 0.1, 0.1])
    keep = [0, 3, 4]
    assert paired_tests(a, b) == paired_tests(a[keep], b[keep])


def test_refuses_unequal_lengths() -> None:
    with pytest.raises(UsageError, match="expected one per query"):
        paired_tests(np.zeros(2), np.zeros(3))


def test_holm_equals_the_definition() -> None:
    rng = np.random.default_rng(6)
    for m in range(1, 8):
        p = rng.random(m) * 0.2
        for i in range(m):
            ranked = sorted(range(m), key=lambda j: p[j])
            upto = ranked[: ranked.index(i) + 1]
            wanted = min(1.0, max((m - k) * p[j] for k, j in enumerate(upto)))
            assert holm(p)[i] == pytest.approx(wanted)


def test_compare_all_pairs_or_a_baseline() -> None:
    rng = np.random.default_rng(9)
    values = {"a": rng.random(40), "b": rng.random(40), "c": rng.random(40) + 0.4}
    rows = compare_all(values)
    assert [(row.a, row.b) for row in rows] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert all(row.t_test_holm >= row.test.t_test for row in rows)
    assert all(row.randomisation_holm >= row.test.randomisation for row in rows)
    assert [(row.a, row.b) for row in compare_all(values, baseline="b")] == [("a", "b"), ("c", "b")]
    with pytest.raises(UsageError, match="unknown baseline"):
        compare_all(values, baseline="d")
    assert compare_all({"a": rng.random(3)}) == []
