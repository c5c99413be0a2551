"""Fit any model by its learner; the learner of most models, and the one loop of map, reduce and finish."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.chunk_ref import ChunkRef
from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.checkpoint import Keeper, NoKeeper, saving_on_stop
from distagg.engine.fitting.learner import Goal, Learner, Training, check_whole, learner_of, split_query
from distagg.engine.fitting.train import judging, values_of
from distagg.engine.fitting.weigh import weigh
from distagg.engine.memory import check_memory
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import Runner, Work, as_runner
from distagg.engine.saved import align_experts
from distagg.errors import UsageError
from distagg.models import Completion, Model, Params
from distagg.models.agreement import Agreement
from distagg.models.base import Known
from distagg.models.completion.model import some_lists
from distagg.models.rounds import Stage, Statistics
from distagg.models.weights import AGREEMENT, AUTO, Weighted

log = logging.getLogger("distagg")

Through = tuple[Completion, Params]  # a fitted completion

__all__ = [
    "Goal",
    "MapReduceLearner",
    "Through",
    "Trial",
    "align_experts",
    "check_fits",
    "cut",
    "fit",
    "fit_each",
    "gather",
    "run_rounds",
    "split_query",
]


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
    """Learn the parameters that the model shares between queries; empty for models that learn nothing.

    Models with early stopping (``Learner.stops_early``) learn from ``train`` and stop by ``valid``; all others learn
    from both. Training in rounds resumes from the state that ``keeper`` stored; trees and blends start from the
    beginning.
    """
    train = cut(model, train)
    check_memory(model, train, runner)
    valid = None if valid is None else cut(model, valid)
    if model.needs_labels:
        for dataset in (train, train if valid is None else valid):
            if not dataset.manifest.labels:
                raise UsageError(f"{model.name} learns from labels, but {dataset.path or 'the dataset'} has none")
    runner, keeper = as_runner(runner), keeper or NoKeeper()
    return learner_of(model).fit(model, Training(train, valid, goal or Goal(), runner, progress, keeper))


class MapReduceLearner(Learner):
    """The learner of models that choose among candidates by a metric, or sum up statistics in rounds."""

    name: ClassVar[str] = "map_reduce"

    def fit(self, model: Model, data: Training) -> Params:
        params = model.resolved(data.train.experts)
        if "expert_bounds" in params:
            _report_outside(model, params, data)
        candidates = [{**params, **tried} for tried in model.candidates(data.train.manifest.experts)]
        datasets = [data.train] if data.judged == data.train else [data.train, data.judged]
        if candidates:
            params = model.chosen(candidates, _values(model, candidates, datasets, data))
        weights = model.weights if isinstance(model, Weighted) else ""
        if weights == AUTO:
            return weigh(model, params, datasets, data.goal, data.runner)
        if weights != AGREEMENT and (candidates or not model.learns):
            return params
        refs: list[ChunkRef] = []
        for dataset in datasets:
            if dataset.experts != data.train.experts:
                raise UsageError(
                    f"{model.name} learns from training and validation queries together, but their experts differ; "
                    "pass one dataset"
                )
            check_whole(model, dataset)
            refs += dataset.plan()
        if weights == AGREEMENT:
            first: Stage = Agreement(model, params, "expert_weight")
        elif any(map(split_query, datasets)):
            first = model.learning_split(data.train.manifest.experts, params)
        else:
            first = model.learning(data.train.manifest.experts, params)
        learned: Params = run_rounds(first, refs, data.runner, data.progress, keeper=data.keeper)
        return learned


def _report_outside(model: Model, params: Params, data: Training) -> None:
    """Report the scores that lie outside of the bounds given for their expert, and count as the nearer bound."""
    counts = data.runner.map_reduce(Work(_outside_task, (model, params)), data.train.plan(), np.add)
    outside = np.zeros((0, 2)) if counts is None else counts
    for expert in np.flatnonzero(outside[:, 0]):
        out, scores = outside[expert]
        low, high = params["expert_bounds"][expert]
        log.warning(
            f"bounds: {out:,.0f} of {scores:,.0f} scores of {data.train.experts[expert]} lie outside {low:g} to "
            f"{high:g} and count as the nearer bound"
        )


def _outside_task(chunk: Chunk, index: int, payload: tuple[Any, Params]) -> np.ndarray:
    model, params = payload
    counts: np.ndarray = model.outside(chunk, params)
    return counts


def _values(model: Model, candidates: list[Params], datasets: list[Dataset], data: Training) -> np.ndarray:
    """Each candidate's metric over the queries of all datasets, with experts matched by name."""
    totals = []
    for dataset in datasets:
        aligned = [align_experts(model, params, datasets[0].experts, dataset.experts) for params in candidates]
        todo = judging(model, aligned, dataset, data.goal, repeated=False)
        totals.append(data.runner.map_reduce(todo.work, todo.refs, todo.reduce, data.progress))
    judged = [total for total in totals if total is not None]
    return values_of(model, np.sum(judged, axis=0) if judged else None)


@dataclass(frozen=True, slots=True)
class Trial:
    """A fit to run: a model, its data and its goal."""

    model: Model
    train: Dataset
    valid: Dataset | None
    goal: Goal


def most_steps(model: Model, dataset: Dataset) -> int:
    """The most calls of ``progress`` that one fit makes: chunks in all rounds, or trees; 0 if unknown."""
    if isinstance(trees := getattr(model, "trees", None), int):
        return trees
    if learner_of(model).name == "ensemble":
        return 0
    rounds = getattr(model, "rounds", 1)
    return len(dataset.plan()) * (rounds if isinstance(rounds, int) else 1)


