"""bradley_terry (and thurstone) on a split query, whose lists are spread over chunks.

There are two routes to the same scores:

- ``counts``: every chunk counts its pairs, and the counts of all chunks are added up. Each round adds up one block of
  items; a pair belongs to the block of its item with the lower number. The fit then runs on all counts in one process.
  Adding up needs memory for one block, the fit for all distinct pairs.
- ``lists``: every round computes one gradient straight from the lists. Memory grows with items, time with
  pairs x rounds.

A first round measures what both would cost.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.intervals import centred
from distagg.models.lists import BINARY, LOG, NORMALISED
from distagg.models.outcome import ISOLATED, OK, UNBEATEN, WINLESS, Outcome
from distagg.models.pairs import list_sums, pair_ranks, unlisted_last
from distagg.models.pairwise.counts import PAIR_BYTES, PAIRS_BYTES, merged, share_of_evidence
from distagg.models.pairwise.kernels import CHANGES, SETTLED, ComparedLists, list_slopes
from distagg.models.pairwise.links import LOGIT
from distagg.models.rounds import Gathered, Params, Stage, Statistics
from distagg.optimise.components import connected_by, overlaid
from distagg.optimise.convergence import Ended
from distagg.optimise.lbfgs import Ascent
from distagg.types import INDEX, Floats, Indices

if TYPE_CHECKING:
    from distagg.models.pairwise.counted import Counted
    from distagg.models.pairwise.solver import Pairwise

log = logging.getLogger("distagg")

COUNT_SECONDS = 1e-7  # to count a pair of a list
MERGE_SECONDS = 4e-7  # to merge and fit a distinct pair
SLOPE_SECONDS = 5e-9  # of a round, for each pair of a list
ROUND_SECONDS = 0.01  # beside the pairs
ROUNDS = 40
MERGED_BYTES = 1 << 30  # of the counts of all chunks
SOUGHT = 1e-2  # tolerance of scores while the weight of the prior is sought
BLOCK_BYTES = 1 << 28  # of the counts that are merged in one round
DIGITS = 9  # decimals of a score
PAIRS = ("pair_winner", "pair_loser", "pair_weight")
TOTALS = ("ties", "independent")


@dataclass(frozen=True, slots=True, eq=False)
class Measure(Stage):
    """The first round: the number of pairs, in all and in the largest chunk, and of pairs that only counts can take."""

    model: Counted
    params: Params

    def map(self, chunk: Chunk) -> Statistics:
        listed = np.diff(chunk.entry_offsets)
        left_out = listed * (chunk.n_items - listed) if unlisted_last(self.model.unlisted, chunk) else 0 * listed
        total = int((listed * (listed - 1) // 2 + left_out).sum()) + chunk.n_pairs
        raw = int(left_out.sum()) + chunk.n_pairs
        numbers = {"all_pairs": total, "most": total, "items": chunk.n_items, "raw": raw}
        return {name: np.array([number]) for name, number in numbers.items()}

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        summed = {name: a[name] + b[name] for name in ("all_pairs", "raw")}
        return {**summed, "most": np.maximum(a["most"], b["most"]), "items": a["items"]}

    def finish(self, statistics: Statistics) -> BlockRound | GraphRound:
        model: Any = self.model  # a Pairwise; other models that are Counted take route counts
        route, blocks = decide(model, statistics)
        if route == "lists":
            return GraphRound(model, self.params)
        return BlockRound(self.model, self.params, 0, blocks, int(statistics["items"][0]), ())


def expected_distinct(measured: Statistics) -> tuple[float, int]:
    """About how many distinct pairs there are, and in how many blocks to count them."""
    pairs, items = float(measured["all_pairs"][0]), float(measured["items"][0])
    cells = max(items * (items - 1) / 2, 1.0)
    distinct = cells * -np.expm1(-pairs / cells)  # were they spread evenly; they are fewer
    return distinct, int(np.ceil(max(distinct * PAIR_BYTES, 1.0) / BLOCK_BYTES))


def decide(model: Pairwise, measured: Statistics) -> tuple[str, int]:
    """The faster route by an estimate of the time of both, which is logged; and the number of blocks of counts."""
    pairs, most = float(measured["all_pairs"][0]), float(measured["most"][0])
    distinct, blocks = expected_distinct(measured)
    counts = pairs * COUNT_SECONDS * blocks + distinct * MERGE_SECONDS
    lists = (pairs * SLOPE_SECONDS + ROUND_SECONDS) * ROUNDS
    able = model.link == LOGIT and model.prior == "gaussian" and model.errors == "none" and not measured["raw"][0]
    fits = distinct * PAIR_BYTES <= MERGED_BYTES and most * PAIR_BYTES <= PAIRS_BYTES
    route = model.route
    if route == "auto":
        route = "counts" if fits and (counts <= lists or not able) else "lists"
    log.info(
        "%s: %.3g pairs of lists, at most %.3g distinct (%.2g GB, %d blocks): about %.2g s by counts, %.2g s by lists; "
        "route=%s",
        model.name,
        pairs,
        distinct,
        distinct * PAIR_BYTES / 1e9,
        blocks,
        counts,
        lists,
        route,
    )
    if route == "lists" and not able:
        raise UsageError(
            f"{model.name}: {pairs:.2g} pairs by route=lists, which is for lists, bradley_terry with ties=half or "
            "ignore, prior=gaussian, errors=none and unlisted=ignore; choose these, or use fewer experts (--where)"
        )
    return route, blocks


@dataclass(frozen=True, slots=True, eq=False)
class BlockRound(Stage):
    """Route counts: the counts of the pairs whose lower item is in one block of items."""

    model: Counted
    params: Params
    number: int  # of the block
    blocks: int
    items: int
    counted: tuple[Statistics, ...]  # the counts of the blocks before

    def sent(self) -> BlockRound:
        return BlockRound(self.model, self.params, self.number, self.blocks, self.items, ())

    def map(self, chunk: Chunk) -> Statistics:
        counts = self.model.counting(chunk).count(chunk).directed()
        low = np.minimum(counts["pair_winner"], counts["pair_loser"])
        first, end = (edge(number, self.blocks, self.items) for number in (self.number, self.number + 1))
        here = (low >= first) & (low < end)
        kept = {name: counts[name][here] for name in PAIRS}
        return {**kept, **{name: counts[name] * float(self.number == 0) for name in TOTALS}}

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        return merged(self.items, [a, b]).directed()

    def finish(self, statistics: Statistics) -> BlockRound | Gathered:
        counted = (*self.counted, statistics)
        if self.number + 1 < self.blocks:
            return BlockRound(self.model, self.params, self.number + 1, self.blocks, self.items, counted)
        joined = {name: np.concatenate([counts[name] for counts in counted]) for name in PAIRS}
        totals = {name: np.sum([counts[name] for counts in counted], axis=0) for name in TOTALS}
        return Gathered(self.params, PairCounts({**joined, **totals}))


def edge(number: int, blocks: int, items: int) -> int:
    """The first item of a block. Blocks have equal numbers of pairs, so the first ones have fewer items."""
    return items if number >= blocks else int(items * (1.0 - np.sqrt(1.0 - number / blocks)))


@dataclass(frozen=True, slots=True, eq=False)
class PairCounts:
    """The end of route counts: the pairs of all chunks."""

    pairs: Statistics

    def outcome(self, model: Counted, chunk: Chunk, *, trace: bool) -> Outcome:
        return model.of_counts(chunk, merged(chunk.n_items, [self.pairs]), split=True, trace=trace)


@dataclass(frozen=True, slots=True, eq=False)
class GraphRound(Stage):
    """Route lists: who won and who lost something, and the connected components of the comparisons."""

    model: Pairwise
    params: Params

    def map(self, chunk: Chunk) -> Statistics:
        counting, share = self.model.counting(chunk), self.model.tie_share
        function = counting.function
        won, behind, _ = list_sums(chunk, np.zeros(chunk.n_lists, dtype=np.int64), function)
        rows = chunk.entry_row()
        length = np.diff(chunk.entry_offsets)
        lists = np.repeat(np.arange(chunk.n_lists), length)
        compared = np.repeat(length > 1, length)
        if share == 0.0 or function != BINARY:  # ties do not count: a list of tied items only compares none of them
            compared, share = np.bincount(lists, won, chunk.n_lists)[lists] > 0, 0.0
        component = connected_by(chunk.n_items, rows[compared], lists[compared])
        sums = [np.bincount(rows, side, chunk.n_items) for side in (won, behind)]
        if share:  # half of every tie
            tied = np.repeat(length - 1, length) - won - behind
            sums = [side + share * np.bincount(rows, tied, chunk.n_items) for side in sums]
        independent = counting.independent(chunk, np.ones(chunk.n_lists), chunk.pair_weight)
        return {"won": sums[0], "behind": sums[1], "component": component, "independent": independent}

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        summed = {name: a[name] + b[name] for name in ("won", "behind", "independent")}
        return {**summed, "component": overlaid(a["component"], b["component"])}

    def finish(self, statistics: Statistics) -> SlopeRound:
        """Scores start at the log odds of winning."""
        won, lost = statistics["won"], statistics["behind"]
        status = np.where(won > 0, np.where(lost > 0, OK, UNBEATEN), np.where(lost > 0, WINLESS, ISOLATED))
        evidence = float(share_of_evidence(statistics["independent"], np.array([won.sum()]))[0])
        compared = Compared(self.params, status.astype(INDEX), statistics["component"], won + lost, evidence)
        start = Ascent.begin(np.log((won + 0.5) / (lost + 0.5)))
        model = self.model
        return SlopeRound(model, compared, start, model.given_weight, CHANGES * model.seeks, 0, np.inf)


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """The status, component and number of comparisons of every item, from the lists of all chunks: (items,) each."""

    params: Params
    status: Indices
    component: Indices
    number: Floats  # of comparisons
    evidence: float  # independent comparisons for each one that is counted


@dataclass(frozen=True, slots=True, eq=False)
class Slopes(Stage):
    """Gradient and curvature of a chunk's pairs at some scores, and their log likelihood if ``valued``."""

    model: Pairwise
    score: Floats
    valued: bool

    def map(self, chunk: Chunk) -> Statistics:
        function = self.model.counting(chunk).function
        value, scale = pair_ranks(chunk, function), np.ones(chunk.n_lists)
        length = np.diff(chunk.entry_offsets)
        if function in (NORMALISED, LOG):
            end = np.ones(chunk.n_lists)
            end[length > 0] = value[chunk.entry_offsets[1:][length > 0] - 1]
            value = np.log(value) if function == LOG else value
            end = np.log(end) if function == LOG else end
            scale = np.divide(1.0, end, out=np.zeros(len(end)), where=end > 0.0)
            value.setflags(write=False)
        lists = ComparedLists(
            function == BINARY, self.model.tie_share, chunk.entry_offsets, chunk.entry_item, value, scale
        )
        total, slope, curve = list_slopes(lists, self.score, self.valued)
        return {"slope": slope, "curve": curve, "value": np.array([total])}


