"""hodgerank: scores by least squares on the comparison graph, and how much of the preferences runs in circles.

Jiang, Lim, Yao & Ye 2011. Every flow of preferences is the sum of three that are orthogonal to each other: differences
of scores, local circles (triangles) and global ones (longer cycles that no triangles fill). The shares of the last two
say how far any single ranking can be trusted. Cost: pairs, then distinct pairs x steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Solver, param
from distagg.models.intervals import centred
from distagg.models.lists import sum_by_item
from distagg.models.outcome import Outcome
from distagg.models.pairwise.counted import Counted, graph_of
from distagg.models.pairwise.counts import Counts
from distagg.models.pairwise.hodge_kernels import Flow, local_part, rank_queries
from distagg.models.pairwise.routes import DIGITS
from distagg.models.rounds import Gathered, Params
from distagg.optimise.convergence import FIT_COLUMNS, Ended
from distagg.types import Floats

HALF = 0.5  # added to wins and losses before their log odds


@dataclass(frozen=True, kw_only=True)
class HodgeRank(Counted, Solver):
    """Scores whose differences are nearest to the observed flow, weighted by comparisons.

    ``cyclic`` is the share of the squared flow that no scores explain, ``local`` the part of it that triangles make and
    ``global`` the rest; local and global are nan where a query has more triangles than ``triangles``.
    """

    name: ClassVar[str] = "hodgerank"
    summary: ClassVar[str] = "least squares on the pair graph, with the share of preferences that is cyclic"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Jiang et al. 2011"
    cost: ClassVar[str] = "pairs + distinct pairs x steps + triangles x steps"
    criterion: ClassVar[str] = "no score alone would move by more than tolerance"
    remedy: ClassVar[str] = "raise tolerance"

    flow: str = param(
        "margin",
        "by how much an item is preferred to another: margin (share of comparisons won less share lost) or logit (log "
        "odds of winning, half a win added to both sides)",
        choices=("margin", "logit"),
    )
    triangles: int = param(
        100_000, "most triangles of a query for the local part of its cycles; 0 leaves it out", least=0
    )
    tolerance: float = param(1e-9, "stop when no score alone would move by more", above=0.0)

    @property
    def item_columns(self) -> tuple[str, ...]:
        return ("status", "component")

    @property
    def query_columns(self) -> tuple[str, ...]:
        return (*FIT_COLUMNS, "cyclic", "local", "global")

    def score(self, chunk: Chunk, params: Params) -> Floats:
        return self.solve(chunk, params).score

    def score_split(self, chunk: Chunk, gathered: Gathered) -> Floats:
        return self.solve_split(chunk, gathered).score

    def of_counts(self, chunk: Chunk, counts: Counts, *, split: bool, trace: bool) -> Outcome:
        queries, graph = len(counts.ties), graph_of(counts, strong=False)
        flow = self._flow(counts)
        score, residual = np.empty(len(counts.won)), np.empty(len(counts.other))
        steps, left = np.zeros(queries, dtype=np.int64), np.zeros(queries)
        rank_queries(counts.graph, flow, self.tolerance, score, residual, steps, left)
        edges = counts.offsets[counts.item_offsets]
        total, rest = (_sums(flow.weight * values**2, edges) for values in (flow.value, residual))
        place = graph.component + np.repeat(np.cumsum(graph.connected) - graph.connected, np.diff(counts.item_offsets))
        local = rest.copy()  # where all items of a component were compared with each other, triangles fill every cycle
        for q in np.flatnonzero(np.diff(edges) < _most_edges(counts, place)):
            local[q] = local_part(counts.graph, int(q), flow.weight, residual, self.triangles)
        shares = {"cyclic": _shares(rest, total), "local": _shares(local, total)}
        shares["global"] = np.maximum(shares["cyclic"] - shares["local"], 0.0)
        score = np.round(centred(score, place, np.zeros(len(score))), DIGITS) + 0.0
        ended = Ended(steps, left, -rest, np.empty((queries, 0)))
        items = {"status": graph.status, "component": graph.component}
        return Outcome(score, items, {**ended.columns(self.tolerance), **shares}, -rest[:, None] if trace else None)

    def _flow(self, counts: Counts) -> Flow:
        weight = counts.ahead + counts.behind
        if self.flow == "logit":
            return Flow(np.log((counts.ahead + HALF) / (counts.behind + HALF)), weight)
        return Flow((counts.ahead - counts.behind) / weight, weight)


def _sums(values: Floats, edges: np.ndarray) -> Floats:
    """Sums of the values of every query's edges."""
    return sum_by_item(np.repeat(np.arange(len(edges) - 1), np.diff(edges)), values, len(edges) - 1)


def _most_edges(counts: Counts, place: np.ndarray) -> np.ndarray:  # (Q,)
    """The number of edges that every query would have if all pairs within its components had been compared."""
    size = np.bincount(place)
    query = np.empty(len(size), dtype=np.int64)
    query[place] = np.repeat(np.arange(len(counts.ties)), np.diff(counts.item_offsets))
    return np.bincount(query, size * (size - 1) // 2, len(counts.ties))


def _shares(part: Floats, total: Floats) -> Floats:
    """Shares of the squared flow, 0 where there is none; rounded, as nothing is known beyond the tolerance."""
    share = np.divide(part, total, out=np.zeros(len(total)), where=total > 0.0)
    return np.round(np.clip(share, 0.0, 1.0), DIGITS) + 0.0
