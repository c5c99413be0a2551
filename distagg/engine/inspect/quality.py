"""Expert quality: classify experts as useful, unused or inverted, with figures; and retrain without the unused ones.

Volkovs & Zemel 2014, section 3.7.4, read expert quality from the weights of the CRF. Here it comes from the
leave-one-expert-out score differences (``engine.inspect.attribution``), so that it works for any model. An expert moves
items in two ways:

- ``order``: the items it ranks first go up (or down: then it is inverted) relative to those it ranks last;
- ``listed``: the items it lists go up (or down) relative to those it does not list.

An expert of pairs moves items by ``order`` alone: the items that it prefers go up, or down.

Both are signed root mean squares over the items of its queries, scaled so that the root mean square over all experts is
1. Where the score is a sum over experts, the squares of both add up to the expert's total effect.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.data import as_dataset
from distagg.engine.fitting.fit import Goal, fit
from distagg.engine.inspect.attribution import Lift, chunk_lifts, whole_queries
from distagg.engine.progress import Progress, silent
from distagg.engine.rank import solved
from distagg.engine.runner import Runner, Work, as_runner
from distagg.engine.saved import Fitted
from distagg.errors import UsageError
from distagg.metrics import highest_label, parse_metric, score_chunk
from distagg.types import Floats

LEAST = 0.1  # an expert counts as unused if its effect is below this fraction of the typical effect
PROBED = 10  # items that an expert lists in a synthetic query, of twice as many
PROBES, COMPANY = 10, 50  # synthetic lists per expert, and the largest number of experts in a query
WORTH = ("reliability", "low", "high", "votes")
SUMS = ("queries", "items", "moved", "within", "along", "above", "loss", "loss_squared")


@dataclass(frozen=True, slots=True)
class Quality:
    """The verdict on one expert and its figures. ``loss`` is what the metric would lose without the expert.

    ``reliability``, its 95% interval and the ``votes`` that it rests on are those of models that learn them.
    """

    expert: str
    verdict: str
    order: float
    listed: float
    queries: int  # with a list or pairs by this expert
    loss: float | None = None
    error: float | None = None  # standard error of the loss
    reliability: float | None = None
    low: float | None = None
    high: float | None = None
    votes: int | None = None


def judge_experts(
    fitted: Fitted,
    data: Any = None,
    *,
    goal: Goal | None = None,
    allow_unseen: bool = False,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> list[Quality]:
    """Classify each expert of a fitted model as useful, unused, inverted or unsure.

    Parameters
    ----------
    fitted
        The result of ``fit``.
    data
        The data to test experts on, of any kind that ``rank`` takes. Without it they are tested on synthetic queries of
        twenty items, where each expert lists ten in random order (or, for models that take pairs only, compares
        neighbours in such an order); several experts share a query, because models that
        weigh experts against each other (theta_mpm, bestinput, blend) cannot rank with one expert alone.
    goal
        The metric whose loss is measured if there are labels; it is optimistic on the queries used for fitting.
    allow_unseen
        Continue even if more than half of the entries come from experts that the fitted model has not seen.
    runner
        Where to run: None runs in this process; the context managers ``local_cluster(workers)`` and
        ``remote_cluster(address)`` of ``distagg.engine.dask`` give a runner on a cluster.
    progress
        Called with the number of chunks finished since the last call.

    Returns
    -------
    list of Quality
        One for each expert that the model was fitted on and that has a list or pairs in the data: ``verdict``,
        ``order``, ``listed``, ``queries``, and with labels ``loss`` and ``error``; of models that learn it,
        ``reliability``, ``low``, ``high`` and ``votes``.
    """
    tried = whole_queries(
        fitted.model,
        _probe(fitted.experts, pairs="lists" not in fitted.model.inputs) if data is None else as_dataset(data),
    )
    params, goal = fitted.params_on(tried, runner, allow_unseen=allow_unseen), (goal or Goal()).on(tried)
    highest = highest_label(tried.manifest) if tried.manifest.labels else None
    work = Work(_sums_task, (fitted.model, params, goal, highest), ids=goal.protocol == "trec")
    total = as_runner(runner).map_reduce(work, tried.plan(), np.add, progress)
    if total is None:
        raise UsageError("no query is selected to judge experts on")
    labelled, sums = total[-1, 0], dict(zip(SUMS, total[:-1].T, strict=True))
    items = np.maximum(sums["items"], 1.0)
    order = np.sign(sums["along"]) * np.sqrt(sums["within"] / items)
    listed = np.sign(sums["above"]) * np.sqrt(np.maximum(sums["moved"] - sums["within"], 0.0) / items)
    present = np.flatnonzero(sums["queries"])
    order, listed = order / _typical(order[present]), listed / _typical(listed[present])
    mean = sums["loss"] / max(labelled, 1.0)
    error = np.sqrt(np.maximum(sums["loss_squared"] / max(labelled, 1.0) - mean**2, 0.0) / max(labelled - 1.0, 1.0))
    worth = {row["expert"]: row for row in fitted.reliabilities.to_pylist()}
    unsure = {name for name, row in worth.items() if _may_be_neutral(row, fitted.model.neutral)}
    qualities = [
        Quality(
            tried.experts[e],
            verdict(order[e], listed[e], unsure=tried.experts[e] in unsure),
            float(order[e]),
            float(listed[e]),
            int(sums["queries"][e]),
            *((float(mean[e]), float(error[e])) if labelled else (None, None)),
            *(worth.get(tried.experts[e], {}).get(name) for name in WORTH),
        )
        for e in present
    ]
    kinds = ("useful", "inverted", "unsure", "unused")
    return sorted(qualities, key=lambda q: (kinds.index(q.verdict), -(q.order**2 + q.listed**2)))


def verdict(order: float, listed: float, *, unsure: bool = False) -> str:
    """``inverted`` if its order counts backwards, ``useful`` if its order or its choice counts, else ``unused``.

    An expert that counts, though its reliability may be that of a coin, is ``unsure``.

    >>> verdict(0.5, -0.3), verdict(-0.5, 2.0), verdict(0.05, 0.8), verdict(-0.02, -0.8)
    ('useful', 'inverted', 'useful', 'unused')
    >>> verdict(0.5, 0.0, unsure=True), verdict(0.02, 0.0, unsure=True)
    ('unsure', 'unused')
    """
    counts = order < -LEAST or max(order, listed) > LEAST
    if counts and unsure:
        return "unsure"
    if order < -LEAST:
        return "inverted"
    return "useful" if counts else "unused"


def _may_be_neutral(worth: dict[str, Any], neutral: float) -> bool:
    """Whether an expert's interval includes the reliability of one that tells nothing."""
    return worth["reliability"] is not None and bool(worth["low"] <= neutral <= worth["high"])


