"""Grow trees with LightGBM, here or on the workers, and keep the number of trees that validates best.

With few labels, cross-validation over all labelled queries chooses it, and all of them teach (``cross``).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.chunk_ref import ChunkRef
from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.cross import Way, all_queries, cross_ways, few_queries, mean_curve
from distagg.engine.fitting.learner import Learner, Training, check_whole, goal_values
from distagg.engine.progress import Progress
from distagg.engine.runner import Work
from distagg.engine.saved import align_experts
from distagg.errors import UsageError, install
from distagg.metrics import highest_label
from distagg.models import Params
from distagg.models.boosted.model import LARGE, LambdaMart
from distagg.models.unjudged import training_labels
from distagg.types import NO_LABEL, Labels

log = logging.getLogger("distagg")

MOST_ITEMS = 10_000  # LightGBM's limit for a query
HIGHEST_LABEL = 30  # LightGBM's limit: its gain is 2^label - 1
MULTITHREAD_ITEMS = 1_000_000
MANY_COLUMNS = 300  # from here on it is faster to sum up only the columns that a tree may use
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class BoostedLearner(Learner):
    """The learner of boosted trees."""

    name: ClassVar[str] = "boosted"
    stops_early: ClassVar[bool] = True

    def fit(self, model: LambdaMart, data: Training) -> Params:
        check_whole(model, data.train)
        small = data.train.manifest.query_sizes["median"] <= LARGE
        ways = cross_ways(model, data, few=small and few_queries(data))
        return _crossed(model, data, ways) if ways else boost(model, data)


def boost(model: LambdaMart, data: Training) -> Params:
    """Trees as arrays: ``tree_nodes`` (column, threshold or value, left, right) x nodes, and the start of each tree.

    ``curve`` is the validation metric after each tree; the trees after its maximum are dropped.
    """
    params, judged = _grown(model, data), data.judged
    goal = data.goal.on(judged)
    aligned = align_experts(model, params, data.train.experts, judged.experts)
    work = Work(_curve_task, (model, aligned, goal, highest_label(judged.manifest)), ids=goal.protocol == "trec")
    total = data.runner.map_reduce(work, judged.plan(), np.add)
    if total is None or not total[-1]:
        raise UsageError(f"no labelled validation query to choose the number of trees of {model.name}")
    curve = total[:-1] / total[-1]
    return {**_first(params, int(np.argmax(curve)) + 1), "curve": curve}


def _crossed(model: LambdaMart, data: Training, ways: Sequence[Way]) -> Params:
    """Grow as many trees on all labelled queries as are best in the mean of the curves of the parts held out."""
    curve = mean_curve([boost(model, replace(data, train=rest, valid=part))["curve"] for rest, part in ways])
    trees = int(np.argmax(curve)) + 1
    log.info(f"{model.name}: {trees} trees, chosen by cross-validation over {len(ways)} parts of the labelled queries")
    return {**_grown(replace(model, trees=trees), replace(data, train=all_queries(data))), "curve": curve}


def _grown(model: LambdaMart, data: Training) -> Params:
    """All trees, from the training queries."""
    spread = model.mode == "spread" and data.runner.client is not None
    trees = _grow_on_workers(model, data.train, data.runner) if spread else _grow_here(model, data.train, data.progress)
    return {**trees, "expert_row": np.arange(data.train.manifest.experts, dtype=np.float64)}


def _settings(model: LambdaMart, rows: int, columns: int) -> dict[str, Any]:
    layout = "force_col_wise" if columns > MANY_COLUMNS else "force_row_wise"
    return {
        "objective": "lambdarank",
        "learning_rate": model.rate,
        "num_leaves": int(model.leaves),
        "min_data_in_leaf": int(max(1, min(model.least, rows // 100))),
        "feature_fraction": model.columns,
        "bagging_fraction": model.items,
        "bagging_freq": 1,
        "seed": int(model.seed),
        "deterministic": True,
        layout: True,
        "use_missing": False,
        "verbosity": -1,
        "num_threads": 1 if rows < MULTITHREAD_ITEMS else 0,  # same trees; threads only pay off on large data
    }


def grow(model: LambdaMart, table: np.ndarray, labels: np.ndarray, sizes: np.ndarray) -> Params:
    """Grow trees in this process from features (items, columns), labels (items,) and the sizes of queries."""
    lightgbm = _lightgbm()
    data = lightgbm.Dataset(table, labels, group=sizes)
    return _arrays(lightgbm.train(_settings(model, *table.shape), data, int(model.trees)))


def _grow_here(model: LambdaMart, train: Dataset, progress: Progress) -> Params:
    refs = train.plan()
    if not refs:
        raise UsageError(f"nothing to train {model.name} on: no query is selected")
    counts = [_count_task(ref.load(ids=False), 0, model) for ref in refs]
    labels, sizes = (np.concatenate(parts) for parts in zip(*counts, strict=True))
    _check(model, train, labels, sizes)
    first = _table(model, refs[0])[0]
    table, filled = np.empty((len(labels), first.shape[1])), 0  # filled chunk by chunk: there is no second copy
    for ref in refs:
        rows = first if ref is refs[0] else _table(model, ref)[0]
        table[filled : filled + len(rows)] = rows
        filled += len(rows)
        progress(1)
    return grow(model, table, labels, sizes)


def _grow_on_workers(model: LambdaMart, train: Dataset, runner: Any) -> Params:
    """Grow trees with LightGBM's Dask interface; workers load their own chunks."""
    lightgbm = _lightgbm()
    hosts = {address.rpartition("://")[2].rpartition(":")[0].strip("[]") for address in runner.client.nthreads()}
    if not model.plain and not hosts <= set(LOOPBACK):
        raise UsageError(
            f"{model.name} with mode=spread: workers are on {', '.join(sorted(hosts))}, but LightGBM's own connections "
            "are not encrypted; set mode=serial, or plain=true if you trust the network"
        )
    import dask
    import dask.array

    refs = train.plan()
    counts = list(runner.map(Work(_count_task, model), refs))
    labels, sizes = (np.concatenate([part[n] for part in counts]) for n in range(2))
    _check(model, train, labels, sizes)
    kept = [(ref, len(part[0]), len(part[1])) for ref, part in zip(refs, counts, strict=True) if len(part[0])]
    width = _table(model, kept[0][0])[0].shape[1]
    tables = [(dask.delayed(_table, nout=3, pure=True)(model, ref), items, queries) for ref, items, queries in kept]
    x = dask.array.concatenate([dask.array.from_delayed(t[0], (n, width), float) for t, n, _ in tables])
    y = dask.array.concatenate([dask.array.from_delayed(t[1], (n,), np.int32) for t, n, _ in tables])
    group = dask.array.concatenate([dask.array.from_delayed(t[2], (q,), np.int64) for t, _, q in tables])
    settings = {key: value for key, value in _settings(model, len(labels), width).items() if key != "num_threads"}
    ranker = lightgbm.DaskLGBMRanker(client=runner.client, n_estimators=int(model.trees), **settings)
    with warnings.catch_warnings(), runner.client.as_current():
        warnings.filterwarnings("ignore", "Parameter n_jobs will be ignored")  # LightGBM sets n_jobs itself
        return _arrays(ranker.fit(x, y, group=group).booster_)


