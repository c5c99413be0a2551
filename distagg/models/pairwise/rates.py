"""win_rate, and newman: Bradley-Terry strengths and ties by Newman's iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Solver, param
from distagg.models.intervals import centred
from distagg.models.outcome import Outcome
from distagg.models.pairwise.counted import Counted, graph_of, refuse_endless, refuse_endless_ties
from distagg.models.pairwise.counts import Counts
from distagg.models.pairwise.links import DAVIDSON, LOGIT, log_likelihood
from distagg.models.pairwise.newman_kernels import Opponents, newman_queries
from distagg.models.pairwise.routes import DIGITS
from distagg.models.pairwise.walks import others_of, rows_of
from distagg.models.rounds import Gathered, Params
from distagg.optimise.convergence import FIT_COLUMNS, Ended
from distagg.types import INDEX, OFFSET, Floats, Labels

NOTHING_KNOWN = 0.5  # the win rate of an item that was never compared


@dataclass(frozen=True, kw_only=True)
class WinRate(Counted):
    """The share of its comparisons that an item won. An item that was never compared has 0.5."""

    name: ClassVar[str] = "win_rate"
    summary: ClassVar[str] = "share of comparisons won, whoever the opponents were"
    paper: ClassVar[str] = "none"
    cost: ClassVar[str] = "pairs"

    over: str = param(
        "battles",
        "average over all comparisons of an item (battles), or over its opponents, each of which counts the same "
        "(opponents; evalica's average_win_rate)",
        choices=("battles", "opponents"),
    )

    def of_counts(self, chunk: Chunk, counts: Counts, *, split: bool, trace: bool) -> Outcome:
        won: np.ndarray = counts.won
        number: np.ndarray = counts.won + counts.lost
        if self.over == "opponents":
            rows, size = rows_of(counts), len(counts.won)
            both = np.concatenate([rows, others_of(counts, rows)])
            met = counts.ahead + counts.behind
            once = (met > 0.0) * 1.0
            share = np.divide(counts.ahead, met, out=np.zeros(len(met)), where=met > 0.0)
            won = np.bincount(both, np.concatenate([share, once - share]), size)
            number = np.bincount(both, np.tile(once, 2), size)
        rate = np.divide(won, number, out=np.full(len(won), NOTHING_KNOWN), where=number > 0.0)
        return Outcome(np.round(rate, DIGITS + 3))


@dataclass(frozen=True, kw_only=True)
class Newman(Counted, Solver):
    """Bradley-Terry log strengths by Newman's iteration, which needs far fewer sweeps than Zermelo's.

    Items are set one after the other. With ``ties`` learn a tie has the chance 2 nu sqrt(ab) / (a + b + 2 nu sqrt(ab))
    (Davidson 1970), and nu, which is the column ``tie``, takes a Newton step after every sweep. Scores are centred as
    those of ``bradley_terry``; with weight=0 it is the same maximum likelihood as ``bradley_terry`` with prior=none and
    ties=davidson (half of whose ``tie`` is nu).
    """

    name: ClassVar[str] = "newman"
    summary: ClassVar[str] = "Bradley-Terry log strengths and a tie parameter, by Newman's iteration"
    paper: ClassVar[str] = "Newman 2023"
    cost: ClassVar[str] = "pairs + distinct pairs x steps"
    criterion: ClassVar[str] = "no log strength changes by more than tolerance in a sweep"
    remedy: ClassVar[str] = "raise steps or weight"

    ties: str = param(
        "learn",
        "learn how likely ties are, count half a win for each side, or ignore ties",
        choices=("learn", "half", "ignore"),
    )
    weight: float = param(
        1.0,
        "wins and losses of every item against an imaginary item of strength 1 (1: Newman's logistic prior), which "
        "keep all strengths finite; 0 is maximum likelihood",
        least=0.0,
    )
    tolerance: float = param(1e-10, "stop when no log strength changes by more in a sweep", above=0.0)
    steps: int = param(10_000, "largest number of sweeps to take", least=1)

    @property
    def tie_share(self) -> float:
        return 0.0 if self.ties == "ignore" else 0.5

    @property
    def item_columns(self) -> tuple[str, ...]:
        return ("status", "component")

    @property
    def query_columns(self) -> tuple[str, ...]:
        return (*FIT_COLUMNS, "tie")

    def score_pool(self, chunk: Chunk, params: Params) -> Floats:
        return self.solve(chunk, params).score

    def score_split(self, chunk: Chunk, gathered: Gathered) -> Floats:
        return self.solve_split(chunk, gathered).score

    def of_counts(self, chunk: Chunk, counts: Counts, *, split: bool, trace: bool) -> Outcome:
        learned = self.ties == "learn"
        graph = graph_of(counts, strong=self.weight == 0.0)
        if self.weight == 0.0:
            refuse_endless(chunk, graph, apart=True, remedy="choose weight=1")
            if learned:
                wins = None if split else replace(self.counting(chunk), share=0.0).count(chunk)
                refuse_endless_ties(self.name, self.ties, chunk, wins, "choose weight=1")
        rows = opponents_of(counts, graph.component)
        sizes, queries = np.diff(counts.item_offsets), len(counts.ties)
        query = np.repeat(np.arange(queries), sizes)
        wins_of = np.bincount(query, counts.won, queries) - counts.ties  # half of a tie is in both sides' wins
        tie = np.zeros(queries)
        if learned:  # of equal items: 0 without ties, infinite without wins, and then all strengths are equal
            with np.errstate(divide="ignore", invalid="ignore"):
                tie = np.where(counts.ties > 0.0, counts.ties / np.where(wins_of > 1e-9, wins_of, 0.0), 0.0)
        endless = np.isinf(tie)
        start = np.where(endless, 0.0, tie)
        taken, left = np.zeros(queries, dtype=np.int64), np.zeros(queries)
        score = newman_queries(rows, float(self.weight), learned, self.tolerance, self.steps, start, taken, left)
        tie = np.where(endless, np.inf, start)
        group = graph.component + (np.cumsum(graph.connected) - graph.connected)[query]
        score = np.round(centred(score, group, counts.won + counts.lost), DIGITS) + 0.0
        with np.errstate(divide="ignore"):
            eta = np.log(2.0 * tie)
        likelihood = log_likelihood(DAVIDSON if learned else LOGIT, counts.graph, score, eta)
        ended = Ended(taken, left, likelihood, likelihood[:, None])
        items = {"status": graph.status, "component": graph.component}
        fit = {**ended.columns(self.tolerance), "tie": tie}
        return Outcome(score, items, fit, ended.trace if trace else None)


def opponents_of(counts: Counts, component: Labels) -> Opponents:
    """Counts with every pair in the rows of both its items."""
    rows = rows_of(counts)
    mine = np.concatenate([rows, others_of(counts, rows)])
    order = np.argsort(mine, kind="stable")
    base = np.repeat(counts.item_offsets[:-1], np.diff(counts.item_offsets))
    other = np.concatenate([counts.other, (rows - base[rows]).astype(INDEX)])[order]
    won = np.concatenate([counts.ahead, counts.behind])[order]
    lost = np.concatenate([counts.behind, counts.ahead])[order]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(mine, minlength=len(counts.won)))]).astype(OFFSET)
    return Opponents(counts.item_offsets, offsets, other, won, lost, counts.ties, component)
