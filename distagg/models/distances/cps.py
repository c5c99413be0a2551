"""cps: the coset-permutation distance based stagewise model.

Qin, Geng & Liu 2010; Volkovs & Zemel 2014, section 2.2.1.
Cost: items^2 x lists for greedy inference (one pass over entries for spearman, whose stages all order items alike);
a round of learning costs items x lists^2 for every label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Model, Params, Statistics, not_converged, param, sum_entries
from distagg.models.distances.cps_kernels import DISTANCES, infer_queries, likelihood
from distagg.models.lists import Lists, mid_positions
from distagg.models.pairs import list_arrays
from distagg.types import Floats

MOST_EXPERTS = 2000  # learning adds up a matrix of experts x experts


@dataclass(frozen=True, kw_only=True)
class Cps(Model):
    """Items taken one after another, each stage by its mean distance to what the experts say.

    Items of equal probability at a stage are taken together and share their places. Items in no list are last.
    """

    name: ClassVar[str] = "cps"
    summary: ClassVar[str] = "stage by stage, the item nearest to all experts by a coset-permutation distance"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2.1; Qin, Geng & Liu 2010"
    cost: ClassVar[str] = "items^2 x lists"

    distance: str = param(
        "kendall",
        "distance between rankings: kendall (pairs out of order), footrule or spearman (squared)",
        choices=("kendall", "footrule", "spearman"),
    )
    unlisted: str = param(
        "average",
        "position of the items a list leaves out: average (they share the positions left over) or last (each stands at "
        "the last position); kendall does not depend on it",
        choices=("average", "last"),
    )
    theta: float | Literal["learn"] = param(
        1.0,
        "weight of every expert (as long as all are equal it changes probabilities, not the ranking), or learn: by "
        "maximum likelihood from the labels of training queries",
        choices=("learn",),
        above=0.0,
    )
    prior: float = param(1.0, "weight of the Gaussian prior on learned weights", above=0.0)
    rounds: int = param(100, "most rounds of learning", least=1)
    tolerance: float = param(1e-8, "stop when a round promises to raise the log likelihood per item by less", above=0.0)

    @property
    def needs_labels(self) -> bool:
        return self.theta == "learn"

    def score(self, chunk: Chunk, params: Params) -> Floats:
        theta = self._theta(chunk, params)
        if self.distance == "spearman":
            return self._weighted_positions(chunk, theta)
        score: Floats = infer_queries(*self._how, _positions(chunk), theta[chunk.list_expert])
        return score

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        """The log likelihood of the labels, its gradient and minus its Hessian."""
        n_experts = chunk.n_experts
        if n_experts > MOST_EXPERTS:
            raise UsageError(
                f"cps with theta=learn adds up a matrix of experts x experts, and {n_experts:,} experts are more than "
                f"{MOST_EXPERTS:,}; give theta a number"
            )
        theta = np.asarray(params.get("expert_theta", np.zeros(n_experts)), dtype=np.float64)
        value, taken, gradient, curvature = likelihood(
            *self._how, _positions(chunk), chunk.list_expert, theta, chunk.grades()
        )
        return {"value": np.array(value), "taken": np.array(taken), "gradient": gradient, "curvature": curvature}

    def finish(self, statistics: Statistics, params: Params) -> Params:
        """One Newton step; one that was too long is halved."""
        taken = float(statistics["taken"])
        if taken == 0:
            raise UsageError("cps learns from queries whose items have different labels, and there are none")
        theta = params.get("expert_theta", np.zeros(len(statistics["gradient"])))
        value = float(statistics["value"]) - 0.5 * self.prior * float(theta @ theta)
        rounds = float(params.get("rounds", 0.0)) + 1.0
        step: np.ndarray
        if "value" in params and value < float(params["value"]) - 1e-12 * abs(float(params["value"])):
            start, step = params["expert_start"], 0.5 * params["expert_step"]
            value, gain = float(params["value"]), 0.5 * float(params["gain"])
        else:
            start, gradient = theta, statistics["gradient"] - self.prior * theta
            step = np.linalg.solve(statistics["curvature"] + self.prior * np.eye(len(theta)), gradient)
            gain = 0.5 * float(gradient @ step) / taken
        if gain <= self.tolerance or rounds >= self.rounds:
            if gain > self.tolerance:
                not_converged(f"cps: not converged after {self.rounds} rounds (gain {gain:.1e}); raise rounds or prior")
            return {"expert_theta": start}
        state = {"value": value, "gain": gain, "rounds": rounds}
        return {
            "expert_theta": start + step,
            "expert_start": start,
            "expert_step": step,
            **{key: np.array(number) for key, number in state.items()},
        }

    def done(self, params: Params) -> bool:
        return "rounds" not in params

    def _weighted_positions(self, chunk: Chunk, theta: Floats) -> Floats:
        """Minus the weighted sum of positions, up to what unlisted items have: every stage of spearman sorts by it."""
        position, length = mid_positions(chunk.entry_offsets, chunk.entry_rank), np.diff(chunk.entry_offsets)
        size = np.repeat(np.diff(chunk.item_offsets), np.diff(chunk.list_offsets))
        rest = size if self.unlisted == "last" else 0.5 * (length + 1 + size)
        return sum_entries(chunk, np.repeat(theta[chunk.list_expert], length) * (np.repeat(rest, length) - position))

    def _theta(self, chunk: Chunk, params: Params) -> Floats:
        if not self.learns:
            return np.full(chunk.n_experts, float(self.theta))
        theta = np.asarray(params["expert_theta"] if params else np.ones(chunk.n_experts), dtype=np.float64)
        return np.where(np.isfinite(theta), theta, 0.0)  # unseen experts

    @property
    def _how(self) -> tuple[int, bool]:
        """The distance, and whether unlisted items stand last."""
        return DISTANCES[self.distance], self.unlisted == "last"


def _positions(chunk: Chunk) -> Lists:
    """A chunk's lists with positions for ranks."""
    position = mid_positions(chunk.entry_offsets, chunk.entry_rank)
    position.setflags(write=False)  # as a chunk's, so that kernels see one type
    return list_arrays(chunk)._replace(entry_rank=position)