def _check(model: LambdaMart, train: Dataset, labels: np.ndarray, sizes: np.ndarray) -> None:
    where = train.path or "the dataset"
    if not any(len(np.unique(part)) > 1 for part in np.split(labels, np.cumsum(sizes)[:-1])):
        raise UsageError(f"nothing to train {model.name} on: no query of {where} has two items with different labels")
    if labels.max() > HIGHEST_LABEL:
        raise UsageError(
            f"{where} has the label {labels.max():,}, but LightGBM takes labels up to {HIGHEST_LABEL}; use smaller "
            "labels, or choose crf"
        )
    if sizes.max() > MOST_ITEMS:
        raise UsageError(
            f"a query of {where} has {sizes.max():,} labelled items, but LightGBM takes {MOST_ITEMS:,}; choose crf"
        )


def _table(model: LambdaMart, ref: ChunkRef) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and query sizes; omits items that teach nothing and queries without items."""
    chunk = ref.load(ids=False)
    labels, sizes = _count_task(chunk, 0, model)
    return model.dense(chunk, _known(model, chunk) != NO_LABEL), labels, sizes


def _known(model: LambdaMart, chunk: Chunk) -> Labels:
    """The labels to learn from (I,), NO_LABEL where there is none."""
    return training_labels(chunk, model.unjudged, most=model.pool)


def _count_task(chunk: Chunk, index: int, model: LambdaMart) -> tuple[np.ndarray, np.ndarray]:
    labels = _known(model, chunk)
    known = labels != NO_LABEL
    sizes = np.bincount(chunk.item_query()[known], minlength=chunk.n_queries)
    return labels[known], sizes[sizes > 0]


def _curve_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> np.ndarray:
    """Sum of the metric over queries after each tree, and the number of queries that have one."""
    model, params, goal, max_grade = payload
    values = [goal_values(goal, chunk, score, max_grade) for score in model.stages(chunk, params)]
    return np.append(np.nansum(values, axis=1), np.isfinite(values[0]).sum())


def _arrays(booster: Any) -> Params:
    """The trees of a booster."""
    dump = booster.dump_model()
    trees = [_nodes(tree["tree_structure"]) for tree in dump["tree_info"]]
    starts = np.concatenate([[0], np.cumsum([len(tree) for tree in trees])])
    return {
        "tree_nodes": np.concatenate([np.array(tree, dtype=np.float64) for tree in trees]).T.copy(),
        "tree_starts": starts.astype(np.float64),
        "tree_columns": np.array([float(dump["max_feature_idx"]) + 1.0]),
    }


def _nodes(root: dict[str, Any]) -> list[tuple[float, float, int, int]]:
    """A tree's nodes (column, threshold, left, right), the root first; a leaf has column -1 and its value."""
    nodes: list[Any] = [root]
    rows: list[tuple[float, float, int, int]] = []
    while len(rows) < len(nodes):
        node = nodes[len(rows)]
        if "leaf_value" in node and "split_feature" not in node:
            rows.append((-1, node["leaf_value"], 0, 0))
            continue
        rows.append((node["split_feature"], node["threshold"], len(nodes), len(nodes) + 1))
        nodes += [node["left_child"], node["right_child"]]
    return rows


def _first(params: Params, trees: int) -> Params:
    starts = params["tree_starts"][: trees + 1]
    return {**params, "tree_starts": starts, "tree_nodes": params["tree_nodes"][:, : int(starts[-1])].copy()}


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise UsageError(f"lambdamart needs LightGBM ({error}): {install('lightgbm')}, or choose crf") from error
    return lightgbm
