"""Leave-one-expert-out score differences: which experts move an item up or down, and by how much.

The lift that an expert gives an item is the item's score minus its score without that expert's list, both relative to
the query's mean, because a number added to all items of a query moves none of them. This works for any model. Where the
score is a sum over experts (crf, linear lambdarank, rrf), the lifts of an item add up to its score above the mean.
After Volkovs & Zemel 2014, section 3.7.4 and figure 9. Cost: one pass over each expert's queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.data import Columns, as_dataset
from distagg.engine.fitting.fit import cut, split_query
from distagg.engine.rank import solved
from distagg.engine.saved import Fitted
from distagg.errors import UsageError
from distagg.models import MODELS, Model, Params
from distagg.models.compared import compared
from distagg.rankings.ordering import order_items
from distagg.types import NO_LABEL, Bools, Floats

EXACT = 1e-9  # relative to the largest lift: a smaller difference is rounding


class Lift(NamedTuple):
    """The effect of one expert in the queries where it has a list or pairs."""

    expert: int
    queries: Bools  # (Q,) the chunk's queries where it has a list or pairs
    present: Chunk  # those queries
    without: Floats  # (items of present,) scores without the expert
    lift: Floats  # (items of present,)


def chunk_lifts(model: Model, chunk: Chunk, params: Params, score: Floats) -> Iterator[Lift]:
    """Lifts of all experts of a chunk, in order; ``score`` (I,) are the model's scores with all experts."""
    queries = np.arange(chunk.n_queries)
    query = np.repeat(queries, np.diff(chunk.list_offsets))
    pair_query = np.repeat(queries, np.diff(chunk.pair_offsets))
    for expert in np.union1d(chunk.list_expert, chunk.pair_expert):
        listed = np.zeros(chunk.n_queries, dtype=np.bool_)
        listed[query[chunk.list_expert == expert]] = True
        listed[pair_query[chunk.pair_expert == expert]] = True
        present, full = chunk.select(listed), score[listed[chunk.item_query()]]
        without = solved(model, present.without([int(expert)]), params).score
        yield Lift(int(expert), listed, present, without, centred(present, full - without))


def whole_queries(model: Model, dataset: Dataset) -> Dataset:
    """The data as the model takes them; split queries, from which no expert can be left out, are refused."""
    dataset = cut(model, dataset)
    if split_query(dataset):
        raise UsageError(
            f"experts are left out of whole queries, but the {dataset.manifest.kind} of one query are in "
            f"{len(dataset.plan())} chunks; choose a part of them (distagg.Dataset.select)"
        )
    return dataset


def centred(chunk: Chunk, values: Floats) -> Floats:
    """Values of items (I,) minus the mean of their query."""
    sizes, query = np.diff(chunk.item_offsets), chunk.item_query()
    total = np.bincount(query, values, chunk.n_queries)
    result: Floats = values - (total / np.maximum(sizes, 1))[query]
    return result


def explain(
    fitted: Fitted, data: Any, query: str, *, columns: Columns = None, allow_unseen: bool = False
) -> dict[str, Any]:
    """Explain a query's ranking: its items, best first, with rank, label and the lift that each expert gives them.

    ``score`` is the score above the query's mean, ``lifts`` what each expert adds to it; ``exact`` says whether the
    lifts add up to the score. If they do not (hidden units, normalised scores), a lift is still the change that leaving
    out this one expert would make. ``consensus`` is the item's rank by rrf (borda for ratings and pairs), which gives
    all experts the same weight. What each expert said of an item is its rank in the expert's list (``ranks``), or the
    weight of the raw pairs that it won and lost (``records``).

    Parameters
    ----------
    fitted
        The result of ``fit``.
    data
        The data that contain the query, of any kind that ``rank`` takes.
    query
        The query's id.
    columns
        The meaning of columns with other names: ``{"site": "item"}``.
    allow_unseen
        Continue even if more than half of the entries come from experts that the fitted model has not seen.

    Returns
    -------
    dict
        ``items`` (rank, item, label, score, consensus, ranks or records, lifts), ``experts`` (by total lift, largest
        first), ``exact`` and more.
    """
    dataset = whole_queries(fitted.model, as_dataset(data, columns=columns))
    params, chunk = fitted.params_on(dataset, allow_unseen=allow_unseen), _one_query(dataset, query)
    score = solved(fitted.model, chunk, params).score
    lifts = {lift.expert: lift.lift for lift in chunk_lifts(fitted.model, chunk, params, score)}
    height = centred(chunk, score)
    total = np.sum(list(lifts.values()), axis=0) if lifts else np.zeros_like(height)
    size = max((float(np.abs(lift).max(initial=0.0)) for lift in lifts.values()), default=0.0)
    key, said = ("records", _records(chunk)) if chunk.n_pairs else ("ranks", _ranks(chunk))
    strongest = sorted(lifts, key=lambda e: -float(np.abs(lifts[e]).sum()))
    order = order_items(chunk.item_offsets, score)
    consensus = "rrf" if dataset.manifest.kind == "lists" and dataset.manifest.positive else "borda"
    consensus_rank = np.argsort(order_items(chunk.item_offsets, MODELS[consensus]().score(chunk, {}))) + 1
    return {
        "query": query,
        "model": fitted.model.name,
        "consensus": consensus,
        "experts": [dataset.experts[e] for e in strongest],
        "exact": bool(np.abs(total - height).max(initial=0.0) <= EXACT * max(size, 1e-300)),
        "items": [
            {
                "item": chunk.item_ids[i].as_py(),
                "rank": n + 1,
                "consensus": int(consensus_rank[i]),
                "score": float(height[i]),
                "label": None if chunk.labels[i] == NO_LABEL else int(chunk.labels[i]),
                "lifts": {dataset.experts[e]: float(lifts[e][i]) for e in strongest},
                key: {dataset.experts[e]: said[i, e] for e in strongest if (i, e) in said},
            }
            for n, i in enumerate(order.tolist())
        ],
    }


def _ranks(chunk: Chunk) -> dict[tuple[int, int], float]:
    """The rank of each item in each expert's list, by (item, expert), in a chunk with one query."""
    matrix = chunk.rank_matrix(0).tocoo()
    return {(int(i), int(e)): float(r) for i, e, r in zip(*matrix.coords, matrix.data, strict=True)}


def _records(chunk: Chunk) -> dict[tuple[int, int], list[float]]:
    """The summed weights of pairs that each item won and lost, by (item, expert), in a chunk with one query."""
    lists, won, lost = compared(chunk)
    experts = np.repeat(lists.list_expert, np.diff(lists.entry_offsets))
    entries = zip(lists.entry_item, experts, won, lost, strict=True)
    return {(int(i), int(e)): [float(w), float(x)] for i, e, w, x in entries}


def _one_query(dataset: Dataset, query: str) -> Chunk:
    """A chunk with only this query."""
    seen: list[str] = []
    for ref in dataset.plan():
        names = ref.load(ids=False).query_ids.to_pylist()
        if query in names:
            return ref.load(ids=True).select(np.array([name == query for name in names]))
        seen += names[: 5 - len(seen)] if len(seen) < 5 else []
    raise UsageError(f"no query '{query}' in {dataset.path or 'the dataset'}; it has {', '.join(seen) or 'none'}, ...")
