"""Expert quality: useful, unused or inverted, with the figures behind the word; and training without the unused.

Paper 000, section 3.7.4, reads it from the weights of the CRF; here it is read from what experts do to the scores
(``engine.lifts``), so that it can be said of any model. An expert moves items in two ways:

- ``order``: what it puts first goes up (or down: then it is inverted) beside what it puts last;
- ``listed``: what it lists at all goes up (or down) beside what it leaves out.

Both are root mean squares over the items of its queries, signed, and 1 is what the root mean square of all experts is.
Squared, they add up to all that the expert moves, where the score is a sum over experts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.fit import Goal, fit
from distagg.engine.inspect.attribution import Lift, check_whole_lists, chunk_lifts
from distagg.engine.progress import Progress, silent
from distagg.engine.rank import solved
from distagg.engine.runner import InlineRunner, Runner, Work
from distagg.engine.saved import Fitted
from distagg.errors import UsageError
from distagg.metrics import highest_label, parse_metric, score_chunk
from distagg.models.trained import Trained
from distagg.types import Floats

LEAST = 0.1  # an expert that moves items less than this part of what others do is not used
PROBED = 10  # items that an expert lists, of twice as many, when there is no data to try it on
PROBES, COMPANY = 10, 50  # lists that each expert has then, and the most experts of a query
SUMS = ("queries", "items", "moved", "within", "along", "above", "loss", "loss_squared")


@dataclass(frozen=True, slots=True)
class Quality:
    """One expert: the verdict and what is behind it. ``loss`` is what the metric would lose without it."""

    expert: str
    verdict: str
    order: float
    listed: float
    queries: int  # that it has a list in
    loss: float | None = None
    error: float | None = None  # standard error of the loss


def judge_experts(
    fitted: Fitted,
    dataset: Dataset | None = None,
    *,
    goal: Goal | None = None,
    allow_unseen: bool = False,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> list[Quality]:
    """Whether each expert is useful to a fitted model, unused or inverted.

    Parameters
    ----------
    fitted
        What ``fit`` gives.
    dataset
        What to try experts on; without one they are tried together on made-up queries of twenty items, of which each
        expert lists ten in an order drawn at random: models that weigh the experts of a query against one another
        (theta_mpm, bestinput, blend) say nothing of an expert alone.
    goal
        The metric whose loss is measured where there are labels: on the queries the model was fitted on it flatters.
    allow_unseen
        Go on where more than half of the entries are by experts that a fitted model does not know.
    runner
        Where to run: None is here; ``distagg.engine.dask`` has ``local_cluster(workers)`` and
        ``remote_cluster(address)``, context managers that give one.
    progress
        Called with the number of chunks (fits, rows) that were done since the last call.

    Returns
    -------
    list of Quality
        Every expert that the model was fitted on and that is heard in the data: ``verdict``, ``order``, ``listed``,
        ``queries``, and with labels ``loss`` and ``error``.
    """
    tried = dataset if dataset is not None else _probe(fitted.experts)
    check_whole_lists(fitted.model, tried)
    params, goal = fitted.params_on(tried, runner, allow_unseen=allow_unseen), (goal or Goal()).on(tried)
    highest = highest_label(tried.manifest) if tried.manifest.labels else None
    work = Work(_sums_task, (fitted.model, params, goal, highest), ids=goal.protocol == "trec")
    found = (runner or InlineRunner()).map_reduce(work, tried.plan(), np.add, progress)
    if found is None:
        raise UsageError("no query is selected to judge experts on")
    labelled, sums = found[-1, 0], dict(zip(SUMS, found[:-1].T, strict=True))
    items = np.maximum(sums["items"], 1.0)
    order = np.sign(sums["along"]) * np.sqrt(sums["within"] / items)
    listed = np.sign(sums["above"]) * np.sqrt(np.maximum(sums["moved"] - sums["within"], 0.0) / items)
    heard = np.flatnonzero(sums["queries"])
    order, listed = order / _typical(order[heard]), listed / _typical(listed[heard])
    mean = sums["loss"] / max(labelled, 1.0)
    error = np.sqrt(np.maximum(sums["loss_squared"] / max(labelled, 1.0) - mean**2, 0.0) / max(labelled - 1.0, 1.0))
    made = [
        Quality(
            tried.experts[e], verdict(order[e], listed[e]), float(order[e]), float(listed[e]),
            int(sums["queries"][e]), *((float(mean[e]), float(error[e])) if labelled else ()),
        )
        for e in heard
    ]  # fmt: skip
    kinds = ("useful", "inverted", "unused")
    return sorted(made, key=lambda one: (kinds.index(one.verdict), -(one.order**2 + one.listed**2)))


def verdict(order: float, listed: float) -> str:
    """Inverted, where its order counts backwards; useful, where its order counts, or its choice; unused otherwise.

    >>> verdict(0.5, -0.3), verdict(-0.5, 2.0), verdict(0.05, 0.8), verdict(-0.02, -0.8)
    ('useful', 'inverted', 'useful', 'unused')
    """
    if order < -LEAST:
        return "inverted"
    return "useful" if max(order, listed) > LEAST else "unused"


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
    """The same model, fitted as if those experts had said nothing (Table 6).

    Its weights do not hear them later either; what it takes from all lists together, as lambdamart does, still holds
    theirs, unless the data are ``unheard`` too.
    """
    heard, judged = unheard(train, without), valid if valid is None else unheard(valid, without)
    params = fit(fitted.model, heard, valid=judged, goal=goal, runner=runner, progress=progress)
    dropped = [train.experts.index(name) for name in without if name in train.experts]
    silence = (
        0.0 if isinstance(fitted.model, Trained) else fitted.model.unseen
    )  # an unseen expert may share crf's weights
    for key in params:
        if key.startswith("expert_"):
            params[key] = params[key].copy()
            params[key][dropped] = silence
    return Fitted(fitted.model, params, train.experts)


def unheard(dataset: Dataset, without: list[str]) -> Dataset:
    """The dataset without those of the experts that it has."""
    return dataset.select(without=[name for name in without if name in dataset.experts])


def as_rows(qualities: list[Quality]) -> list[dict[str, Any]]:
    return [asdict(one) for one in qualities]


def weight_rows(fitted: Fitted) -> dict[str, Any]:
    """The weights of a trained model by expert, for a picture; empty for other models.

    Weights that all experts share, or that serve unknown ones, have a row named ``all``.
    """
    model = fitted.model
    if not isinstance(model, Trained):
        return {}
    rows: dict[str, list[float]] = {}
    for name in model.weights:
        value, names = fitted.params[name], fitted.experts if name.startswith("expert_") else ("all",)
        if value.size == len(names) * len(model.columns):
            rows.update(zip(names, value.reshape(len(names), -1).tolist(), strict=True))
    return {"columns": list(model.columns), "rows": rows}


def _typical(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2))) or 1.0


def _probe(experts: tuple[str, ...]) -> Dataset:
    """Queries in which experts list half of the items at random, in other company each time, so that it evens out."""
    draw = np.random.default_rng(0)
    lists, queries = [], 0
    for _ in range(PROBES):
        for group in np.array_split(draw.permutation(len(experts)), -(-len(experts) // COMPANY)):
            items = np.argsort(draw.random((len(group), 2 * PROBED)), axis=1)[:, :PROBED]
            lists.append(np.stack([np.full(items.size, queries), np.repeat(group, PROBED), items.ravel()]))
            queries += 1
    query, expert, item = np.concatenate(lists, axis=1)
    names = pa.array([f"i{n}" for n in range(2 * PROBED)])
    said = {
        "query": query, "expert": pa.array(experts).take(pa.array(expert)), "item": names.take(pa.array(item)),
        "rank": np.tile(np.arange(1, PROBED + 1), len(item) // PROBED),
    }  # fmt: skip
    whole = {
        "query": np.repeat(np.arange(queries), 2 * PROBED), "item": names.to_pylist() * queries,
        "label": pa.nulls(2 * PROBED * queries, pa.int32()),
    }  # fmt: skip
    return Dataset.from_arrow(pa.table(said), labels=pa.table(whole))


def _sums_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> Floats:
    """Sums for every expert, (experts, SUMS), and a row that starts with the number of queries with a metric."""
    model, params, goal, highest = payload
    total = np.zeros((chunk.n_experts + 1, len(SUMS)))
    score = solved(model, chunk, params).score

    def values(of: Chunk, scores: Floats) -> Floats:
        metrics = [parse_metric(goal.metric)]
        return score_chunk(of, scores, metrics, protocol=goal.protocol, max_grade=highest)[:, 0]

    whole = values(chunk, score) if highest is not None else np.zeros(0)
    total[-1, 0] = np.isfinite(whole).sum()
    for one in chunk_lifts(model, chunk, params, score):
        total[one.expert, :6] = _movement(one)
        if highest is not None:
            loss = whole[one.queries] - values(one.heard, one.without)
            total[one.expert, 6:] = np.nansum(loss), np.nansum(loss**2)
    return total


def _movement(one: Lift) -> tuple[float, ...]:
    """Queries, items, squares moved in all, inside the list; order along the list, height of what is listed."""
    chunk, lift = one.heard, one.lift
    sizes = np.diff(chunk.entry_offsets)
    own = np.repeat(chunk.list_expert == one.expert, sizes)
    place = (np.arange(chunk.n_entries) - np.repeat(chunk.entry_offsets[:-1], sizes))[own]
    rows = chunk.entry_row()[own]
    query = chunk.item_query()[rows]
    count = np.maximum(np.bincount(query, minlength=chunk.n_queries), 1)
    mean = np.bincount(query, lift[rows], chunk.n_queries) / count
    within = lift[rows] - mean[query]
    along = float((within * -(place / count[query])).sum())
    return chunk.n_queries, chunk.n_items, float((lift**2).sum()), float((within**2).sum()), along, float(mean.sum())
