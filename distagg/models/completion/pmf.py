"""pmf: probabilistic matrix factorisation (Salakhutdinov & Mnih 2008), with offsets of users and items.

The maximum of the posterior under Gaussian priors, by alternating least squares: users are fitted where their chunk is,
sums for the items add up over chunks. Only items' factors travel. Cost of a round: entries x factors^2; statistics:
items x factors^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import not_converged, param
from distagg.models.completion.kernels import fit_items, fit_users, item_sums, predict_all
from distagg.models.completion.model import Completion, RatingSums
from distagg.models.rounds import Params, Stage, Statistics
from distagg.types import Floats


@dataclass(frozen=True, kw_only=True)
class Pmf(Completion):
    """The model of a rating is mean + c_u + b_i + u . v_i; predictions are clipped to the scale."""

    name: ClassVar[str] = "pmf"
    summary: ClassVar[str] = "probabilistic matrix factorisation, by alternating least squares"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.7; Salakhutdinov & Mnih 2008"

    factors: int = param(10, "number of factors of every user and item", least=1)
    weight: float = param(12.0, "weight of the Gaussian priors on factors, in squared ratings", above=0.0)
    offset: float = param(2.0, "weight of the Gaussian priors on offsets", above=0.0)
    rounds: int = param(100, "most rounds to take", least=1)
    tolerance: float = param(1e-4, "stop when a round lowers the objective by a smaller share", above=0.0)
    seed: int = param(0, "seed of the initial factors", least=0)

    def sent(self, params: Params) -> Params:
        return {name: params[name] for name in ("item", "mean", "scale")}

    def learning(self, n_experts: int, params: Params) -> Stage:
        return FirstFactors(self)

    def predict(self, chunk: Chunk, params: Params) -> Floats:
        out = np.empty((chunk.n_lists, chunk.n_items))
        item = np.ascontiguousarray(params["item"].T)
        predict_all(float(params["mean"][0]), self._users(chunk, float(params["mean"][0]), params["item"]), item, out)
        return out

    @property
    def _ridge(self) -> Floats:
        return np.array([self.offset] + [self.weight] * self.factors, dtype=np.float64)

    def _users(self, chunk: Chunk, mean: float, item: Floats) -> Floats:
        user = np.zeros((chunk.n_lists, item.shape[1]))
        fit_users(mean, self._ridge, chunk.entry_offsets, chunk.entry_item, _ratings(chunk), item, user)
        return user


@dataclass(frozen=True, slots=True, eq=False)
class FirstFactors(RatingSums):
    """The first round: the mean rating, and random factors of items."""

    model: Pmf

    def finish(self, statistics: Statistics) -> LeastSquares:
        draw = np.random.default_rng(np.random.SeedSequence([self.model.seed]))
        item = 0.1 * draw.standard_normal((len(statistics["count"]), 1 + self.model.factors))
        item[:, 0] = 0.0
        return LeastSquares(self.model, self.known(statistics), item, np.zeros(0))


@dataclass(frozen=True, slots=True, eq=False)
class LeastSquares(Stage):
    """One round of alternating least squares: users at the present items, then items."""

    model: Pmf
    known: Params  # scale and mean
    item: Floats  # (items, 1 + factors)
    objectives: Floats  # of the rounds so far

    def map(self, chunk: Chunk) -> Statistics:
        item, mean, ridge = self.item, float(self.known["mean"][0]), self.model._ridge
        user = self.model._users(chunk, mean, item)
        matrix, right = np.zeros((*item.shape, item.shape[1])), np.zeros(item.shape)
        rating = _ratings(chunk)
        squared = item_sums(mean, chunk.entry_offsets, chunk.entry_item, rating, user, item, matrix, right)
        objective = squared + float((ridge * (user**2).sum(axis=0)).sum())
        return {"matrix": matrix, "right": right, "squared": np.array([squared]), "objective": np.array([objective])}

    def finish(self, statistics: Statistics) -> LeastSquares | Params:
        model, ridge = self.model, self.model._ridge
        objective = statistics["objective"] + (ridge * (self.item**2).sum(axis=0)).sum()
        matrix, right = statistics["matrix"].copy(), statistics["right"].copy()
        fit_items(ridge, matrix, right)
        history = np.append(self.objectives, objective)
        settled = len(history) > 1 and history[-2] - history[-1] <= model.tolerance * history[-2]
        if not settled and len(history) <= model.rounds:
            return LeastSquares(model, self.known, right, history)
        if not settled:
            not_converged(f"pmf: the objective still falls after {model.rounds} rounds; raise rounds or tolerance")
        return {**self.known, "item": right, "objectives": history, "squared": statistics["squared"]}


def _ratings(chunk: Chunk) -> Floats:
    rating = -chunk.entry_rank
    rating.setflags(write=False)
    return rating
