"""cps: the coset-permutation distance based stagewise model.

Qin, Geng & Liu 2010; Volkovs & Zemel 2014, section 2.2.1.
Cost: items^2 x lists for greedy inference (one pass over entries for spearman, whose stages all order items alike);
a round of learning costs items x lists^2 for every label.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import not_converged, param, sum_entries
from distagg.models.distances.cps_kernels import DISTANCES, infer_queries, likelihood
from distagg.models.lists import Lists, mid_positions
from distagg.models.pairs import list_arrays
from distagg.models.pool import Pooled
from distagg.models.rounds import Params, Stage, Statistics
from distagg.optimise.newton import NewtonAscent
from distagg.types import Floats

MOST_EXPERTS = 2000  # learning adds up a matrix of experts x experts
KEPT = ("theta", "start", "step", "value", "gain", "rounds")  # the fields of NewtonAscent, as checkpoints name them


@dataclass(frozen=True, kw_only=True)
class Cps(Pooled):
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
    rounds: int = param(100, "largest number of rounds of learning", least=1)
    tolerance: float = param(1e-8, "stop when a round promises to raise the log likelihood per item by less", above=0.0)

    @property
    def needs_labels(self) -> bool:
        return self.theta == "learn"

    def score_pool(self, chunk: Chunk, params: Params) -> Floats:
        theta = self._theta(chunk, params)
        if self.distance == "spearman":
            return self._weighted_positions(chunk, theta)
        score: Floats = infer_queries(*self._how, _positions(chunk), theta[chunk.list_expert])
        return score

    def learning(self, n_experts: int, params: Params) -> Stage:
        if n_experts > MOST_EXPERTS:
            raise UsageError(
                f"cps with theta=learn adds up a matrix of experts x experts, and {n_experts:,} experts are more than "
                f"{MOST_EXPERTS:,}; give theta a number"
            )
        return NewtonRound(self, NewtonAscent.begin(np.zeros(n_experts)))

    def _weighted_positions(self, chunk: Chunk, theta: Floats) -> Floats:
        """Minus the weighted sum of positions, less that of unlisted items; every stage of spearman sorts by it."""
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


@dataclass(frozen=True, slots=True, eq=False)
class NewtonRound(Stage):
    """One step of Newton's method on the weights of experts."""

    model: Cps
    ascent: NewtonAscent

    def sent(self) -> Likelihood:
        return Likelihood(self.model, self.ascent.trial)

    def finish(self, statistics: Statistics) -> NewtonRound | Params:
        model, theta, taken = self.model, self.ascent.trial, float(statistics["taken"])
        if taken == 0:
            raise UsageError("cps learns from queries whose items have different labels, and there are none")
        value = float(statistics["value"]) - 0.5 * model.prior * float(theta @ theta)
        gradient = statistics["gradient"] - model.prior * theta
        curvature = statistics["curvature"] + model.prior * np.eye(len(theta))
        ascent = self.ascent.after(value, gradient, curvature, taken)
        if ascent.gain > model.tolerance and ascent.evaluations < model.rounds:
            return NewtonRound(model, ascent)
        if ascent.gain > model.tolerance:
            not_converged(
                f"cps: not converged after {model.rounds} rounds (gain {ascent.gain:.1e}); raise rounds or prior"
            )
        return {"expert_theta": ascent.x}

    def state(self) -> Params:
        values = (np.asarray(getattr(self.ascent, field.name)) for field in fields(NewtonAscent))
        return dict(zip(KEPT, values, strict=True))

    def resumed(self, state: Params) -> NewtonRound:
        theta, start, step, value, gain, rounds = (state[name] for name in KEPT)
        return NewtonRound(self.model, NewtonAscent(theta, start, step, float(value), float(gain), int(rounds)))


@dataclass(frozen=True, slots=True, eq=False)
class Likelihood(Stage):
    """The log likelihood of a chunk's labels at some weights, its gradient and minus its Hessian."""

    model: Cps
    theta: Floats  # (experts,)

    def map(self, chunk: Chunk) -> Statistics:
        chunk = self.model.pooled(chunk)
        value, taken, gradient, curvature = likelihood(
            *self.model._how, _positions(chunk), chunk.list_expert, self.theta, chunk.grades()
        )
        return {"value": np.array(value), "taken": np.array(taken), "gradient": gradient, "curvature": curvature}


def _positions(chunk: Chunk) -> Lists:
    """A chunk's lists with positions for ranks."""
    position = mid_positions(chunk.entry_offsets, chunk.entry_rank)
    position.setflags(write=False)  # as a chunk's, so that kernels see one type
    return list_arrays(chunk)._replace(entry_rank=position)
