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
from distagg.models.base import Params, Statistics, not_converged, param
from distagg.models.completion.kernels import fit_items, fit_users, item_sums, predict_all
from distagg.models.completion.model import Completion, add_sums, rating_sums, scale_and_mean
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
        return {name: params[name] for name in ("item", "mean", "scale") if name in params}

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        if "item" not in params:
            return rating_sums(chunk)
        item, mean = params["item"], float(params["mean"][0])
        user = self._users(chunk, params)
        matrix, right = np.zeros((*item.shape, item.shape[1])), np.zeros(item.shape)
        rating = _ratings(chunk)
        squared = item_sums(mean, chunk.entry_offsets, chunk.entry_item, rating, user, item, matrix, right)
        objective = squared + float((self._ridge * (user**2).sum(axis=0)).sum())
        return {"matrix": matrix, "right": right, "squared": np.array([squared]), "objective": np.array([objective])}

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        return add_sums(a, b)

    def finish(self, statistics: Statistics, params: Params) -> Params:
        if "item" not in params:
            size = len(statistics["count"])
            draw = np.random.default_rng(np.random.SeedSequence([self.seed]))
            item = 0.1 * draw.standard_normal((size, 1 + self.factors))
            item[:, 0] = 0.0
            return {**scale_and_mean(statistics), "item": item, "objectives": np.zeros(0)}
        objective = statistics["objective"] + (self._ridge * (params["item"] ** 2).sum(axis=0)).sum()
        matrix, right = statistics["matrix"].copy(), statistics["right"].copy()
        fit_items(self._ridge, matrix, right)
        history = np.append(params["objectives"], objective)
        after = {**params, "item": right, "objectives": history, "squared": statistics["squared"]}
        settled = len(history) > 1 and history[-2] - history[-1] <= self.tolerance * history[-2]
        if settled or len(history) > self.rounds:
            if not settled:
                not_converged(f"pmf: the objective still falls after {self.rounds} rounds; raise rounds or tolerance")
            after["over"] = np.ones(1)
        return after

    def done(self, params: Params) -> bool:
        return "over" in params

    def predict(self, chunk: Chunk, params: Params) -> Floats:
        out = np.empty((chunk.n_lists, chunk.n_items))
        item = np.ascontiguousarray(params["item"].T)
        predict_all(float(params["mean"][0]), self._users(chunk, params), item, out)
        return out

    @property
    def _ridge(self) -> Floats:
        return np.array([self.offset] + [self.weight] * self.factors, dtype=np.float64)

    def _users(self, chunk: Chunk, params: Params) -> Floats:
        user = np.zeros((chunk.n_lists, params["item"].shape[1]))
        fit_users(
            float(params["mean"][0]),
            self._ridge,
            chunk.entry_offsets,
            chunk.entry_item,
            _ratings(chunk),
            params["item"],
            user,
        )
        return user


def _ratings(chunk: Chunk) -> Floats:
    rating = -chunk.entry_rank
    rating.setflags(write=False)
    return rating
