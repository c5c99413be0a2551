"""Rules on the experts' scores, each list brought to one scale first. Cost: one linear pass over entries.

combsum, combmnz, combanz, combmax, combmin and combmed are Fox & Shaw's (1994), combgmnz is Lee's (1997). A list's
scale is set by ``norm`` from the list's scores alone, or by given bounds. If experts gave no scores, places count:
discounted ones (``lists.discounted_places``) in sums, even ones in means and extremes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Params, Statistics, Tally, param
from distagg.models.lists import STEADY, discounted_places, mid_positions
from distagg.models.pairs import left_out, rated
from distagg.models.positional.model import Histogram, Points, middles, some, worst_where
from distagg.models.weights import Named, Weighted
from distagg.types import Bools, Floats, Offsets

BOUNDS = Named("bounds", ("low", "high"), "bm25:0:40,dense:-1:1")
NO_BOUNDS = 1.0  # low and high of an expert without bounds, such as an unseen one


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of the lists of a chunk that are not empty: L lists with E entries in all."""

    value: Floats  # (E,)
    starts: Offsets  # (L,) first entry
    size: Offsets  # (L,) entries
    items: Offsets  # (L,) items of the list's query

    def spread(self, per_list: np.ndarray) -> np.ndarray:
        """A value of each list, for each of its entries."""
        return np.repeat(per_list, self.size)

    def of_lists(self, reduce: np.ufunc, values: Floats) -> Floats:
        """The values of each list reduced to one (such as its minimum), repeated for each entry of the list."""
        return self.spread(reduce.reduceat(values, self.starts))

    def unit(self) -> tuple[Floats, Bools]:
        """Scores from 0 to 1, and whether each list is flat (one item, or all tied); items of a flat list get 1."""
        lifted = self.value - self.of_lists(np.minimum, self.value)
        reach = self.of_lists(np.maximum, lifted)
        flat = reach <= 0
        return np.where(flat, 1.0, lifted / np.where(flat, 1.0, reach)), flat


Scaled = tuple[Floats, Floats]  # each entry's value, and the bottom of its list's scale, (E,) each


def _minmax(scores: Scores) -> Scaled:
    return scores.unit()[0], np.zeros(len(scores.value))


def _sum(scores: Scores) -> Scaled:
    unit, flat = scores.unit()
    return np.where(flat, 1.0, unit / scores.of_lists(np.add, unit)), np.zeros(len(unit))


def _zmuv(scores: Scores) -> Scaled:
    unit, flat = scores.unit()
    centred = unit - scores.of_lists(np.add, unit) / scores.spread(scores.size)
    deviation = np.sqrt(scores.spread(np.add.reduceat(centred * centred, scores.starts) / scores.size))
    scaled = np.where(flat, 0.0, centred / np.where(flat, 1.0, deviation))
    return scaled, np.where(flat, -1.0, scores.of_lists(np.minimum, scaled))


def _dbsf(scores: Scores) -> Scaled:
    unit, flat = scores.unit()
    centred = unit - scores.of_lists(np.add, unit) / scores.spread(scores.size)
    freedom = np.maximum(scores.size - 1, 1)
    deviation = np.sqrt(scores.spread(np.add.reduceat(centred * centred, scores.starts) / freedom))
    return 0.5 + np.where(flat, 0.0, centred / np.where(flat, 1.0, 6.0 * deviation)), np.zeros(len(unit))


def _divided(scores: Scores, length: Floats) -> Scaled:
    value = np.where(length > 0, scores.value / some(length), 1.0)
    return value, np.minimum(scores.of_lists(np.minimum, value), 0.0)


def _max(scores: Scores) -> Scaled:
    return _divided(scores, scores.of_lists(np.maximum, np.abs(scores.value)))


def _l2(scores: Scores) -> Scaled:
    return _divided(scores, np.sqrt(scores.of_lists(np.add, scores.value * scores.value)))


