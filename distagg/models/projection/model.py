"""svp: rank aggregation by singular value projection (Gleich & Lim 2011; Volkovs & Zemel 2014, sections 2.2.2 and 2.6).

The preferences of all experts form one skew-symmetric matrix Y on the observed pairs. It is fitted by
X = s e' - e s', a skew-symmetric matrix of rank 2. The score is s = X e / items.

If unlisted items are ranked last, every pair is observed and X is the projection of Y itself. For differences of ranks
(plain, normalised, log or discounted) Y already has rank 2, so the score is the row mean. For binary pairs the leading
pair of singular vectors is found by products with Y that cost O(entries). Otherwise X is fitted over observed pairs.

By default places are discounted, which suits short and deep lists (``lists.discounted_places``). The papers count pairs
of listed items only (unlisted=ignore). There a sum over experts is better than a mean, because a mean gives a pair that
one expert compared the same weight as a pair that all experts compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Solver, param, sum_entries
from distagg.models.lists import BINARY
from distagg.models.outcome import Outcome
from distagg.models.pairs import (
    discounted_function,
    discounted_pairs_param,
    left_out,
    rank_values,
    unlisted_last,
    unlisted_param,
)
from distagg.models.projection.kernels import WeightedLists, project_majorities, project_queries
from distagg.models.rounds import Params
from distagg.optimise.convergence import Ended, not_begun
from distagg.types import INDEX, OFFSET, Floats, Offsets

ROUNDING = 1e-12  # movements of a unit vector below this are not told apart


@dataclass(frozen=True, kw_only=True)
class Svp(Solver):
    """Scores from the rank-2 fit of the joint pair matrix.

    ``gradient`` is the last change: of the leading singular vector where every pair is observed, of the residual
    relative to Y elsewhere. ``likelihood`` is minus the loss up to a constant of the data: half of what the fit
    explains of the squared entries of Y above the diagonal. Items that no expert mentions get 0, the mean.
    """

    name: ClassVar[str] = "svp"
    summary: ClassVar[str] = "rank-2 fit of the joint matrix of pairwise differences by singular value projection"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.6; Gleich & Lim 2011"
    cost: ClassVar[str] = "entries x steps; observed pairs x steps with unlisted=ignore"
    inputs: ClassVar[tuple[str, ...]] = ("lists", "pairs")
    criterion: ClassVar[str] = "change of the fit in the last step"
    remedy: ClassVar[str] = "raise steps or tolerance"

    pairs: str = discounted_pairs_param()
    unlisted: str = unlisted_param()
    joint: str = param(
        "mean",
        "how experts are combined: the mean of those that compare a pair, or the sum (the same order if unlisted=last)",
        choices=("mean", "sum"),
    )
    step: float = param(1.0, "length of a step; at a length of 1 or less the loss never rises", above=0.0)
    steps: int = param(1000, "largest number of steps to take", least=1)
    tolerance: float = param(
        1e-4,
        "stop when a step changes the residual, relative to the matrix, by no more than this; if every pair is "
        "observed, when a step moves the leading singular vector by no more than the square of this",
        above=0.0,
    )

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        if chunk.n_pairs:
            return self._over_observed(chunk, _pairs_as_lists(chunk), trace)
        function = discounted_function(self.name, self.pairs, self.unlisted, chunk)
        if not unlisted_last(self.unlisted, chunk):
            nobody = np.zeros(chunk.n_lists, dtype=np.int64)
            value = rank_values(chunk, nobody, function)[0]
            weight = np.ones(chunk.n_lists)
            for array in (value, weight):
                array.setflags(write=False)
            lists = chunk.list_offsets, chunk.entry_offsets, chunk.entry_item, chunk.entry_rank
            return self._over_observed(chunk, WeightedLists(*lists, value, weight), trace)
        if function == BINARY:
            return self._of_majorities(chunk, trace)
        return self._of_differences(chunk, trace)

    def _over_observed(self, chunk: Chunk, lists: WeightedLists, trace: bool) -> Outcome:
        score, ended = np.zeros(chunk.n_items), not_begun(chunk.n_queries, self.steps if trace else 0)
        sign = discounted_function(self.name, self.pairs, self.unlisted, chunk) == BINARY
        project_queries(
            self.step,
            self.steps,
            self.tolerance,
            sign,
            self.joint == "mean",
            chunk.item_offsets,
            lists,
            score,
            ended,
        )
        return _outcome(score, ended, self.tolerance, trace)

    def _of_majorities(self, chunk: Chunk, trace: bool) -> Outcome:
        score, ended = np.zeros(chunk.n_items), not_begun(chunk.n_queries, self.steps if trace else 0)
        tolerance = max(self.tolerance**2, ROUNDING)
        project_majorities(
            self.steps,
            tolerance,
            chunk.item_offsets,
            chunk.list_offsets,
            chunk.entry_offsets,
            chunk.entry_item,
            chunk.entry_rank,
            score,
            ended,
        )
        if self.joint == "sum":
            spoke = _spoke(chunk)
            score *= np.repeat(spoke, np.diff(chunk.item_offsets))
            ended.objective[:] *= spoke**2
            ended.trace[:] *= spoke[:, None] ** 2
        return _outcome(score, ended, tolerance, trace)

    def _of_differences(self, chunk: Chunk, trace: bool) -> Outcome:
        """Y = e m' - m e', where m is the mean value of each item over lists; it has rank 2 already."""
        sizes, length = np.diff(chunk.item_offsets), np.diff(chunk.entry_offsets)
        function = discounted_function(self.name, self.pairs, self.unlisted, chunk)
        out = left_out(self.unlisted, chunk)
        value, behind = rank_values(chunk, out, function)
        ahead = value - np.repeat(behind, length)
        total = sum_entries(chunk, ahead)  # every item lacks the same sum of ``behind``, which the mean takes away
        if self.joint == "mean":
            total /= np.repeat(np.maximum(_spoke(chunk), 1), sizes)
        owner = chunk.item_query()
        mean = np.bincount(owner, total, chunk.n_queries) / np.maximum(sizes, 1)
        score = mean[owner] - total
        ended = not_begun(chunk.n_queries, 1 if trace else 0)
        ended.iterations[:] = 1
        ended.objective[:] = 0.5 * sizes * np.bincount(owner, score**2, chunk.n_queries)
        ended.trace[:, :1] = ended.objective[:, None]
        return _outcome(score, ended, self.tolerance, trace)


def _outcome(score: Floats, ended: Ended, tolerance: float, trace: bool) -> Outcome:
    return Outcome(score, queries=ended.columns(tolerance), trace=ended.steps() if trace else None)


def _spoke(chunk: Chunk) -> Offsets:
    """Lists of each query that hold anything, shape (Q,)."""
    owner = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
    return np.bincount(owner, np.diff(chunk.entry_offsets) > 0, chunk.n_queries).astype(OFFSET)


def _pairs_as_lists(chunk: Chunk) -> WeightedLists:
    """Raw pairs as weighted lists of two, behind the query's own lists."""
    n_pairs, length = chunk.n_pairs, np.diff(chunk.entry_offsets)
    owner = np.concatenate([np.repeat(np.arange(chunk.n_queries), np.diff(o)) for o in _offsets(chunk)])
    order = np.argsort(owner, kind="stable")
    begin = np.concatenate([chunk.entry_offsets[:-1], chunk.n_entries + 2 * np.arange(n_pairs)])[order]
    length = np.concatenate([length, np.full(n_pairs, 2)])[order]
    entry_offsets = np.concatenate([[0], np.cumsum(length)]).astype(OFFSET)
    flat = np.arange(entry_offsets[-1]) + np.repeat(begin - entry_offsets[:-1], length)
    item = np.stack([chunk.pair_winner, chunk.pair_loser], axis=1).ravel()
    rank = np.stack([np.ones(n_pairs), np.where(chunk.pair_tie, 1.0, 2.0)], axis=1).ravel()
    ranks = np.concatenate([chunk.entry_rank, rank])[flat]
    lists = WeightedLists(
        np.searchsorted(owner[order], np.arange(chunk.n_queries + 1)).astype(OFFSET),
        entry_offsets,
        np.concatenate([chunk.entry_item, item])[flat].astype(INDEX),
        ranks,
        ranks,
        np.concatenate([np.ones(chunk.n_lists), chunk.pair_weight])[order],
    )
    for array in lists:
        array.setflags(write=False)
    return lists


def _offsets(chunk: Chunk) -> tuple[Offsets, Offsets]:
    return chunk.list_offsets, chunk.pair_offsets
