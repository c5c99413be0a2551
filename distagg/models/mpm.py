"""The Multinomial Preference Model: mpm, and theta_sup_mpm with every expert's adherence from labels.

Papers 000 (sections 2.3, 2.5, 3.5) and 002. Cost: one pass over entries, then O(items) an iteration for every
distinct adherence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.kernels.adherence import agreement
from distagg.kernels.lists import PAIR_FUNCTIONS, pair_sums
from distagg.kernels.mpm import fit_queries
from distagg.models.base import Model, Params, Statistics, not_converged, param
from distagg.types import Floats


@dataclass(frozen=True, kw_only=True)
class Mpm(Model):
    """Scores by maximum likelihood, from net wins."""

    name: ClassVar[str] = "mpm"
    summary: ClassVar[str] = "Multinomial Preference Model: scores compete for all observed preferences"
    paper: ClassVar[str] = "000 section 2.3; 002"
    cost: ClassVar[str] = "entries + items x steps"
    positive: ClassVar[bool] = False

    pairs: Any = param("difference", "how two ranks become a preference", choices=tuple(PAIR_FUNCTIONS))
    solver: Any = param("lbfgs", "lbfgs, or gradient: plain steps as in the papers", choices=("lbfgs", "gradient"))
    steps: Any = param(500, "most steps to take", least=1)
    rate: Any = param(1.0, "length of a gradient step", above=0.0)
    tolerance: Any = param(1e-8, "stop when no gradient entry is larger, for each observed preference", above=0.0)
    prior: Any = param(1e-6, "weight of the Gaussian prior that keeps scores finite", above=0.0)

    def score(self, chunk: Chunk, params: Params) -> Floats:
        theta = np.asarray(params.get("expert_theta", np.ones(chunk.n_experts)), dtype=np.float64)
        theta = np.where(np.isfinite(theta), theta, 0.0)  # unseen experts
        won, lost = pair_sums(chunk.entry_offsets, chunk.entry_rank, PAIR_FUNCTIONS[self.pairs])
        score, left = np.zeros(chunk.n_items), np.zeros(chunk.n_queries)
        rate = self.rate if self.solver == "gradient" else 0.0
        fit_queries(
            theta, self.prior, self.tolerance, self.steps, rate, chunk.item_offsets, chunk.list_offsets,
            chunk.entry_offsets, chunk.list_expert, chunk.entry_item, won, lost, score, left,
        )  # fmt: skip
        unfinished = int((left > 100 * self.tolerance).sum())
        if unfinished and self.solver != "gradient":  # the papers' fixed number of steps is not meant to converge
            not_converged(
                f"{self.name}: {unfinished} queries not converged after {self.steps} steps (largest gradient "
                f"{left.max():.1e}); raise steps or prior"
            )
        return score


@dataclass(frozen=True, kw_only=True)
class ThetaSupMpm(Mpm):
    """mpm in which an expert counts as much as it agreed with the labels of the training queries."""

    name: ClassVar[str] = "theta_sup_mpm"
    summary: ClassVar[str] = "mpm with each expert's adherence measured on labels"
    paper: ClassVar[str] = "000 section 3.4"
    supervised: ClassVar[bool] = True

    scale: Any = param(
        "chance",
        "adherence from the share of rightly ordered pairs: chance (no better than chance gives 0, the best expert 1) "
        "or plain (the share itself)",
        choices=("chance", "plain"),
    )

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        total, count = np.zeros(chunk.n_experts), np.zeros(chunk.n_experts)
        levels = int(chunk.labels.max(initial=0)) + 1
        agreement(
            levels, chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.list_expert, chunk.entry_item,
            chunk.entry_rank, chunk.labels, total, count,
        )  # fmt: skip
        return {"total": total, "count": count}

    def finish(self, statistics: Statistics, params: Params) -> Params:
        share = np.where(statistics["count"] > 0, statistics["total"] / np.maximum(statistics["count"], 1.0), 0.5)
        if self.scale == "chance":
            share = np.clip((share - 0.5) / max(share.max() - 0.5, np.finfo(float).tiny), 0.0, 1.0)
        return {"expert_theta": share}
