"""The result dictionary of a comparison, parsed once for all tables and charts.

The dictionary is what ``distagg compare --json`` prints; only ``means`` must be there. Differences are the
first model's figure minus the second's. Intervals are Student's, of the mean over queries, or over folds
where the result keeps no figures per query.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distagg.errors import InputError
from distagg.reports.text import number

LEVEL = 0.05  # of the significance marks; the confidence of intervals is 1 - LEVEL
_DECIMALS = 4  # of a fraction, that is two decimals of a percentage


@dataclass(frozen=True, slots=True)
class PairedTest:
    """A paired test of model ``a`` against model ``b``; ``*_holm`` are corrected for the many comparisons."""

    metric: str
    a: str
    b: str
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p_t: float = math.nan
    p_randomisation: float = math.nan
    p_t_holm: float = math.nan
    p_randomisation_holm: float = math.nan
    queries: float = math.nan

    @property
    def p(self) -> float:
        """The corrected p-value of the randomisation test, or of the t-test if there is none."""
        return self.p_randomisation_holm if math.isfinite(self.p_randomisation_holm) else self.p_t_holm

    @property
    def significant(self) -> bool:
        return self.p < LEVEL

    def turned(self) -> PairedTest:
        """The same test from the other model's side."""
        return replace(self, a=self.b, b=self.a, difference=-self.difference, low=-self.high, high=-self.low)


@dataclass(frozen=True, slots=True)
class Comparison:
    models: tuple[str, ...]
    metrics: tuple[str, ...]
    means: Mapping[str, Mapping[str, float]]  # model -> metric -> mean
    folds: Mapping[tuple[str, str], Mapping[str, float]]  # (model, metric) -> fold -> mean over seeds
    per_query: Mapping[tuple[str, str], Sequence[float]]  # (model, metric) -> one value per query
    tests: Mapping[tuple[str, str, str], PairedTest]  # (metric, a, b)
    baseline: str | None  # the model to compare the others with; None: the best one

    def value(self, model: str, metric: str) -> float:
        return self.means.get(model, {}).get(metric, math.nan)

    def ordered(self, metric: str | None = None) -> list[str]:
        """Models by a metric (the first), the best first, those without a value last; ties keep their order."""
        metric = metric if metric is not None else next(iter(self.metrics), "")
        return sorted(self.models, key=lambda model: -_or_lowest(self.value(model, metric)))

    def best(self, metric: str) -> frozenset[str]:
        """The models with the highest value after rounding for display."""
        shown = {model: round(self.value(model, metric), _DECIMALS) for model in self.models}
        highest = max((v for v in shown.values() if math.isfinite(v)), default=math.nan)
        return frozenset(model for model, v in shown.items() if v == highest)

    def reference(self, metric: str) -> str | None:
        """The model to compare the others with, for ``metric``."""
        if self.baseline is not None:
            return self.baseline
        leader = next(iter(self.ordered(metric)), None)
        return leader if leader is not None and math.isfinite(self.value(leader, metric)) else None

    def test(self, metric: str, a: str, b: str) -> PairedTest | None:
        """The test of ``a`` against ``b``, also if it was made as ``b`` against ``a``."""
        if (metric, a, b) in self.tests:
            return self.tests[metric, a, b]
        other = self.tests.get((metric, b, a))
        return other.turned() if other is not None else None

    def interval(self, model: str, metric: str) -> tuple[float, float]:
        """The 95% confidence interval of the mean; NaN with fewer than two values."""
        sample = self.per_query.get((model, metric)) or list(self.folds.get((model, metric), {}).values())
        half = _half_width(sample)
        return self.value(model, metric) - half, self.value(model, metric) + half

    def differences(self, model: str, reference: str, metric: str) -> list[float]:
        """Per-query differences; empty if one model has no values or they do not match."""
        ours, theirs = self.per_query.get((model, metric), ()), self.per_query.get((reference, metric), ())
        if len(ours) != len(theirs):
            return []
        paired = (a - b for a, b in zip(ours, theirs, strict=True))
        return [difference for difference in paired if math.isfinite(difference)]


def read_comparison(result: Mapping[str, Any]) -> Comparison:
    """Parse the result dictionary of a comparison.

    >>> seen = read_comparison({"means": {"rrf": {"map": 0.47}, "borda": {"map": 0.41}}})
    >>> seen.models, seen.metrics, sorted(seen.best("map"))
    (('rrf', 'borda'), ('map',), ['rrf'])
    """
    means = result.get("means")
    if not isinstance(means, Mapping) or not all(isinstance(row, Mapping) for row in means.values()):
        raise InputError(
            "comparison result",
            found=f"'means' of type {type(means).__name__}" if means is not None else "no 'means'",
            expected='{"means": {MODEL: {METRIC: value}}, ...}',
            remedy="pass the output of 'distagg compare --json'",
        )
    models = tuple(str(model) for model in result.get("models") or means)
    listed = result.get("metrics") or dict.fromkeys(metric for row in means.values() for metric in row)
    tests = [_read_test(row) for row in result.get("tests") or ()]
    per_query = result.get("per_query") or {}
    return Comparison(
        models=models,
        metrics=tuple(str(metric) for metric in listed),
        means={str(m): {str(k): number(v) for k, v in row.items()} for m, row in means.items()},
        folds=_read_folds(result.get("results") or ()),
        per_query={
            (str(m), str(k)): [number(v) for v in values] for m, row in per_query.items() for k, values in row.items()
        },
        tests={(test.metric, test.a, test.b): test for test in tests},
        baseline=_baseline(result.get("baseline"), models, tests),
    )


def _read_test(row: Mapping[str, Any]) -> PairedTest:
    metric, a, b = (str(row.get(key, "")) for key in ("metric", "a", "b"))
    figures = {key: number(row.get(key)) for key in PairedTest.__slots__ if key not in ("metric", "a", "b")}
    return PairedTest(metric, a, b, **figures)


def _read_folds(results: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, float]]:
    seeds: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in results:
        of_model = seeds.setdefault((str(row.get("model")), str(row.get("metric"))), {})
        of_model.setdefault(str(row.get("fold")), []).append(number(row.get("value")))
    return {
        key: {fold: math.fsum(values) / len(values) for fold, values in folds.items()} for key, folds in seeds.items()
    }


def _baseline(requested: object, models: Sequence[str], tests: Sequence[PairedTest]) -> str | None:
    """The requested baseline, or the one model that takes part in every test while others do not."""
    if requested is not None and str(requested) in models:
        return str(requested)
    common = set(models) if len(models) > 2 else set()
    for test in tests:
        common &= {test.a, test.b}
    return common.pop() if tests and len(common) == 1 else None


def _half_width(sample: Sequence[float]) -> float:
    from scipy.special import stdtrit  # late: a quarter of a second

    known = [value for value in sample if math.isfinite(value)]
    if len(known) < 2:
        return math.nan
    mean = math.fsum(known) / len(known)
    variance = math.fsum((value - mean) ** 2 for value in known) / (len(known) - 1)
    return float(stdtrit(len(known) - 1, 1 - LEVEL / 2)) * math.sqrt(variance / len(known))


def _or_lowest(value: float) -> float:
    return value if math.isfinite(value) else -math.inf