@dataclass(frozen=True, slots=True, eq=False)
class SlopeRound(Stage):
    """One gradient for L-BFGS. If the weight of the prior is estimated too, it changes whenever the scores settle."""

    model: Pairwise
    compared: Compared
    ascent: Ascent
    weight: float  # of the prior
    changes: int  # how often the weight may still change
    steps: int  # taken at the present weight
    left: float  # the longest Newton step that a single score would still take

    def sent(self) -> Slopes:
        return Slopes(self.model, self.ascent.trial, valued=False)

    def finish(self, statistics: Statistics) -> SlopeRound | ValueRound:
        """The next state. After convergence, one more round computes the log likelihood."""
        model, weight, steps, left = self.model, self.weight, self.steps, self.left
        uphill = statistics["slope"] - weight * self.ascent.trial
        curve = statistics["curve"] + weight
        ascent, over = self.ascent.after(uphill, curve), False
        if ascent.steps > self.ascent.steps:
            steps, left = ascent.steps, float(np.abs(uphill / curve).max(initial=0.0))
            if self.changes and (left <= max(SOUGHT, model.tolerance) or steps >= model.steps):
                sought = _sought(ascent.x, statistics["curve"], weight) / self.compared.evidence
                settled = abs(sought - weight) <= SETTLED * weight or steps >= model.steps
                changes = 0 if settled else self.changes - 1
                return SlopeRound(model, self.compared, Ascent.begin(ascent.x), sought, changes, steps, left)
            over = left <= model.tolerance or steps >= model.steps
        if over or ascent.lost:
            return ValueRound(model, self.compared, ascent.x, weight, steps, left)
        return SlopeRound(model, self.compared, ascent, weight, self.changes, steps, left)


