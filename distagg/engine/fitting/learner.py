"""Learners: how the engine fits each kind of model.

``Model.learner`` names the learner that fits a model. A learner is one class in one file, listed in ``LEARNERS``; other
packages add learners by entry points of the group ``distagg.learners`` (``NAME = "package.module:Class"``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.checkpoint import Keeper
from distagg.engine.progress import Progress
from distagg.engine.runner import Runner
from distagg.errors import UsageError, unknown
from distagg.metrics import check_protocol, parse_metric, score_chunk
from distagg.metrics.ladder import ladder_terms, ladder_value
from distagg.models import Model, Params
from distagg.models.registry import Registry
from distagg.models.rounds import kept
from distagg.types import Floats

LARGE = 1000  # items of a query, on average over a chunk


@dataclass(frozen=True, slots=True)
class Goal:
    """The metric to optimise and its protocol; without a protocol, the dataset's."""

    metric: str = "map"
    protocol: str | None = None

    def on(self, dataset: Dataset) -> Goal:
        """The goal with its protocol filled in from a dataset."""
        return self if self.protocol else replace(self, protocol=dataset.manifest.protocol)


def goal_values(goal: Goal, chunk: Chunk, scores: Floats, max_grade: int) -> Floats:
    """The goal's metric of every query (Q,), whose protocol is filled in; NaN where it is undefined.

    In large queries the places of relevant items are counted, which takes a fraction of the time of sorting.
    """
    metric, protocol = parse_metric(goal.metric), check_protocol(str(goal.protocol))
    if chunk.n_items < LARGE * chunk.n_queries or not np.abs(scores).max(initial=0.0) < np.finfo(np.float32).max:
        return score_chunk(chunk, scores, [metric], protocol=protocol, max_grade=max_grade)[:, 0]
    terms = kept(chunk, ("ladder", metric, protocol), lambda c: ladder_terms(c, metric, protocol, max_grade) or ())
    return ladder_value(chunk, scores, metric, terms or None, protocol, max_grade)


@dataclass(frozen=True, slots=True)
class Training:
    """The data of a fit, its goal, where it runs and who keeps its state."""

    train: Dataset
    valid: Dataset | None
    goal: Goal
    runner: Runner
    progress: Progress
    keeper: Keeper

    @property
    def judged(self) -> Dataset:
        """The validation queries; the training queries where there are none."""
        return self.valid if self.valid is not None else self.train


class Learner:
    """Base of learners: subclasses write ``fit``, and the rest where it applies."""

    name: ClassVar[str]
    stops_early: ClassVar[bool] = False  # validation queries decide when training stops: models do not learn from them

    def fit(self, model: Any, data: Training) -> Params:
        """The params that the model shares between queries.

        ``fit`` of ``distagg.engine.fitting.fit`` has checked that the dataset suits the model and has the labels that
        the model needs. A learner that trains in rounds offers its state to ``data.keeper`` and starts from the state
        that ``data.keeper`` has stored.
        """
        raise NotImplementedError

    def rounds(self, model: Any) -> int:
        """The most rounds of a fit; 0 where one chunk does not tell how long a fit takes."""
        return 0

    def rehearse(self, model: Any, chunk: Chunk) -> None:
        """Do one round's work on one chunk, so that ``distagg plan`` can time it; asked only where there are rounds."""
        raise NotImplementedError


LEARNERS: Registry[Learner] = Registry(
    {
        "map_reduce": "fit:MapReduceLearner",
        "trained": "cross:TrainedLearner",
        "boosted": "boost:BoostedLearner",
        "ensemble": "ensemble:EnsembleLearner",
        "fusion": "power:FusionLearner",
    },
    group="distagg.learners",
    package="distagg.engine.fitting",
    base="distagg.engine.fitting.learner.Learner",
)


def learner_of(model: Model) -> Learner:
    """The learner that fits a model.

    >>> from distagg.models import model_named
    >>> learner_of(model_named("crf")).stops_early
    True
    """
    if model.learner not in LEARNERS:
        raise unknown(f"learner of {model.name}", model.learner, LEARNERS)
    return LEARNERS[model.learner]()


def split_query(dataset: Dataset) -> bool:
    """Whether the lists of one query are in several chunks."""
    return dataset.manifest.partition == "expert" and len(dataset.plan()) > 1


def check_whole(model: Model, dataset: Dataset) -> None:
    """Refuse to learn from queries whose lists are in several chunks, unless the model can."""
    if split_query(dataset) and not model.learns_from_parts:
        others = "crowd_bt, which needs no labels to weigh experts, or " if dataset.manifest.kind == "pairs" else ""
        raise UsageError(
            f"{model.name} learns from whole queries, but {dataset.path or 'the dataset'} is partitioned by expert; "
            f"choose {others}a model that does not learn, such as mpm"
        )
