"""weights=auto: weights of experts by the search of ``tune``, on all labelled queries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.learner import Goal
from distagg.engine.runner import Runner
from distagg.errors import UsageError
from distagg.models import Model, Params
from distagg.types import Floats

MOST_EXPERTS = 500


def weigh(model: Model, params: Params, datasets: Sequence[Dataset], goal: Goal, runner: Runner) -> Params:
    """The parameters with ``expert_weight``, by the queries of all datasets; their experts are matched by name."""
    from distagg.engine.fitting.tune.climb import climb, climb_all

    experts = datasets[0].experts
    if len(experts) > MOST_EXPERTS:
        raise UsageError(
            f"{model.name} with weights=auto tries a weight for every expert; {len(experts):,} experts are more than "
            f"{MOST_EXPERTS}; give the weights yourself"
        )
    chosen: dict[str, Any] = {"weights": ""} | ({"c": float(params["c"])} if "c" in params else {})
    search = climb(dataclasses.replace(model, **chosen), {}, len(experts), [0])
    (found,) = climb_all([search], judged_together(datasets, goal, runner))
    return {**params, "expert_weight": np.array(found.weights.weights)}


def judged_together(datasets: Sequence[Dataset], goal: Goal, runner: Runner) -> Callable[[Sequence[Any]], list[Floats]]:
    """What judges settings on the queries of all datasets, as one fold; experts are those of the first, by name."""
    from distagg.engine.fitting.tune.judge import Folds, Judge

    experts = datasets[0].experts
    judges = [Judge(dataset, Folds(1), goal.on(dataset), runner) for dataset in datasets]

    def sums(asks: Sequence[Any]) -> list[Floats]:
        answers = [judge.sums([_named(ask, experts, judge.dataset.experts) for ask in asks]) for judge in judges]
        return [reduce(np.add, rows) for rows in zip(*answers, strict=True)]

    return sums


def _named(ask: Any, experts: tuple[str, ...], others: tuple[str, ...]) -> Any:
    """The same question about a dataset with other experts: those that only it has weigh 1.

    Where it does not have the expert whose weight is asked about, one value stands for all.
    """
    if experts == others:
        return ask
    weight = dict(zip(experts, ask.weights, strict=True))
    moved = experts[ask.expert] if ask.expert >= 0 else ""
    expert = others.index(moved) if moved in others else -1
    return dataclasses.replace(ask, weights=tuple(weight.get(name, 1.0) for name in others), expert=expert)
