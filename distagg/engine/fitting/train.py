"""Training in rounds, judged after each by a metric on labelled validation queries.

The driver runs the loop, workers process chunks, and their sums merge in the fixed tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.chunk_ref import ChunkRef
from distagg.dataset.dataset import CHUNK_ENTRIES, Dataset
from distagg.dataset.manifest import Manifest
from distagg.engine.fitting.checkpoint import packed, saving_on_stop, unpacked
from distagg.engine.fitting.learner import Goal, Training, goal_values, split_query
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import Round, Runner, Work, run_span
from distagg.engine.saved import align_experts
from distagg.errors import UsageError
from distagg.metrics import highest_label
from distagg.models import Model, Params
from distagg.models.base import not_converged
from distagg.models.rounds import Statistics
from distagg.models.trained import BEST, SERIAL, SUM, Trained, TrainingState
from distagg.types import Floats

TRAIN_ENTRIES = 1 << 17  # smaller chunks than in a single pass: a round should keep all workers busy
# Queries in a chunk, as far as one of a single pass holds them: the mean over chunks of one query each would move like
# a single step of SGD, and take several times the rounds.
TRAIN_QUERIES = 16
FEWEST = 5  # chunks that mode=sum makes of larger data, until chunks are as large as in a single pass


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
    """Mean metric of every candidate over labelled queries, -inf for a candidate with scores that are not numbers.

    ``repeated`` says that the same queries will be evaluated again, so that workers should cache them.
    """
    todo = judging(model, candidates, dataset, goal, repeated=repeated)
    return values_of(model, runner.map_reduce(todo.work, todo.refs, todo.reduce, progress))


def judging(
    model: Model,
    candidates: list[Params],
    dataset: Dataset,
    goal: Goal,
    *,
    repeated: bool = True,
    chunk_entries: int = CHUNK_ENTRIES,
) -> Round:
    """The round that sums every candidate's metric; ``values_of`` turns the sums into means."""
    if split_query(dataset):
        raise UsageError(
            f"{model.name} is chosen by a metric on whole queries, but the dataset is partitioned by expert"
        )
    goal = goal.on(dataset)
    payload = (model, candidates, goal, highest_label(dataset.manifest))
    work = Work(_candidates_task, payload, ids=goal.protocol == "trec", repeated=repeated)
    return Round(work, dataset.plan(chunk_entries), np.add)


def values_of(model: Model, total: np.ndarray | None) -> np.ndarray:
    """Mean metric of every candidate."""
    if total is None or not total[1].any():
        raise UsageError(f"no labelled query to choose the parameters of {model.name}")
    return np.asarray(total[0] / np.maximum(total[1], 1))


def _candidates_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> np.ndarray:
    """Sum of the metric and number of queries with a metric, for each candidate, shape (2, candidates)."""
    model, candidates, goal, max_grade = payload
    total = np.zeros((2, len(candidates)))
    for n, params in enumerate(candidates):
        scores = model.score(chunk, params)
        if np.isnan(scores).any() or (model.overflows and not np.isfinite(scores).all()):
            total[:, n] = -np.inf, 1  # a candidate that overflows is never chosen
            continue
        values = goal_values(goal, chunk, scores, max_grade)
        total[:, n] = np.nansum(values), np.isfinite(values).sum()
    return total


def train(model: Trained, data: Training) -> Params:
    """Train in rounds and return the weights that ``model.keep`` asks for: by default those of the best round.

    Without ``valid`` the training queries serve for validation: early stopping then only saves time. Experts of
    ``valid`` are matched by name. Training ends after ``rounds`` rounds, with ``keep=best`` after ``patience`` rounds
    without a better value, or with a warning as soon as weights or scores are no longer finite. Besides the weights,
    the result holds ``curve`` (after each round, the value on the validation queries of the weights that would be kept
    if it were the last), ``round`` (the number of the round that is kept; the last one with ``keep=mean``) and, if
    training starts from the quality of experts, ``start`` (the value before the first round). Training offers its state
    to ``keeper`` after each round, and resumes from the state that ``keeper`` stored.
    """
    train, judged, runner, keeper = data.train, data.judged, data.runner, data.keeper
    state = first_state(model, data)
    align_experts(model, state.params, train.experts, judged.experts)  # refuses unknown experts before any work
    curve: list[float] = []
    best, value, reached = state.params, -np.inf, 0
    start: Params = {}
    if model.wants_quality:
        aligned = align_experts(model, state.params, train.experts, judged.experts)
        value = float(evaluate_candidates(model, [aligned], judged, data.goal, runner)[0])
        start = {"start": np.array([value])}
    kept = keeper.load()
    if kept is not None:
        state, best = state.resumed(unpacked(kept, "params")), unpacked(kept, "best")
        curve = [float(point) for point in kept["curve"]]
        reached = int(kept["reached"][0])
        value = curve[reached - 1] if reached else value
    entries = training_entries(model, judged.manifest)
    # Training queries that serve for validation are planned and cached once: the same chunks, with the same columns.
    ids = judged is train and data.goal.on(judged).protocol == "trec"
    ahead: Iterator[Any] = runner.rounds([_learning(state, train, ids=ids)])
    with saving_on_stop(keeper):
        while not state.done and len(curve) - reached < model.patience:
            state = _round(state, train, ahead, data.progress, ids=ids)
            finite, now = all(np.isfinite(weights).all() for weights in state.weights.values()), -np.inf
            if finite:
                params = model.after(best, state)
                aligned = align_experts(model, params, train.experts, judged.experts)
                # Validation does not wait for the next round, nor the next round for it: send both in one message.
                last = model.mode == SERIAL or state.done
                validation = judging(model, [aligned], judged, data.goal, chunk_entries=entries)
                ahead = runner.rounds([validation] if last else [validation, _learning(state, train, ids=ids)])
                now = float(values_of(model, next(ahead))[0])
            if now == -np.inf:
                not_converged(
                    f"{model.name}: {'scores' if finite else 'weights'} were no longer finite after round "
                    f"{len(curve) + 1}; the weights of round {reached} are kept; lower the rate"
                )
                break
            curve.append(now)
            if model.keep != BEST or curve[-1] > value:
                best, value, reached = params, curve[-1], len(curve)
            history = {"curve": np.array(curve), "reached": np.array([float(reached)])}
            keeper.offer(len(curve), {**packed(params=state.state(), best=best), **history})
    learned = {name: best[name] for name in (*model.weight_names, "highest")}
    return {**learned, "round": np.array([float(reached)]), "curve": np.array(curve), **start}


