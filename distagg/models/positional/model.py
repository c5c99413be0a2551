"""Models that use the places of an item in the lists. Cost: one linear pass over entries.

Most add up points. rrf (Cormack et al. 2009), isr and log_isr (Mourao et al. 2015) and rbc (Bailey et al. 2017) are
subclasses of ``Points`` that differ in the points of an entry. borda (Aslam & Montague 2001) and mean also give points
to the items that a list leaves out. median (Fagin et al. 2003) takes the middle rank, bestinput the best single expert
(Niu et al. 2013, section 5.1). ``scores`` has the rules on scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Model, Tally, param, reciprocals, sum_entries
from distagg.models.lists import BEYOND, STEADY, borda_points, median_ranks, sum_by_item
from distagg.models.pairs import rated
from distagg.models.rounds import Params, Statistics
from distagg.models.weights import Weighted, entry_weight, list_weight, pair_weight, weighed
from distagg.types import Bools, Floats

MOST_CANDIDATES = 10_000  # experts that bestinput tries
RRF_CANDIDATES = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0, 150.0, 200.0)


@dataclass(frozen=True, kw_only=True)
class Borda(Tally, Weighted):
    """A list gives an item points for the items that it ranks lower; a pair gives its winner one point."""

    name: ClassVar[str] = "borda"
    summary: ClassVar[str] = "points for the items that a list ranks lower"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Aslam & Montague 2001"
    inputs: ClassVar[tuple[str, ...]] = ("lists", "pairs")

    unlisted: str = param(
        "zero",
        "points of a list for the items it leaves out: zero; average (the mean of the points that remain); or ignore "
        "(the score is the mean over the lists that hold the item)",
        choices=("zero", "average", "ignore"),
    )
    discount: bool = param(
        True,
        "true: points fall with log(5 + place), to 0 at the place of the unlisted items, which suits short and deep "
        "lists; false: points are the number of the query's items less the place. Ratings, and unlisted=average or "
        "ignore, always take the latter",
    )

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        points, held, leftover = borda_points(
            self.discount and self.unlisted == "zero" and not rated(chunk),
            self.unlisted == "average",
            chunk.item_offsets,
            chunk.list_offsets,
            chunk.entry_offsets,
            chunk.entry_row(),
            chunk.entry_rank,
            list_weight(chunk, params),
        )
        if chunk.n_pairs:
            base = np.repeat(chunk.item_offsets[:-1], np.diff(chunk.pair_offsets))
            weight = pair_weight(chunk, params)
            win = np.where(chunk.pair_tie, 0.5, 1.0) * weight
            lose = np.where(chunk.pair_tie, 0.5, 0.0) * weight
            points = points + np.bincount(base + chunk.pair_winner, win, chunk.n_items)
            points = points + np.bincount(base + chunk.pair_loser, lose, chunk.n_items)
            for side in (chunk.pair_winner, chunk.pair_loser):
                held = held + np.bincount(base + side, weight, chunk.n_items)
        return {"points": points, "held": held, "leftover": leftover}

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        if self.unlisted == "average":
            return tally["points"] + np.repeat(tally["leftover"], np.diff(chunk.item_offsets))
        if self.unlisted == "ignore":
            return tally["points"] / np.maximum(tally["held"], np.finfo(float).tiny)
        return tally["points"]


@dataclass(frozen=True, kw_only=True)
class Mean(Tally, Weighted):
    """Mean rank, smallest first."""

    name: ClassVar[str] = "mean"
    summary: ClassVar[str] = "mean rank"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2"

    unlisted: str = param(
        "last",
        "rank of the items a list leaves out: last (behind the list's largest rank) or ignore (mean over the lists "
        "that hold the item)",
        choices=("last", "ignore"),
    )
    discount: bool = param(
        True,
        "true: the mean of log(5 + rank), which suits short and deep lists; the rank of unlisted items is three times "
        "the list's largest. false: the mean rank; unlisted items rank one behind the list. Ratings always take the "
        "latter",
    )

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        length, rank = np.diff(chunk.entry_offsets), chunk.entry_rank
        behind = np.zeros(chunk.n_lists)
        behind[length > 0] = rank[chunk.entry_offsets[1:][length > 0] - 1]
        if self.discount and not rated(chunk):
            rank, behind = np.log(STEADY + rank), np.log(STEADY + (1 + BEYOND) * behind)
        else:
            behind[length > 0] += 1.0
        queries = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
        weight = list_weight(chunk, params)
        weight = weight if len(weight) else np.ones(chunk.n_lists)
        each, behind = np.repeat(weight, length), behind * weight
        return {
            "held": sum_entries(chunk, each),
            "ranks": sum_entries(chunk, rank * each),
            "behind": sum_entries(chunk, np.repeat(behind, length)),  # what the item's own lists give others
            "all_behind": np.bincount(queries, weights=behind, minlength=chunk.n_queries),
            "lists": np.bincount(queries, weights=weight, minlength=chunk.n_queries),
        }

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        if self.unlisted == "ignore":
            return worst_where(tally["held"] == 0, -tally["ranks"] / some(tally["held"]), chunk)
        sizes = np.diff(chunk.item_offsets)
        lists = np.repeat(some(tally["lists"]), sizes)
        return -(tally["ranks"] + np.repeat(tally["all_behind"], sizes) - tally["behind"]) / lists


@dataclass(frozen=True, kw_only=True)
class Points(Tally):
    """The sum of the points of an item's entries. Each subclass defines the points of an entry."""

    @property
    def counts_lists(self) -> bool:
        """Whether ``settle`` needs ``held``, the number of lists that hold each item."""
        return False

    def points(self, chunk: Chunk, params: Params) -> Floats:
        """Points of every entry, shape (E,)."""
        raise NotImplementedError

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        row, weight = chunk.entry_row(), entry_weight(chunk, params)
        total = {"sum": sum_by_item(row, weighed(self.points(chunk, params), weight), chunk.n_items)}
        if self.counts_lists:
            total["held"] = sum_by_item(row, weight, chunk.n_items)
        return total


