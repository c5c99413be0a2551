"""pagerank, eigen and rank_centrality: scores that flow from each item to the items that beat it.

All three are fixed points of a walk over pair counts, of which a step costs O(distinct pairs). Counts of a split query
add up over its chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import not_converged, param
from distagg.models.intervals import centred
from distagg.models.outcome import Outcome
from distagg.models.pairwise.counted import Counted, graph_of, refuse_endless
from distagg.models.pairwise.counts import Counts
from distagg.models.pairwise.routes import DIGITS
from distagg.models.pairwise.walk_kernels import Moves, walk_queries
from distagg.types import Floats


@dataclass(frozen=True, kw_only=True)
class Walk(Counted):
    """Base of the three walks. Subclasses write ``moves``."""

    cost: ClassVar[str] = "pairs + distinct pairs x steps"
    criterion: ClassVar[str] = "a step changes the scores by at most tolerance of their sum"

    tolerance: float = param(
        1e-12, "stop when a step changes the scores by no more than this share of their sum", above=0.0
    )
    steps: int = param(10_000, "largest number of steps to take", least=1)

    def moves(self, counts: Counts) -> Moves:
        raise NotImplementedError

    def _walked(self, counts: Counts) -> Floats:
        """The fixed point of every query, with sum 1, without the noise of rounding."""
        queries = len(counts.ties)
        taken, left = np.zeros(queries, dtype=np.int64), np.zeros(queries)
        mass = walk_queries(self.moves(counts), self.tolerance, self.steps, taken, left)
        unfinished = left > self.tolerance
        if unfinished.any():
            not_converged(
                f"{self.name}: {int(unfinished.sum())} queries not converged after {self.steps} steps "
                f"({self.criterion}; worst {float(left.max()):.1e}); raise steps"
            )
        return mass

    def of_counts(self, chunk: Chunk, counts: Counts, *, split: bool, trace: bool) -> Outcome:
        sizes = np.repeat(np.diff(counts.item_offsets), np.diff(counts.item_offsets))
        return Outcome(np.round(self._walked(counts) * sizes, DIGITS) / sizes)


def rows_of(counts: Counts) -> np.ndarray:  # (E,)
    """The row of each pair's lower item."""
    return np.repeat(np.arange(len(counts.won)), np.diff(counts.offsets))


def others_of(counts: Counts, rows: np.ndarray) -> np.ndarray:  # (E,)
    """The row of each pair's higher item."""
    sizes = np.diff(counts.item_offsets)
    return np.repeat(counts.item_offsets[:-1], sizes)[rows] + counts.other


