"""Models that look at the places of an item in the lists. Cost: one linear pass over entries.

Most add up points. rrf (Cormack et al. 2009), combsum and combmnz (Fox & Shaw 1994) are rows of ``Points`` that differ
in what an entry is worth. borda (Aslam & Montague 2001) and mean also give points to the items that a list leaves out.
median (Fagin et al. 2003) takes the middle rank, bestinput the best single expert (Niu et al. 2013, section 5.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Model, Params, Statistics, Tally, param, reciprocals, sum_entries
from distagg.models.lists import BEYOND, STEADY, borda_points, median_ranks, mid_positions
from distagg.models.pairs import left_out, rated
from distagg.models.weights import Weighted, entry_weight, list_weight, weighed
from distagg.types import Bools, Floats

MOST_CANDIDATES = 10_000  # experts that bestinput tries
RRF_CANDIDATES = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0, 150.0, 200.0)


@dataclass(frozen=True, kw_only=True)
class Borda(Tally, Weighted):
    """Points for every item that a list leaves behind; pairs give their winner a point each."""

    name: ClassVar[str] = "borda"
    summary: ClassVar[str] = "points for every item that a list leaves behind"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Aslam & Montague 2001"
    inputs: ClassVar[tuple[str, ...]] = ("lists", "pairs")

    unlisted: str = param(
        "zero",
        "what a list gives the items it leaves out: zero points; the average of the points left over; or "
        "ignore (mean points over the lists that hold the item)",
        choices=("zero", "average", "ignore"),
    )
    discount: bool = param(
        True,
        "points fall with log(5 + place), down to nothing at the place of the items left out, which suits short and "
        "deep lists; false, and for ratings and with other rules for items left out: the query's items less the place",
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
            weight = chunk.pair_weight
            if "expert_weight" in params:
                weight = weight * params["expert_weight"][chunk.pair_expert]
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
        "the mean of log(5 + rank), which suits short and deep lists; unlisted items are then as many ranks behind the "
        "list as it leaves out items, at most twice its length; false, and for ratings: the mean rank, unlisted items "
        "one rank behind the list",
    )

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        length, rank = np.diff(chunk.entry_offsets), chunk.entry_rank
        behind = np.zeros(chunk.n_lists)
        behind[length > 0] = rank[chunk.entry_offsets[1:][length > 0] - 1]
        if self.discount and not rated(chunk):
            behind += np.minimum(left_out("last", chunk), BEYOND * length)
            rank, behind = np.log(STEADY + rank), np.log(STEADY + behind)
        else:
            behind[length > 0] += 1.0
        queries = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
        weight = list_weight(chunk, params) if "expert_weight" in params else np.ones(chunk.n_lists)
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
            return _worst_where(tally["held"] == 0, -tally["ranks"] / _some(tally["held"]), chunk)
        sizes = np.diff(chunk.item_offsets)
        lists = np.repeat(_some(tally["lists"]), sizes)
        return -(tally["ranks"] + np.repeat(tally["all_behind"], sizes) - tally["behind"]) / lists


@dataclass(frozen=True, kw_only=True)
class Points(Tally, Weighted):
    """The sum of the points of an item's entries. A model is a row: it says what an entry is worth."""

    def points(self, chunk: Chunk, params: Params) -> Floats:
        """Points of every entry, shape (E,)."""
        raise NotImplementedError

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        return {"sum": sum_entries(chunk, weighed(self.points(chunk, params), entry_weight(chunk, params)))}