@dataclass(frozen=True, kw_only=True)
class Rrf(Points, Weighted):
    """Reciprocal rank fusion: the sum of 1 / (c + rank) over the lists that hold the item."""

    name: ClassVar[str] = "rrf"
    summary: ClassVar[str] = "reciprocal rank fusion: sum of 1 / (c + rank)"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 3.3; Cormack et al. 2009"
    positive: ClassVar[bool] = True

    c: float | Literal["auto"] = param(
        60.0, "the constant; auto chooses it by a metric on labelled data", choices=("auto",), least=0.0
    )

    @property
    def needs_labels(self) -> bool:
        return self.c == "auto" or super().needs_labels

    def candidates(self, n_experts: int) -> list[Params]:
        return [{"c": np.array(c)} for c in RRF_CANDIDATES] if self.c == "auto" else []

    def points(self, chunk: Chunk, params: Params) -> Floats:
        return reciprocals(chunk, float(params["c"] if self.c == "auto" else self.c))


@dataclass(frozen=True, kw_only=True)
class Isr(Points, Weighted):
    """Inverse square rank: the number of lists that hold the item times the sum of 1 / rank^2."""

    name: ClassVar[str] = "isr"
    summary: ClassVar[str] = "inverse square rank: lists that hold the item times the sum of 1 / rank^2"
    paper: ClassVar[str] = "Mourao et al. 2015"
    positive: ClassVar[bool] = True

    @property
    def counts_lists(self) -> bool:
        return True

    def points(self, chunk: Chunk, params: Params) -> Floats:
        return chunk.entry_rank**-2.0

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        return tally["sum"] * tally["held"]


@dataclass(frozen=True, kw_only=True)
class LogIsr(Isr):
    """Inverse square rank with the logarithm of the number of lists, so that each further list matters less.

    As published (sigma = 0) items of a single list all score 0; a small sigma orders them too (ranx's logn_isr).
    """

    name: ClassVar[str] = "log_isr"
    summary: ClassVar[str] = "inverse square rank: the logarithm of the number of lists times the sum of 1 / rank^2"

    sigma: float = param(0.0, "added to the number of lists before the logarithm", least=0.0)

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        return tally["sum"] * np.log(np.maximum(tally["held"] + self.sigma, 1.0))


