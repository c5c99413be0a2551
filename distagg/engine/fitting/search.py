"""Choose settings on validation queries: a full grid or random draws from it; fits run in parallel on workers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.cross import as_given, few_ways
from distagg.engine.fitting.fit import Trial, cut, fit, fit_each
from distagg.engine.fitting.folds import Fold, make_folds
from distagg.engine.fitting.learner import Goal, learner_of
from distagg.engine.fitting.train import evaluate_candidates
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import Runner, as_runner
from distagg.engine.saved import align_experts
from distagg.errors import UsageError
from distagg.models import Model, Params, model_named

MOST_COMBINATIONS = 10_000  # of settings in a grid


def _trial(model: Model, train: Dataset, valid: Dataset | None, goal: Goal) -> Trial:
    """The fit to score on the validation queries; a model without early stopping must not see them in training."""
    return Trial(as_given(model), train, valid if learner_of(model).stops_early else None, goal)


def _value(trial: Trial, params: Params, judged: Dataset, runner: Runner | None) -> float:
    """The metric on the validation queries."""
    aligned = align_experts(trial.model, params, trial.train.experts, judged.experts)
    judged = cut(trial.model, judged)
    return float(evaluate_candidates(trial.model, [aligned], judged, trial.goal, as_runner(runner))[0])


@dataclass(frozen=True, slots=True)
class Pick:
    """The best of several models for a fold; ``settings`` are those in which the models differ."""

    model: Model
    params: Params
    settings: dict[str, Any]


def fit_folds(
    models: Sequence[Model],
    folds: Sequence[Fold],
    goal: Goal,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> list[Pick]:
    """Choose for every fold the model that scores best on its validation queries, the first of equals.

    Where a fold has few validation queries, models are compared by cross-validation over all its labelled queries. A
    model that was chosen that way, or has no early stopping, is then fitted on all of them. Progress counts folds.
    """
    if len(models) == 1:
        learned = fit_each([Trial(models[0], fold.train, fold.valid, goal) for fold in folds], runner, progress)
        return [Pick(models[0], params, {}) for params in learned]
    ways = [few_ways(fold.train, fold.valid, as_runner(runner)) for fold in folds]
    cases = [(n, model, way) for n, fold in enumerate(ways) for model in range(len(models)) for way in fold]
    trials = [_trial(models[model], *way, goal) for _, model, way in cases]
    done = iter(range(1, len(trials) + 1))
    learned = fit_each(trials, runner, lambda _: progress(len(folds)) if next(done) == len(trials) else None)
    values = np.zeros((len(folds), len(models)))
    for (n, model, way), trial, params in zip(cases, trials, learned, strict=True):
        values[n, model] += _value(trial, params, way[1], runner)
    apart = differing(models)
    picks = []
    for n, fold in enumerate(folds):
        best = int(np.argmax(values[n]))
        if learner_of(models[best]).stops_early and len(ways[n]) == 1:
            params = next(p for (m, model, _), p in zip(cases, learned, strict=True) if (m, model) == (n, best))
        else:
            params = fit(models[best], fold.train, valid=fold.valid, goal=goal, runner=runner)
        picks.append(Pick(models[best], params, apart[best]))
    return picks


def search(
    models: Sequence[Model],
    train: Dataset,
    *,
    valid: Dataset | None = None,
    folds: str | None = None,
    goal: Goal | None = None,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> np.ndarray:
    """The validation metric of every model: on ``valid``, or the mean over the folds' validation queries."""
    if (valid is None) == (folds is None):
        raise UsageError("settings are chosen on validation queries: give either --valid or --folds")
    goal = goal or Goal()
    pairs = [(fold.train, fold.valid) for fold in make_folds(train, folds)] if folds else [(train, valid)]
    trials = [_trial(model, *pair, goal) for model in models for pair in pairs]
    learned, judged = fit_each(trials, runner, progress), [second for _, second in pairs] * len(models)
    values = np.array(
        [_value(*case, runner) for case in zip(trials, learned, judged, strict=True)]  # type: ignore[arg-type]
    )
    return np.asarray(values.reshape(len(models), len(pairs)).mean(axis=1))


