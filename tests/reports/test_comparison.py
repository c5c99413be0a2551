"""Intervals, references and pairs of a comparison."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from distagg.reports.comparison import read_comparison
from tests.reports.made_up import comparison


def test_interval_is_students_over_queries() -> None:
    result = comparison(["a", "b"], ["map"], queries=40)
    sample = np.array(result["per_query"]["a"]["map"])
    low, high = read_comparison(result).interval("a", "map")
    expected = stats.t.interval(0.95, len(sample) - 1, loc=result["means"]["a"]["map"], scale=stats.sem(sample))
    assert (low, high) == pytest.approx(expected, rel=1e-12)


def test_interval_over_folds_without_queries() -> None:
    result = comparison(["a", "b"], ["map"])
    del result["per_query"]
    values = [row["value"] for row in result["results"] if row["model"] == "a"]
    low, high = read_comparison(result).interval("a", "map")
    expected = stats.t.interval(0.95, 4, loc=result["means"]["a"]["map"], scale=stats.sem(values))
    assert (low, high) == pytest.approx(expected, rel=1e-12)


def test_no_interval_from_one_figure() -> None:
    seen = read_comparison(comparison(["a"], ["map"], queries=1, folds=1))
    assert np.isnan(seen.interval("a", "map")).all()


def test_a_test_reads_from_both_sides() -> None:
    seen = read_comparison(comparison(["a", "b", "c"], ["map"]))
    there, back = seen.test("map", "a", "b"), seen.test("map", "b", "a")
    assert (back.difference, back.low, back.high) == (-there.difference, -there.high, -there.low)
    assert back.p == there.p
    assert seen.test("map", "a", "nobody") is None


def test_baseline_is_the_model_of_every_test() -> None:
    result = comparison(["a", "b", "c", "d"], ["map", "p@1"])
    assert read_comparison(result).baseline is None
    result["tests"] = [test for test in result["tests"] if "c" in (test["a"], test["b"])]
    assert read_comparison(result).baseline == "c"
    assert read_comparison({**result, "baseline": "a"}).baseline == "a"


def test_folds_average_over_seeds() -> None:
    rows = [
        {"model": "a", "fold": 1, "metric": "map", "value": value, "seed": seed} for seed, value in [(0, 0.2), (1, 0.4)]
    ]
    seen = read_comparison({"means": {"a": {"map": 0.3}}, "results": rows})
    assert seen.folds["a", "map"]["1"] == pytest.approx(0.3)
