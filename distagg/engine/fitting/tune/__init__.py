"""Tune plain fusion rules on labels: c, norm, depth and the experts' weights.

Overfitting. A search gives four versions of a rule, from the simplest on: the rule with its defaults; tuned settings
with equal weights; weights halfway between equal and tuned; tuned weights. The choice among the four uses
queries that the search did not see. It takes the simplest version whose metric is within one standard error of the best
(the one-standard-error rule of Breiman et al. 1984; the error is that of paired differences over queries). With few
labels this is the rule with its defaults.

Held-out figures. For every fold, the search and the choice use the other folds only; for the choice, each of these is
held out in turn. The result then ranks the queries of the fold. The final settings come from all labelled queries, in
the same way. Every pair of folds is left out once, so K folds need 1 + K + K(K - 1) / 2 searches, run side by side.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distagg.dataset.dataset import Dataset
from distagg.engine.compare import compare
from distagg.engine.data import Columns, as_dataset
from distagg.engine.export import Export, Product, export, product_named
from distagg.engine.fitting.fit import check_fits
from distagg.engine.fitting.folds import make_folds
from distagg.engine.fitting.learner import Goal
from distagg.engine.fitting.tune.climb import Climbed, Found, climb, climb_all
from distagg.engine.fitting.tune.judge import Folds, Judge, longest_list
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import Runner, as_runner
from distagg.engine.saved import Fitted
from distagg.engine.tracking import OnResult, changed_settings, no_result, tell_result
from distagg.errors import UsageError
from distagg.metrics import check_protocol, mean_over_queries, paired_tests, parse_metrics
from distagg.models import Model, model_named
from distagg.models.positional.model import RRF_CANDIDATES
from distagg.models.weights import Weighted
from distagg.types import Floats, Indices

DEPTHS = (10, 20, 50, 100, 200, 500, 1000)
MOST_EXPERTS = 500
DIGITS = 3  # of weights
STAGES = ("as it is", "settings", "half-tuned weights", "weights")


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of ``tune``; ``model`` is the best rule, with the settings tuned on all labelled queries."""

    model: Model
    experts: tuple[str, ...]
    metrics: tuple[str, ...]  # the first is the one that was tuned for
    protocol: str
    table: list[dict[str, Any]]  # held-out means of every rule, and the difference to the first one
    folds: list[dict[str, Any]]  # the settings of every fold and rule
    final: dict[str, dict[str, Any]]  # the settings of every rule, from all labelled queries
    queries: int  # labelled ones
    judged: int  # different settings that were judged
    scores: bool = True  # whether the lists have scores

    @property
    def fitted(self) -> Fitted:
        """The best rule, in the form that ``rank`` and ``save_model`` take."""
        return Fitted(self.model, self.model.resolved(self.experts), self.experts)

    def export(self, product: str) -> Export:
        """The best rule as the query of a search engine, and notes on what the engine does differently."""
        written = export(self.model, product, self.experts)
        if self.scores or not hasattr(self.model, "norm"):
            return written
        note = "the lists have no scores, so the rule was tuned on ranks; with scores its figures may differ"
        return written._replace(notes=(*written.notes, note))

    def as_dict(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return {
            "model": self.model.name,
            "settings": _changed(self.model),
            "metrics": list(self.metrics),
            "protocol": self.protocol,
            "means": {row["rule"]: {name: row[name] for name in self.metrics} for row in self.table},
            "table": self.table,
            "folds": self.folds,
            "final": self.final,
            "queries": self.queries,
            "judged": self.judged,
        }


def tune(
    data: Any,
    models: Sequence[str | Model] = ("rrf", "combsum"),
    *,
    labels: Any = None,
    columns: Columns = None,
    folds: str | int = 5,
    metric: str = "ndcg@10",
    metrics: Sequence[str] = (),
    protocol: str | None = None,
    beside: Sequence[str] = (),
    product: str | None = None,
    seed: int = 0,
    runner: Runner | None = None,
    progress: Progress = silent,
    on_result: OnResult = no_result,
) -> Tuned:
    """Tune plain fusion rules on labels, and measure the gain on held-out queries.

    Parameters
    ----------
    data
        Lists in any form that ``rank`` takes, with labels.
    models
        Rules that take weights: ``rrf``, ``combsum``, ``combmnz`` and others. The first one with its
        defaults is the baseline of all.
    labels
        Relevance judgements that are not in the data, of the kinds that ``fit`` takes.
    columns
        distagg's names for columns that have other names in a table: ``{"site": "item"}``.
    folds
        ``letor5``, or the number of folds, at least 3.
    metric
        The metric to tune for.
    metrics
        More metrics to report.
    protocol
        ``letor`` or ``trec``; by default that of the data.
    beside
        Trained models to test on the same folds, such as ``crf`` and ``blend``.
    product
        A search engine (see ``distagg.engine.export``): only what it can compute is tried.
    seed
        Seed of the models of ``beside``.
    runner
        Where to run: None runs in this process.
    progress
        Called with 1 for each rule that is done.
    on_result
        Called at the end with a row for each rule, for trackers: ``model``, ``settings`` and held-out ``metrics``.

    Returns
    -------
    Tuned
    """
    dataset = as_dataset(data, columns=columns, labels=labels)
    goal = Goal(metric, check_protocol(protocol or dataset.manifest.protocol))
    names = tuple(dict.fromkeys(str(one) for one in parse_metrics([metric, *metrics])))
    runner = as_runner(runner)
    rules = [_rule(one, dataset, product_named(product) if product else None) for one in models]
    for name, times in Counter([*(rule.name for rule in rules), *beside]).items():
        if times > 1:
            raise UsageError(f"{name} is named {times} times among the rules and the models beside; name it once")
    judge = Judge(dataset, _folds(dataset, str(folds)), goal, runner)
    longest = longest_list(dataset, runner)
    depths = tuple(depth for depth in DEPTHS if depth < longest)
    results = []
    for rule in rules:
        results.append(_tune_rule(rule, _axes(rule, depths, product), judge, names))
        progress(1)
    fold = results[0].fold
    values = {rule.name: result.plain for rule, result in zip(rules, results, strict=True)}
    values |= {f"{rule.name} tuned": result.tuned for rule, result in zip(rules, results, strict=True)}
    if beside:
        others = compare(
            dataset,
            beside,
            folds=str(folds),
            metrics=names,
            protocol=goal.protocol,
            goal=metric,
            seed=seed,
            runner=runner,
            progress=progress,
        )
        for name, columns in others["per_query"].items():
            values[name] = np.stack([np.array(columns[one], dtype=float) for one in names], axis=1)
    table = _table(values, fold, names, judge.folds.count, seed)
    means = {row["rule"]: row[names[0]] for row in table}
    tuned = {f"{rule.name} tuned": result.final for rule, result in zip(rules, results, strict=True)}
    for row in table:
        settings = changed_settings(tuned[row["rule"]]) if row["rule"] in tuned else {}
        held_out = {metric: row[metric] for metric in names}
        about = {"protocol": goal.protocol, "folds": str(folds), "data": str(dataset.path or ""), "seed": seed}
        tell_result(
            {"what": "tune", "model": row["rule"], "settings": settings, "metrics": held_out, **about}, on_result
        )
    winner = max(range(len(rules)), key=lambda n: means[f"{rules[n].name} tuned"])
    return Tuned(
        results[winner].final,
        dataset.experts,
        names,
        str(goal.protocol),
        table,
        [row for result in results for row in result.folds],
        {rule.name: result.chosen for rule, result in zip(rules, results, strict=True)},
        int((~np.isnan(results[0].plain[:, 0])).sum()),
        judge.judged,
        dataset.manifest.scores,
    )


@dataclass(frozen=True, slots=True)
class _Result:
    """The results of a rule: values (queries, metrics) with its defaults and when tuned, and the settings."""

    plain: Floats
    tuned: Floats
    fold: Indices
    final: Model
    chosen: dict[str, Any]
    folds: list[dict[str, Any]]


def _tune_rule(rule: Model, axes: Mapping[str, Sequence[Any]], judge: Judge, metrics: tuple[str, ...]) -> _Result:
    """Search on every set of training folds, choose a version on a fold that was left out, test it on another."""
    dataset, count = judge.dataset, judge.folds.count
    sets = [frozenset(out) for size in (0, 1, 2) for out in itertools.combinations(range(count), size)]
    searches = [climb(rule, axes, len(dataset.experts), sorted(set(range(count)) - out)) for out in sets]
    climbed = dict(zip(sets, climb_all(searches, judge.sums), strict=True))
    stages = {out: [_as_model(found, dataset.experts) for found in _stages(climbed[out])] for out in sets}
    distinct = list(dict.fromkeys(model for row in stages.values() for model in row))
    values, fold = judge.each_query([(model, model.resolved(dataset.experts)) for model in distinct], metrics)
    column = {model: n for n, model in enumerate(distinct)}

    def held_out(out: frozenset[int], stage: int) -> Floats:
        """The goal of every query that is not in ``out`` (queries,), ranked without its own fold's labels."""
        found = np.full(len(fold), np.nan)
        for k in set(range(count)) - out:
            at = fold == k
            found[at] = values[at, column[stages[out | {k}][stage]], 0]
        return found

    def choose(out: frozenset[int]) -> int:
        return _within_one_error([held_out(out, stage) for stage in range(len(STAGES))])

    tuned = np.full(values.shape[::2], np.nan)
    rows = []
    for k in range(count):
        stage = choose(frozenset({k}))
        model = stages[frozenset({k})][stage]
        at = fold == k
        tuned[at] = values[at, column[model]]
        rows.append({"fold": k + 1, "rule": rule.name, "stage": STAGES[stage], **_changed(model)})
    stage = choose(frozenset())
    final = stages[frozenset()][stage]
    chosen = {"stage": STAGES[stage], **_changed(final)}
    return _Result(
        values[:, column[_as_model(climbed[frozenset()].plain, dataset.experts)]], tuned, fold, final, chosen, rows
    )


def _within_one_error(values: Sequence[Floats]) -> int:
    """The first of several arrays (queries,) within one standard error (of paired differences) of the best."""
    means = [float(np.nanmean(value)) if np.isfinite(value).any() else -np.inf for value in values]
    best = values[int(np.argmax(means))]
    for n, value in enumerate(values):
        less = (best - value)[np.isfinite(best - value)]
        if not len(less) or less.mean() <= (less.std(ddof=1) / np.sqrt(len(less)) if len(less) > 1 else 0.0):
            return n
    return len(values) - 1


def _stages(climbed: Climbed) -> list[Found]:
    """The candidates, simplest first: the plain rule, tuned settings, half-tuned weights, tuned weights.

    Half-tuned weights are the mean of the tuned weights and equal weights of the same sum.
    """
    tuned = climbed.weights
    total = sum(tuned.weights) / len(tuned.weights)
    half = tuple(0.5 + 0.5 * weight / total for weight in tuned.weights)
    return [climbed.plain, climbed.settings, dataclasses.replace(tuned, weights=half), tuned]


def _as_model(found: Found, experts: tuple[str, ...]) -> Model:
    """The model with these weights as a setting, scaled so that the largest is 1."""
    if len(set(found.weights)) == 1:
        return found.model
    shares = [float(f"{weight / max(found.weights):.{DIGITS}g}") for weight in found.weights]
    weights: Any = {"weights": dict(zip(experts, shares, strict=True))}
    return dataclasses.replace(found.model, **weights)


def _changed(model: Model) -> dict[str, Any]:
    """The settings that differ from the defaults."""
    settings = {field.name: (getattr(model, field.name), field.default) for field in dataclasses.fields(model)}
    return {name: value for name, (value, default) in settings.items() if value != default}


def rule_named(name: str | Model) -> Model:
    """The rule of this name; a UsageError if it cannot be tuned."""
    model = model_named(name) if isinstance(name, str) else name
    if not isinstance(model, Weighted):
        raise UsageError(f"{model.name} takes no weights; tune rrf, combsum or another rule whose score is a sum")
    if model.learns:
        raise UsageError(f"{model!r} chooses a setting on labels itself; give the rule without 'auto'")
    return model


def _rule(named: str | Model, dataset: Dataset, product: Product | None) -> Model:
    model = rule_named(named)
    check_fits(model, dataset)
    if not dataset.manifest.labels:
        raise UsageError(f"{dataset.path or 'the dataset'} has no labels to tune on; import it with labels (--qrels)")
    if dataset.manifest.partition == "expert" and len(dataset.plan()) > 1:
        raise UsageError(f"{model.name} is tuned on whole queries, but the dataset is partitioned by expert")
    if len(dataset.experts) > MOST_EXPERTS:
        raise UsageError(f"found {len(dataset.experts):,} experts, expected at most {MOST_EXPERTS} to tune weights")
    norm = getattr(model, "norm", None)
    if product is None or norm is None or norm in product.norms:
        return model
    able = [one for one in _norms(model) if one in product.norms]
    if not able:
        raise UsageError(f"{product.title} has none of the norms of {model.name}; tune rrf for it")
    changes: Any = {"norm": able[0]}
    return dataclasses.replace(model, **changes)


def _axes(rule: Model, depths: tuple[int, ...], product: str | None) -> dict[str, tuple[Any, ...]]:
    """The values to try for each setting of the rule."""
    axes: dict[str, tuple[Any, ...]] = {"c": RRF_CANDIDATES} if hasattr(rule, "c") else {}
    norms = _norms(rule)
    if norms and not getattr(rule, "bounds", ""):  # bounds need norm=minmax
        axes["norm"] = tuple(norm for norm in norms if product is None or norm in product_named(product).norms)
    return axes | ({"depth": depths} if depths else {})


def _norms(rule: Model) -> list[str]:
    """The norms of scores that a rule has, without auto."""
    fields = [field for field in dataclasses.fields(rule) if field.name == "norm"]
    return [norm for field in fields for norm in field.metadata["choices"] if norm != "auto"]


def _folds(dataset: Dataset, folds: str) -> Folds:
    count = len(make_folds(dataset, folds))  # refuses impossible folds
    return Folds(count, tuple(sorted(dataset.manifest.parts)) if folds == "letor5" else ())


def _table(
    values: Mapping[str, Floats], fold: Indices, metrics: tuple[str, ...], count: int, seed: int
) -> list[dict[str, Any]]:
    """For every rule: means over queries, then folds; the difference to the first rule, with its interval."""
    first = next(iter(values.values()))
    rows = []
    for name, value in values.items():
        means = np.array([mean_over_queries(value[fold == k]) for k in range(count)]).mean(axis=0)
        test = paired_tests(value[:, 0], first[:, 0], seed)
        row = {"rule": name, **dict(zip(metrics, means.tolist(), strict=True))}
        rows.append(row | {"gain": test.difference, "low": test.low, "high": test.high, "p": test.t_test})
    return rows


__all__ = ["STAGES", "Tuned", "rule_named", "tune"]
