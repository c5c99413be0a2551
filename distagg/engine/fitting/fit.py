"""Fitting: choose parameters by a metric on labels, and run rounds of map, reduce and finish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import ChunkRef, Dataset
from distagg.engine.fitting.boost import boost
from distagg.engine.fitting.checkpoint import Keeper, NoKeeper, saving_on_stop
from distagg.engine.fitting.folds import hold_outs
from distagg.engine.fitting.train import Goal, judging, values_of
from distagg.engine.fitting.train import train as train_in_rounds
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import InlineRunner, Runner, Work
from distagg.engine.saved import align_experts
from distagg.errors import UsageError
from distagg.models import Completion, Model, Params
from distagg.models.base import Statistics
from distagg.models.boosted.blend import Blend
from distagg.models.boosted.model import LambdaMart
from distagg.models.completion.model import some_lists
from distagg.models.trained import Trained

Through = tuple[Completion, Params]  # a fitted completion

__all__ = [
    "Goal", "Through", "Trial", "align_experts", "check_fits", "fit", "fit_each", "gather", "run_rounds", "split_query",
    "stops_early",
]  # fmt: skip


def fit(
    model: Model,
    train: Dataset,
    *,
    valid: Dataset | None = None,
    goal: Goal | None = None,
    runner: Runner | None = None,
    progress: Progress = silent,
    keeper: Keeper | None = None,
) -> Params:
    """Parameters that the model shares between queries; empty for models that learn nothing.

    Models that stop early (see ``stops_early``) learn from ``train`` and stop by ``valid``; all others learn from the
    queries of both. What learns in rounds goes on from the state that ``keeper`` kept; trees and blends start again.
    """
    check_fits(model, train)
    if isinstance(model, Trained):
        _check_whole(model, train)
        return train_in_rounds(model, train, valid, goal, runner, progress, keeper)
    if isinstance(model, LambdaMart):
        _check_whole(model, train)
        return boost(model, train, valid, goal, runner, progress)
    if isinstance(model, Blend):
        ways = hold_outs(train, valid)
        trials = [
            Trial(member, *ways[model.turn(name) % len(ways)], goal or Goal()) for name, member in model.members.items()
        ]
        return model.joined(dict(zip(model.members, fit_each(trials, runner, progress), strict=True)))
    params: Params = {}
    candidates = model.candidates(train.manifest.experts)
    given = [train] if valid is None or valid == train else [train, valid]
    for dataset in given:
        if model.needs_labels and not dataset.manifest.labels:
            raise UsageError(f"{model.name} learns from labels, and {dataset.path or 'the dataset'} has none")
    if candidates:
        params = model.chosen(candidates, _values(model, candidates, given, goal or Goal(), runner, progress))
    elif model.learns:
        refs: list[ChunkRef] = []
        for dataset in given:
            if dataset.experts != train.experts:
                raise UsageError(
                    f"{model.name} learns from the training and the validation queries together, and their experts are "
                    "not the same; give it one dataset"
                )
            _check_whole(model, dataset)
            refs += dataset.plan()
        params = run_rounds(model, params, refs, runner or InlineRunner(), progress, keeper=keeper)
    return params


def stops_early(model: Model) -> bool:
    """Whether validation queries tell the model when to stop: it must not learn from them as well."""
    return isinstance(model, Trained | LambdaMart | Blend)


def _values(
    model: Model, candidates: list[Params], given: list[Dataset], goal: Goal, runner: Runner | None, progress: Progress
) -> np.ndarray:
    """Every candidate's metric over the queries of all datasets; experts are matched by name."""
    totals = []
    for dataset in given:
        aligned = [align_experts(model, params, given[0].experts, dataset.experts) for params in candidates]
        todo = judging(model, aligned, dataset, goal, repeated=False)
        totals.append((runner or InlineRunner()).map_reduce(todo.work, todo.refs, todo.reduce, progress))
    judged = [total for total in totals if total is not None]
    return values_of(model, np.sum(judged, axis=0) if judged else None)


