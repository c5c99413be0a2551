"""cranking: Mallows with a weight for every expert, learned without labels (Lebanon & Lafferty 2002).

The weights are those of Klementiev, Roth & Small (2008), by expectation maximisation over queries; lists are partial.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import not_converged, param
from distagg.models.distances.mallows import stages_of
from distagg.models.distances.mallows_kernels import Sampling, expect_chunk, fit_theta
from distagg.models.lists import sum_by_item
from distagg.models.pairs import list_arrays
from distagg.models.pool import Pooled, pool_param
from distagg.models.rounds import Params, Stage, Statistics
from distagg.types import Floats

BURN = 5  # sweeps before any counts
PLAIN = 30  # rounds that stand for themselves; later ones are averaged (Delyon, Lavielle & Moulines 1999)
NO_TRACE = np.empty(0)


@dataclass(frozen=True, kw_only=True)
class Cranking(Pooled):
    """An unknown order in every query; an expert's list is a Mallows draw around it, with the expert's own theta.

    A round finds, for each expert, the expected distance between its lists and the unknown orders given all lists and
    the present thetas; then the theta that makes such a distance likeliest. Experts no nearer than chance get 0.

    The expectations run over whole orders, by Gibbs sampling; with every pair decided by itself all thetas would shrink
    to 0. The draws of a query depend on its position in the dataset and the seed alone, and are the same in every
    round; after 30 rounds expected distances are averaged over rounds, so that the noise of few queries dies out.

    Scores need no sampling: they are the expected number of items behind an item when every pair is decided by itself
    with the posterior odds exp(thetas for less thetas against). Not fitted, all experts have the theta ``start``. With
    ignore, an item in no list gets the mean score.
    """

    name: ClassVar[str] = "cranking"
    summary: ClassVar[str] = "Mallows with expert weights learned without labels"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Lebanon & Lafferty 2002; Klementiev et al. 2008"
    cost: ClassVar[str] = "items^2 x (lists + sweeps) a round"

    pool: int = pool_param(200)
    unlisted: str = param(
        "last",
        "what it means that a list leaves an item out: last (it stands behind all listed ones) or ignore (the list "
        "says nothing about it)",
        choices=("last", "ignore"),
    )
    sweeps: int = param(10, "sweeps of Gibbs sampling over a query's items, after five that do not count", least=1)
    largest: float = param(
        0.2,
        "most that a theta may be: it bounds how far experts whose lists are nearly the same confirm each other; of "
        "0.05 to 10 the best on MQ2007 and good on MQ2008",
        above=0.0,
    )
    seed: int = param(0, "seed of the sampling", least=0)
    start: float = param(0.1, "theta of every expert in the first round", above=0.0)
    tolerance: float = param(1e-3, "stop when no theta changes by a larger share of the largest", above=0.0)
    rounds: int = param(100, "most rounds to take", least=1)

    @property
    def learns(self) -> bool:
        return True

    def learning(self, n_experts: int, params: Params) -> Stage:
        return ThetaRound(self, np.full(n_experts, self.start), np.zeros(n_experts), 0)

    def score_pool(self, chunk: Chunk, params: Params) -> Floats:
        theta = np.asarray(params.get("expert_theta", np.full(chunk.n_experts, self.start)), dtype=np.float64)
        return self._expect(chunk, np.where(np.isfinite(theta), theta, 0.0), 0)[0]  # 0: unseen experts

    def _expect(self, chunk: Chunk, theta: Floats, sweeps: int) -> tuple[Floats, Floats]:
        """Scores (I,) and expected distances (experts,)."""
        how = Sampling(self.unlisted == "last", sweeps, BURN, self.seed)
        weight = theta[chunk.list_expert]
        score, distance = expect_chunk(how, list_arrays(chunk), weight, chunk.positions)
        return score, sum_by_item(chunk.list_expert, distance, chunk.n_experts)


@dataclass(frozen=True, slots=True, eq=False)
class ThetaRound(Stage):
    """One round: expected distances at the present thetas, then the thetas that make such distances likeliest."""

    model: Cranking
    theta: Floats  # (experts,)
    distance: Floats  # (experts,) expected, averaged over rounds after the first ones
    round: int  # rounds done

    def map(self, chunk: Chunk) -> Statistics:
        """Expected distance of every expert, and the stages of its lists by the items left."""
        chunk = self.model.pooled(chunk)
        distance = self.model._expect(chunk, self.theta, self.model.sweeps)[1]
        stages, tied = stages_of(chunk, chunk.list_expert, chunk.n_experts, self.model.unlisted == "last")
        return {"distance": distance + 0.5 * tied, "stages": stages}

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        width = max(a["stages"].shape[1], b["stages"].shape[1])
        stages = np.zeros((len(a["stages"]), width))
        for counted in (a["stages"], b["stages"]):
            stages[:, : counted.shape[1]] += counted
        return {"distance": a["distance"] + b["distance"], "stages": stages}

    def finish(self, statistics: Statistics) -> ThetaRound | Params:
        model, turn = self.model, self.round + 1
        distance, stages = statistics["distance"], statistics["stages"]
        if turn > PLAIN:
            distance = self.distance + (distance - self.distance) / (turn - PLAIN + 1)
        pairs = zip(distance, stages, strict=True)
        theta = np.array([fit_theta(d, counts, 1e-10, 100, model.largest, NO_TRACE)[0] for d, counts in pairs])
        change = float(np.abs(theta - self.theta).max() / max(theta.max(), np.finfo(float).tiny))
        if change > model.tolerance and turn < model.rounds:
            return ThetaRound(model, theta, distance, turn)
        if change > model.tolerance:
            not_converged(
                f"{model.name}: thetas still change by {change:.1e} of the largest after {model.rounds} rounds; raise "
                "rounds or tolerance"
            )
        learned = {"expert_theta": theta, "expert_distance": distance}
        return {**learned, "round": np.array(turn), "change": np.array(change)}
