"""Rules that learn from labels what a place in an expert's lists is worth. Cost: one linear pass over entries.

The models count how often an expert's lists hold a relevant item at a place, or in a segment of places. Counts add up
over lists, so learning is one round of map and reduce. probfuse (Lillis et al. 2006) divides each list into segments;
segfuse (Shokouhi 2007) and bayesfuse (Aslam & Montague 2001) cut lists at fixed places. posfuse and mapfuse (Lillis et
al. 2010) use single places and the mean average precision; slidefuse (Lillis et al. 2008) averages neighbouring places.

A label of 1 or more is relevant. Unjudged items are not (``unjudged=zero``), or do not count (``unjudged=ignore``;
probFuseJudged in Lillis et al. 2006). The lists of labelled queries count; an expert without a list in a query loses
nothing by it (ranx divides by all queries). Tied entries share their places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import param
from distagg.models.positional.model import Points, some
from distagg.models.positional.scores import Scored
from distagg.models.rounds import Params, Stage, Statistics
from distagg.models.unjudged import labelled_queries, unjudged_param
from distagg.types import NO_LABEL, Bools, Floats, Offsets

LEARNED = "expert_worth"


@dataclass(frozen=True, slots=True)
class Judged:
    """The entries of a chunk's lists in labelled queries, E in all."""

    list: Offsets  # (E,)
    expert: Offsets  # (E,)
    place: Offsets  # (E,) in the list, from 0
    length: Offsets  # (E,) of the list
    hit: Floats  # (E,) whether the item is relevant; tied entries share their hits
    counts: Floats  # (E,) whether the item counts; tied entries share that too
    lists: Floats  # (experts,) lists of each expert

    def share(self, segment: Offsets, weight: Floats) -> Floats:
        """The weights of hits (E,), raised so that the entries that count stand for all of their list's segment."""
        width = int(segment.max(initial=-1)) + 2  # -1, no segment, is the last one
        at = self.list * width + segment % width
        counted = np.bincount(at, weight * self.counts).astype(np.float64)
        return weight * (np.bincount(at, weight) / some(counted))[at]


@dataclass(frozen=True, kw_only=True)
class Placed(Points):
    """Base: ``tallies`` sums over lists, ``worth`` makes the array by expert from the sums, ``points`` looks it up."""

    supervised: ClassVar[bool] = True

    unjudged: str = unjudged_param("zero", most=0)

    def learning(self, n_experts: int, params: Params) -> Stage:
        return WorthRound(self, params)

    def tallies(self, chunk: Chunk) -> Statistics:
        """``hits`` (experts, segments), weighted as the model asks for, and ``lists`` (experts,)."""
        judged = entries_judged(chunk, self.unjudged)
        segment, share = self.segments(judged.place, judged.length)
        known = segment >= 0
        width = int(segment.max(initial=-1)) + 1
        if self.unjudged == "ignore":
            share = judged.share(segment, share)
        at = judged.expert[known] * width + segment[known]
        hits = np.bincount(at, (judged.hit * share)[known], chunk.n_experts * width)
        return {"hits": hits.reshape(chunk.n_experts, width), "lists": judged.lists}

    def segments(self, place: Offsets, length: Offsets) -> tuple[Offsets, Floats]:
        """The segment of each entry (-1 for none), and the weight of a hit in it, (E,) each."""
        raise NotImplementedError

    def worth(self, sums: Statistics) -> Floats:
        """What the model learns about each expert."""
        return sums["hits"] / some(sums["lists"])[:, None]

    def points(self, chunk: Chunk, params: Params) -> Floats:
        place, length = places(chunk)
        segment, _ = self.segments(place, length)
        return tied_means(chunk, _looked_up(params[LEARNED], entry_experts(chunk), segment))


@dataclass(frozen=True, slots=True, eq=False)
class WorthRound(Stage):
    """The one round that learns what places are worth."""

    repeated: ClassVar[bool] = False

    model: Placed
    params: Params

    def map(self, chunk: Chunk) -> Statistics:
        return self.model.tallies(chunk)

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        return {key: _added(a[key], b[key]) for key in a}

    def finish(self, statistics: Statistics) -> Params:
        return {**self.params, LEARNED: self.model.worth(statistics)}


