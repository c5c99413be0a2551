"""Optional columns of a ranking: support, titles, and the uncertainty of ranks by the bootstrap over experts."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.dataset.manifest import Kind
from distagg.engine.fitting.fit import gather, split_query
from distagg.engine.runner import Runner, Work
from distagg.errors import UsageError
from distagg.models import Model, Params
from distagg.models.base import Known, score_known
from distagg.models.lists import BINARY
from distagg.models.pairs import list_sums
from distagg.models.rounds import Statistics
from distagg.rankings.ordering import order_items
from distagg.types import Floats

log = logging.getLogger("distagg")

SUPPORT = {"lists": ("experts", "won", "lost"), "pairs": ("comparisons", "won", "lost")}  # by the dataset's kind
DOUBT = ("deviation", "rank_low", "rank_high", "draws")
INTERVAL = (2.5, 97.5)  # percent
OMITTED = ("items", "out", "queries", "emptied", "most")
TYPES = {"experts": pa.int64(), "title": pa.string()} | dict.fromkeys(("rank_low", "rank_high", "draws"), pa.int32())


@dataclass(frozen=True, slots=True)
class Shown:
    """Optional columns of a ranking.

    ``support`` adds the evidence for each item: for lists the number of experts that list it and the pairs that it won
    and lost there; for pairs its comparisons (with ties), won and lost, each counted by weight. ``least`` omits items
    with fewer experts, or comparisons. ``titles`` adds titles. ``resamples`` is the number of bootstrap draws of the
    experts, seeded by ``seed``; it adds the columns deviation, rank_low and rank_high, computed over the draws that
    contain the item, and the column draws, which counts these draws. ``top`` keeps the first items of each ranking.
    The engine sets ``kind`` (lists or pairs), ``known`` (statistics of each chunk) and ``names`` (the titles).
    """

    support: bool = False
    least: int = 0  # experts, or comparisons, that an item must have to be ranked
    top: int = 0  # first items of each ranking to keep; 0: all
    titles: bool = False
    resamples: int = 0
    seed: int = 0
    kind: Kind = "lists"
    known: tuple[Statistics, ...] = ()
    names: pa.Table | None = None

    def __post_init__(self) -> None:
        if self.least < 0:
            raise UsageError(f"minimum support: found {self.least}, expected 0 or more")
        if self.top < 0:
            raise UsageError(f"top: found {self.top}, expected the number of items to keep of each ranking, 0 for all")
        if self.resamples < 0 or self.resamples == 1:
            raise UsageError(f"bootstrap: found {self.resamples} draws, expected at least 2")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the additional columns."""
        support = SUPPORT[self.kind] if self.support else ()
        doubt = DOUBT if self.resamples else ()
        return (*support, *doubt, *(("title",) if self.titles else ()))

    def type_of(self, column: str) -> pa.DataType:
        """The type of an additional column; sums of pair weights are not always whole."""
        whole = self.kind == "lists" and column in ("won", "lost")
        return pa.int64() if whole else TYPES.get(column, pa.float64())

    @property
    def unit(self) -> str:
        """The column that counts support: experts or comparisons."""
        return SUPPORT[self.kind][0]

    def items_of(self, chunk: Chunk, index: int) -> Statistics:
        """The additional columns of a chunk's items."""
        items = self.known[index] if self.known else {}
        if (self.support or self.least) and self.unit not in items:
            items = items | count_support(chunk, self.kind)
        return items

    def title_of(self, items: pa.Array) -> pa.Array:
        """Titles of items, null for an item without a title."""
        assert self.names is not None
        return self.names["title"].take(pc.index_in(items, self.names["item"].combine_chunks())).combine_chunks()


def prepared(shown: Shown, model: Model, params: Params, dataset: Dataset, runner: Runner) -> Shown:
    """Fill in what needs the whole dataset: the support of a split query, bootstrap draws, titles."""
    known: list[Statistics] = []
    shown = replace(shown, kind=dataset.manifest.kind)
    if shown.resamples:
        known = bootstrap(shown, model, params, dataset, runner)
    if (shown.support or shown.least) and split_query(dataset):
        support = runner.map_reduce(Work(_support_task, shown.kind), dataset.plan(), _add) or {}
        known = [{**support, **(known[0] if known else {})}]
    if shown.least:
        _report_omitted(replace(shown, known=tuple(known)), dataset, runner)
    names = dataset.titles if shown.titles else None
    if shown.titles and (names is None or "title" not in names.column_names):
        raise UsageError(f"{dataset.path or 'the dataset'} has no titles; import it with --items")
    return replace(shown, known=tuple(known), names=names)


def count_support(chunk: Chunk, kind: Kind) -> Statistics:
    """The support columns of ``Shown`` for each item, (I,) each. A tie is a comparison, neither won nor lost."""
    if kind == "pairs":
        base = np.repeat(chunk.item_offsets[:-1], np.diff(chunk.pair_offsets))
        weight, decided = chunk.pair_weight, np.where(chunk.pair_tie, 0.0, chunk.pair_weight)
        winner, loser = base + chunk.pair_winner, base + chunk.pair_loser
        return {
            "comparisons": np.bincount(winner, weight, chunk.n_items) + np.bincount(loser, weight, chunk.n_items),
            "won": np.bincount(winner, decided, chunk.n_items),
            "lost": np.bincount(loser, decided, chunk.n_items),
        }
    rows = chunk.entry_row()
    won, lost, _ = list_sums(chunk, np.zeros(chunk.n_lists, dtype=np.int64), BINARY)
    counts = [np.bincount(rows, weights, chunk.n_items) for weights in (None, won, lost)]
    return dict(zip(SUPPORT["lists"], (count.astype(np.int64) for count in counts), strict=True))