def train_rounds(model: Trained, data: Training, rounds: int) -> Params:
    """The weights to be kept after so many rounds on the training queries."""
    state = first_state(model, data)
    params = state.params
    for _ in range(rounds):
        state = _round(state, data.train, data.runner.rounds([_learning(state, data.train)]), data.progress)
        params = model.after(params, state)
    return {**params, "round": np.array([float(rounds)])}


def first_state(model: Trained, data: Training) -> TrainingState:
    """The state before the first round: from nothing, or from the quality of experts."""
    quality = expert_quality(data) if model.wants_quality else None
    return model.first(data.train.manifest.experts, highest_label(data.train.manifest), quality)


def expert_quality(data: Training) -> Floats:
    """Shares of experts (experts,), as tuned rrf weighs them on the training queries."""
    if data.train.manifest.kind != "lists":
        raise UsageError("prior weighs experts by the quality of their lists, but the dataset holds pairs; omit prior")
    from distagg.engine.fitting.power import FusionLearner
    from distagg.models.boosted.fusion import Fusion

    weight = FusionLearner().fit(Fusion(rule="rrf"), replace(data, valid=None))["expert_weight"]
    return np.asarray(weight / max(float(weight.sum()), np.finfo(float).tiny))


def _round(
    state: TrainingState, dataset: Dataset, ahead: Iterator[Any], progress: Progress, *, ids: bool = False
) -> TrainingState:
    """One round: through all chunks one after the other (serial), or with the next sums from the workers."""
    refs = training_plan(state.model, dataset)
    if state.model.mode == SERIAL:
        learned = 0
        for n, ref in enumerate(refs):
            weights, count = next(run_span(Work(_learn_task, state, ids=ids, repeated=True), [ref], n))
            state, learned = replace(state, weights=weights), learned + count
            progress(1)
        state = replace(state, round=state.round + 1)
    else:
        statistics = next(ahead)
        progress(len(refs))
        learned = 0 if statistics is None else int(statistics["count"][0])
        state = state if statistics is None else state.finish(statistics)
    if not learned:
        raise UsageError(
            f"nothing to train {state.model.name} on: no query of {dataset.path or 'the dataset'} has two items with "
            "different labels"
        )
    return state


def training_entries(model: Model, manifest: Manifest) -> int:
    """The size of the chunks of a round: ``TRAIN_ENTRIES``, more where that is less than ``TRAIN_QUERIES`` queries.

    With ``mode=sum`` chunks are few and large, so that each is a long walk of SGD. It depends on the data and the mode
    alone. Chunks of datasets in memory stay as they are.
    """
    least = TRAIN_QUERIES * manifest.entries // max(manifest.queries, 1)
    if getattr(model, "mode", "") == SUM:
        least = max(least, manifest.entries // FEWEST)
    return min(max(TRAIN_ENTRIES, least), CHUNK_ENTRIES)


def training_plan(model: Model, dataset: Dataset) -> tuple[ChunkRef, ...]:
    """The chunks of a round of training."""
    return dataset.plan(training_entries(model, dataset.manifest))


def _learning(state: TrainingState, dataset: Dataset, *, ids: bool = False) -> Round:
    return Round(
        Work(_map_task, state.sent(), ids=ids, repeated=True), training_plan(state.model, dataset), state.reduce
    )


def _learn_task(chunk: Chunk, index: int, state: TrainingState) -> tuple[Params, int]:
    return state.model.learn(chunk, state)


def _map_task(chunk: Chunk, index: int, state: TrainingState) -> Statistics:
    return state.map(chunk)
