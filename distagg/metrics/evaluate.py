"""Evaluate rankings, ours or anybody's: a table of query, item, rank joined to a dataset's labels by id.

The table is indexed by query once; each chunk then joins only its own rows, with integer keys: O(rows log rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_arrow, as_numpy, as_words, one_array
from distagg.errors import InputError
from distagg.metrics.metric import Metric, Protocol, check_protocol, parse_metrics
from distagg.metrics.score import mean_over_queries, score_chunk
from distagg.types import OFFSET, RANK, Floats, Offsets

if TYPE_CHECKING:
    from distagg.dataset.chunk import Chunk
    from distagg.dataset.dataset import Dataset
    from distagg.dataset.manifest import Manifest


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The value of every metric for every query."""

    metrics: tuple[Metric, ...]
    query_ids: pa.StringArray  # (Q,)
    values: Floats  # (Q, metrics); NaN where undefined
    protocol: Protocol

    @property
    def means(self) -> dict[str, float]:
        """Mean over the queries with a value, by the metric's name."""
        names = [str(metric) for metric in self.metrics]
        return dict(zip(names, mean_over_queries(self.values).tolist(), strict=True))

    def table(self) -> pa.Table:
        """One row per query, one column per metric."""
        columns = {str(metric): self.values[:, column] for column, metric in enumerate(self.metrics)}
        return pa.table({"query": self.query_ids, **columns})


@dataclass(frozen=True, slots=True, eq=False)
class RankingIndex:
    """Rows of a rankings table, grouped by query, ready to be joined to chunks."""

    source: str  # named in errors
    queries: dict[str, int]  # query id -> position in offsets
    offsets: Offsets  # (queries + 1,)
    items: pa.Array[Any]  # (rows,) item ids
    scores: Floats  # (rows,) larger is better


def highest_label(manifest: Manifest) -> int:
    """The highest label of a dataset, at least 0: the highest grade of ``err``."""
    return max([0, *(int(label) for label in manifest.labels if label.lstrip("-").isdigit())])


def evaluate_rankings(
    rankings: pa.Table,
    dataset: Dataset,
    metrics: Sequence[str | Metric],
    *,
    protocol: str | None = None,
    max_grade: int | None = None,
    source: str = "rankings",
) -> Evaluation:
    """Evaluate a rankings table against the labels of a dataset.

    Parameters
    ----------
    rankings
        Columns ``query``, ``item`` and ``rank`` (smaller is better; it alone gives the order) or, without it,
        ``score``. Items left out are not retrieved under ``trec`` and come last, in input order, under ``letor``.
    dataset
        Whose items and labels; every query and item of the rankings must be in it.
    metrics
        Names like ``"ndcg@5"``.
    protocol
        ``letor`` or ``trec``; by default that of the dataset.
    max_grade
        The highest grade of ``err``; the highest label of the dataset when None.
    source
        What errors call the rankings: a file name, say.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from distagg.dataset.dataset import Dataset
    >>> lists = pa.table({"query": ["q"] * 2, "expert": ["a"] * 2, "item": ["x", "y"], "rank": [1, 2]})
    >>> labels = pa.table({"query": ["q"] * 2, "item": ["x", "y"], "label": [0, 1]})
    >>> dataset = Dataset.from_arrow(lists, labels=labels)
    >>> rankings = pa.table({"query": ["q"] * 2, "item": ["y", "x"], "rank": [1, 2]})
    >>> evaluate_rankings(rankings, dataset, ["p@1", "map"]).means
    {'p@1': 1.0, 'map': 1.0}
    """
    parsed = parse_metrics(metrics)
    counted = check_protocol(protocol or dataset.manifest.protocol)
    index = index_rankings(rankings, source=source)
    grade = highest_label(dataset.manifest) if max_grade is None else max_grade
    # Every chunk of an expert-partitioned dataset holds the same query: one is enough.
    plan = dataset.plan()[:1] if dataset.manifest.partition == "expert" else dataset.plan()
    values, ids = [np.empty((0, len(parsed)))], [as_words([])]
    for ref in plan:
        chunk = ref.load()
        scores = ranking_scores(index, chunk)
        values.append(score_chunk(chunk, scores, parsed, protocol=counted, max_grade=grade))
        ids.append(chunk.query_ids)
    query_ids = pa.concat_arrays(ids)
    _refuse_unknown_queries(index, query_ids)
    return Evaluation(parsed, query_ids, np.concatenate(values), counted)


def index_rankings(rankings: pa.Table, *, source: str = "rankings") -> RankingIndex:
    """Check a rankings table and group its rows by query."""
    order = "rank" if "rank" in rankings.column_names else "score"
    expected = "columns query, item and rank (or score)"
    columns = {name: column_of(rankings, name, source, expected) for name in ("query", "item", order)}
    scores = as_numpy(one_array(columns[order]))
    if np.isnan(scores).any():
        row = int(np.flatnonzero(np.isnan(scores))[0])
        where = f"query '{columns['query'][row]}', item '{columns['item'][row]}'"
        raise InputError(source, found=f"NaN as the {order} of {where}", expected="a number")
    coded = one_array(columns["query"].dictionary_encode().unify_dictionaries())
    codes, names = as_numpy(coded.indices), coded.dictionary.to_pylist()
    items = one_array(columns["item"])
    if np.any(codes[1:] < codes[:-1]):  # rows of a query need not be adjacent
        rows = np.argsort(codes, kind="stable")
        codes, items, scores = codes[rows], items.take(as_arrow(rows)), scores[rows]
    offsets = np.searchsorted(codes, np.arange(len(names) + 1)).astype(OFFSET)
    positions = {str(name): position for position, name in enumerate(names)}
    return RankingIndex(source, positions, offsets, items, -scores if order == "rank" else scores)


