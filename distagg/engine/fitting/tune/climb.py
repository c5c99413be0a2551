"""Coordinate search over a rule's settings and its experts' weights.

Each weight and each setting (c, norm, depth) takes its values from a short list. A sweep goes through the coordinates,
tries all values of one and keeps the best; among equally good weights it keeps the one nearest to 1. The search ends
when a sweep gains nothing. It has two starts: equal weights, and weights by the quality of each expert alone.

A search is a generator: it yields the settings that it wants judged and receives their values. So several searches (one
for each set of training queries) run side by side, and settings that two of them ask for are judged once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distagg.engine.fitting.tune.judge import Ask
from distagg.models import Model
from distagg.types import Floats

WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)
SWEEPS = 6
GAIN = 1e-9  # smaller differences of the metric are rounding
STEEP = 3.0  # a weight of the second start is the expert's metric, divided by the best one's, to this power


@dataclass(frozen=True, slots=True)
class Found:
    """Settings of a rule, and their metric on the queries of the search."""

    model: Model
    weights: tuple[float, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Climbed:
    """The results of a search: the rule with its defaults, with tuned settings, and with tuned weights too."""

    plain: Found
    settings: Found
    weights: Found


Search = Generator[list[Ask], list[Floats], Climbed]


def climb(model: Model, axes: Mapping[str, Sequence[Any]], experts: int, train: Sequence[int]) -> Search:
    """Search on the queries of the folds ``train``; ``axes`` holds the values to try for each setting."""
    folds = list(train)

    def means(sums: Floats) -> Floats:
        """The means over the training folds, from sums and counts (values, 2, folds)."""
        total = sums[:, :, folds].sum(axis=2)
        return np.asarray(total[:, 0] / np.maximum(total[:, 1], 1.0))

    def tried(found: Found, ask: Ask) -> Generator[list[Ask], list[Floats], Found]:
        (sums,) = yield [ask]
        values = means(sums)
        best = _plainest(values, ask.values)
        return Found(ask.model, ask.rows()[best], float(values[best])) if values[best] > found.value + GAIN else found

    def set_axes(found: Found) -> Generator[list[Ask], list[Floats], Found]:
        for name, choices in axes.items():
            asks = [Ask(replace(found.model, **{name: choice}), found.weights) for choice in choices]
            values = means(np.concatenate((yield asks)))
            best = int(np.argmax(values))
            if values[best] > found.value + GAIN:
                found = Found(asks[best].model, found.weights, float(values[best]))
        return found

    def ascend(found: Found) -> Generator[list[Ask], list[Floats], Found]:
        for _ in range(SWEEPS):
            before = found.value
            for expert in range(experts):
                others = any(found.weights[:expert]) or any(found.weights[expert + 1 :])
                ladder = WEIGHTS if others else WEIGHTS[1:]  # not all weights may be 0
                found = yield from tried(found, Ask(found.model, found.weights, expert, ladder))
            found = yield from set_axes(found)
            if found.value <= before + GAIN:
                break
        return found

    equal = (1.0,) * experts
    nothing = Found(model, equal, -np.inf)
    plain = yield from tried(nothing, Ask(model, equal))
    settings = plain
    for _ in range(SWEEPS):
        before = settings.value
        settings = yield from set_axes(settings)
        if settings.value <= before + GAIN:
            break
    first = yield from ascend(settings)
    alone = yield [Ask(settings.model, _only(expert, experts)) for expert in range(experts)]
    start = _by_quality(np.array([means(sums)[0] for sums in alone]))
    second = yield from tried(replace(nothing, model=settings.model), Ask(settings.model, start))
    second = yield from ascend(second)
    return Climbed(plain, settings, second if second.value > first.value + GAIN else first)


def _plainest(values: Floats, weights: Sequence[float]) -> int:
    """Among the weights that score best, the one nearest to 1 (by its logarithm)."""
    best = np.flatnonzero(values >= values.max() - GAIN)
    away = np.abs(np.log(np.maximum(np.asarray(weights)[best], 1e-6)))
    return int(best[np.argmin(away)])


def _only(expert: int, experts: int) -> tuple[float, ...]:
    return tuple(float(n == expert) for n in range(experts))


def _by_quality(quality: Floats) -> tuple[float, ...]:
    """Weights from WEIGHTS, 1 for the best expert; equal weights if no expert scores above 0 alone."""
    if quality.max() <= 0.0:
        return (1.0,) * len(quality)
    share = np.maximum(quality, 0.0) / quality.max()
    ladder = np.array(WEIGHTS)
    return tuple(float(ladder[np.argmin(np.abs(ladder - weight))]) for weight in share**STEEP)


def climb_all(searches: Sequence[Search], judge: Callable[[Sequence[Ask]], list[Floats]]) -> list[Climbed]:
    """Run several searches side by side; one pass over the data judges what they all ask in a turn."""
    results: dict[int, Climbed] = {}
    asked = {n: next(search) for n, search in enumerate(searches)}
    while asked:
        answers = iter(judge([ask for asks in asked.values() for ask in asks]))
        onward = {}
        for n, asks in asked.items():
            try:
                onward[n] = searches[n].send([next(answers) for _ in asks])
            except StopIteration as stop:
                results[n] = stop.value
        asked = onward
    return [results[n] for n in range(len(searches))]