def fit_each(trials: Sequence[Trial], runner: Runner | None = None, progress: Progress = silent) -> list[Params]:
    """Fit every trial.

    Serial fits (``mode="serial"``) run in parallel, each on one worker. The others run one after the other, and each
    spreads its chunks over all workers. The bits are the same either way.
    """
    runner = as_runner(runner)
    serial = [n for n, trial in enumerate(trials) if trial.model.serial]
    fitted = dict(zip(serial, runner.each(_fit_inline, [trials[n] for n in serial], progress), strict=True))
    for n, trial in enumerate(trials):
        if n not in fitted:
            fitted[n] = fit(trial.model, trial.train, valid=trial.valid, goal=trial.goal, runner=runner)
            progress(1)
    return [fitted[n] for n in range(len(trials))]


def _fit_inline(trial: Trial) -> Params:
    return fit(trial.model, trial.train, valid=trial.valid, goal=trial.goal)


def gather(
    model: Model,
    params: Params,
    dataset: Dataset,
    runner: Runner | None = None,
    progress: Progress = silent,
    through: Through | None = None,
) -> Known:
    """Gather the statistics of an expert-partitioned dataset, beside the params; only the params for whole queries.

    ``through`` is a fitted completion: the model then sees every user's completed ratings.
    """
    if not split_query(dataset) and through is None:
        return params
    if not model.additive:
        raise UsageError(
            f"{model.name} needs whole queries, but {dataset.path} is partitioned by expert in several chunks; "
            "choose a model whose statistics add up, such as borda, mean, median or rrf"
        )
    gathered: Known = run_rounds(model.gathering(params), dataset.plan(), as_runner(runner), progress, through=through)
    return gathered


def run_rounds(
    stage: Stage,
    refs: Sequence[ChunkRef],
    runner: Runner,
    progress: Progress,
    *,
    through: Through | None = None,
    keeper: Keeper | None = None,
) -> Any:
    """Run rounds of map, reduce and finish from a first stage until one gives the result.

    The stages of rounds with a keeper are all of one kind, whose state it stores.
    """
    keeper = keeper or NoKeeper()
    completion = None if through is None else (through[0], through[0].sent(through[1]))
    kept = keeper.load()
    number, stage = (0, stage) if kept is None else (int(kept.pop("rounds done")[0]), stage.resumed(kept))
    with saving_on_stop(keeper):
        while True:
            work = Work(_map_task, (stage.sent(), completion), repeated=stage.repeated)
            statistics = runner.map_reduce(work, refs, stage.reduce, progress)
            if statistics is None:
                raise UsageError(f"nothing to fit {stage.model.name} on: no query is selected")
            following, number = stage.finish(statistics), number + 1
            if not isinstance(following, Stage):
                return following
            stage = following
            keeper.offer(number, {**stage.state(), "rounds done": np.array([float(number)])})


def cut(model: Model, dataset: Dataset) -> Dataset:
    """The dataset as the model takes it: lists cut to its depth, pairs weighted by age, with the covariates it fits.

    An unsuitable dataset is refused.
    """
    check_fits(model, dataset)
    if model.depth:
        dataset = dataset.select(depth=model.depth)
    if half_life := getattr(model, "half_life", ""):
        dataset = dataset.select(half_life=half_life, now=getattr(model, "now", "") or None)
    covariates = getattr(model, "covariates", "")
    if covariates and dataset.manifest.kind != "pairs":
        raise UsageError(f"covariates belong to pairs, but the dataset holds {dataset.manifest.kind}; omit covariates")
    return dataset.select(covariates=covariates) if covariates or dataset.manifest.covariates else dataset


def tell_pool(model: Model, dataset: Dataset) -> None:
    """Say that a model takes only some items of large queries."""
    largest, pool = dataset.manifest.query_sizes.get("max", 0), getattr(model, "pool", 0)
    if dataset.manifest.kind == "lists" and dataset.manifest.positive and 0 < pool < largest:
        log.warning(f"{model.name}: queries have up to {largest:,} items; {model.pooling.format(pool=pool)}")


def check_fits(model: Model, dataset: Dataset) -> None:
    """Refuse a dataset that the model cannot use: pairs for lists, or ratings for ranks."""
    if dataset.manifest.kind not in model.takes:
        if dataset.manifest.kind == "pairs" and model.pairs_setting:
            raise UsageError(f"{model!r} takes lists, but the dataset holds pairs; choose {model.pairs_setting}")
        from distagg.models import MODELS

        held, others = dataset.manifest.kind, "models that take them"
        kinds = list(MODELS.items())
        if model.supervised and held == "pairs":
            others += " and learn from labels"
            kinds = [(name, kind) for name, kind in kinds if kind.supervised]
        able = [name for name, kind in kinds if held in kind.inputs]
        able += [f"{name} ({kind.pairs_setting})" for name, kind in kinds if held == "pairs" and kind.pairs_setting]
        raise UsageError(
            f"{model.name} takes {' or '.join(model.takes)}, but the dataset holds {held}; {others}: {', '.join(able)}"
        )
    if model.depth and dataset.manifest.kind != "lists":
        raise UsageError(f"depth={model.depth} cuts lists, but the dataset holds {dataset.manifest.kind}; omit depth")
    if model.positive and not dataset.manifest.positive:
        raise UsageError(f"{model.name} needs ranks above 0, but the dataset holds ratings; choose borda or mean")


def _map_task(chunk: Chunk, index: int, payload: tuple[Stage, Through | None]) -> Statistics:
    stage, through = payload
    if through is None:
        return stage.map(chunk)
    completion, learned = through
    total: Statistics | None = None
    for block in completion.chunks(chunk, learned):
        mapped = stage.map(block)
        total = mapped if total is None else stage.reduce(total, mapped)
    return total if total is not None else stage.map(some_lists(chunk, slice(0, 0)))
