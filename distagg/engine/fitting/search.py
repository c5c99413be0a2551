"""Choosing settings on validation queries: a whole grid, or random draws from it; fits run side by side on workers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.fit import Trial, fit, fit_each, stops_early
from distagg.engine.fitting.folds import Fold, make_folds
from distagg.engine.fitting.train import Goal, evaluate_candidates
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import InlineRunner, Runner
from distagg.engine.saved import align_experts
from distagg.errors import UsageError
from distagg.models import Model, Params, model_named

MOST = 10_000  # settings in a grid


def _trial(model: Model, train: Dataset, valid: Dataset | None, goal: Goal) -> Trial:
    """The fit to judge on the validation queries: what does not stop by them has not seen them either."""
    return Trial(model, train, valid if stops_early(model) else None, goal)


def _value(trial: Trial, params: Params, judged: Dataset, runner: Runner | None) -> float:
    """The metric on the validation queries."""
    aligned = align_experts(trial.model, params, trial.train.experts, judged.experts)
    return float(evaluate_candidates(trial.model, [aligned], judged, trial.goal, runner or InlineRunner())[0])


@dataclass(frozen=True, slots=True)
class Pick:
    """The best of several models for a fold; ``settings`` are those that differ."""

    model: Model
    params: Params
    settings: dict[str, Any]


def fit_folds(
    models: Sequence[Model], folds: Sequence[Fold], goal: Goal, runner: Runner | None = None,
    progress: Progress = silent,
) -> list[Pick]:  # fmt: skip
    """For every fold the model that does best on its validation queries, the first of equals; progress by fold.

    The one that is taken learns from all that ``fit`` may learn from.
    """
    done = iter(range(1, len(models) * len(folds) + 1))
    if len(models) == 1:
        learned = fit_each([Trial(models[0], fold.train, fold.valid, goal) for fold in folds], runner, progress)
        return [Pick(models[0], params, {}) for params in learned]
    trials = [_trial(model, fold.train, fold.valid, goal) for fold in folds for model in models]
    learned = fit_each(trials, runner, lambda _: progress(1) if next(done) % len(models) == 0 else None)
    apart = differing(models)
    picks = []
    for n, fold in enumerate(folds):
        here = range(n * len(models), (n + 1) * len(models))
        best = here[int(np.argmax([_value(trials[k], learned[k], fold.valid, runner) for k in here]))]
        model, params = trials[best].model, learned[best]
        if not stops_early(model):
            params = fit(model, fold.train, valid=fold.valid, goal=goal, runner=runner)
        picks.append(Pick(model, params, apart[best - here[0]]))
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
    """The validation metric of every model: on ``valid``, or the mean over the validation queries of ``folds``."""
    if (valid is None) == (folds is None):
        raise UsageError("settings are chosen on validation queries: give either --valid or --folds")
    goal = goal or Goal()
    pairs = [(fold.train, fold.valid) for fold in make_folds(train, folds)] if folds else [(train, valid)]
    trials = [_trial(model, *pair, goal) for model in models for pair in pairs]
    learned, judged = fit_each(trials, runner, progress), [second for _, second in pairs] * len(models)
    values = np.array(
        [_value(*one, runner) for one in zip(trials, learned, judged, strict=True)]  # type: ignore[arg-type]
    )
    return np.asarray(values.reshape(len(models), len(pairs)).mean(axis=1))


def variants(name: str, settings: Mapping[str, Any], *, tries: int | None = None, seed: int = 0) -> list[Model]:
    """The models that settings stand for: ``a,b,c`` is each of several values, ``low..high`` a number between.

    Without ``tries`` all combinations; with it, so many random ones; numbers of a range are drawn evenly on a
    logarithmic scale (on a plain one from 0 or below), to three digits. ``seed`` is where these draws start
    from, and those of a model that is given no seed of its own.

    >>> [model.c for model in variants("rrf", {"c": "10,60"})]
    [10.0, 60.0]
    """
    whole = {f.name for f in dataclasses.fields(model_named(name)) if type(f.default) is int}
    axes = {key: _axis(value) for key, value in settings.items()}
    ranges = [key for key, axis in axes.items() if isinstance(axis, _Range)]
    if ranges and tries is None:
        raise UsageError(f"-p {ranges[0]}={settings[ranges[0]]}: a range is drawn from; give --tries N")
    if tries is not None and tries < 1:
        raise UsageError(f"--tries: found {tries}, expected a whole number of at least 1")
    draws, size = np.random.default_rng(seed), math.prod(len(axis) for axis in axes.values())
    if ranges:
        rows = [tuple(axis.draw(draws, key in whole) for key, axis in axes.items()) for _ in range(tries or 0)]
    elif tries is None and size > MOST:
        raise UsageError(f"-p asks for {size:,} combinations, expected at most {MOST:,}; give --tries N")
    else:
        grid = list(product(*(axis.values for axis in axes.values() if isinstance(axis, _Values))))
        rows = grid if tries is None else [grid[n] for n in sorted(draws.permutation(len(grid))[:tries])]
    return list(dict.fromkeys(model_named(name, dict(zip(axes, row, strict=True)), seed=seed) for row in rows))


def differing(models: Sequence[Model]) -> list[dict[str, Any]]:
    """The settings in which models of one kind differ, for each."""
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


def _axis(value: Any) -> _Values | _Range:
    if not isinstance(value, str):
        return _Values(tuple(value) if isinstance(value, list | tuple) else (value,))
    low, dots, high = value.partition("..")
    if not dots:
        return _Values(tuple(value.split(",")))
    try:
        found = _Range(float(low), float(high))
    except ValueError:
        raise UsageError(f"found range '{value}', expected low..high, two numbers") from None
    if not found.low < found.high:
        raise UsageError(f"found range '{value}', expected low..high with low below high")
    return found