@dataclass(frozen=True, slots=True)
class Trial:
    """One fit."""

    model: Model
    train: Dataset
    valid: Dataset | None
    goal: Goal


def fit_each(trials: Sequence[Trial], runner: Runner | None = None, progress: Progress = silent) -> list[Params]:
    """The parameters of every trial.

    Fits that go through their queries one after the other are done whole by one worker each, side by side; the others
    spread their chunks over all workers, one fit after the other. The bits are the same either way.
    """
    runner = runner or InlineRunner()
    alone = [n for n, trial in enumerate(trials) if getattr(trial.model, "mode", "") == "serial"]
    found = dict(zip(alone, runner.each(_fit_alone, [trials[n] for n in alone], progress), strict=True))
    for n, trial in enumerate(trials):
        if n not in found:
            found[n] = fit(trial.model, trial.train, valid=trial.valid, goal=trial.goal, runner=runner)
            progress(1)
    return [found[n] for n in range(len(trials))]


def _fit_alone(trial: Trial) -> Params:
    return fit(trial.model, trial.train, valid=trial.valid, goal=trial.goal)


def _check_whole(model: Model, train: Dataset) -> None:
    if split_query(train) and not model.learns_from_parts:
        raise UsageError(
            f"{model.name} learns from whole queries, and {train.path or 'the dataset'} is partitioned by expert; "
            "choose a model that does not learn, such as mpm"
        )


def gather(
    model: Model,
    params: Params,
    dataset: Dataset,
    runner: Runner | None = None,
    progress: Progress = silent,
    through: Through | None = None,
) -> Params:
    """Parameters with the tallies of an expert-partitioned dataset added; unchanged where queries are whole.

    ``through`` is a fitted completion: the model is then given every user's completed ratings.
    """
    if not split_query(dataset) and through is None:
        return params
    if not model.additive:
        raise UsageError(
            f"{model.name} needs whole queries, and {dataset.path} is partitioned by expert in several chunks; "
            "choose a model whose statistics add up, such as borda, mean, median or rrf"
        )
    return run_rounds(model, params, dataset.plan(), runner or InlineRunner(), progress, through=through)


def split_query(dataset: Dataset) -> bool:
    """Whether one query's lists are spread over several chunks."""
    return dataset.manifest.partition == "expert" and len(dataset.plan()) > 1


def run_rounds(
    model: Model,
    params: Params,
    refs: Sequence[ChunkRef],
    runner: Runner,
    progress: Progress,
    *,
    through: Through | None = None,
    keeper: Keeper | None = None,
) -> Params:
    """The one loop."""
    keeper = keeper or NoKeeper()
    repeated = type(model).done is not Model.done  # models of one round need no chunk again
    completion = None if through is None else (through[0], through[0].sent(through[1]))
    kept = keeper.load()
    number, params = (0, params) if kept is None else (int(kept.pop("rounds done")[0]), kept)
    with saving_on_stop(keeper):
        while True:
            work = Work(_map_task, (model, model.sent(params), completion), repeated=repeated)
            statistics = runner.map_reduce(work, refs, model.reduce, progress)
            if statistics is None:
                raise UsageError(f"nothing to fit {model.name} on: no query is selected")
            params, number = model.finish(statistics, params), number + 1
            if model.done(params):
                return params
            keeper.offer(number, {**params, "rounds done": np.array([float(number)])})


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


def _map_task(chunk: Chunk, index: int, payload: tuple[Model, Params, Through | None]) -> Statistics:
    model, params, through = payload
    if through is None:
        return model.map(chunk, params)
    completion, learned = through
    found: list[Statistics] = []
    for block in completion.chunks(chunk, learned):
        mapped = model.map(block, params)
        found = [mapped if not found else model.reduce(found[0], mapped)]
    return found[0] if found else model.map(some_lists(chunk, slice(0, 0)), params)
