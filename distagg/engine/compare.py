"""Evaluate and compare models on the same queries, per query and per fold, with paired significance tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.data import Columns, as_dataset
from distagg.engine.fitting.fit import Goal, check_fits, cut, fit, gather, split_query, tell_pool
from distagg.engine.fitting.folds import Fold, make_folds
from distagg.engine.fitting.search import fit_folds, variants
from distagg.engine.memory import check_memory
from distagg.engine.progress import Progress, silent
from distagg.engine.rank import solved
from distagg.engine.runner import Runner, Work, as_runner
from distagg.engine.tracking import OnResult, changed_settings, no_result, tell_result
from distagg.errors import UsageError, unknown
from distagg.metrics import check_protocol, compare_all, highest_label, mean_over_queries, parse_metrics, score_chunk
from distagg.models import Model, Params, known_name
from distagg.models.base import collected_notes, not_converged

DEFAULT_METRICS = ("ndcg@5", "ndcg@10", "p@5", "map")


def evaluate_model(
    model: Model,
    params: Params,
    dataset: Dataset,
    metrics: Sequence[str],
    *,
    protocol: str | None = None,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> tuple[np.ndarray, np.ndarray]:
    """Dataset positions of the queries (Q,), and the value of every metric for each (Q, metrics)."""
    if not dataset.manifest.labels:
        raise UsageError(f"{dataset.path or 'the dataset'} has no labels to evaluate against; import it with them")
    dataset = cut(model, dataset)
    known = gather(model, params, dataset, runner)
    refs = dataset.plan()[:1] if split_query(dataset) else dataset.plan()
    protocol = protocol or dataset.manifest.protocol
    payload = (model, known, tuple(metrics), protocol, highest_label(dataset.manifest))
    work = Work(_evaluate_task, payload, ids=protocol == "trec")
    pieces = list(as_runner(runner).map(work, refs, progress))
    if not pieces:
        return np.zeros(0, dtype=np.int64), np.zeros((0, len(metrics)))
    return np.concatenate([p for p, _ in pieces]), np.concatenate([v for _, v in pieces])


def compare(
    data: Any,
    models: Sequence[str | Model],
    *,
    labels: Any = None,
    columns: Columns = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    folds: str | int | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    protocol: str | None = None,
    goal: str = "map",
    baseline: str | None = None,
    tries: int | None = None,
    seed: int = 0,
    runner: Runner | None = None,
    progress: Progress = silent,
    watch: Callable[[str, np.ndarray, float], None] = lambda name, means, seconds: None,
    kept: Callable[[str, Callable[[], dict[str, Any]]], dict[str, Any]] = lambda name, evaluate: evaluate(),
    on_result: OnResult = no_result,
) -> dict[str, Any]:
    """Evaluate models side by side, with paired significance tests.

    A model that learns is fitted on the training queries of each fold, stops early by its validation queries and is
    evaluated on its test queries; one without early stopping, such as ``bestinput``, also learns from the validation
    queries. Without folds, supervised models are refused. Models that do not learn are evaluated once.

    Parameters
    ----------
    data
        Labelled data of any kind that ``rank`` takes.
    models
        Names (keys of ``distagg.MODELS``), or model objects.
    labels
        Relevance judgements: a frame with the columns query, item and label, a dictionary ``{query: {item: label}}``,
        or the path of qrels.
    columns
        The meaning of columns with other names: ``{"site": "item"}``.
    settings
        The parameters of each model. A value may list several (``"5,20,60"``, ``"1..10"``): each fold then uses the
        settings that score best on its validation queries, and ``chosen`` reports them.
    folds
        ``letor5``, or the number of folds, at least 3.
    metrics
        As in ``evaluate``.
    protocol
        ``letor`` or ``trec``; by default that of the data: ``letor`` for LETOR files, else ``trec``.
    goal
        The metric that fitting optimises on validation queries.
    baseline
        The model to test the others against (default: the best model by the first metric; p-values are then a little
        too small, because the baseline was chosen after seeing the scores).
    tries
        Try this many random combinations of settings instead of all.
    seed
        Seed of searches, tests and random models, except model objects and models whose settings include a seed.
    runner
        Where to run: None runs in this process; the context managers ``local_cluster(workers)`` and
        ``remote_cluster(address)`` of ``distagg.engine.dask`` give a runner on a cluster.
    progress
        Called with the number of fits finished since the last call.
    watch
        Called when a model is done, with its name, its means over all queries in the order of ``metrics``, and the
        seconds it took.
    kept
        Called with a model's name and a function that evaluates it; may return the result of an earlier attempt
        instead of calling the function.
    on_result
        Called when a model is done with its row, for trackers: ``model``, ``settings``, ``metrics``, ``seconds``.

    Returns
    -------
    dict
        ``means`` {model: {metric: fraction}}, ``results`` (a row per model, fold and metric), ``tests``
        (difference, interval and p-values of each model against the baseline), ``query_ids`` and ``per_query``
        {model: {metric: one value per query}}, ``seconds``, ``chosen`` and more.
    """
    metrics = [str(metric) for metric in dict.fromkeys(parse_metrics(metrics))]  # two names may be one metric
    dataset = as_dataset(data, columns=columns, labels=labels)
    protocol = check_protocol(protocol or dataset.manifest.protocol)
    folds = None if folds is None else str(folds)
    groups = _groups(models, settings or {}, dataset, folds, tries, seed)
    baseline = None if baseline is None else known_name(baseline)
    if baseline is not None and baseline not in groups:
        raise unknown("baseline", baseline, list(groups))
    all_folds = make_folds(dataset, folds) if folds else [Fold("all", dataset, dataset, dataset)]
    fold_of = np.zeros(dataset.manifest.queries, dtype=np.int64)
    for n, fold in enumerate(all_folds[1:], start=1):
        fold_of[_queries(fold.test, runner)[0]] = n
    values: dict[str, np.ndarray] = {}
    results: list[dict[str, Any]] = []
    means: dict[str, dict[str, float]] = {}
    seconds: dict[str, float] = {}
    adherence: dict[str, list[float]] = {}
    chosen: dict[str, list[dict[str, Any]]] = {}
    for name, group in groups.items():
        outcome = kept(
            name,
            lambda group=group: _test_model(group, all_folds, dataset, metrics, Goal(goal, protocol), runner, progress),  # type: ignore[misc]
        )
        values[name] = np.full((dataset.manifest.queries, len(metrics)), np.nan)
        for at, value in outcome["folds"]:
            values[name][at] = value
        adherence |= {name: outcome["adherence"]} if outcome["adherence"] else {}
        chosen |= {name: outcome["chosen"]} if outcome["chosen"] else {}
        seconds[name] = outcome["seconds"]
        drawn = outcome["seeds"] if outcome["folded"] else outcome["seeds"] * len(all_folds)
        seeds = [seed if own is None else int(own) for own in drawn]
        rows, means[name] = _means(name, values[name], fold_of, all_folds, metrics, seeds)
        results += rows
        for note in outcome["notes"]:
            not_converged(note)
        watch(name, mean_over_queries(values[name]), seconds[name])
        about = {"protocol": protocol, "folds": folds, "data": str(dataset.path or ""), "seed": seeds[0]}
        row = {"what": "compare", "model": name, "settings": changed_settings(group[0]), "metrics": means[name]}
        tell_result({**row, "seconds": seconds[name], **about}, on_result)
    reference = baseline or max(means, key=lambda name: means[name][metrics[0]])
    return {
        "dataset": {"path": dataset.path, **dataset.info()},
        "protocol": protocol,
        "folds": folds,
        "seed": seed,
        "baseline": reference,
        "models": list(values),
        "metrics": list(metrics),
        "means": means,
        "results": results,
        "tests": paired_test_rows(values, metrics, reference, seed),
        "query_ids": _query_ids(dataset, runner),
        "per_query": {n: {m: v[:, i].tolist() for i, m in enumerate(metrics)} for n, v in values.items()},
        "seconds": seconds,
        "chosen": chosen,
        "adherence": (
            {"fold": all_folds[0].name, "experts": list(dataset.experts), "models": adherence} if adherence else {}
        ),
    }


def _groups(
    models: Sequence[str | Model],
    settings: Mapping[str, Mapping[str, Any]],
    dataset: Dataset,
    folds: str | None,
    tries: int | None,
    seed: int,
) -> dict[str, list[Model]]:
    """The models to choose from, by name; what cannot be compared is refused."""
    groups: dict[str, list[Model]] = {}
    for requested in models:
        name = requested.name if isinstance(requested, Model) else known_name(requested)
        if name in groups:
            raise UsageError(f"model {name} is named twice")
        grid = next((row for named, row in settings.items() if known_name(named) == name), {})
        groups[name] = [requested] if isinstance(requested, Model) else variants(name, grid, tries=tries, seed=seed)
    for name, group in groups.items():
        check_fits(group[0], dataset)
        check_memory(group[0], dataset)
        tell_pool(group[0], dataset)
        if folds is None and (len(group) > 1 or group[0].needs_labels):
            why = "has several settings to choose from" if len(group) > 1 else "learns from labels"
            raise UsageError(f"{name} {why}; give --folds letor5 or --folds K, so that it is tested fairly")
    return groups


def _test_model(
    group: list[Model],
    all_folds: list[Fold],
    dataset: Dataset,
    metrics: Sequence[str],
    goal: Goal,
    runner: Runner | None,
    progress: Progress,
) -> dict[str, Any]:
    """Test a model, or the best of a group in each fold; the result holds plain lists, so that it can be stored."""
    began = time.perf_counter()
    outcome: dict[str, Any] = {"folds": [], "folded": False, "adherence": [], "chosen": [], "seeds": []}

    def test(model: Model, params: Params, on: Dataset) -> None:
        outcome["seeds"].append(getattr(model, "seed", None))
        at, value = evaluate_model(model, params, on, metrics, protocol=goal.protocol, runner=runner)
        outcome["folds"].append((at.tolist(), value.tolist()))

    def test_folds() -> None:
        if len(group) == 1 and not group[0].learns:
            test(group[0], fit(group[0], dataset, runner=runner), dataset)
            progress(len(all_folds))
            return
        picks = fit_folds(group, all_folds, goal, runner, progress)
        for fold, pick in zip(all_folds, picks, strict=True):
            test(pick.model, pick.params, fold.test)
        outcome["folded"] = True
        if picks[0].model.adherence:
            outcome["adherence"] = picks[0].params["expert_theta"].tolist()
        if len(group) > 1:
            outcome["chosen"] = [{"fold": f.name, **p.settings} for f, p in zip(all_folds, picks, strict=True)]

    with collected_notes() as notes:
        test_folds()
    return outcome | {"seconds": time.perf_counter() - began, "notes": notes}


def _means(
    name: str,
    values: np.ndarray,
    fold_of: np.ndarray,
    all_folds: list[Fold],
    metrics: Sequence[str],
    seeds: list[int],  # the model's seed in each fold
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """A model's means over the queries of every fold, and the means of those over folds."""
    by_fold = np.array([mean_over_queries(values[fold_of == n]) for n in range(len(all_folds))])
    rows = [
        {"model": name, "fold": fold.name, "metric": metric, "value": float(by_fold[n, m]), "seed": seeds[n]}
        for n, fold in enumerate(all_folds)
        for m, metric in enumerate(metrics)
    ]
    return rows, dict(zip(metrics, (float(v) for v in by_fold.mean(axis=0)), strict=True))