@dataclass(frozen=True, kw_only=True)
class Rbc(Points, Weighted):
    """Rank-biased centroid: the sum of (1 - p) p^(rank - 1), the chance that a reader of the list stops at the item."""

    name: ClassVar[str] = "rbc"
    summary: ClassVar[str] = "rank-biased centroid: sum of (1 - p) p^(rank - 1)"
    paper: ClassVar[str] = "Bailey et al. 2017"
    positive: ClassVar[bool] = True

    p: float = param(0.9, "persistence, below 1: the chance that a reader goes on to the next item", above=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p >= 1.0:
            raise UsageError(f"parameter p of rbc: found {self.p}, expected a number between 0 and 1")

    def points(self, chunk: Chunk, params: Params) -> Floats:
        return (1.0 - self.p) * self.p ** (chunk.entry_rank - 1.0)


def some(count: Floats) -> Floats:
    """Counts to divide by: 1 in place of 0."""
    return np.where(count > 0, count, 1.0)


def worst_where(nowhere: Bools, score: Floats, chunk: Chunk) -> Floats:
    """Scores (I,), where items that no list holds score 1 less than the last item of their query."""
    sizes = np.diff(chunk.item_offsets)
    worst = np.full(chunk.n_queries, np.inf)
    np.minimum.at(worst, np.repeat(np.arange(chunk.n_queries), sizes), np.where(nowhere, np.inf, score))
    worst = np.where(np.isfinite(worst), worst, 1.0)  # a query that nobody ranks
    return np.where(nowhere, np.repeat(worst, sizes) - 1.0, score)


@dataclass(frozen=True, kw_only=True)
class Histogram(Tally):
    """Base of models that need all values that the lists give an item. They gather histograms, which add up."""

    def values(self, chunk: Chunk, params: Params) -> Floats:
        """The value of every entry, shape (E,)."""
        raise NotImplementedError

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        """How often each item has each value, as sorted (row, value) pairs with counts; and the number of lists."""
        rows = chunk.entry_row()
        lists = {"lists": np.diff(chunk.list_offsets).astype(float)}
        return _merged(rows, self.values(chunk, params), np.ones(len(rows))) | lists

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        both = (np.concatenate([a[key], b[key]]) for key in ("row", "value", "count"))
        return _merged(*both) | {"lists": a["lists"] + b["lists"]}


def middles(chunk: Chunk, tally: Statistics, *, of_all: bool) -> tuple[Floats, Floats]:
    """The median of each item's values (inf where it has none), and how many lists hold it, (I,) each.

    With ``of_all`` every list of the query counts, and one that leaves the item out gives it inf.
    """
    held = np.bincount(tally["row"], tally["count"], chunk.n_items).astype(float)
    count = np.repeat(tally["lists"], np.diff(chunk.item_offsets)) if of_all else held
    upto = np.cumsum(tally["count"])
    before = np.concatenate([[0.0], np.cumsum(held)[:-1]])
    median = np.full(chunk.n_items, np.inf)
    low, high = np.floor((count - 1) / 2), np.floor(count / 2)
    known = (held > 0) & (high < held)
    at = [np.searchsorted(upto, before[known] + place[known], side="right") for place in (low, high)]
    median[known] = 0.5 * (tally["value"][at[0]] + tally["value"][at[1]])
    return median, held


@dataclass(frozen=True, kw_only=True)
class Median(Histogram):
    """Median rank, smallest first. Items without a median come last, ordered by the number of lists that hold them."""

    name: ClassVar[str] = "median"
    summary: ClassVar[str] = "median rank"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Fagin et al. 2003"

    unlisted: str = param(
        "last",
        "items a list leaves out: last (they rank behind all) or ignore (median over the lists that hold the item)",
        choices=("last", "ignore"),
    )

    def values(self, chunk: Chunk, params: Params) -> Floats:
        return chunk.entry_rank

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        """Scores of a split query, from its histogram; whole queries use the kernel in ``score`` instead."""
        return last_by_support(chunk, *middles(chunk, tally, of_all=self.unlisted == "last"))

    def score(self, chunk: Chunk, params: Params) -> Floats:
        arrays = (chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.entry_item, chunk.entry_rank)
        return last_by_support(chunk, *median_ranks(*arrays, self.unlisted == "last"))


def _merged(row: np.ndarray, value: np.ndarray, count: np.ndarray) -> Statistics:
    order = np.lexsort((value, row))
    row, value, count = row[order], value[order], count[order]
    new = np.ones(len(row), dtype=bool)
    new[1:] = (row[1:] != row[:-1]) | (value[1:] != value[:-1])
    starts = np.flatnonzero(new)
    return {"row": row[starts], "value": value[starts], "count": np.add.reduceat(count, starts) if len(row) else count}


def last_by_support(chunk: Chunk, median: Floats, held: Floats) -> Floats:
    """Minus the median. Items without one rank last in their query, ordered by the number of lists that hold them."""
    finite = np.isfinite(median)
    queries = chunk.item_query()
    worst = np.zeros(chunk.n_queries)
    np.maximum.at(worst, queries[finite], median[finite])
    return -np.where(finite, median, worst[queries] + 1.0 + 1.0 / (1.0 + held))


@dataclass(frozen=True, kw_only=True)
class BestInput(Model):
    """The ranking of the expert that is best on labelled data, or of the best one that has a list for the query."""

    name: ClassVar[str] = "bestinput"
    summary: ClassVar[str] = "the single expert that is best on labelled data"
    paper: ClassVar[str] = "Niu et al. 2013, section 5.1"
    supervised: ClassVar[bool] = True
    unseen: ClassVar[float] = -np.inf  # behind every expert that is known

    def candidates(self, n_experts: int) -> list[Params]:
        if n_experts > MOST_CANDIDATES:
            raise UsageError(f"bestinput tries every expert; {n_experts:,} experts are more than {MOST_CANDIDATES:,}")
        return [{"expert_quality": np.eye(1, n_experts, expert)[0]} for expert in range(n_experts)]

    def chosen(self, candidates: list[Params], values: Floats) -> Params:
        """Every expert's quality: the metric of its lists alone."""
        return {"expert_quality": values}

    def score(self, chunk: Chunk, params: Params) -> Floats:
        score = np.zeros(chunk.n_items)
        quality = params["expert_quality"]
        for q in range(chunk.n_queries):
            lists = np.arange(chunk.list_offsets[q], chunk.list_offsets[q + 1])
            if not len(lists):
                continue
            best = lists[np.argmax(quality[chunk.list_expert[lists]])]
            span = slice(chunk.entry_offsets[best], chunk.entry_offsets[best + 1])
            ranks = chunk.entry_rank[span]
            behind = ranks[-1] + 1.0 if len(ranks) else 0.0
            score[chunk.item_offsets[q] : chunk.item_offsets[q + 1]] = -behind
            score[chunk.item_offsets[q] + chunk.entry_item[span]] = -ranks
        return score
