"""The learner of models that are trained in rounds; with few labels, cross-validation in place of validation queries.

A metric on ten validation queries is mostly noise. Where there are fewer than ``FEW`` of them, and they are parts of
the same dataset as the training queries (as in folds), each part is held out in turn. The mean of the parts' curves
chooses the number of rounds (with ``keep=best``; otherwise all are made), and whether training starts from the quality
of experts (``prior``) or from nothing; then the model is trained on all labelled queries. It costs as many trainings as
there are parts, and one more. ``lambdamart`` chooses its number of trees in the same way (``boost``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.checkpoint import NoKeeper
from distagg.engine.fitting.folds import hold_outs, in_turn, together
from distagg.engine.fitting.learner import Learner, Training, check_whole
from distagg.engine.fitting.train import train, train_rounds
from distagg.engine.runner import Runner, Work
from distagg.errors import UsageError
from distagg.models import Model, Params
from distagg.models.boosted.model import LambdaMart
from distagg.models.trained import AUTO, BEST, Trained
from distagg.types import NO_LABEL, Floats

log = logging.getLogger("distagg")

FEW = 100  # validation queries with different labels: below that, a metric on them is too noisy to choose by

Way = tuple[Dataset, Dataset]  # queries to learn from, and queries held out


class TrainedLearner(Learner):
    """The learner of models that are trained in rounds (``Trained``)."""

    name: ClassVar[str] = "trained"
    stops_early: ClassVar[bool] = True

    def fit(self, model: Trained, data: Training) -> Params:
        check_whole(model, data.train)
        few = few_queries(data)
        ways = cross_ways(model, data, few=few)
        ranks = data.train.manifest.kind == "lists"  # without them, experts have no quality to start from
        starts = model.starts(few=ranks and (few or bool(ways)))
        if ways:
            return _crossed(starts, data, ways)
        fitted = [train(start, data if len(starts) == 1 else replace(data, keeper=NoKeeper())) for start in starts]
        return max(fitted, key=lambda params: float(_curve(params)[_kept_round(model, _curve(params))]))

    def rounds(self, model: Trained) -> int:
        return int(model.rounds)

    def rehearse(self, model: Trained, chunk: Chunk) -> None:
        model.learn(chunk, model.first(chunk.n_experts, max(chunk.labels.max(), 1)))


def as_given(model: Model) -> Model:
    """The model, which then learns from training queries alone and stops by the validation queries it is given."""
    return replace(model, validation="given") if isinstance(model, Trained | LambdaMart) else model


def few_queries(data: Training) -> bool:
    """Whether there are validation queries, but too few to choose by."""
    return data.valid is not None and teaching_queries(data.valid, data.runner) < FEW


def few_ways(train: Dataset, valid: Dataset, runner: Runner) -> list[Way]:
    """Parts to hold out in turn where there are few validation queries; else the given division alone."""
    ways = hold_outs(train, valid) if teaching_queries(valid, runner) < FEW else [(train, valid)]
    return [(rest, part) for rest, part in ways if part is not None]


def cross_ways(model: Trained | LambdaMart, data: Training, *, few: bool) -> list[Way]:
    """The divisions of a cross-validation; none where the validation queries decide.

    ``few`` says whether ``validation=auto`` asks for it.
    """
    if model.validation == "given" or (model.validation == AUTO and not few):
        return []
    ways = [(rest, part) for rest, part in hold_outs(data.train, data.valid) if part is not None]
    if len(ways) > 1:
        return ways
    if model.validation == AUTO:
        return []
    if data.valid is not None:
        raise UsageError(
            f"{model.name} with validation=cross: training and validation queries are not parts of one dataset, as in "
            "folds; give one dataset without validation queries, or validation=given"
        )
    return in_turn(data.train)


def _crossed(starts: Sequence[Trained], data: Training, ways: Sequence[Way]) -> Params:
    """Train the best start, for the best number of rounds of its mean curve, on all labelled queries."""
    curves = []
    for start in starts:
        parts = [replace(data, train=rest, valid=part, keeper=NoKeeper()) for rest, part in ways]
        curves.append(mean_curve([_curve(train(start, part)) for part in parts]))
    rounds_kept = [_kept_round(start, curve) for start, curve in zip(starts, curves, strict=True)]
    best = int(np.argmax([curve[kept] for curve, kept in zip(curves, rounds_kept, strict=True)]))
    model, rounds = starts[best], rounds_kept[best]
    log.info(
        f"{model.name}: {rounds} rounds from prior={getattr(model, 'prior', 0.0):g}, chosen by cross-validation over "
        f"{len(ways)} parts of the labelled queries"
    )
    params = train_rounds(model, replace(data, train=all_queries(data), valid=None, keeper=NoKeeper()), rounds)
    return {**params, "curve": curves[best][1:]}


def all_queries(data: Training) -> Dataset:
    """The training and the validation queries, which are parts of one dataset."""
    return data.train if data.valid is None else together(data.train, data.valid)


def _kept_round(model: Trained, curve: Floats) -> int:
    """The round whose value on the validation queries is that of the weights that are kept."""
    return int(np.argmax(curve)) if model.keep == BEST else len(curve) - 1


def _curve(params: Params) -> Floats:
    """The validation metric before the first round (-inf from nothing) and after each."""
    return np.concatenate([params.get("start", np.array([-np.inf])), params["curve"]])


def mean_curve(curves: Sequence[Floats]) -> Floats:
    """The mean of curves; one that stopped early keeps its last value."""
    longest = max(len(curve) for curve in curves)
    rows = [np.concatenate([curve, np.full(longest - len(curve), curve[-1])]) for curve in curves]
    return np.asarray(np.mean(rows, axis=0))


def teaching_queries(dataset: Dataset, runner: Runner) -> int:
    """How many queries have items with different labels."""
    return int(runner.map_reduce(Work(_teaching_task, None), dataset.plan(), np.add) or 0)


def _teaching_task(chunk: Chunk, index: int, payload: Any) -> int:
    labels, starts = chunk.labels, chunk.item_offsets[:-1][np.diff(chunk.item_offsets) > 0]
    if not len(starts):
        return 0
    least = np.minimum.reduceat(np.where(labels == NO_LABEL, np.iinfo(np.int32).max, labels), starts)
    most = np.maximum.reduceat(labels, starts)
    return int((np.maximum(most, 0) > np.maximum(least, 0)).sum())
