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
from distagg.kernels.lists import BINARY, DIFFERENCE, Sums
from distagg.kernels.mpm import Fit, Fitted, fit_queries, fit_query
from distagg.kernels.preferences import net_differences, net_wins, pair_margins
from distagg.models.base import Params, Solver, Statistics, param
from distagg.models.outcome import FIT_COLUMNS, Outcome
from distagg.models.pairs import (
    expert_arrays,
    left_out,
    list_arrays,
    list_sums,
    list_values,
    pair_arrays,
    pair_function,
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
            net_differences(list_arrays(chunk), net, seen)
            return {"net": net, "observed": seen}
        theta = self._theta(chunk, params)
        levels, level = np.unique(theta, return_inverse=True)
        net, observed = np.zeros(chunk.n_items), np.zeros((chunk.n_queries, len(levels)))
        net_wins(
            list_arrays(chunk), pair_arrays(chunk), expert_arrays(chunk), self._sums(chunk), theta,
            level.astype(np.int32), net, observed,
        )  # fmt: skip
        return {"net": net, "observed": observed}

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        tally = params if "net" in params else self._tally(chunk, params)
        levels = np.unique(self._theta(chunk, params))
        n_queries, lines = chunk.n_queries, np.full((chunk.n_queries, self.steps + 1 if trace else 0), np.nan)
        fitted = Fitted(
            score=np.zeros(chunk.n_items), variance=np.ones(chunk.n_items), steps=np.zeros(n_queries, dtype=np.int64),
            gradient=np.zeros(n_queries), likelihood=np.zeros(n_queries),
            trace=np.empty((n_queries, 0)) if self.variance else lines,
        )  # fmt: skip
        rate = self.rate if self.solver == "gradient" else 0.0
        how = Fit(False, float(self.prior), float(self.tightness), float(self.tolerance), self.steps, float(rate))
        fit_queries(how, levels, chunk.item_offsets, tally["net"], tally["observed"], fitted)
        score, variance, taken, left, reached, _ = fitted
        if self.variance:
            how = how._replace(spread=True)
            score *= 2.0  # at variances of 1 differences are halved
            for q, margins in self._margins(chunk, params):
                rows = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
                taken[q], left[q], reached[q] = fit_query(
                    how, levels, margins, tally["observed"][q], score[rows], variance[rows], lines[q]
                )
        queries = dict(zip(FIT_COLUMNS, (left <= self.tolerance, taken, left, reached), strict=True))
        items = {}
        if self.variance:
            score = np.round(score, DIGITS) + 0.0  # or the solver's last digits would part items of the same record
            items = {"uncertainty": variance}
            sizes = np.maximum(np.diff(chunk.item_offsets), 1)
            queries["uncertainty"] = np.bincount(chunk.item_query(), variance, n_queries) / sizes
        return Outcome(score, items, queries, lines if trace else None)

    def _sums(self, chunk: Chunk) -> Sums:
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
        theta, function = self._theta(chunk, params), pair_function(self.name, self.pairs, chunk)
        values = list_values(chunk, left_out(self.unlisted, chunk), function)
        lists, pairs, experts = list_arrays(chunk), pair_arrays(chunk), expert_arrays(chunk)
        for q in range(chunk.n_queries):
            self._check_size(int(chunk.item_offsets[q + 1] - chunk.item_offsets[q]))
            yield q, pair_margins(q, lists, pairs, experts, values, function == BINARY, theta)

    def _check_size(self, size: int) -> None:
        if size * size * 8 > MATRIX_BYTES:
            raise UsageError(
                f"{self.name} with variance=true needs a matrix of {size:,} x {size:,} items "
                f"({size * size * 8 / 2**30:.1f} GiB); leave variance out"
            )
