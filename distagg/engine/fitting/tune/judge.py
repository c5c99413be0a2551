"""The metric of settings on labelled queries: sums by fold for a search, values of each query for a report.

Tasks on chunks do the work. The driver merges their sums in the fixed tree, so that every number of workers gives the
same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.learner import Goal
from distagg.engine.fitting.train import TRAIN_ENTRIES
from distagg.engine.runner import InlineRunner, Round, Runner, Work
from distagg.metrics import check_protocol, highest_label, parse_metric, parse_metrics, score_chunk
from distagg.metrics.ladder import ladder_terms, ladder_value
from distagg.models import Model, Params
from distagg.models.lists import weighted_lines
from distagg.models.positional.model import Points
from distagg.models.rounds import kept
from distagg.types import Floats, Indices, Offsets

LINEAR = ("rrf", "combsum")  # their score is a sum of weight times points, where unlisted items get nothing


@dataclass(frozen=True, slots=True)
class Ask:
    """Settings to judge: a model, its experts' weights, and values to try for the weight of one ``expert`` (or -1)."""

    model: Model
    weights: tuple[float, ...]
    expert: int = -1
    values: tuple[float, ...] = (1.0,)

    def rows(self) -> list[tuple[float, ...]]:
        """The weights of all experts, for every value to try."""
        if self.expert < 0:
            return [self.weights]
        before, after = self.weights[: self.expert], self.weights[self.expert + 1 :]
        return [(*before, value, *after) for value in self.values]


@dataclass(frozen=True, slots=True)
class Folds:
    """Assigns queries to folds as ``make_folds`` does: by source part, or in turn."""

    count: int
    parts: tuple[str, ...] = ()

    def of(self, chunk: Chunk) -> Indices:
        """The fold of each query (Q,); -1 for parts that are not named."""
        if not self.parts:
            return (chunk.positions % self.count).astype(np.int32)
        number = {part: n for n, part in enumerate(self.parts)}
        return np.array([number.get(part, -1) for part in chunk.parts.to_pylist()], dtype=np.int32)


@dataclass(slots=True)
class Judge:
    """Computes the metric of settings on a dataset by fold; judges each setting only once."""

    dataset: Dataset
    folds: Folds
    goal: Goal
    runner: Runner = field(default_factory=InlineRunner)
    known: dict[tuple[Model, tuple[float, ...]], Floats] = field(default_factory=dict)
    judged: int = 0  # settings, counted once each

    def sums(self, asks: Sequence[Ask]) -> list[Floats]:
        """For each ask an array (values, 2, folds): the metric's sum, and the number of queries that have one."""
        wanted = list(
            dict.fromkeys(ask for ask in asks if any((ask.model, row) not in self.known for row in ask.rows()))
        )
        if wanted:
            models = {ask.model: ask.model.resolved(self.dataset.experts) for ask in wanted}
            payload = (wanted, models, self.folds, self.goal, highest_label(self.dataset.manifest))
            work = Work(_sums_task, payload, ids=self.goal.protocol == "trec", repeated=True)
            total = next(iter(self.runner.rounds([Round(work, self.dataset.plan(TRAIN_ENTRIES), np.add)])))
            rows = [(ask.model, row) for ask in wanted for row in ask.rows()]
            assert total is not None
            for key, value in zip(rows, total, strict=True):
                self.judged += key not in self.known
                self.known.setdefault(key, value)
        return [np.stack([self.known[ask.model, row] for row in ask.rows()]) for ask in asks]

    def each_query(self, settings: Sequence[tuple[Model, Params]], metrics: Sequence[str]) -> tuple[Floats, Indices]:
        """Every metric of every setting for each query of the dataset (queries, settings, metrics), and their folds."""
        payload = (list(settings), tuple(metrics), self.folds, self.goal, highest_label(self.dataset.manifest))
        work = Work(_values_task, payload, ids=self.goal.protocol == "trec", repeated=True)
        values = np.full((self.dataset.manifest.queries, len(settings), len(metrics)), np.nan)
        fold = np.full(self.dataset.manifest.queries, -1, dtype=np.int32)
        for at, value, folds in self.runner.map(work, self.dataset.plan(TRAIN_ENTRIES)):
            values[at], fold[at] = value, folds
        return values, fold


def longest_list(dataset: Dataset, runner: Runner) -> int:
    """Entries of the longest list."""
    found = runner.map_reduce(Work(_longest_task, None), dataset.plan(TRAIN_ENTRIES), max)
    return int(found or 0)


def _longest_task(chunk: Chunk, index: int, payload: None) -> int:
    return int(np.diff(chunk.entry_offsets).max(initial=0))


def _sums_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> Floats:
    """Sum of the metric and number of queries with one, by fold, for every value of every ask: (rows, 2, folds)."""
    asks, models, folds, goal, max_grade = payload
    metric, protocol = parse_metric(goal.metric), check_protocol(goal.protocol)
    terms = kept(chunk, ("ladder", metric, protocol), lambda c: ladder_terms(c, metric, protocol, max_grade) or ())
    fold = folds.of(chunk)
    total = []
    known = fold >= 0
    for ask in asks:
        for scores in _scores(chunk, ask, models[ask.model]):
            value = ladder_value(chunk, scores, metric, terms or None, protocol, max_grade)
            has = known & ~np.isnan(value)
            total.append([np.bincount(fold[has], each, folds.count) for each in (value[has], np.ones(has.sum()))])
    return np.array(total)


def _scores(chunk: Chunk, ask: Ask, params: Params) -> Iterator[Floats]:
    """Scores (I,) for each value; ``params`` are those of the model's own settings."""
    model = ask.model
    if not (isinstance(model, Points) and model.name in LINEAR and getattr(model, "unlisted", "") != "ignore"):
        cut = chunk.shallow(model.depth)
        yield from (model.score(cut, {**params, "expert_weight": np.array(row)}) for row in ask.rows())
        return
    points, row, expert = kept(chunk, ("points", model), lambda whole: _points(model, whole, params))
    base, slope = weighted_lines(row, expert, points, np.array(ask.weights), ask.expert, chunk.n_items)
    for value in ask.values:
        yield base + value * slope


def _points(model: Points, whole: Chunk, params: Params) -> tuple[Floats, Offsets, Indices]:
    """Points, item row and expert of every entry."""
    chunk = whole.shallow(model.depth)
    return model.points(chunk, params), chunk.entry_row(), np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))


def _values_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> tuple[np.ndarray, Floats, Indices]:
    """Positions (Q,), values (Q, settings, metrics) and folds (Q,), as the models themselves score."""
    settings, names, folds, goal, max_grade = payload
    metrics = parse_metrics(names)
    values = np.empty((chunk.n_queries, len(settings), len(metrics)))
    for n, (model, params) in enumerate(settings):
        scores = model.score(chunk.shallow(model.depth), params)
        values[:, n] = score_chunk(chunk, scores, metrics, protocol=goal.protocol, max_grade=max_grade)
    return chunk.positions, values, folds.of(chunk)
