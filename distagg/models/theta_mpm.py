"""mpm with every expert's adherence: learned with the scores (theta_mpm), or measured on labels (theta_sup_mpm).

Papers 000 (sections 2.5 and 3.4) and 002. Adherence is in [0, 1], shared by all queries: 0 says that an expert's
preferences have nothing to do with the consensus, 1 that they follow it like the best expert's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.kernels.adherence import agreement
from distagg.kernels.lists import sum_by_item
from distagg.kernels.mpm import adherence_slopes
from distagg.models.base import Params, Statistics, not_converged, param
from distagg.models.mpm import Mpm
from distagg.models.pairs import expert_arrays, list_arrays, pair_arrays

SETTLED = 1e-3  # adherence is known when no expert's moves more in a round
LONGEST = 2.0  # the most that an expert's adherence may grow in a round, in units of the best


@dataclass(frozen=True, kw_only=True)
class ThetaMpm(Mpm):
    """Rounds: fit every query's scores at the present adherence, then one Newton step of adherence at those scores.

    The likelihood does not change when adherence is multiplied and scores are divided by the same number, so the
    best expert's adherence is set to 1 after each round. Variances are no part of learning.
    """

    name: ClassVar[str] = "theta_mpm"
    summary: ClassVar[str] = "mpm with each expert's adherence learned, without labels"
    paper: ClassVar[str] = "000 section 2.5; 002"
    cost: ClassVar[str] = "(entries + items x experts x steps) x rounds"
    adherence: ClassVar[bool] = True

    rounds: Any = param(100, "most rounds of learning adherence", least=1)

    @property
    def learns(self) -> bool:
        return True

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        if "rounds" in params:
            return super().map(chunk, params)
        theta = self._theta(chunk, params)
        fitted = replace(self, variance=False).fit_chunk(chunk, params, trace=False)
        slope, curve = np.zeros(chunk.n_experts), np.zeros(chunk.n_experts)
        adherence_slopes(
            list_arrays(chunk), pair_arrays(chunk), expert_arrays(chunk), self._sums(chunk), theta, fitted.score, slope,
            curve,
        )  # fmt: skip
        return {"slope": slope, "curve": curve, "unfinished": np.array([(~fitted.queries["converged"]).sum()])}

    def finish(self, statistics: Statistics, params: Params) -> Params:
        if "rounds" in params:
            return super().finish(statistics, params)
        slope, curve = statistics["slope"], statistics["curve"]
        before = params.get("expert_theta", np.ones(len(slope)))
        heard = curve > 0.0  # others said nothing that could be told from chance
        step = np.where(heard, slope / np.where(heard, curve, 1.0), -np.inf)
        theta = np.clip(before + step, 0.0, LONGEST)
        if theta.max(initial=0.0) <= 0.0:
            return {"expert_theta": np.ones(len(slope)), "rounds": np.ones(1)}  # nobody agrees: all count the same
        theta = theta / theta.max()
        round_, moved = params.get("round", np.zeros(1)) + 1, float(np.abs(theta - before).max())
        if moved > SETTLED and round_[0] < self.rounds:
            return {"expert_theta": theta, "round": round_}
        if moved > SETTLED:
            not_converged(f"theta_mpm: adherence still moves by {moved:.1e} after {self.rounds} rounds; raise rounds")
        if statistics["unfinished"][0]:
            not_converged(
                f"theta_mpm: adherence was learned with {int(statistics['unfinished'][0])} queries not converged after "
                f"{self.steps} steps; {self.remedy}"
            )
        return {"expert_theta": theta, "rounds": round_}

    def done(self, params: Params) -> bool:
        return "rounds" in params


@dataclass(frozen=True, kw_only=True)
class ThetaSupMpm(Mpm):
    """mpm in which an expert counts as much as it agreed with the labels of the training queries."""

    name: ClassVar[str] = "theta_sup_mpm"
    summary: ClassVar[str] = "mpm with each expert's adherence measured on labels"
    paper: ClassVar[str] = "000 section 3.4"
    inputs: ClassVar[tuple[str, ...]] = ("lists",)
    supervised: ClassVar[bool] = True
    adherence: ClassVar[bool] = True
    learns_from_parts: ClassVar[bool] = True

    scale: Any = param(
        "chance",
        "adherence from the share of rightly ordered pairs: chance (no better than chance gives 0, the best expert 1) "
        "or plain (the share itself)",
        choices=("chance", "plain"),
    )

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        if "expert_theta" in params:
            return super().map(chunk, params)
        share = agreement(int(chunk.labels.max(initial=0)) + 1, list_arrays(chunk), chunk.grades())
        told = ~np.isnan(share)
        total = sum_by_item(chunk.list_expert[told], share[told], chunk.n_experts)
        count = np.bincount(chunk.list_expert[told], minlength=chunk.n_experts).astype(np.float64)
        return {"total": total, "count": count}

    def finish(self, statistics: Statistics, params: Params) -> Params:
        if "expert_theta" in params:
            return super().finish(statistics, params)
        share = np.where(statistics["count"] > 0, statistics["total"] / np.maximum(statistics["count"], 1.0), 0.5)
        if self.scale == "chance":
            share = np.clip((share - 0.5) / max(share.max() - 0.5, np.finfo(float).tiny), 0.0, 1.0)
        return {"expert_theta": share}