def _report_omitted(shown: Shown, dataset: Dataset, runner: Runner) -> None:
    """Report the items that the minimum support omits, and refuse a ranking that would be empty."""
    refs = dataset.plan()[:1] if shown.known and split_query(dataset) else dataset.plan()
    counts = runner.map_reduce(Work(_omitted_task, shown), refs, _join_omitted)
    if counts is None:
        return
    items, out, queries, emptied, most = (float(counts[name][0]) for name in OMITTED)
    if items and out == items:
        raise UsageError(
            f"--min-support {shown.least}: no item has that many {shown.unit}, the maximum is {most:g}; ask for fewer"
        )
    if out:
        message = f"left out {out:,.0f} of {items:,.0f} items with fewer than {shown.least} {shown.unit}"
        if emptied:
            message += f"; {emptied:,.0f} of {queries:,.0f} queries have none left and are not in the ranking"
        log.warning(message)


def _omitted_task(chunk: Chunk, index: int, shown: Shown) -> Statistics:
    """Counts of a chunk (items, omitted items, queries, queries with no item left) and its largest support."""
    support = shown.items_of(chunk, index)[shown.unit]
    kept = np.bincount(chunk.item_query()[support >= shown.least], minlength=chunk.n_queries)
    sizes = np.diff(chunk.item_offsets)
    counts = chunk.n_items, chunk.n_items - kept.sum(), chunk.n_queries, ((sizes > 0) & (kept == 0)).sum()
    return {name: np.array([value]) for name, value in zip(OMITTED, (*counts, support.max(initial=0)), strict=True)}


def _join_omitted(a: Statistics, b: Statistics) -> Statistics:
    return {**_add(a, b), "most": np.maximum(a["most"], b["most"])}


def bootstrap(shown: Shown, model: Model, params: Params, dataset: Dataset, runner: Runner) -> list[Statistics]:
    """For each chunk, deviation of scores and interval of ranks over bootstrap draws of the experts, each fitted again.

    A draw without entries for an item does not count for it. An item with fewer than two draws has an infinite
    deviation and ranks from the first to the last.
    """
    if dataset.audience_size < 2:
        raise UsageError(
            "--bootstrap draws experts, but the dataset has fewer than two; bradley_terry, thurstone and plackett_luce "
            "can draw comparisons instead: -p errors=bootstrap"
        )
    draws: list[list[tuple[np.ndarray, ...]]] = []
    for number in range(shown.resamples):
        again = dataset.select(draw=(shown.seed, number))
        gathered = gather(model, params, again, runner)
        refs = again.plan()[:1] if split_query(again) else again.plan()
        places = list(runner.map(Work(_place_task, (model, gathered)), refs))
        if split_query(again):
            everyone = runner.map_reduce(Work(_held_task, None), again.plan(), np.logical_or)
            assert everyone is not None  # a draw has at least one expert
            places = [(score, rank, last, everyone) for score, rank, last, _ in places]
        draws.append(places)
    return [_doubt(*(np.stack(column) for column in zip(*pieces, strict=True))) for pieces in zip(*draws, strict=True)]


def _doubt(score: Floats, rank: np.ndarray, last: np.ndarray, held: np.ndarray) -> Statistics:  # (draws, I) each
    """Columns of DOUBT, over the draws that contain an item."""
    count = held.sum(axis=0)
    columns = {"deviation": np.full(len(count), np.inf), "rank_low": np.ones(len(count)), "rank_high": last[0]}
    for times in np.unique(count[count > 1]):  # items in the same number of draws, together
        rows = np.flatnonzero(count == times)
        scores, ranks = (values.T[rows][held.T[rows]].reshape(len(rows), times) for values in (score, rank))
        columns["deviation"][rows] = scores.std(axis=1, ddof=1)
        low, high = np.percentile(ranks, INTERVAL, axis=1, method="nearest")
        columns["rank_low"][rows], columns["rank_high"][rows] = low, high
    return {**columns, "draws": count}


def _support_task(chunk: Chunk, index: int, kind: Kind) -> Statistics:
    return count_support(chunk, kind)


def _add(a: Statistics, b: Statistics) -> Statistics:
    return {name: a[name] + b[name] for name in a}


def _held_task(chunk: Chunk, index: int, payload: None) -> np.ndarray:
    """The items of a chunk that are in a list or a pair."""
    held = np.zeros(chunk.n_items, dtype=np.bool_)
    held[chunk.entry_row()] = True
    base = np.repeat(chunk.item_offsets[:-1], np.diff(chunk.pair_offsets))
    held[base + chunk.pair_winner] = held[base + chunk.pair_loser] = True
    return held


def _place_task(chunk: Chunk, index: int, payload: tuple[Model, Known]) -> tuple[np.ndarray, ...]:
    """Scores, ranks (from 1) and the last rank of a chunk's items, and whether they are in a list or a pair."""
    model, known = payload
    score = score_known(model, chunk, known)
    starts = np.repeat(chunk.item_offsets[:-1], np.diff(chunk.item_offsets))
    rank = np.empty(chunk.n_items, dtype=np.int32)
    rank[starts + order_items(chunk.item_offsets, score)] = np.arange(chunk.n_items) - starts + 1
    last = np.repeat(np.diff(chunk.item_offsets), np.diff(chunk.item_offsets))
    return score, rank, last, _held_task(chunk, index, None)
