"""Complete missing ratings: fit a completion, evaluate rankings against every user, predict ratings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.fit import Through, run_rounds
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import Runner, Work, as_runner
from distagg.errors import InputError, UsageError
from distagg.metrics import parse_metric
from distagg.models import Completion, completion_named
from distagg.types import Floats

USER_METRICS = ("ndcg@1", "ndcg@5", "ndcg@10")


def fit_completion(
    completion: str | float | Completion,
    dataset: Dataset,
    *,
    runner: Runner | None = None,
    progress: Progress = silent,
    **settings: Any,
) -> Through:
    """Fit a completion to the ratings of a dataset.

    Parameters
    ----------
    completion
        ``pmf``, ``neighbours``, a constant that replaces every missing rating, or a completion object.
    dataset
        Ratings, imported by ``distagg import ratings``.
    runner
        Where to run: None runs in this process; the context managers ``local_cluster(workers)`` and
        ``remote_cluster(address)`` of ``distagg.engine.dask`` give a runner on a cluster.
    progress
        Called with the number of chunks finished since the last call.
    **settings
        The parameters of a completion given by name.

    Returns
    -------
    tuple
        The completion and its learned parameters: the argument ``through`` of ``solve`` and ``evaluate_users``.
    """
    if not isinstance(completion, Completion):
        completion = completion_named(str(completion), settings)
    manifest = dataset.manifest
    if manifest.partition != "expert" or manifest.kind != "lists" or manifest.positive:
        raise UsageError(
            f"{completion.name} completes ratings, but {dataset.path or 'the dataset'} holds none; "
            "import them with 'distagg import ratings'"
        )
    first = completion.learning(manifest.experts, {})
    return completion, run_rounds(first, dataset.plan(), as_runner(runner), progress)


@dataclass(frozen=True, slots=True, eq=False)
class UserEvaluation:
    """Metrics of each ranking for every user: an array (users, metrics) per ranking, users in the dataset's order."""

    metrics: tuple[str, ...]
    values: dict[str, Floats]

    @property
    def means(self) -> dict[str, dict[str, float]]:
        return {
            name: dict(zip(self.metrics, value.mean(axis=0).tolist(), strict=True))
            for name, value in self.values.items()
        }


def evaluate_users(
    rankings: Mapping[str, pa.Table],
    dataset: Dataset,
    through: Through,
    metrics: Sequence[str] = ("ndcg@1", "ndcg@5", "ndcg@10"),
    *,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> UserEvaluation:
    """NDCG@k of each ranking against each user's completed ratings, after Volkovs & Zemel 2014, equation 2.

    The gain is 2^rating - 1, the discount log(1 + position), the ideal the user's own best k items; all users have
    the same weight.

    Parameters
    ----------
    rankings
        Tables by name, such as the results of ``rank``.
    dataset
        The users' ratings.
    through
        The result of ``fit_completion``.
    metrics
        ``ndcg@k`` only.
    runner
        Where to run: None runs in this process; the context managers ``local_cluster(workers)`` and
        ``remote_cluster(address)`` of ``distagg.engine.dask`` give a runner on a cluster.
    progress
        Called with the number of chunks finished since the last call.

    Returns
    -------
    UserEvaluation
        ``means`` {name: {metric: fraction}} and ``values``, a row per user.
    """
    depths = [_depth(metric) for metric in metrics]
    (first, *_) = dataset.plan()
    ids = first.load().item_ids
    if max(depths) > len(ids):
        raise UsageError(f"ndcg@{max(depths)} needs at least {max(depths)} items, but the dataset has {len(ids)}")
    tops = np.stack([_top(name, table, ids, max(depths)) for name, table in rankings.items()])
    work = Work(_users_task, (through[0], through[0].sent(through[1]), tops, np.array(depths) - 1))
    pieces = list(as_runner(runner).map(work, dataset.plan(), progress))
    values = np.concatenate(pieces, axis=1)
    return UserEvaluation(tuple(metrics), {name: values[n] for n, name in enumerate(rankings)})


def user_ndcg(ratings: Floats, top: np.ndarray) -> Floats:
    """NDCG at depths 1 to K (users, K) of a ranking that begins with ``top`` (K,), for dense ratings (users, I)."""
    depth = len(top)
    discount = 1.0 / np.log2(np.arange(2, depth + 2))
    best = -np.sort(np.partition(-ratings, depth - 1, axis=1)[:, :depth], axis=1)
    reached = np.cumsum((np.exp2(ratings[:, top]) - 1.0) * discount, axis=1)
    most = np.cumsum((np.exp2(best) - 1.0) * discount, axis=1)
    return np.divide(reached, most, out=np.zeros_like(reached), where=most > 0.0)


def predict(
    dataset: Dataset, through: Through, experts: np.ndarray, items: np.ndarray, *, runner: Runner | None = None
) -> Floats:
    """Predicted ratings of (expert, item) cells, given by position; also for cells whose rating is known."""
    completion, params = through
    work = Work(_predict_task, (completion, completion.sent(params), experts, items))
    predicted = np.full(len(experts), np.nan)
    for rows, values in as_runner(runner).map(work, dataset.plan()):
        predicted[rows] = values
    if np.isnan(predicted).any():
        predicted[np.isnan(predicted)] = float(params["mean"][0])  # users without a rating
    return predicted


def _depth(metric: str) -> int:
    parsed = parse_metric(metric)
    if parsed.name != "ndcg" or not parsed.cutoff or parsed.gain == "linear":
        raise UsageError(f"metric {metric}: users can only be evaluated by ndcg@k, whose gain is 2^rating - 1")
    return int(parsed.cutoff)


def _top(name: str, table: pa.Table, ids: pa.Array, depth: int) -> np.ndarray:
    """Positions of a ranking's first items."""
    key = [("rank", "ascending")] if "rank" in table.column_names else [("score", "descending")]
    items = table.sort_by(key)["item"][:depth].combine_chunks()
    positions = pc.index_in(items, ids)
    if positions.null_count or len(positions) < depth:
        unknown_items = items.filter(pc.is_null(positions))
        what = f"item '{unknown_items[0]}', not in the dataset" if len(unknown_items) else f"{len(positions)} items"
        raise InputError(f"ranking {name}", found=what, expected=f"at least {depth} items of the dataset")
    return positions.to_numpy()


def _users_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> Floats:
    completion, params, tops, depths = payload
    values = np.empty((len(tops), chunk.n_lists, len(depths)))
    for span, ratings in completion.rows(chunk, params):
        for n, top in enumerate(tops):
            values[n, span] = user_ndcg(ratings, top)[:, depths]
    return values


def _predict_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> tuple[np.ndarray, Floats]:
    completion, params, experts, items = payload
    row_of = np.full(chunk.n_experts, -1)
    row_of[chunk.list_expert] = np.arange(chunk.n_lists)
    rows = np.flatnonzero(row_of[experts] >= 0)
    lists, values = row_of[experts[rows]], np.empty(len(rows))
    for span, ratings in completion.rows(chunk, params, observed=False):
        here = np.flatnonzero((lists >= span.start) & (lists < span.stop))
        values[here] = ratings[lists[here] - span.start, items[rows[here]]]
    return rows, values
