"""The Multinomial Preference Model, mpm: scores, and variances on request. theta_mpm.py adds adherence.

Papers 000 (sections 2.3 and 2.4) and 002. Cost: one pass over entries, then O(items) an iteration for every
distinct adherence; with variances O(items^2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.kernels.lists import BINARY, DIFFERENCE, pair_values
from distagg.kernels.mpm import fit_queries
from distagg.kernels.preferences import net_differences, net_wins, pair_margins
from distagg.models.base import Params, Solver, Statistics, param
from distagg.models.outcome import FIT_COLUMNS, Outcome
from distagg.models.pairs import (
    left_out,
    list_sums,
    pair_arrays,
    pair_function,
    pair_ranks,
    pairs_param,
    unlisted_last,
    unlisted_param,
)
from distagg.types import Floats

MATRIX_BYTES = 2 << 30
DIGITS = 6  # decimals of a score with variances


@dataclass(frozen=True, kw_only=True)
class Mpm(Solver):
    """Scores by maximum likelihood, from net wins."""

    name: ClassVar[str] = "mpm"
    summary: ClassVar[str] = "Multinomial Preference Model: scores compete for all observed preferences"
    paper: ClassVar[str] = "000 section 2.3; 002"
    cost: ClassVar[str] = "entries + items x steps"
    inputs: ClassVar[tuple[str, ...]] = ("lists", "pairs")
    additive: ClassVar[bool] = True
    criterion: ClassVar[str] = "largest gradient entry for each observed preference"
    remedy: ClassVar[str] = "raise steps or prior"

    pairs: Any = pairs_param()
    unlisted: Any = unlisted_param()
    variance: Any = param(False, "learn every item's variance too (cost: items^2 a step); given as uncertainty")
    solver: Any = param(
        "lbfgs",
        "lbfgs, or gradient: plain steps of length rate (steps=100 as in the papers; what they leave is said)",
        choices=("lbfgs", "gradient"),
    )
    steps: Any = param(500, "most steps to take", least=1)
    rate: Any = param(1.0, "length of a gradient step", above=0.0)
    tolerance: Any = param(1e-10, "stop when no gradient entry is larger, for each observed preference", above=0.0)
    prior: Any = param(1e-3, "weight of the Gaussian prior on scores, beside an average item's evidence", above=0.0)
    tightness: Any = param(
        0.2,
        "weight of the Gaussian prior on log variances, beside an average item's evidence",
        above=0.0,
    )

    @property
    def item_columns(self) -> tuple[str, ...]:
        return ("uncertainty",) if self.variance else ()

    @property
    def query_columns(self) -> tuple[str, ...]:
        return (*FIT_COLUMNS, "uncertainty") if self.variance else FIT_COLUMNS

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        """What adds up over the chunks of an expert-partitioned query."""
        tally = self._tally(chunk, params)
        if self.variance:
            tally["margins"] = next(margins for _, margins in self._margins(chunk, params))
        return tally

    def _tally(self, chunk: Chunk, params: Params) -> Statistics:
        """Net wins of items, and preferences by adherence."""
        function = pair_function(self.name, self.pairs, chunk)
        alike = "expert_theta" not in params and not chunk.n_pairs
        if alike and function == DIFFERENCE and not unlisted_last(self.unlisted, chunk):
            net, seen = np.zeros(chunk.n_items), np.zeros((chunk.n_queries, 1))
            net_differences(
                chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.entry_item, chunk.entry_rank, net,
                seen,
            )  # fmt: skip
            return {"net": net, "observed": seen}
        theta = self._theta(chunk, params)
        levels, level = np.unique(theta, return_inverse=True)
        won, lost, behind = self._sums(chunk)
        net, observed = np.zeros(chunk.n_items), np.zeros((chunk.n_queries, len(levels)))
        net_wins(
            theta, level.astype(np.int32), chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets,
            chunk.list_expert, chunk.entry_item, won, lost, behind, *pair_arrays(chunk), net, observed,
        )  # fmt: skip
        return {"net": net, "observed": observed}

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        tally = params if "net" in params else self._tally(chunk, params)
        levels = np.unique(self._theta(chunk, params))
        n_queries, rate = chunk.n_queries, self.rate if self.solver == "gradient" else 0.0
        score, variance = np.zeros(chunk.n_items), np.ones(chunk.n_items)
        taken, left, reached = np.zeros(n_queries, dtype=np.int64), np.zeros(n_queries), np.zeros(n_queries)
        none, lines = np.empty((n_queries, 0)), np.full((n_queries, self.steps + 1 if trace else 0), np.nan)
        fit_queries(
            False, levels, chunk.item_offsets, chunk.item_offsets, tally["net"], tally["observed"],
            self.prior, 0.0, self.tolerance, self.steps, rate, score, variance, taken, left, reached,
            none if self.variance else lines,
        )  # fmt: skip
        if self.variance:
            score *= 2.0  # at variances of 1 differences are halved
            for q, margins in self._margins(chunk, params):
                one, rows = slice(q, q + 1), slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
                ends = np.array([0, len(margins)])
                fit_queries(
                    True, levels, ends, ends, margins.ravel(), tally["observed"][one], self.prior,
                    self.tightness, self.tolerance, self.steps, rate, score[rows], variance[rows], taken[one],
                    left[one], reached[one], lines[one],
                )  # fmt: skip
        queries = dict(zip(FIT_COLUMNS, (left <= self.tolerance, taken, left, reached), strict=True))
        items = {}
        if self.variance:
            score = np.round(score, DIGITS) + 0.0  # or the solver's last digits would part items of the same record
            items = {"uncertainty": variance}
            sizes = np.maximum(np.diff(chunk.item_offsets), 1)
            queries["uncertainty"] = np.bincount(chunk.item_query(), variance, n_queries) / sizes
        return Outcome(score, items, queries, lines if trace else None)

    def _sums(self, chunk: Chunk) -> tuple[Floats, Floats, Floats]:
        """What entries won and lost, and what the items that lists leave out lost."""
        return list_sums(chunk, left_out(self.unlisted, chunk), pair_function(self.name, self.pairs, chunk))

    def _theta(self, chunk: Chunk, params: Params) -> Floats:
        theta = np.asarray(params.get("expert_theta", np.ones(chunk.n_experts)), dtype=np.float64)
        return np.where(np.isfinite(theta), theta, 0.0)  # unseen experts

    def _margins(self, chunk: Chunk, params: Params) -> Iterator[tuple[int, Floats]]:
        """Every query's position and margins, one after the other."""
        if "margins" in params:
            yield 0, params["margins"]
            return
        theta, out = self._theta(chunk, params), left_out(self.unlisted, chunk)
        function = pair_function(self.name, self.pairs, chunk)
        value, outside = pair_values(chunk.entry_offsets, pair_ranks(chunk, function), out, function)
        for q in range(chunk.n_queries):
            size = int(chunk.item_offsets[q + 1] - chunk.item_offsets[q])
            self._check_size(size)
            margins, listed = np.zeros((size, size)), np.zeros(size, dtype=np.bool_)
            pair_margins(
                q, theta, function == BINARY, chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets,
                chunk.list_expert, chunk.entry_item, chunk.entry_rank, value, outside, out,
                *pair_arrays(chunk), margins, listed,
            )  # fmt: skip
            yield q, margins

    def _check_size(self, size: int) -> None:
        if size * size * 8 > MATRIX_BYTES:
            raise UsageError(
                f"{self.name} with variance=true needs a matrix of {size:,} x {size:,} items "
                f"({size * size * 8 / 2**30:.1f} GiB); leave variance out"
            )


def _pairs(chunk: Chunk) -> tuple[Any, ...]:
    return (
        chunk.pair_offsets, chunk.pair_expert, chunk.pair_winner, chunk.pair_loser, chunk.pair_weight, chunk.pair_tie,
    )  # fmt: skip
