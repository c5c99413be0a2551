"""What is chosen by: a metric under a protocol, on labelled queries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.reader import Dataset
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import Round, Runner, Work
from distagg.errors import UsageError
from distagg.metrics import highest_label, parse_metric, score_chunk
from distagg.models import Model, Params
from distagg.models.trained import Trained


@dataclass(frozen=True, slots=True)
class Goal:
    """What is chosen by: a metric under a protocol; without one, that of the data it is counted on."""

    metric: str = "map"
    protocol: str | None = None

    def on(self, dataset: Dataset) -> Goal:
        """The goal with the protocol that counts on a dataset."""
        return self if self.protocol else replace(self, protocol=dataset.manifest.protocol)


def evaluate_candidates(
    model: Model,
    candidates: list[Params],
    dataset: Dataset,
    goal: Goal,
    runner: Runner,
    progress: Progress = silent,
    *,
    repeated: bool = False,
) -> np.ndarray:
    """Mean metric of every candidate over labelled queries, -inf for one that gives scores which are no numbers.

    ``repeated`` says that the same queries will be asked again.
    """
    todo = judging(model, candidates, dataset, goal, repeated=repeated)
    return values_of(model, runner.map_reduce(todo.work, todo.refs, todo.reduce, progress))


def judging(model: Model, candidates: list[Params], dataset: Dataset, goal: Goal, *, repeated: bool = True) -> Round:
    """The round that gives every candidate's metric; ``values_of`` reads it."""
    if dataset.manifest.partition == "expert" and len(dataset.plan()) > 1:
        raise UsageError(f"{model.name} chooses by a metric on whole queries, and the dataset is partitioned by expert")
    goal = goal.on(dataset)
    payload = (model, candidates, goal, highest_label(dataset.manifest))
    work = Work(_candidates_task, payload, ids=goal.protocol == "trec", repeated=repeated)
    return Round(work, dataset.plan(), np.add)


def values_of(model: Model, total: np.ndarray | None) -> np.ndarray:
    """Mean metric of every candidate."""
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
        if np.isnan(scores).any() or (isinstance(model, Trained) and not np.isfinite(scores).all()):
            total[:, n] = -np.inf, 1  # numbers that overflow choose nothing
            continue
        values = score_chunk(chunk, scores, metrics, protocol=goal.protocol, max_grade=max_grade)[:, 0]
        total[:, n] = np.nansum(values), np.isfinite(values).sum()
    return total