NORMS: dict[str, Callable[[Scores], Scaled]] = {
    "minmax": _minmax,
    "max": _max,
    "sum": _sum,
    "l2": _l2,
    "zmuv": _zmuv,
    "dbsf": _dbsf,
}


@dataclass(frozen=True, kw_only=True)
class Scored(Tally):
    """Base of rules on scores: the norm."""

    places: ClassVar[str] = "rank"  # the norm of lists without scores by default

    norm: str = param(
        "auto",
        "how a list's scores are brought to one scale: discount (falls with log(5 + place), from 1 at the first place "
        "to 0 at the place of the unlisted items; needs no scores), rank (1 - (position - 1) / length; needs none "
        "either), borda (1 - (position - 1) / items of the query; items left out share the rest), minmax (from 0 to "
        "1), max (divided by the largest), sum (shifted to 0, divided by the sum), l2 (divided by the root of the sum "
        "of squares), zmuv (mean 0, variance 1) or dbsf (from the mean less 3 deviations to the mean plus 3, as "
        "in Qdrant's distribution-based score fusion); auto is minmax where every list has scores, else discount ("
        "combsum, combmnz and combgmnz) or rank (the others; ratings). Elsewhere minus the rank is the score of lists "
        "without scores",
        choices=("auto", "rank", "borda", *NORMS, "discount"),
    )
    bounds: str = param(
        "",
        "with norm=minmax, scores that count as 0 and as 1 for some experts, instead of each list's least and largest: "
        "name:low:high,...; scores outside count as the nearer bound",
        text=True,
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", BOUNDS.text(self.name, self.bounds))
        super().__post_init__()
        if not self.bounds:
            return
        if self.norm not in ("auto", "minmax"):
            raise UsageError(f"parameter bounds of {self.name}: bounds need norm=minmax, found norm={self.norm}")
        for name, (low, high) in BOUNDS.numbers(self.bounds).items():
            if not low < high:
                raise UsageError(
                    f"parameter bounds of {self.name}: found {low:g}:{high:g} for expert {name!r}, expected low:high "
                    "with low below high"
                )

    def resolved(self, experts: tuple[str, ...]) -> Params:
        params = super().resolved(experts)
        if self.bounds:
            params = {**params, "expert_bounds": BOUNDS.by_expert(self.bounds, experts, NO_BOUNDS)}
            params["shared_bounds"] = np.full(2, NO_BOUNDS)
        return params

    def normalised(self, chunk: Chunk, params: Params) -> Scaled:
        """Each entry's value on the common scale, and the bottom of its list's scale."""
        length, norm = np.diff(chunk.entry_offsets), self.norm
        if norm == "auto":
            norm = "minmax" if len(chunk.entry_score) else "rank" if rated(chunk) else self.places
        if self.bounds:
            return self._bounded(chunk, params)
        if norm == "discount":
            return discounted(chunk), np.zeros(chunk.n_entries)
        if norm == "rank":
            position = mid_positions(chunk.entry_offsets, chunk.entry_rank)
            return 1.0 - (position - 1.0) / np.repeat(length, length), np.zeros(chunk.n_entries)
        scores = scores_of(chunk)
        if norm == "borda":
            position, items = mid_positions(chunk.entry_offsets, chunk.entry_rank), scores.items
            rest = (items - scores.size + 1.0) / (2.0 * items)  # the mean of what the list has left over
            return 1.0 - (position - 1.0) / scores.spread(items), scores.spread(rest)
        if not len(scores.starts):
            return np.zeros(0), np.zeros(0)
        return NORMS[norm](scores)

    def _bounded(self, chunk: Chunk, params: Params) -> Scaled:
        if chunk.n_entries and not len(chunk.entry_score):
            raise UsageError(
                f"parameter bounds of {self.name} needs scores, but some lists have none; import them with their "
                "scores, or omit bounds"
            )
        if not chunk.n_entries:
            return np.zeros(0), np.zeros(0)
        value, bottom = _minmax(scores_of(chunk))
        low, high = _entry_bounds(chunk, params)
        given = low < high
        inside = np.clip((chunk.entry_score - low) / np.where(given, high - low, 1.0), 0.0, 1.0)
        return np.where(given, inside, value), bottom

    def outside(self, chunk: Chunk, params: Params) -> Floats:  # (experts, 2)
        """For every expert, the number of its scores outside its bounds, and the number of all its scores."""
        if not len(chunk.entry_score):
            return np.zeros((chunk.n_experts, 2))
        low, high = _entry_bounds(chunk, params)
        expert = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
        out = (low < high) & ((chunk.entry_score < low) | (chunk.entry_score > high))
        return np.stack([np.bincount(expert, part, chunk.n_experts) for part in (out, np.ones(len(out)))], axis=1)


def discounted(chunk: Chunk) -> Floats:  # (E,)
    """Discounted places on a scale from 1, the first place of a list, to 0, the place of the items it leaves out."""
    place, outside = discounted_places(chunk.entry_offsets, chunk.entry_rank, left_out("last", chunk))
    length, first = np.diff(chunk.entry_offsets), np.log(STEADY + 1.0)
    reach = outside - first  # 0 for the only item of a query
    return (np.repeat(outside, length) - place) / np.repeat(np.where(reach > 0, reach, 1.0), length)


def scores_of(chunk: Chunk) -> Scores:
    """The scores of a chunk's lists; minus the ranks where experts gave none."""
    length = np.diff(chunk.entry_offsets)
    there = length > 0
    items = np.repeat(np.diff(chunk.item_offsets), np.diff(chunk.list_offsets))
    value = chunk.entry_score if len(chunk.entry_score) else -chunk.entry_rank
    return Scores(value, chunk.entry_offsets[:-1][there], length[there], items[there])


def _entry_bounds(chunk: Chunk, params: Params) -> tuple[Floats, Floats]:
    """The bounds of every entry's expert, (E,) each; if low is not below high, the expert has no bounds."""
    rows = np.repeat(params["expert_bounds"][chunk.list_expert], np.diff(chunk.entry_offsets), axis=0)
    return rows[:, 0], rows[:, 1]


@dataclass(frozen=True, kw_only=True)
class CombSum(Scored, Points, Weighted):
    """Sum of the experts' scores, each list brought to one scale first.

    A list of one item, or of tied items only, gives them 1 under minmax and sum, so that they stand above the items
    that it leaves out; ranx gives them 0. Under max and l2 a list of zeros likewise gives 1, and scores below 0 are
    divided by the largest absolute value. dbsf gives the items of such lists 0.5 and clips no score, as Qdrant does.
    """

    name: ClassVar[str] = "combsum"
    summary: ClassVar[str] = "sum of the experts' normalised scores"
    paper: ClassVar[str] = "Fox & Shaw 1994"
    places: ClassVar[str] = "discount"  # a sum of even places counts the items of a deep list nearly the same

    unlisted: str = param(
        "least",
        "score of a list for the items it leaves out: least (the bottom of its scale, where scores begin: 0; with zmuv "
        "the list's least value; with borda the mean of the points that remain), zero (0, which with zmuv "
        "is the list's mean) or ignore (the mean over the lists that hold the item)",
        choices=("least", "zero", "ignore"),
    )

    @property
    def counts_lists(self) -> bool:
        return self.unlisted == "ignore"

    def points(self, chunk: Chunk, params: Params) -> Floats:
        value, bottom = self.normalised(chunk, params)
        return value - bottom if self.unlisted == "least" else value

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        if self.unlisted != "ignore":
            return super().settle(chunk, tally, params)
        return worst_where(tally["held"] == 0, tally["sum"] / some(tally["held"]), chunk)


@dataclass(frozen=True, kw_only=True)
class CombMnz(CombSum):
    """CombSUM times the number of lists that hold the item, by weight.

    ranx's wmnz multiplies the sum of unweighted scores by the sum of weights; here weights multiply both, so that a
    weight of 2 counts as two experts.
    """

    name: ClassVar[str] = "combmnz"
    summary: ClassVar[str] = "combsum times the number of lists that hold the item"

    @property
    def counts_lists(self) -> bool:
        return True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm == "zmuv" and self.unlisted == "zero":
            raise UsageError(
                f"{self.name} with norm=zmuv and unlisted=zero would multiply values below 0 by the number of lists, "
                "which puts items of many lists last; choose unlisted=least, or combsum"
            )

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        if self.unlisted == "ignore":
            return worst_where(tally["held"] == 0, tally["sum"], chunk)  # the mean times the number of lists
        return tally["sum"] * tally["held"]


@dataclass(frozen=True, kw_only=True)
class CombGmnz(CombMnz):
    """CombSUM times a power of the number of lists that hold the item: 0 is combsum, 1 combmnz."""

    name: ClassVar[str] = "combgmnz"
    summary: ClassVar[str] = "combsum times a power of the number of lists that hold the item"
    paper: ClassVar[str] = "Lee 1997"

    gamma: float = param(2.0, "the power of the number of lists", least=0.0)

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        if self.unlisted == "ignore":
            mean = tally["sum"] / some(tally["held"])
            return worst_where(tally["held"] == 0, mean * tally["held"] ** self.gamma, chunk)
        return tally["sum"] * tally["held"] ** self.gamma


@dataclass(frozen=True, kw_only=True)
class CombAnz(Scored, Points, Weighted):
    """Mean of the experts' scores over the lists that hold the item; items in no list come last."""

    name: ClassVar[str] = "combanz"
    summary: ClassVar[str] = "mean of the normalised scores over the lists that hold the item"
    paper: ClassVar[str] = "Fox & Shaw 1994"

    @property
    def counts_lists(self) -> bool:
        return True

    def points(self, chunk: Chunk, params: Params) -> Floats:
        return self.normalised(chunk, params)[0]

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        return worst_where(tally["held"] == 0, tally["sum"] / some(tally["held"]), chunk)


@dataclass(frozen=True, kw_only=True)
class CombMax(Scored):
    """The best of the experts' scores for the item; items in no list come last. Weights do not apply to a maximum."""

    name: ClassVar[str] = "combmax"
    summary: ClassVar[str] = "the largest of the normalised scores"
    paper: ClassVar[str] = "Fox & Shaw 1994"
    sign: ClassVar[float] = 1.0

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        best = np.full(chunk.n_items, -np.inf)
        np.maximum.at(best, chunk.entry_row(), self.sign * self.normalised(chunk, params)[0])
        return {"best": best}

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        return {"best": np.maximum(a["best"], b["best"])}

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        nowhere = np.isneginf(tally["best"])
        return worst_where(nowhere, self.sign * np.where(nowhere, 0.0, tally["best"]), chunk)


@dataclass(frozen=True, kw_only=True)
class CombMin(CombMax):
    """The worst of the experts' scores for the item, over the lists that hold it; items in no list come last."""

    name: ClassVar[str] = "combmin"
    summary: ClassVar[str] = "the least of the normalised scores, over the lists that hold the item"
    sign: ClassVar[float] = -1.0


@dataclass(frozen=True, kw_only=True)
class CombMed(Scored, Histogram):
    """The median of the experts' scores for the item, over the lists that hold it; items in no list come last."""

    name: ClassVar[str] = "combmed"
    summary: ClassVar[str] = "the median of the normalised scores, over the lists that hold the item"
    paper: ClassVar[str] = "Fox & Shaw 1994"
    cost: ClassVar[str] = "entries log entries"

    def values(self, chunk: Chunk, params: Params) -> Floats:
        return self.normalised(chunk, params)[0]

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        median, held = middles(chunk, tally, of_all=False)
        return worst_where(held == 0, np.where(held > 0, median, 0.0), chunk)