def paired_test_rows(
    values: dict[str, np.ndarray], metrics: Sequence[str], reference: str, seed: int
) -> list[dict[str, Any]]:
    """Paired tests of every model against the reference, corrected within each metric."""
    return [
        {
            "metric": metric,
            "a": row.a,
            "b": row.b,
            "queries": row.test.queries,
            "difference": row.test.difference,
            "low": row.test.low,
            "high": row.test.high,
            "p_t": row.test.t_test,
            "p_randomisation": row.test.randomisation,
            "p_t_holm": row.t_test_holm,
            "p_randomisation_holm": row.randomisation_holm,
        }
        for m, metric in enumerate(metrics)
        for row in compare_all({n: v[:, m] for n, v in values.items()}, baseline=reference, seed=seed)
    ]


def _query_ids(dataset: Dataset, runner: Runner | None) -> list[str | None]:
    """The ids of all queries by position; None for a query that the dataset leaves out."""
    ids: list[str | None] = [None] * dataset.manifest.queries
    for at, name in zip(*_queries(dataset, runner), strict=True):
        ids[at] = name
    return ids


def _queries(dataset: Dataset, runner: Runner | None) -> tuple[list[int], list[str]]:
    """Positions and ids of all queries."""
    refs = dataset.plan()[:1] if split_query(dataset) else dataset.plan()
    pieces = list(as_runner(runner).map(Work(_queries_task, None), refs))
    return [at for positions, _ in pieces for at in positions], [name for _, names in pieces for name in names]


def _queries_task(chunk: Chunk, index: int, payload: None) -> tuple[list[int], list[str]]:
    return chunk.positions.tolist(), chunk.query_ids.to_pylist()


def _evaluate_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray]:
    model, known, metrics, protocol, max_grade = payload
    scores = solved(model, chunk, known).score
    return chunk.positions, score_chunk(chunk, scores, parse_metrics(metrics), protocol=protocol, max_grade=max_grade)