@dataclass(frozen=True, kw_only=True)
class PageRank(Walk):
    """A reader goes from an item to one that beat it, in proportion to the wins, or jumps to any item.

    From an unbeaten item the reader always jumps. The score is how often the reader is there; scores of a query sum
    to 1.
    """

    name: ClassVar[str] = "pagerank"
    summary: ClassVar[str] = "PageRank on pairs: from each item to those that beat it"
    paper: ClassVar[str] = "Brin & Page 1998"

    damping: float = param(0.85, "chance to go on to an item that won, and not to jump anywhere", least=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.damping >= 1:
            raise UsageError(f"parameter damping of {self.name}: found {self.damping!r}, expected a number below 1")

    def moves(self, counts: Counts) -> Moves:
        """The moves of PageRank. Jumps reach every item with the same probability, so they are a constant."""
        rows = rows_of(counts)
        with np.errstate(divide="ignore"):
            share = np.where(counts.lost > 0.0, self.damping / counts.lost, 0.0)
        up, down = counts.ahead * share[others_of(counts, rows)], counts.behind * share[rows]
        out, background = np.ones(len(counts.won)), np.zeros(len(counts.ties))
        return Moves(counts.item_offsets, counts.offsets, counts.other, up, down, out, background, 1.0)


@dataclass(frozen=True, kw_only=True)
class Eigen(Walk):
    """An item's score is proportional to the scores of the items it beat, summed over its wins.

    That is the leading eigenvector of the matrix of wins (Wei 1952; Kendall 1955; Keener 1993), with length 1. A matrix
    without cycles of wins has no such vector, so a few wins of every item over every other are added.
    """

    name: ClassVar[str] = "eigen"
    summary: ClassVar[str] = "leading eigenvector of the matrix of wins: beating strong items counts more"
    paper: ClassVar[str] = "Wei 1952; Kendall 1955; Keener 1993"

    smoothing: float = param(
        0.01,
        "wins of every item over every other that are added, as a share of the mean number of comparisons of a pair of "
        "items; 0 adds none, and items that won nothing then have the score 0",
        least=0.0,
    )
    transposed: bool = param(
        False,
        "take the eigenvector of the transposed matrix, as evalica 0.4 does: items that lost to high scores then score "
        "high",
    )

    def moves(self, counts: Counts) -> Moves:
        sizes = np.diff(counts.item_offsets)
        compared = np.diff(np.concatenate([[0.0], np.cumsum(counts.won)])[counts.item_offsets])
        added = self.smoothing * compared / np.maximum(sizes * (sizes - 1) / 2.0, 1.0)
        up, down = (counts.behind, counts.ahead) if self.transposed else (counts.ahead, counts.behind)
        return Moves(counts.item_offsets, counts.offsets, counts.other, up, down, np.ones(len(counts.won)), added, 0.0)

    def of_counts(self, chunk: Chunk, counts: Counts, *, split: bool, trace: bool) -> Outcome:
        mass, sizes = self._walked(counts), np.diff(counts.item_offsets)
        query = np.repeat(np.arange(len(sizes)), sizes)
        length = np.sqrt(np.bincount(query, mass * mass, len(sizes)))
        return Outcome(np.round(mass / length[query], DIGITS))


@dataclass(frozen=True, kw_only=True)
class RankCentrality(Walk):
    """Strengths of a walk that leaves an item for another at the rate at which the other won their comparisons.

    Where the share of wins is exact, the share of time that the walk is at an item is the item's Bradley-Terry
    strength. Scores are log strengths, centred in every connected component as those of ``bradley_terry`` are. With
    ``alpha`` above 0 every compared pair has won ``alpha`` times more on both sides.
    """

    name: ClassVar[str] = "rank_centrality"
    summary: ClassVar[str] = "log strengths from the stationary walk by shares of wins"
    paper: ClassVar[str] = "Negahban et al. 2017"

    alpha: float = param(
        1.0,
        "wins added to both sides of every compared pair; 0 adds none, and needs every item to beat every other along "
        "some path",
        least=0.0,
    )
    uncompared: str = param(
        "none",
        "rate between items that were never compared: none, or half in both directions, as choix has it with alpha "
        "above 0",
        choices=("none", "half"),
    )

    def moves(self, counts: Counts) -> Moves:
        rows, background = rows_of(counts), 0.5 if self.uncompared == "half" else 0.0
        number = counts.ahead + counts.behind + 2.0 * self.alpha
        up = np.divide(counts.ahead + self.alpha, number, out=np.zeros(len(number)), where=number > 0.0)
        down = np.divide(counts.behind + self.alpha, number, out=np.zeros(len(number)), where=number > 0.0)
        sizes = np.diff(counts.item_offsets)
        out = background * (np.repeat(sizes, sizes) - 1.0)
        out += np.bincount(rows, down - background, len(out)) + np.bincount(
            others_of(counts, rows), up - background, len(out)
        )
        kept = np.full(len(sizes), background)
        return Moves(
            counts.item_offsets, counts.offsets, counts.other, up - background, down - background, out, kept, 0.0
        )

    def of_counts(self, chunk: Chunk, counts: Counts, *, split: bool, trace: bool) -> Outcome:
        joined = self.uncompared == "half"
        graph = graph_of(counts, strong=self.alpha == 0.0 and not joined)
        if self.alpha == 0.0 and not joined:
            refuse_endless(chunk, graph, apart=True, remedy="choose alpha=1, or uncompared=half")
        sizes = np.diff(counts.item_offsets)
        query = np.repeat(np.arange(len(sizes)), sizes)
        group = query if joined else graph.component + (np.cumsum(graph.connected) - graph.connected)[query]
        score = centred(np.log(self._walked(counts)), group, counts.won + counts.lost)
        return Outcome(np.round(score, DIGITS) + 0.0)
