"""Evaluate a run against relevance judgements (qrels) without a dataset: two tables joined by query and item id.

Labels may have fractions here, though a dataset stores whole grades. Queries are joined in blocks of about 130,000
rows, with integer keys: O(rows log judgements), memory by the block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from distagg.arrow import as_arrow, as_numpy, as_words, one_array
from distagg.dataset.chunk import Chunk, chunk_from_tables, spans
from distagg.errors import InputError, UsageError
from distagg.metrics.evaluate import Evaluation, RankingIndex, column_of, index_rankings, refuse_twice
from distagg.metrics.metric import FAMILIES, Metric, Protocol
from distagg.metrics.score import score_chunk
from distagg.types import LABEL, NO_LABEL, OFFSET, QUERIES_TABLE, Floats, Labels, Offsets

BLOCK_ROWS = 1 << 17  # item ids of a block stay in the processor's cache


@dataclass(frozen=True, slots=True, eq=False)
class Judgements:
    """Judged items and their labels, grouped by query. Q queries, J judgements."""

    source: str  # named in errors
    query_ids: pa.StringArray  # (Q,)
    offsets: Offsets  # (Q + 1,)
    items: pa.Array[Any]  # (J,)
    labels: Labels | Floats  # (J,) numbers with a fraction only if some label has one

    @property
    def highest(self) -> int:
        """The highest label, at least 0: the highest grade of ``err``."""
        return math.ceil(self.labels.max(initial=0))

    def check_fractions(self, metrics: Sequence[Metric]) -> None:
        """UsageError if labels have fractions and a metric is defined on whole grades only."""
        if self.labels.dtype == LABEL:
            return
        for metric in metrics:
            if not FAMILIES[metric.name].fractions:
                label = float(self.labels[self.labels != np.floor(self.labels)][0])
                known = [name for name, family in FAMILIES.items() if family.fractions]
                raise UsageError(
                    f"{self.source}: found the label {label:g}, but {metric} is defined on whole grades; "
                    f"use {', '.join(known)}, or give whole labels"
                )


@dataclass(frozen=True, slots=True, eq=False)
class JudgedRun:
    """A run's evaluation, a row for each judged query, and the queries that only one side has."""

    evaluation: Evaluation
    missing: tuple[str, ...]  # judged queries that the run does not have
    unjudged: tuple[str, ...]  # queries of the run without any judgement: not evaluated


def index_judgements(table: pa.Table, *, source: str = "judgements") -> Judgements:
    """Check a table of judgements (columns query, item, label) and group it by query; labels are not rounded."""
    expected = "columns query, item and label"
    labels = as_numpy(one_array(column_of(table, "label", source, expected)))
    good = (labels > NO_LABEL) & (labels < 2**31)  # not NaN either
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise InputError(
            source, found=f"the label {labels[row]:g} in row {row + 1}", expected="a number of less than 32 bits"
        )
    columns = {name: column_of(table, name, source, expected) for name in ("query", "item")}
    index = index_rankings(pa.table({**columns, "score": as_arrow(labels)}), source=source)
    whole = (index.scores == np.floor(index.scores)).all()
    grades = index.scores.astype(LABEL) if whole else index.scores
    return Judgements(source, as_words(list(index.queries)), index.offsets, index.items, grades)


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
    judgements.check_fractions(metrics)
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
    refuse_twice(run.source, own, ids, query, judgements.query_ids.take(as_arrow(block)))
    refuse_twice(
        judgements.source, theirs, ids[len(ranked) :], judged_query, judgements.query_ids.take(as_arrow(block))
    )

    by_key = np.argsort(theirs, kind="stable")
    at = by_key[np.minimum(np.searchsorted(theirs, own, sorter=by_key), len(theirs) - 1)]
    known = theirs[at] == own
    labels = np.concatenate([np.where(known, judgements.labels[judged][at], NO_LABEL), judgements.labels[judged]])
    kept = np.ones(len(keys), dtype=bool)
    kept[len(ranked) + at[known]] = False  # in the run already
    rows = np.flatnonzero(kept)
    rows = rows[np.argsort(np.concatenate([query, judged_query])[rows], kind="stable")]
    scores = np.concatenate([run.scores[ranked], np.full(len(judged), -np.inf)])[rows]
    sizes = np.bincount(np.concatenate([query, judged_query])[rows], minlength=len(block))
    return _chunk(judgements.query_ids.take(as_arrow(block)), sizes, ids.take(as_arrow(rows)), labels[rows]), scores


def _chunk(query_ids: pa.StringArray, sizes: Offsets, ids: pa.Array[Any], labels: Labels | Floats) -> Chunk:
    """A chunk of labelled items without lists."""
    # Labels are put in at the end: a table would hold whole numbers only.
    ends = as_arrow(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    none = pa.ListArray.from_arrays(as_arrow(np.zeros(len(sizes) + 1, np.int32)), as_arrow(np.zeros(0, LABEL)))
    columns = [
        query_ids,
        as_words([""] * len(sizes)),
        pa.ListArray.from_arrays(ends, ids),
        pa.ListArray.from_arrays(ends, as_arrow(np.zeros(len(labels), LABEL))),
        none,
    ]
    chunk = chunk_from_tables(pa.table(columns, schema=QUERIES_TABLE), None, None, n_experts=0)
    return replace(chunk, labels=cast("Labels", labels))