def retrain(
    fitted: Fitted,
    without: list[str],
    train: Dataset,
    *,
    valid: Dataset | None = None,
    goal: Goal | None = None,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> Fitted:
    """Fit the same model again without the lists of the experts ``without`` (Volkovs & Zemel 2014, table 6).

    The new model ignores these experts also when it ranks. Features of all lists together, as lambdamart has, still
    include their lists, unless the data to rank are filtered by ``drop_experts`` too.
    """
    kept, judged = drop_experts(train, without), valid if valid is None else drop_experts(valid, without)
    params = fit(fitted.model, kept, valid=judged, goal=goal, runner=runner, progress=progress)
    dropped = [train.experts.index(name) for name in without if name in train.experts]
    for key in params:
        if key.startswith("expert_"):
            params[key] = params[key].copy()
            params[key][dropped] = fitted.model.ignored
    return Fitted(fitted.model, params, train.experts)


def drop_experts(dataset: Dataset, without: list[str]) -> Dataset:
    """The dataset without the lists of these experts; names that it does not have are ignored."""
    return dataset.select(without=[name for name in without if name in dataset.experts])


def as_rows(qualities: list[Quality]) -> list[dict[str, Any]]:
    return [asdict(quality) for quality in qualities]


def weight_rows(fitted: Fitted) -> dict[str, Any]:
    """The weights of a model by expert, for a chart; empty for models without.

    Weights that all experts share, or that apply to unseen experts, have a row named ``all``.
    """
    model = fitted.model
    if not model.weight_names:
        return _one_weight(fitted)
    rows: dict[str, list[float]] = {}
    for name in model.weight_names:
        value, names = fitted.params[name], fitted.experts if name.startswith("expert_") else ("all",)
        if value.size == len(names) * len(model.weight_columns):
            rows.update(zip(names, value.reshape(len(names), -1).tolist(), strict=True))
    return {"columns": list(model.weight_columns), "rows": rows}


def _one_weight(fitted: Fitted) -> dict[str, Any]:
    """The weights of a rule that has one for each expert; empty without."""
    value = fitted.params.get("expert_weight")
    if value is None or value.shape != (len(fitted.experts),):
        return {}
    return {
        "columns": ["weight"],
        "rows": {name: [float(one)] for name, one in zip(fitted.experts, value, strict=True)},
    }


def _typical(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2))) or 1.0