@dataclass(frozen=True, kw_only=True)
class ProbFuse(Placed):
    """The chance of a relevant item in the list's segment, divided by the number of the segment."""

    name: ClassVar[str] = "probfuse"
    summary: ClassVar[str] = "chance of a relevant item in equal segments of a list, over the segment's number"
    paper: ClassVar[str] = "Lillis et al. 2006"

    segments_per_list: int = param(25, "segments into which each list is divided", least=1)

    def segments(self, place: Offsets, length: Offsets) -> tuple[Offsets, Floats]:
        size = -(-length // self.segments_per_list)
        segment = place // np.maximum(size, 1)
        return segment, 1.0 / np.maximum(np.minimum(size, length - segment * size), 1)

    def worth(self, sums: Statistics) -> Floats:
        worth = super().worth(sums)
        return worth / np.arange(1.0, worth.shape[1] + 1)


@dataclass(frozen=True, kw_only=True)
class SegFuse(Scored, Placed):
    """The chance of a relevant item in the segment, times 1 plus the normalised score; segments double in size."""

    name: ClassVar[str] = "segfuse"
    summary: ClassVar[str] = "chance of a relevant item in growing segments of a list, times 1 + the normalised score"
    paper: ClassVar[str] = "Shokouhi 2007"
    cuts: ClassVar[tuple[int, ...]] = (0, *(10 * 2**k - 5 for k in range(10)))  # 5, 15, 35, ... 5115

    def segments(self, place: Offsets, length: Offsets) -> tuple[Offsets, Floats]:
        return _segments_at(self.cuts, place)

    def points(self, chunk: Chunk, params: Params) -> Floats:
        return super().points(chunk, params) * (1.0 + self.normalised(chunk, params)[0])


@dataclass(frozen=True, kw_only=True)
class BayesFuse(Placed):
    """The log odds that an item at such a place is relevant, summed as if the experts were independent.

    A list that leaves an item out gives it the odds of 1 to 999; scores are counted from there.
    """

    name: ClassVar[str] = "bayesfuse"
    summary: ClassVar[str] = "sum of the log odds that an item at such a place is relevant"
    paper: ClassVar[str] = "Aslam & Montague 2001"
    cuts: ClassVar[tuple[int, ...]] = (0, 5, 10, 15, 20, 30, 100, 200, 500, 1000)
    least: ClassVar[float] = 0.001  # the chance where there is none

    def segments(self, place: Offsets, length: Offsets) -> tuple[Offsets, Floats]:
        return _segments_at(self.cuts, place)

    def worth(self, sums: Statistics) -> Floats:
        chance = super().worth(sums)
        chance = np.where(chance == 0, self.least, chance)
        against = np.where(chance >= 1, self.least, 1.0 - chance)
        odds = np.log(chance / against) - np.log(self.least / (1.0 - self.least))
        return np.where(sums["lists"][:, None] > 0, odds, 0.0)


@dataclass(frozen=True, kw_only=True)
class PosFuse(Placed):
    """The chance of a relevant item at the place; places beyond those of the training lists give nothing."""

    name: ClassVar[str] = "posfuse"
    summary: ClassVar[str] = "chance of a relevant item at each place of a list"
    paper: ClassVar[str] = "Lillis et al. 2010"

    def segments(self, place: Offsets, length: Offsets) -> tuple[Offsets, Floats]:
        return place, np.ones(len(place))

    def tallies(self, chunk: Chunk) -> Statistics:
        judged, sums = entries_judged(chunk, self.unjudged), super().tallies(chunk)
        width = sums["hits"].shape[1]
        reached = np.bincount(judged.expert * width + judged.place, judged.counts > 0, chunk.n_experts * width)
        return {**sums, "reached": reached.reshape(chunk.n_experts, width)}

    def worth(self, sums: Statistics) -> Floats:
        return sums["hits"] / some(sums["reached"])


@dataclass(frozen=True, kw_only=True)
class SlideFuse(PosFuse):
    """The chance of a relevant item, averaged over an item's place and its neighbours within the list."""

    name: ClassVar[str] = "slidefuse"
    summary: ClassVar[str] = "chance of a relevant item around each place of a list"
    paper: ClassVar[str] = "Lillis et al. 2008"

    window: int = param(5, "number of places before and after an item's own place that are averaged with it", least=0)

    def points(self, chunk: Chunk, params: Params) -> Floats:
        place, length = places(chunk)
        worth = params[LEARNED]
        upto = np.concatenate([np.zeros((len(worth), 1)), np.cumsum(worth, axis=1)], axis=1)
        first, last = np.maximum(place - self.window, 0), np.minimum(place + self.window, length - 1) + 1
        expert, width = entry_experts(chunk), worth.shape[1]
        total = upto[expert, np.minimum(last, width)] - upto[expert, np.minimum(first, width)]
        return tied_means(chunk, total / (last - first))


@dataclass(frozen=True, kw_only=True)
class MapFuse(Placed):
    """The expert's mean average precision, divided by the rank."""

    name: ClassVar[str] = "mapfuse"
    summary: ClassVar[str] = "the expert's mean average precision over the rank"
    paper: ClassVar[str] = "Lillis et al. 2010"
    positive: ClassVar[bool] = True

    def tallies(self, chunk: Chunk) -> Statistics:
        hit, counts, length = _hits(chunk), _counts(chunk, self.unjudged), np.diff(chunk.entry_offsets)
        precision = hit * _running(chunk, hit) / some(_running(chunk, counts))
        query = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
        relevant = _count(chunk.item_query(), chunk.labels >= 1, chunk.n_queries)
        missed = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.missed_offsets))
        relevant = relevant + _count(missed, chunk.missed_labels >= 1, chunk.n_queries)
        of_list = np.bincount(np.repeat(np.arange(chunk.n_lists), length), precision, chunk.n_lists)
        counted = labelled_queries(chunk)[query]
        average = np.where(counted, of_list / some(relevant)[query], 0.0)
        return {
            "hits": np.bincount(chunk.list_expert, average, chunk.n_experts),
            "lists": _count(chunk.list_expert, counted, chunk.n_experts),
        }

    def worth(self, sums: Statistics) -> Floats:
        return sums["hits"] / some(sums["lists"])

    def points(self, chunk: Chunk, params: Params) -> Floats:
        return params[LEARNED][entry_experts(chunk)] / chunk.entry_rank