def variants(name: str, settings: Mapping[str, Any], *, tries: int | None = None, seed: int = 0) -> list[Model]:
    """The models of a grid of settings: ``a,b,c`` lists values, ``low..high`` is a range to draw from.

    Where commas belong to the value (weights), ``;`` stands between values. Without ``tries`` all combinations; with
    it, that many random ones. Numbers are drawn from a range uniformly on a logarithmic scale (on a linear one if
    ``low`` is 0 or less), to three digits. ``seed`` seeds these draws, and the models whose settings have no seed.

    >>> [model.c for model in variants("rrf", {"c": "10,60"})]
    [10.0, 60.0]
    """
    known = dataclasses.fields(model_named(name))
    whole = {f.name for f in known if type(f.default) is int}
    texts = {f.name for f in known if f.metadata["text"]}
    axes = {key: _axis(value, text=key.lower() in texts) for key, value in settings.items()}
    ranges = [key for key, axis in axes.items() if isinstance(axis, _Range)]
    if ranges and tries is None:
        raise UsageError(
            f"-p {ranges[0]}={settings[ranges[0]]}: values are drawn at random from a range; give --tries N"
        )
    if tries is not None and tries < 1:
        raise UsageError(f"--tries: found {tries}, expected a whole number of at least 1")
    draws, size = np.random.default_rng(seed), math.prod(len(axis) for axis in axes.values())
    if ranges:
        rows = [tuple(axis.draw(draws, key in whole) for key, axis in axes.items()) for _ in range(tries or 0)]
    elif tries is None and size > MOST_COMBINATIONS:
        raise UsageError(f"-p asks for {size:,} combinations, expected at most {MOST_COMBINATIONS:,}; give --tries N")
    else:
        grid = list(product(*(axis.values for axis in axes.values() if isinstance(axis, _Values))))
        rows = grid if tries is None else [grid[n] for n in sorted(draws.permutation(len(grid))[:tries])]
    return list(dict.fromkeys(model_named(name, dict(zip(axes, row, strict=True)), seed=seed) for row in rows))


def differing(models: Sequence[Model]) -> list[dict[str, Any]]:
    """For each of several models of one kind, the settings in which they differ."""
    rows = [dataclasses.asdict(model) for model in models]
    keys = [key for key in rows[0] if len({row[key] for row in rows}) > 1]
    return [{key: row[key] for key in keys} for row in rows]


@dataclass(frozen=True, slots=True)
class _Values:
    values: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.values)

    def draw(self, draws: np.random.Generator, whole: bool) -> Any:
        return self.values[int(draws.integers(len(self.values)))]


@dataclass(frozen=True, slots=True)
class _Range:
    low: float
    high: float

    def __len__(self) -> int:
        return 1

    def draw(self, draws: np.random.Generator, whole: bool) -> Any:
        share = float(draws.random())
        drawn = self.low + (self.high - self.low) * share
        if self.low > 0.0:
            drawn = self.low * (self.high / self.low) ** share
        return round(drawn) if whole else float(f"{drawn:.3g}")


def _axis(value: Any, *, text: bool = False) -> _Values | _Range:
    if not isinstance(value, str):
        return _Values(tuple(value) if isinstance(value, list | tuple) else (value,))
    if text:
        return _Values(tuple(value.split(";")))
    low, dots, high = value.partition("..")
    if not dots:
        return _Values(tuple(value.split(",")))
    try:
        bounds = _Range(float(low), float(high))
    except ValueError:
        raise UsageError(f"found range '{value}', expected low..high, two numbers") from None
    if not bounds.low < bounds.high:
        raise UsageError(f"found range '{value}', expected low..high with low below high")
    return bounds