def _probe(experts: tuple[str, ...], *, pairs: bool) -> Dataset:
    """Synthetic queries: experts, in random groups, list a random half of the items, or compare neighbours in it."""
    draw = np.random.default_rng(0)
    lists, queries = [], 0
    for _ in range(PROBES):
        for group in np.array_split(draw.permutation(len(experts)), -(-len(experts) // COMPANY)):
            items = np.argsort(draw.random((len(group), 2 * PROBED)), axis=1)[:, :PROBED]
            lists.append(np.stack([np.full(items.size, queries), np.repeat(group, PROBED), items.ravel()]))
            queries += 1
    query, expert, item = np.concatenate(lists, axis=1)
    names = pa.array([f"i{n}" for n in range(2 * PROBED)])
    if pairs:
        ahead = np.arange(len(item)) % PROBED < PROBED - 1  # all but the last of each list
        sides = {"winner": item[ahead], "loser": item[np.flatnonzero(ahead) + 1]}
        compared = {side: names.take(pa.array(items)) for side, items in sides.items()}
        of = {"query": pa.array(query[ahead].astype(str)), "expert": pa.array(experts).take(pa.array(expert[ahead]))}
        return Dataset.from_arrow(pa.table({**of, **compared}))
    entries = {
        "query": query,
        "expert": pa.array(experts).take(pa.array(expert)),
        "item": names.take(pa.array(item)),
        "rank": np.tile(np.arange(1, PROBED + 1), len(item) // PROBED),
    }
    whole = {
        "query": np.repeat(np.arange(queries), 2 * PROBED),
        "item": names.to_pylist() * queries,
        "label": pa.nulls(2 * PROBED * queries, pa.int32()),
    }
    return Dataset.from_arrow(pa.table(entries), labels=pa.table(whole))


def _sums_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> Floats:
    """Sums for every expert (experts, SUMS), and a last row that starts with the number of queries with a metric."""
    model, params, goal, highest = payload
    total = np.zeros((chunk.n_experts + 1, len(SUMS)))
    score = solved(model, chunk, params).score

    def values(of: Chunk, scores: Floats) -> Floats:
        metrics = [parse_metric(goal.metric)]
        return score_chunk(of, scores, metrics, protocol=goal.protocol, max_grade=highest)[:, 0]

    whole = values(chunk, score) if highest is not None else np.zeros(0)
    total[-1, 0] = np.isfinite(whole).sum()
    for lift in chunk_lifts(model, chunk, params, score):
        total[lift.expert, :6] = _movement(lift)
        if highest is not None:
            loss = whole[lift.queries] - values(lift.present, lift.without)
            total[lift.expert, 6:] = np.nansum(loss), np.nansum(loss**2)
    return total


def _movement(of: Lift) -> tuple[float, ...]:
    """The first six of SUMS: queries, items, squared lift of all items and within the list, direction of both."""
    chunk, lift = of.present, of.lift
    if chunk.n_pairs:
        return _pair_movement(of)
    sizes = np.diff(chunk.entry_offsets)
    own = np.repeat(chunk.list_expert == of.expert, sizes)
    position = (np.arange(chunk.n_entries) - np.repeat(chunk.entry_offsets[:-1], sizes))[own]
    rows = chunk.entry_row()[own]
    query = chunk.item_query()[rows]
    count = np.maximum(np.bincount(query, minlength=chunk.n_queries), 1)
    mean = np.bincount(query, lift[rows], chunk.n_queries) / count
    within = lift[rows] - mean[query]
    along = float((within * -(position / count[query])).sum())
    return chunk.n_queries, chunk.n_items, float((lift**2).sum()), float((within**2).sum()), along, float(mean.sum())


def _pair_movement(of: Lift) -> tuple[float, ...]:
    """The same for pairs: all movement is by order, in the direction of what the expert preferred."""
    chunk, lift = of.present, of.lift
    own = (chunk.pair_expert == of.expert) & ~chunk.pair_tie
    base = np.repeat(chunk.item_offsets[:-1], np.diff(chunk.pair_offsets))[own]
    gap = lift[base + chunk.pair_winner[own]] - lift[base + chunk.pair_loser[own]]
    moved = float((lift**2).sum())
    return chunk.n_queries, chunk.n_items, moved, moved, float((chunk.pair_weight[own] * gap).sum()), 0.0
