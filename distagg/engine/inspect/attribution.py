"""What every expert does to the scores: it is left out, and one looks. Paper 000, section 3.7.4 and figure 9.

The lift that an expert gives an item is the item's score, less what it would be without that expert's list, both
beside the query's mean: a number that all items of a query share moves none of them. That works for any model. Where
the score is a sum over experts (crf, linear lambdarank, rrf) the lifts of an item add up to its score above the mean.
Cost: a pass over an expert's queries for each expert.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.fit import check_fits, split_query
from distagg.engine.rank import solved
from distagg.engine.saved import Fitted
from distagg.errors import UsageError
from distagg.models import MODELS, Model, Params
from distagg.ordering import order_items
from distagg.types import NO_LABEL, Bools, Floats


class Lift(NamedTuple):
    """What one expert does in the queries that it has a list in."""

    expert: int
    queries: Bools  # (Q,) which of the chunk's
    heard: Chunk  # those queries
    without: Floats  # (items of heard,) scores without the expert
    lift: Floats  # (items of heard,)


def chunk_lifts(model: Model, chunk: Chunk, params: Params, score: Floats) -> Iterator[Lift]:
    """Lifts of all experts of a chunk, in their order; ``score`` (I,) is what the model gives with all of them."""
    query = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
    for expert in np.unique(chunk.list_expert):
        there = np.zeros(chunk.n_queries, dtype=np.bool_)
        there[query[chunk.list_expert == expert]] = True
        heard, own = chunk.select(there), score[there[chunk.item_query()]]
        without = solved(model, heard.without([int(expert)]), params).score
        yield Lift(int(expert), there, heard, without, centred(heard, own - without))


def check_whole_lists(model: Model, dataset: Dataset) -> None:
    """Refuse what experts cannot be left out of."""
    check_fits(model, dataset)
    if dataset.manifest.kind != "lists":
        raise UsageError(f"experts are judged by their lists, and the dataset holds {dataset.manifest.kind}")
    if split_query(dataset):
        raise UsageError("experts are judged on whole queries, and the dataset is partitioned by expert")


def centred(chunk: Chunk, values: Floats) -> Floats:
    """Values of items (I,), less the mean of their query."""
    sizes, query = np.diff(chunk.item_offsets), chunk.item_query()
    total = np.bincount(query, values, chunk.n_queries)
    result: Floats = values - (total / np.maximum(sizes, 1))[query]
    return result


# Why a query is ranked as it is: which experts moved each item up or down, and by how much. Paper 000, figure 9.


EXACT = 1e-9  # of the largest lift: a smaller difference is rounding


def explain(fitted: Fitted, dataset: Dataset, query: str, *, allow_unseen: bool = False) -> dict[str, Any]:
    """The items of a query, best first, each with its rank, label and what every expert does to its score.

    ``score`` is the score above the query's mean, ``lifts`` what each expert adds to it; ``exact`` says whether they
    add up to it. Where they do not (hidden units, normalised scores), a lift still is what would change if the expert
    alone were left out. ``consensus`` is the item's place by rrf (borda for ratings), to which all experts are alike.

    Parameters
    ----------
    fitted
        What ``fit`` gives.
    dataset
        Where the query is.
    query
        Its id.
    allow_unseen
        Go on where more than half of the entries are by experts that a fitted model does not know.

    Returns
    -------
    dict
        ``items`` (rank, item, label, score, consensus, ranks, lifts), ``experts`` (those that move most first),
        ``exact`` and more.
    """
    check_whole_lists(fitted.model, dataset)
    params, chunk = fitted.params_on(dataset, allow_unseen=allow_unseen), _one_query(dataset, query)
    score = solved(fitted.model, chunk, params).score
    lifts = {one.expert: one.lift for one in chunk_lifts(fitted.model, chunk, params, score)}
    height = centred(chunk, score)
    total = np.sum(list(lifts.values()), axis=0) if lifts else np.zeros_like(height)
    size = max((float(np.abs(lift).max(initial=0.0)) for lift in lifts.values()), default=0.0)
    said = chunk.rank_matrix(0).tocoo()
    ranks = {(int(i), int(e)): float(r) for i, e, r in zip(*said.coords, said.data, strict=True)}
    heard = sorted(lifts, key=lambda e: -float(np.abs(lifts[e]).sum()))
    order = order_items(chunk.item_offsets, score)
    consensus = "rrf" if dataset.manifest.positive else "borda"
    place = np.argsort(order_items(chunk.item_offsets, MODELS[consensus]().score(chunk, {}))) + 1
    return {
        "query": query, "model": fitted.model.name, "consensus": consensus,
        "experts": [dataset.experts[e] for e in heard],
        "exact": bool(np.abs(total - height).max(initial=0.0) <= EXACT * max(size, 1e-300)),
        "items": [
            {
                "item": chunk.item_ids[i].as_py(), "rank": n + 1, "consensus": int(place[i]), "score": float(height[i]),
                "label": None if chunk.labels[i] == NO_LABEL else int(chunk.labels[i]),
                "lifts": {dataset.experts[e]: float(lifts[e][i]) for e in heard},
                "ranks": {dataset.experts[e]: ranks[i, e] for e in heard if (i, e) in ranks},
            }
            for n, i in enumerate(order.tolist())
        ],
    }  # fmt: skip


def _one_query(dataset: Dataset, query: str) -> Chunk:
    """The chunk of that query alone."""
    seen: list[str] = []
    for ref in dataset.plan():
        names = ref.load(ids=False).query_ids.to_pylist()
        if query in names:
            return ref.load(ids=True).select(np.array([name == query for name in names]))
        seen += names[: 5 - len(seen)] if len(seen) < 5 else []
    raise UsageError(f"no query '{query}' in {dataset.path or 'the dataset'}; it has {', '.join(seen) or 'none'}, ...")
