"""Training in rounds: the driver decides, chunks do the work, sums merge in the fixed tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.reader import Dataset
from distagg.engine.experts import align_experts
from distagg.engine.goal import Goal, judging, values_of
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import InlineRunner, Round, Runner, Work, run_span
from distagg.errors import UsageError
from distagg.metrics import highest_label
from distagg.models import Params
from distagg.models.base import Statistics, not_converged
from distagg.models.trained import Trained

TRAIN_ENTRIES = 1 << 17  # smaller chunks than a single pass takes: a round should keep all workers busy


def train(
    model: Trained,
    train: Dataset,
    valid: Dataset | None = None,
    goal: Goal | None = None,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> Params:
    """The weights that do best on the validation queries, among those after each round.

    Without ``valid`` they are validated on the training queries: early stopping then only saves time. Experts of
    ``valid`` are matched by name. Training ends after ``rounds``, or after ``patience`` rounds without a better
    value; weights that are no longer finite end it too, and are said. Beside the weights, the result holds ``curve``
    (the value after each round) and ``round`` (that of the weights kept).
    """
    runner, goal = runner or InlineRunner(), goal or Goal()
    judged = valid if valid is not None else train
    for dataset in (train, judged):
        if not dataset.manifest.labels:
            raise UsageError(f"{model.name} learns from labels, and {dataset.path or 'the dataset'} has none")
    params = {
        **model.start(train.manifest.experts),
        "round": np.zeros(1), "highest": np.array([float(highest_label(train.manifest))]),
    }  # fmt: skip
    curve: list[float] = []
    best, value, reached = params, -np.inf, 0
    ahead: Iterator[Any] = runner.rounds([_learning(model, params, train)])
    while not model.done(params) and len(curve) - reached < model.patience:
        params = _round(model, params, train, ahead, progress)
        if not all(np.isfinite(params[name]).all() for name in model.weights):
            not_converged(
                f"{model.name}: weights were no longer finite after round {len(curve) + 1}; those of round {reached} "
                "are kept; lower rate"
            )
            break
        aligned = align_experts(params, train.experts, judged.experts)
        # The next round starts from the weights that are validated now: both in one message, where there are workers.
        last = model.mode == "serial" or model.done(params)
        validation = judging(model, [aligned], judged, goal)
        ahead = runner.rounds([validation] if last else [validation, _learning(model, params, train)])
        curve.append(float(values_of(model, next(ahead))[0]))
        if curve[-1] > value:
            best, value, reached = params, curve[-1], len(curve)
    kept = {name: best[name] for name in (*model.weights, "highest")}
    return {**kept, "round": np.array([float(reached)]), "curve": np.array(curve)}


def _round(model: Trained, params: Params, dataset: Dataset, ahead: Iterator[Any], progress: Progress) -> Params:
    """One round: through all chunks in turn, or by the sums that come next."""
    refs = dataset.plan(TRAIN_ENTRIES)
    if model.mode == "serial":
        learned = 0
        for n, ref in enumerate(refs):
            work = Work(_learn_task, (model, params), repeated=True)
            weights, count = next(run_span(work, [ref], n))
            params, learned = {**params, **weights}, learned + count
            progress(1)
        params = {**params, "round": params["round"] + 1.0}
    else:
        statistics = next(ahead)
        progress(len(refs))
        learned = 0 if statistics is None else int(statistics["count"][0])
        params = params if statistics is None else model.finish(statistics, params)
    if not learned:
        raise UsageError(
            f"nothing to train {model.name} on: no query of {dataset.path or 'the dataset'} has two items with "
            "different labels"
        )
    return params


def _learning(model: Trained, params: Params, dataset: Dataset) -> Round:
    return Round(Work(_map_task, (model, params), repeated=True), dataset.plan(TRAIN_ENTRIES), model.reduce)


def _learn_task(chunk: Chunk, index: int, payload: tuple[Trained, Params]) -> tuple[Params, int]:
    model, params = payload
    return model.learn(chunk, params)


def _map_task(chunk: Chunk, index: int, payload: tuple[Trained, Params]) -> Statistics:
    model, params = payload
    return model.map(chunk, params)
