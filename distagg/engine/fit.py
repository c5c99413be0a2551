"""Fitting: choose parameters by a metric on labels, and run rounds of map, reduce and finish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.reader import Dataset
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import InlineRunner, Runner, Work
from distagg.errors import UsageError
from distagg.metrics import parse_metric, score_chunk
from distagg.models import Model, Params
from distagg.models.base import Statistics


@dataclass(frozen=True, slots=True)
class Goal:
    """What is chosen by: a metric under a protocol."""

    metric: str = "map"
    protocol: str = "letor"


def fit(
    model: Model,
    train: Dataset,
    *,
    valid: Dataset | None = None,
    goal: Goal | None = None,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> Params:
    """Parameters that the model shares between queries; empty for models that learn nothing."""
    check_fits(model, train)
    params: Params = {}
    candidates = model.candidates(train.manifest.experts)
    labelled = valid if candidates and valid is not None else train
    if model.needs_labels and not labelled.manifest.labels:
        raise UsageError(f"{model.name} learns from labels, and {labelled.path or 'the dataset'} has none")
    if candidates:
        values = _evaluate_candidates(model, candidates, labelled, goal or Goal(), runner or InlineRunner(), progress)
        params = model.chosen(candidates, values)
    elif model.learns:
        if split_query(train) and not model.learns_from_parts:
            raise UsageError(
                f"{model.name} learns from whole queries, and {train.path or 'the dataset'} is partitioned by expert; "
                "choose a model that does not learn, such as mpm"
            )
        params = run_rounds(model, params, train, runner or InlineRunner(), progress)
    return params


def gather(
    model: Model, params: Params, dataset: Dataset, runner: Runner | None = None, progress: Progress = silent
) -> Params:
    """Parameters with the tallies of an expert-partitioned dataset added; unchanged where queries are whole."""
    if not split_query(dataset):
        return params
    if not model.additive:
        raise UsageError(
            f"{model.name} needs whole queries, and {dataset.path} is partitioned by expert in several chunks; "
            "choose a model whose statistics add up, such as borda, mean, median or rrf"
        )
    return run_rounds(model, params, dataset, runner or InlineRunner(), progress)


def split_query(dataset: Dataset) -> bool:
    """Whether one query's lists are spread over several chunks."""
    return dataset.manifest.partition == "expert" and len(dataset.plan()) > 1


def run_rounds(model: Model, params: Params, dataset: Dataset, runner: Runner, progress: Progress) -> Params:
    """The one loop."""
    refs = dataset.plan()
    while True:
        work = Work(_map_task, (model, params), repeated=True)
        statistics = runner.map_reduce(work, refs, model.reduce, progress)
        if statistics is None:
            raise UsageError(f"nothing to fit {model.name} on: no query is selected")
        params = model.finish(statistics, params)
        if model.done(params):
            return params


def check_fits(model: Model, dataset: Dataset) -> None:
    """Refuse a dataset whose kind of evidence the model cannot use."""
    if dataset.manifest.kind not in model.inputs:
        from distagg.models import MODELS

        able = ", ".join(name for name, kind in MODELS.items() if dataset.manifest.kind in kind.inputs)
        raise UsageError(
            f"{model.name} takes {' or '.join(model.inputs)}, and the dataset holds {dataset.manifest.kind}; "
            f"models that take them: {able}"
        )
    if model.positive and not dataset.manifest.positive:
        raise UsageError(f"{model.name} needs ranks above 0, and the dataset holds ratings; choose borda or mean")


def align_experts(params: Params, trained: tuple[str, ...], present: tuple[str, ...]) -> Params:
    """Per-expert parameters (named expert_*) in the order of another dataset's experts; unseen ones come last."""
    if trained == present:
        return params
    known = {name: index for index, name in enumerate(trained)}
    if not any(name in known for name in present):
        raise UsageError(
            f"the model knows none of the dataset's experts ({', '.join(present[:5])}, ...); "
            f"it was fitted on {', '.join(trained[:5])}, ..."
        )
    where = np.array([known.get(name, -1) for name in present])
    return {
        key: np.where(where >= 0, value[where], -np.inf) if key.startswith("expert_") else value
        for key, value in params.items()
    }


def _map_task(chunk: Chunk, index: int, payload: tuple[Model, Params]) -> Statistics:
    model, params = payload
    return model.map(chunk, params)


def _evaluate_candidates(
    model: Model, candidates: list[Params], dataset: Dataset, goal: Goal, runner: Runner, progress: Progress
) -> np.ndarray:
    """Mean metric of every candidate over labelled queries."""
    if split_query(dataset):
        raise UsageError(f"{model.name} chooses by a metric on whole queries, and the dataset is partitioned by expert")
    payload = (model, candidates, goal, max(int(label) for label in dataset.manifest.labels))
    total = runner.map_reduce(
        Work(_candidates_task, payload, ids=goal.protocol == "trec"), dataset.plan(), np.add, progress
    )
    if total is None or not total[1].any():
        raise UsageError(f"no labelled query to choose the parameters of {model.name} on")
    return np.asarray(total[0] / np.maximum(total[1], 1))


def _candidates_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> np.ndarray:
    """Sum of the metric and number of queries that have one, for each candidate, shape (2, candidates)."""
    model, candidates, goal, max_grade = payload
    metrics = [parse_metric(goal.metric)]
    total = np.zeros((2, len(candidates)))
    for n, params in enumerate(candidates):
        scores = model.score(chunk, params)
        values = score_chunk(chunk, scores, metrics, protocol=goal.protocol, max_grade=max_grade)[:, 0]
        total[:, n] = np.nansum(values), np.isfinite(values).sum()
    return total