@dataclass(frozen=True, kw_only=True)
class Rrf(Points):
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
class CombSum(Points):
    """Sum of the experts' scores, each list brought to one scale first."""

    name: ClassVar[str] = "combsum"
    summary: ClassVar[str] = "sum of the experts' normalised scores"
    paper: ClassVar[str] = "Fox & Shaw 1994"

    norm: str = param(
        "auto",
        "how a list's scores are brought to one scale: rank (1 - (position - 1) / length, which needs no scores), "
        "minmax (from 0 to 1), sum (shifted to 0, divided by the sum) or zmuv (mean 0, variance 1); auto is minmax "
        "where every list has scores, else rank. Where experts gave no scores, minus the rank stands for them",
        choices=("auto", "rank", "minmax", "sum", "zmuv"),
    )
    unlisted: str = param(
        "least",
        "what a list gives the items it leaves out: least (the bottom of its scale: 0, with zmuv the list's least "
        "value; scores are counted from there), zero (0, which with zmuv is the list's mean) or ignore (the mean over "
        "the lists that hold the item)",
        choices=("least", "zero", "ignore"),
    )

    def points(self, chunk: Chunk, params: Params) -> Floats:
        value, bottom = self._normalised(chunk)
        return value - bottom if self.unlisted == "least" else value

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        held = weighed(np.ones(chunk.n_entries), entry_weight(chunk, params))
        return super().map(chunk, params) | {"held": sum_entries(chunk, held)}

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        if self.unlisted != "ignore":
            return super().settle(chunk, tally, params)
        return _worst_where(tally["held"] == 0, tally["sum"] / _some(tally["held"]), chunk)

    def _normalised(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """Each entry's value on the common scale, and the bottom of its list's scale, both of shape (E,)."""
        length = np.diff(chunk.entry_offsets)
        norm = ("minmax" if len(chunk.entry_score) else "rank") if self.norm == "auto" else self.norm
        bottom = np.zeros(chunk.n_entries)
        if norm == "rank":
            position = mid_positions(chunk.entry_offsets, chunk.entry_rank)
            return 1.0 - (position - 1.0) / np.repeat(length, length), bottom
        some = length > 0
        starts, size = chunk.entry_offsets[:-1][some], length[some]
        if not len(starts):
            return np.zeros(0), bottom

        def spread(per_list: np.ndarray) -> Floats:
            return np.repeat(per_list, size)

        value = chunk.entry_score if len(chunk.entry_score) else -chunk.entry_rank
        lifted = value - spread(np.minimum.reduceat(value, starts))
        reach = np.maximum.reduceat(lifted, starts)
        flat = spread(reach <= 0)  # one item, or all tied: they stand 1 above the items that the list leaves out
        unit = np.where(flat, 1.0, lifted / np.where(flat, 1.0, spread(reach)))
        if norm == "minmax":
            return unit, bottom
        total = spread(np.add.reduceat(unit, starts))
        if norm == "sum":
            return np.where(flat, 1.0, unit / total), bottom
        centred = unit - total / spread(size)
        deviation = np.sqrt(spread(np.add.reduceat(centred * centred, starts) / size))
        scaled = np.where(flat, 0.0, centred / np.where(flat, 1.0, deviation))
        return scaled, np.where(flat, -1.0, spread(np.minimum.reduceat(scaled, starts)))


@dataclass(frozen=True, kw_only=True)
class CombMnz(CombSum):
    """CombSUM times the number of lists that hold the item."""

    name: ClassVar[str] = "combmnz"
    summary: ClassVar[str] = "combsum times the number of lists that hold the item"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm == "zmuv" and self.unlisted == "zero":
            raise UsageError(
                "combmnz with norm=zmuv and unlisted=zero would multiply values below 0 by the number of lists, which "
                "puts items of many lists last; choose unlisted=least, or combsum"
            )

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        if self.unlisted == "ignore":
            return _worst_where(tally["held"] == 0, tally["sum"], chunk)  # the mean times the number of lists
        return tally["sum"] * tally["held"]


def _some(count: Floats) -> Floats:
    """Counts to divide by: 1 where there is nothing."""
    return np.where(count > 0, count, 1.0)


def _worst_where(nowhere: Bools, score: Floats, chunk: Chunk) -> Floats:
    """Scores (I,), with the items that no list holds 1 behind the last of their query."""
    sizes = np.diff(chunk.item_offsets)
    worst = np.full(chunk.n_queries, np.inf)
    np.minimum.at(worst, np.repeat(np.arange(chunk.n_queries), sizes), np.where(nowhere, np.inf, score))
    worst = np.where(np.isfinite(worst), worst, 1.0)  # a query that nobody ranks
    return np.where(nowhere, np.repeat(worst, sizes) - 1.0, score)


@dataclass(frozen=True, kw_only=True)
class Median(Tally):
    """Median rank, smallest first; items without one come last, those in more lists first."""

    name: ClassVar[str] = "median"
    summary: ClassVar[str] = "median rank"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Fagin et al. 2003"

    unlisted: str = param(
        "last",
        "items a list leaves out: last (they stand behind all) or ignore (median over the lists that hold the item)",
        choices=("last", "ignore"),
    )

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        """How often each item has each rank: sorted (row, rank) pairs with counts, and the number of lists."""
        rows, ranks = chunk.entry_row(), chunk.entry_rank
        return _merged(rows, ranks, np.ones(len(rows))) | {"lists": np.diff(chunk.list_offsets).astype(float)}

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        both = (np.concatenate([a[key], b[key]]) for key in ("row", "rank", "count"))
        return _merged(*both) | {"lists": a["lists"] + b["lists"]}

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        """From the histogram; whole queries take the kernel instead."""
        held = np.bincount(tally["row"], tally["count"], chunk.n_items).astype(float)
        lists = np.repeat(tally["lists"], np.diff(chunk.item_offsets))
        count = lists if self.unlisted == "last" else held
        upto = np.cumsum(tally["count"])
        before = np.concatenate([[0.0], np.cumsum(held)[:-1]])
        median = np.full(chunk.n_items, np.inf)
        low, high = np.floor((count - 1) / 2), np.floor(count / 2)
        some = (held > 0) & (high < held)
        at = [np.searchsorted(upto, before[some] + place[some], side="right") for place in (low, high)]
        median[some] = 0.5 * (tally["rank"][at[0]] + tally["rank"][at[1]])
        return _last_by_support(chunk, median, held)

    def score(self, chunk: Chunk, params: Params) -> Floats:
        if "tallied" in params:
            return super().score(chunk, params)
        arrays = (chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.entry_item, chunk.entry_rank)
        return _last_by_support(chunk, *median_ranks(*arrays, self.unlisted == "last"))


def _merged(row: np.ndarray, rank: np.ndarray, count: np.ndarray) -> Statistics:
    order = np.lexsort((rank, row))
    row, rank, count = row[order], rank[order], count[order]
    new = np.ones(len(row), dtype=bool)
    new[1:] = (row[1:] != row[:-1]) | (rank[1:] != rank[:-1])
    starts = np.flatnonzero(new)
    return {"row": row[starts], "rank": rank[starts], "count": np.add.reduceat(count, starts) if len(row) else count}


def _last_by_support(chunk: Chunk, median: Floats, held: Floats) -> Floats:
    """Minus the median; items without one stand behind all others of their query, by the lists that hold them."""
    finite = np.isfinite(median)
    queries = chunk.item_query()
    worst = np.zeros(chunk.n_queries)
    np.maximum.at(worst, queries[finite], median[finite])
    return -np.where(finite, median, worst[queries] + 1.0 + 1.0 / (1.0 + held))


@dataclass(frozen=True, kw_only=True)
class BestInput(Model):
    """The expert that did best on labelled data; in queries where it has no list, the best one that has."""

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