def entry_experts(chunk: Chunk) -> Offsets:
    """The expert of every entry, (E,)."""
    return np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets)).astype(np.int64)


def places(chunk: Chunk) -> tuple[Offsets, Offsets]:
    """The place of every entry in its list, from 0, and the list's length, (E,) each."""
    length = np.diff(chunk.entry_offsets)
    return np.arange(chunk.n_entries) - np.repeat(chunk.entry_offsets[:-1], length), np.repeat(length, length)


def tied_means(chunk: Chunk, values: Floats) -> Floats:
    """Values of entries (E,); tied entries share the mean of theirs."""
    new = np.ones(chunk.n_entries, dtype=bool)
    new[1:] = chunk.entry_rank[1:] != chunk.entry_rank[:-1]
    new[chunk.entry_offsets[:-1][np.diff(chunk.entry_offsets) > 0]] = True
    if new.all():
        return values
    group = np.cumsum(new) - 1
    return (np.bincount(group, values) / np.bincount(group))[group]


def entries_judged(chunk: Chunk, unjudged: str) -> Judged:
    """The entries in the lists of labelled queries, with their places and whether their items are relevant."""
    counted = labelled_queries(chunk)[np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))]
    kept = np.repeat(counted, np.diff(chunk.entry_offsets))
    place, length = places(chunk)
    a_list = np.repeat(np.arange(chunk.n_lists), np.diff(chunk.entry_offsets))
    return Judged(
        a_list[kept],
        entry_experts(chunk)[kept],
        place[kept],
        length[kept],
        _hits(chunk)[kept],
        _counts(chunk, unjudged)[kept],
        _count(chunk.list_expert, counted, chunk.n_experts),
    )


def _count(at: np.ndarray, true: Bools, size: int) -> Floats:
    return np.bincount(at, true.astype(np.float64), size).astype(np.float64)


def _hits(chunk: Chunk) -> Floats:
    return tied_means(chunk, (chunk.labels[chunk.entry_row()] >= 1).astype(float))


def _counts(chunk: Chunk, unjudged: str) -> Floats:
    if unjudged == "zero":
        return np.ones(chunk.n_entries)
    return tied_means(chunk, (chunk.labels[chunk.entry_row()] != NO_LABEL).astype(float))


def _running(chunk: Chunk, values: Floats) -> Floats:
    """Sums of the values (E,) of a list down to each entry."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    return total[1:] - total[np.repeat(chunk.entry_offsets[:-1], np.diff(chunk.entry_offsets))]


def _segments_at(cuts: tuple[int, ...], place: Offsets) -> tuple[Offsets, Floats]:
    """Segments between fixed cuts. A hit counts 1 / (size of the segment), and nothing behind the last cut."""
    segment = np.searchsorted(cuts, place, side="right") - 1
    inside = segment < len(cuts) - 1
    segment = np.where(inside, segment, -1)
    return segment, 1.0 / np.diff(cuts)[segment]


def _looked_up(worth: Floats, expert: Offsets, segment: Offsets) -> Floats:
    known = (segment >= 0) & (segment < worth.shape[1])
    if not worth.shape[1]:
        return np.zeros(len(segment))
    return np.where(known, worth[expert, np.where(known, segment, 0)], 0.0)


def _added(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum of two arrays; the one with fewer columns is padded with zeros."""
    if a.shape == b.shape:
        return a + b
    total = np.zeros((len(a), max(a.shape[1], b.shape[1])))
    total[:, : a.shape[1]] += a
    total[:, : b.shape[1]] += b
    return total