def ranking_scores(index: RankingIndex, chunk: Chunk) -> Floats:
    """The score of every item of a chunk, shape (I,): -rank, or -inf where the rankings leave the item out.

    An item that the chunk's query does not have, or that is ranked twice, is an InputError. Queries that no chunk has
    cannot be seen here.
    """
    places = [index.queries.get(str(name), -1) for name in chunk.query_ids.to_pylist()]
    query = np.flatnonzero(np.array(places, dtype=OFFSET) >= 0)
    position = np.array(places, dtype=OFFSET)[query]
    sizes = index.offsets[position + 1] - index.offsets[position]
    start = np.cumsum(sizes) - sizes
    rows = np.arange(sizes.sum()) + np.repeat(index.offsets[position] - start, sizes)
    names = index.items.take(as_arrow(rows))

    # A key per (query of the chunk, distinct item id): ids repeat between queries, so the id alone is no key.
    coded = chunk.item_ids.dictionary_encode()
    width = max(len(coded.dictionary), 1)
    keys = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.item_offsets)) * width + as_numpy(coded.indices)
    codes = pc.index_in(names, value_set=coded.dictionary)
    codes = as_numpy(pc.if_else(codes.is_valid(), codes, as_arrow(np.full(len(codes), -1, dtype=np.int32))))
    wanted = np.where(codes >= 0, np.repeat(query, sizes) * width + codes, -1)
    by_key = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys, wanted, sorter=by_key)
    item = by_key[np.minimum(at, len(keys) - 1)] if len(keys) else np.zeros(len(wanted), dtype=OFFSET)
    known = keys[item] == wanted if len(keys) else np.zeros(len(wanted), dtype=bool)
    _refuse_items(index, chunk, names, np.repeat(query, sizes), item, known)
    scores = np.full(chunk.n_items, -np.inf, dtype=RANK)
    scores[item] = index.scores[rows]
    return scores


def _refuse_items(
    index: RankingIndex, chunk: Chunk, names: pa.Array[Any], query: Offsets, item: Offsets, known: np.ndarray
) -> None:
    """InputError for the first ranked item that its query does not have, or that is ranked twice."""
    twice = known & (np.bincount(item, minlength=1)[item] > 1) if len(item) else known
    for rows, problem, expected in (
        (np.flatnonzero(~known), "unknown item", "an item that the dataset has in this query"),
        (np.flatnonzero(twice), "more than one row for item", "every item once per query"),
    ):
        if len(rows):
            name, where = names[int(rows[0])].as_py(), chunk.query_ids[int(query[rows[0]])].as_py()
            raise InputError(index.source, found=f"{problem} '{name}' in query '{where}'", expected=expected)


def _refuse_unknown_queries(index: RankingIndex, query_ids: pa.StringArray) -> None:
    known = set(query_ids.to_pylist())
    for name in index.queries:
        if name not in known:
            raise InputError(
                index.source,
                found=f"unknown query '{name}'",
                expected="a query of the dataset",
                remedy="evaluate against the dataset that was ranked",
            )


def column_of(rankings: pa.Table, name: str, source: str, expected: str) -> pa.ChunkedArray[Any]:
    """A column without nulls, as text or numbers; ``expected`` names the columns that the table must have."""
    if name not in rankings.column_names:
        raise InputError(source, found=f"columns {', '.join(rankings.column_names) or 'none'}", expected=expected)
    kind = pa.string() if name in ("query", "item") else pa.float64()
    try:
        column = rankings[name].cast(kind)
    except pa.ArrowInvalid as error:
        raise InputError(source, found=f"column {name} with {error}", expected=f"a column of type {kind}") from error
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise InputError(source, found=f"no {name} in row {row + 1}", expected=f"a {name} in every row")
    return column


def refuse_twice(source: str, keys: Offsets, ids: pa.Array[Any], query: Offsets, names: pa.Array[Any]) -> None:
    """InputError for an item that stands twice in a query.

    ``keys``, ``ids`` and ``query`` (rows,) are a number for each query and item, the item's id, and the query's
    position in ``names``.
    """
    ordered = np.sort(keys)
    if not (ordered[1:] == ordered[:-1]).any():
        return
    first = np.unique(keys, return_index=True)[1]
    row = int(np.setdiff1d(np.arange(len(keys)), first)[0])
    raise InputError(
        source,
        found=f"more than one row for item '{ids[row].as_py()}' in query '{names[int(query[row])].as_py()}'",
        expected="every item once per query",
    )
