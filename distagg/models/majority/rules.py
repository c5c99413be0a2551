"""schulze, ranked_pairs and kwiksort: orders from margins, whole queries or split ones.

Items are numbered by the order of ``start_scores`` (reciprocal ranks, net wins in pairs) before anything is decided, so
that this order breaks ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import param
from distagg.models.distances.kemeny_kernels import worth
from distagg.models.majority.kernels import chunk_margins
from distagg.models.majority.model import Majority, start_scores
from distagg.models.majority.rule_kernels import lock_pairs, majority_quicksort, path_scores, widest_paths
from distagg.models.pool import Pooled
from distagg.models.rounds import Gathered, Params, Statistics
from distagg.rankings.ordering import order_items
from distagg.types import Floats


@dataclass(frozen=True, kw_only=True)
class MarginRule(Pooled, Majority):
    """Base of rules that turn the margins of a query into scores. Subclasses write ``decide``."""

    square_bytes: ClassVar[int] = 24

    most_items: ClassVar[int] = 5000  # that a query may have
    instead: ClassVar[str] = "copeland or condorcet"

    def decide(self, margins: Floats, position: int) -> Floats:  # (size, size) -> (size,)
        """Scores of the items of the query at a position of the dataset."""
        raise NotImplementedError

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        self._check(chunk)
        return super().map(chunk, params)

    def _check(self, chunk: Chunk) -> None:
        """Refuse queries that would take too long, before anything is done."""
        sizes = np.diff(chunk.item_offsets)
        if len(sizes) and sizes.max() > self.most_items:
            q = int(sizes.argmax())
            raise UsageError(
                f"{self.name} takes {self.cost} steps, and query {chunk.query_ids[q]} has {sizes[q]:,} items; it takes "
                f"at most {self.most_items:,}. Choose a smaller pool (lists), or {self.instead}"
            )

    def _score_chunk(self, chunk: Chunk, params: Params) -> Floats:
        self._check(chunk)
        score, arrays = np.zeros(chunk.n_items), self._arrays(chunk, params)
        starts = order_items(chunk.item_offsets, start_scores(chunk, params))
        for q in range(chunk.n_queries):
            span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
            score[span] = self._decided(chunk_margins(q, *arrays), starts[span], int(chunk.positions[q]))
        return score

    def score_split(self, chunk: Chunk, gathered: Gathered) -> Floats:
        known = gathered.statistics
        start = np.argsort(-known["start"], kind="stable")
        return self._decided(known["margins"], start, int(chunk.positions[0]))

    def _decided(self, margins: Floats, start: np.ndarray, position: int) -> Floats:
        score = np.empty(len(start))
        score[start] = self.decide(margins[start[:, None], start], position)
        return score


@dataclass(frozen=True, kw_only=True)
class Schulze(MarginRule):
    """An item beats another if its strongest path to the other is stronger than the strongest path back.

    A path goes along majorities and is as strong as its smallest margin. The score is minus the number of items that
    beat an item, plus the share of items that it beats, below 1: so the winners of Schulze's rule, whom nobody beats,
    have 0 or more, and all others less. Items that paths do not tell apart tie.
    """

    name: ClassVar[str] = "schulze"
    summary: ClassVar[str] = "items with stronger paths of majorities stand over others (beat path)"
    paper: ClassVar[str] = "Schulze 2011"
    cost: ClassVar[str] = "items^2 x (lists + items)"

    def decide(self, margins: Floats, position: int) -> Floats:
        return path_scores(widest_paths(margins))


@dataclass(frozen=True, kw_only=True)
class RankedPairs(MarginRule):
    """Majorities are locked from the largest margin down, but for those that contradict what is locked (Tideman 1987).

    Of equal margins the pair whose winner comes first in the order of reciprocal ranks (net wins in pairs) is locked
    first, then the pair whose loser does; pairs without a majority come last, in that order. Scores are places: the
    number of items for the first, 1 for the last.
    """

    square_bytes: ClassVar[int] = 44

    name: ClassVar[str] = "ranked_pairs"
    summary: ClassVar[str] = "majorities locked from the largest margin down, unless they close a cycle"
    paper: ClassVar[str] = "Tideman 1987"
    cost: ClassVar[str] = "items^2 x (lists + items / 64)"

    def decide(self, margins: Floats, position: int) -> Floats:
        winner, loser = np.nonzero((margins >= 0.0) & ~np.eye(len(margins), dtype=bool))
        order = np.argsort(-margins[winner, loser], kind="stable")
        return len(margins) - lock_pairs(winner[order], loser[order], len(margins)).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class KwikSort(MarginRule):
    """Quicksort by majority with random pivots: the best of several orders by discordant pairs.

    One try is expected to reach at most twice the least number of discordant pairs, if lists are complete and strict
    (Ailon et al. 2008). Scores are places, as those of ``kemeny``, whose order it approximates.
    """

    name: ClassVar[str] = "kwiksort"
    summary: ClassVar[str] = "quicksort by majority with random pivots, best of several"
    paper: ClassVar[str] = "Ailon et al. 2008"
    cost: ClassVar[str] = "items^2 x lists"
    most_items: ClassVar[int] = 12_000
    instead: ClassVar[str] = "condorcet"

    tries: int = param(10, "orders to draw, of which the best is kept", least=1)
    seed: int = param(0, "seed of the pivots", least=0)

    def decide(self, margins: Floats, position: int) -> Floats:
        size = len(margins)
        draw = np.random.default_rng(np.random.SeedSequence([self.seed, position]))
        best, score = -np.inf, np.zeros(size)
        for _ in range(self.tries):
            order = majority_quicksort(margins, np.arange(size), draw.random(size))
            value = worth(margins, order)
            if value > best:
                best, score[order] = value, np.arange(size, 0, -1)
        return score
