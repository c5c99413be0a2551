"""Evaluate a run against relevance judgements (qrels) without a dataset: two tables joined by query and item id.

Queries are joined in blocks of about 130,000 rows, with integer keys: O(rows log judgements), memory by the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from distagg.arrow import as_arrow, as_numpy, as_words
from distagg.dataset.chunk import Chunk, chunk_from_tables, spans
from distagg.errors import InputError
from distagg.metrics.evaluate import Evaluation, RankingIndex, column_of, index_rankings
from distagg.metrics.metric import Metric, Protocol
from distagg.metrics.score import score_chunk
from distagg.types import LABEL, NO_LABEL, OFFSET, QUERIES_TABLE, RANK, Floats, Labels, Offsets

BLOCK_ROWS = 1 << 17  # item ids of a block stay in the processor's cache


@dataclass(frozen=True, slots=True, eq=False)
class Judgements:
    """Judged items and their labels, grouped by query. Q queries, J judgements."""

    source: str  # named in errors
    query_ids: pa.StringArray  # (Q,)
    offsets: Offsets  # (Q + 1,)
    items: pa.Array[Any]  # (J,)
    labels: Labels  # (J,)

    @property
    def highest(self) -> int:
        """The highest label, at least 0."""
        return max(0, int(self.labels.max(initial=0)))


@dataclass(frozen=True, slots=True, eq=False)
class JudgedRun:
    """A run's evaluation, a row for each judged query, and the queries that only one side has."""

    evaluation: Evaluation
    missing: tuple[str, ...]  # judged queries that the run does not have
    unjudged: tuple[str, ...]  # queries of the run without any judgement: not evaluated


def index_judgements(table: pa.Table, *, source: str = "judgements") -> Judgements:
    """Check a table of judgements (columns query, item, label) and group it by query.

    Labels are whole numbers. A fractional label is an InputError: it is never rounded.
    """
    expected = "columns query, item and label"
    labels = as_numpy(column_of(table, "label", source, expected))
    whole = (labels == np.floor(labels)) & (labels > NO_LABEL) & (labels < 2**31)
    if not whole.all():
        row = int(np.flatnonzero(~whole)[0])
        raise InputError(
            source,
            found=f"the label {labels[row]:g} in row {row + 1}",
            expected="a whole number of 32 bits",
            remedy="metrics are defined on whole grades; multiply fractional grades, say by 100, for ndcg(linear)",
        )
    ranked = pa.table({"query": table["query"], "item": table["item"], "score": as_arrow(labels.astype(RANK))})
    index = index_rankings(ranked, source=source)
    return Judgements(source, as_words(list(index.queries)), index.offsets, index.items, index.scores.astype(LABEL))


def evaluate_judged(
    run: RankingIndex,
    judgements: Judgements,
    metrics: tuple[Metric, ...],
    *,
    protocol: Protocol,
    skip_missing: bool = False,
) -> JudgedRun:
    """Every metric for every judged query of a run.

    A judged query that the run lacks has 0, as with trec_eval -c, or NaN with ``skip_missing``, as without -c.
    """
    names = judgements.query_ids.to_pylist()
    place = np.array([run.queries.get(name, -1) for name in names], dtype=OFFSET)
    values = np.empty((len(names), len(metrics)))
    for block in _blocks(run, judgements, place):
        chunk, scores = _join(run, judgements, place, block)
        values[block] = score_chunk(chunk, scores, metrics, protocol=protocol, max_grade=judgements.highest)
    if skip_missing:
        values[place < 0] = np.nan
    judged = set(names)
    return JudgedRun(
        Evaluation(metrics, judgements.query_ids, values, protocol),
        missing=tuple(name for name, at in zip(names, place.tolist(), strict=True) if at < 0),
        unjudged=tuple(name for name in run.queries if name not in judged),
    )


