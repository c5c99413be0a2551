"""What models on pair counts share: how lists and raw pairs are counted, on whole queries and on split ones.

Counts of a split query add up over its chunks, a block of items in each round (``routes``), so a model that reads
nothing but counts ranks split queries too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import InputError, UsageError
from distagg.models.base import param
from distagg.models.outcome import STATUS, Outcome
from distagg.models.pairs import pair_function, pairs_param, unlisted_last, unlisted_param
from distagg.models.pairwise.counts import PAIR_BYTES, Counting, Counts
from distagg.models.pairwise.graph import count_strong, examine
from distagg.models.pairwise.routes import MERGED_BYTES, BlockRound, Measure, PairCounts, expected_distinct
from distagg.models.pool import Pooled, pool_param
from distagg.models.rounds import Gathered, Params, Stage, Statistics
from distagg.times import span_of, time_of
from distagg.types import Floats, Labels, Offsets


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """The comparison graphs of a chunk."""

    status: Labels  # (I,)
    component: Labels  # (I,)
    connected: Offsets  # (Q,) connected components
    strong: Offsets  # (Q,) strongly connected components, 0 where they were not asked for

    def place(self, item_offsets: Offsets) -> Offsets:  # (Q + 1,) -> (I,)
        """The number of every item's component among those of all queries."""
        first = np.cumsum(self.connected) - self.connected
        return np.asarray(self.component + np.repeat(first, np.diff(item_offsets)))


def graph_of(counts: Counts, *, strong: bool) -> Graph:
    """Statuses and components of the items of a chunk; strongly connected components only where they are needed."""
    status, component, connected = examine(counts.graph)
    return Graph(status, component, connected, count_strong(counts.graph) if strong else np.zeros_like(connected))


@dataclass(frozen=True, kw_only=True)
class Counted(Pooled):
    """Base of models that read nothing but pair counts. Subclasses write ``of_counts``."""

    square_bytes: ClassVar[int] = 60
    observed_pairs_only: ClassVar[bool] = True

    inputs: ClassVar[tuple[str, ...]] = ("lists", "pairs")
    additive: ClassVar[bool] = True

    pairs: str = pairs_param()
    unlisted: str = unlisted_param()
    pool: int = pool_param(500)
    ties: str = param("half", "ignore ties, or count half a win for each side", choices=("half", "ignore"))
    half_life: str = param(
        "",
        "span of time after which a pair has half its weight: 90d, 36h, 2w (units s, h, d, w); by default weights stay",
        text=True,
    )
    now: str = param("", "time from which the age of pairs is counted; by default the last pair's, or until", text=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.half_life:
            span_of(self.half_life, f"parameter half_life of {self.name}")
        if self.now:
            time_of(self.now, f"parameter now of {self.name}")

    @property
    def tie_share(self) -> float:
        """The share of a win that a tie counts for each side."""
        return 0.5 if self.ties == "half" else 0.0

    def counting(self, chunk: Chunk) -> Counting:
        function = pair_function(self.name, self.pairs, chunk)
        return Counting(function, unlisted_last(self.unlisted, chunk), self.tie_share)

    def of_counts(self, chunk: Chunk, counts: Counts, *, split: bool, trace: bool) -> Outcome:
        """The outcome of every query from pair counts; ``split``: the chunk does not have all lists."""
        raise NotImplementedError

    def gathering(self, params: Params) -> Stage:
        return CountMeasure(self, params)

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        return self.of_counts(chunk, self.counting(chunk).count(chunk), split=False, trace=trace)

    def fit_split(self, chunk: Chunk, gathered: Gathered, *, trace: bool) -> Outcome:
        end: PairCounts = gathered.statistics
        return end.outcome(self, chunk, trace=trace)

    def score_pool(self, chunk: Chunk, params: Params) -> Floats:
        return self.fit_chunk(chunk, params, trace=False).score

    def score_split(self, chunk: Chunk, gathered: Gathered) -> Floats:
        return self.fit_split(chunk, gathered, trace=False).score


@dataclass(frozen=True, slots=True, eq=False)
class CountMeasure(Measure):
    """The first round over a split query: the number of pairs. Counts that cannot fit into memory are refused."""

    def finish(self, statistics: Statistics) -> BlockRound:
        distinct, blocks = expected_distinct(statistics)
        items = int(statistics["items"][0])
        if distinct * PAIR_BYTES > MERGED_BYTES:
            raise UsageError(
                f"{self.model.name}: {items:,} items make about {distinct:.2g} distinct pairs "
                f"({distinct * PAIR_BYTES / 2**30:.1f} GiB); choose unlisted=ignore, fewer experts (--where), or a "
                "model that needs no pairs, such as borda"
            )
        return BlockRound(self.model, self.params, 0, blocks, items, ())


def refuse_endless(chunk: Chunk, graph: Graph, *, apart: bool, remedy: str) -> None:
    """Refuse queries in which some item does not beat every other along some path: their strengths are not finite.

    With ``apart`` this is asked of each connected component by itself. ``remedy`` says what to choose instead.
    """
    wanted = graph.connected if apart else np.minimum(graph.connected, 1)
    bad = np.flatnonzero(graph.strong != wanted)
    if not len(bad):
        return
    q = int(bad[0])
    base, end = int(chunk.item_offsets[q]), int(chunk.item_offsets[q + 1])
    problems = []
    for code, word in enumerate(STATUS):
        rows = np.flatnonzero(graph.status[base:end] == code)
        if code and len(rows):
            names = [str(chunk.item_ids[base + int(row)]) if len(chunk.item_ids) else f"#{row}" for row in rows[:3]]
            problems.append(f"{len(rows)} {word} ({', '.join(names)}{', ...' if len(rows) > 3 else ''})")
    problems.append(f"{graph.connected[q]} connected and {graph.strong[q]} strongly connected components")
    more = f" (and {len(bad) - 1} queries more)" if len(bad) > 1 else ""
    separable = not apart and graph.strong[q] == graph.connected[q]
    raise InputError(
        f"query {chunk.query_ids[q]}{more}",
        found=", ".join(problems),
        expected="every item to beat every other along some path, or else no finite maximum likelihood exists",
        remedy=remedy + (", or components=true to fit each component on its own" if separable else ""),
    )


def refuse_endless_ties(name: str, ties: str, chunk: Chunk, wins: Counts | None, remedy: str) -> None:
    """Refuse to learn a tie parameter that would diverge with the scores, which happens if the wins form no cycle.

    ``wins`` are counts without ties, or None for a split query, whose chunks do not have them.
    """
    if wins is None:
        raise UsageError(f"{name}: ties={ties} without a prior needs whole queries; {remedy}")
    alone = graph_of(wins, strong=True).strong == np.diff(chunk.item_offsets)
    bad = np.flatnonzero(alone & (wins.ties > 0))
    if len(bad):
        raise InputError(
            f"query {chunk.query_ids[int(bad[0])]}",
            found="ties, and wins that form no cycle",
            expected=f"a cycle of wins, or else ties={ties} may have no finite maximum likelihood",
            remedy=remedy,
        )
