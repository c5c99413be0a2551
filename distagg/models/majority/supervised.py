"""sup_mc: the Markov chain mc2 whose experts have weights learned on labels (Liu et al. 2007).

Liu et al. look for weights under which the chain's stationary distribution breaks few of the pairwise orders that the
labels state, and relax that to a semidefinite programme. Here the same constraints enter as logistic losses, and the
weights follow their exact gradient. Log weights are learned, so that weights stay positive: exponentiated gradient, the
form of projected gradient for weights whose sum does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import param
from distagg.models.majority.model import Mc2
from distagg.models.majority.supervised_kernels import Walk, climb_chain
from distagg.models.pairs import list_arrays, rated
from distagg.models.pool import LEARNS_FROM_POOL, taught_items, training_pool_param
from distagg.models.rounds import Params, kept
from distagg.models.trained import MODE_HELP, MODES, Trained, TrainingState
from distagg.models.unjudged import training_labels
from distagg.types import INDEX, Floats


@dataclass(frozen=True, kw_only=True)
class SupervisedChain(Trained):
    """mc2 with a weight for each expert, trained so that items of higher labels get more of the chain's mass.

    The objective is the mean, over queries, of the mean log chance of the right order over all pairs of items with
    different labels; the chance is the logistic function of the gap of scores, and a score is an item's mass times the
    number of items. Experts unseen in training have the weight 1, about the geometric mean of the others.
    """

    name: ClassVar[str] = "sup_mc"
    summary: ClassVar[str] = "mc2 with weights of experts learned from labels"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 3.3; Liu et al. 2007"
    cost: ClassVar[str] = "(entries x steps + labelled pairs) x rounds"
    pooling: ClassVar[str] = LEARNS_FROM_POOL

    teleport: float = param(0.3, "chance to jump anywhere at each step", above=0.0)
    tolerance: float = param(1e-10, "stop a walk when a step changes the scores by less than this in total", above=0.0)
    steps: int = param(2000, "largest number of steps of a walk", least=1)
    mode: str = param("gradient", MODE_HELP, choices=MODES)
    rate: float = param(1.0, "length of a step of SGD (for Adam times 0.1)", above=0.0)
    pool: int = training_pool_param(200)

    @property
    def weight_names(self) -> tuple[str, ...]:
        return ("expert_log_weight",)

    @property
    def weight_columns(self) -> tuple[str, ...]:
        return ("log weight",)

    @property
    def ignored(self) -> float:
        return -np.inf

    def start(self, n_experts: int) -> Params:
        return {"expert_log_weight": np.zeros(n_experts)}

    def score(self, chunk: Chunk, params: Params) -> Floats:
        chain = Mc2(teleport=self.teleport, tolerance=self.tolerance, steps=self.steps)
        return chain.score(chunk, {"expert_weight": np.exp(params["expert_log_weight"])})

    def learn(self, chunk: Chunk, state: TrainingState) -> tuple[Params, int]:
        log_weight = state.weights["expert_log_weight"].copy()
        order = self.draws(chunk, state).permutation(chunk.n_queries).astype(INDEX)
        count = self._climb(chunk, self.rate, order, log_weight, np.zeros_like(log_weight))
        return {"expert_log_weight": log_weight}, count

    def slope(self, chunk: Chunk, state: TrainingState) -> tuple[Params, int]:
        log_weight = state.weights["expert_log_weight"].copy()
        total = np.zeros_like(log_weight)
        count = self._climb(chunk, 0.0, np.arange(chunk.n_queries, dtype=INDEX), log_weight, total)
        return {"expert_log_weight": total}, count

    def _climb(self, chunk: Chunk, rate: float, order: np.ndarray, log_weight: Floats, total: Floats) -> int:
        walk = Walk(float(self.teleport), float(self.tolerance), int(self.steps))
        labels = training_labels(chunk, self.unjudged)
        if 0 < self.pool < np.diff(chunk.item_offsets).max(initial=0) and not rated(chunk):
            known = replace(chunk, labels=labels)
            (chunk,) = kept(chunk, ("taught", self), lambda _: (taught_items(known, self.pool),))
            labels = chunk.labels
        arrays = chunk.list_expert, list_arrays(chunk), labels
        return int(climb_chain(walk, rate, order, *arrays, log_weight, total)[1])