@dataclass(frozen=True, slots=True, eq=False)
class ValueRound(Stage):
    """The last round: the log likelihood at the scores."""

    model: Pairwise
    compared: Compared
    score: Floats
    weight: float
    steps: int
    left: float

    def sent(self) -> Slopes:
        return Slopes(self.model, self.score, valued=True)

    def finish(self, statistics: Statistics) -> Gathered:
        ended = Ended(np.array([self.steps]), np.array([self.left]), statistics["value"], np.zeros((1, 0)))
        return Gathered(self.compared.params, ListFit(self.compared, self.score, self.weight, ended))


@dataclass(frozen=True, slots=True, eq=False)
class ListFit:
    """The end of route lists: the fit itself."""

    compared: Compared
    score: Floats
    weight: float
    ended: Ended

    def outcome(self, model: Pairwise, chunk: Chunk, *, trace: bool) -> Outcome:
        score = centred(self.score, self.compared.component, self.compared.number)
        fit = {**self.ended.columns(model.tolerance), "weight": np.array([self.weight])}
        items = {"status": self.compared.status, "component": self.compared.component}
        return Outcome(np.round(score, DIGITS) + 0.0, items, fit)


def _sought(theta: np.ndarray, curve: np.ndarray, weight: float) -> float:
    """The most likely weight of the prior, given the scores and the curvature of the data; see ``kernels``."""
    return float((1.0 + (curve / (curve + weight)).sum()) / (1.0 + (theta * theta).sum()))