def _blocks(run: RankingIndex, judgements: Judgements, place: Offsets) -> Iterator[Offsets]:
    """Positions of judged queries, in blocks of at most BLOCK_ROWS rows or one query."""
    rows = np.where(place >= 0, np.diff(run.offsets, append=0)[place], 0) + np.diff(judgements.offsets)
    block = np.cumsum(rows) // BLOCK_ROWS
    yield from np.split(np.arange(len(rows)), np.flatnonzero(np.diff(block)) + 1)


def _join(run: RankingIndex, judgements: Judgements, place: Offsets, block: Offsets) -> tuple[Chunk, Floats]:
    """A chunk of the block's queries, and the score of each item: -inf for judged items that the run lacks."""
    present = np.flatnonzero(place[block] >= 0)
    ranked, offsets = spans(run.offsets, place[block][present])
    judged, judged_offsets = spans(judgements.offsets, block)
    query = np.repeat(present, np.diff(offsets))
    judged_query = np.repeat(np.arange(len(block)), np.diff(judged_offsets))
    ids = pa.concat_arrays([run.items.take(as_arrow(ranked)), judgements.items.take(as_arrow(judged))])
    coded = ids.dictionary_encode()
    keys = np.concatenate([query, judged_query]) * max(1, len(coded.dictionary)) + as_numpy(coded.indices)
    own, theirs = keys[: len(ranked)], keys[len(ranked) :]
    _refuse_twice(run.source, own, ids, query, judgements.query_ids.take(as_arrow(block)))
    _refuse_twice(
        judgements.source, theirs, ids[len(ranked) :], judged_query, judgements.query_ids.take(as_arrow(block))
    )

    by_key = np.argsort(theirs, kind="stable")
    at = by_key[np.minimum(np.searchsorted(theirs, own, sorter=by_key), len(theirs) - 1)]
    known = theirs[at] == own
    labels = np.concatenate(
        [np.where(known, judgements.labels[judged][at], LABEL(NO_LABEL)), judgements.labels[judged]]
    )
    kept = np.ones(len(keys), dtype=bool)
    kept[len(ranked) + at[known]] = False  # in the run already
    rows = np.flatnonzero(kept)
    rows = rows[np.argsort(np.concatenate([query, judged_query])[rows], kind="stable")]
    scores = np.concatenate([run.scores[ranked], np.full(len(judged), -np.inf)])[rows]
    sizes = np.bincount(np.concatenate([query, judged_query])[rows], minlength=len(block))
    return _chunk(judgements.query_ids.take(as_arrow(block)), sizes, ids.take(as_arrow(rows)), labels[rows]), scores


def _chunk(query_ids: pa.StringArray, sizes: Offsets, ids: pa.Array[Any], labels: Labels) -> Chunk:
    """A chunk of labelled items without lists."""
    ends = as_arrow(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    none = pa.ListArray.from_arrays(as_arrow(np.zeros(len(sizes) + 1, np.int32)), as_arrow(np.zeros(0, LABEL)))
    columns = [
        query_ids,
        as_words([""] * len(sizes)),
        pa.ListArray.from_arrays(ends, ids),
        pa.ListArray.from_arrays(ends, as_arrow(labels, labels != NO_LABEL)),
        none,
    ]
    return chunk_from_tables(pa.table(columns, schema=QUERIES_TABLE), None, None, n_experts=0)


def _refuse_twice(source: str, keys: Offsets, ids: pa.Array[Any], query: Offsets, names: pa.Array[Any]) -> None:
    """InputError for an item that stands twice in a query."""
    ordered = np.sort(keys)
    if not (ordered[1:] == ordered[:-1]).any():
        return
    first: dict[int, int] = {}
    for row, key in enumerate(keys.tolist()):
        if key in first:
            break
        first[key] = row
    item, where = ids[row].as_py(), cast("str", names[int(query[row])].as_py())
    raise InputError(
        source, found=f"more than one row for item '{item}' in query '{where}'", expected="every item once per query"
    )
