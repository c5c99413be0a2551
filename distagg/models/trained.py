"""The base of models that are trained in rounds, and what they give the engine.

Volkovs & Zemel 2014, algorithms 1 and 2, and their map-reduce forms.
A model's weights are arrays in its params, named by ``weight_names``. It writes ``start`` (the first weights),
``learn`` (one pass of SGD over a chunk's queries), ``slope`` (the summed gradient at fixed weights) and ``score``;
``prepare`` computes what depends on the chunk alone (features, potentials). The engine (``engine.fitting.train``) owns
the rounds; params also hold ``round`` (rounds done) and ``highest`` (the highest label of the training data).
Objectives are maximised: a slope points up.

- ``serial``: the weights go through all chunks one after the other, the papers' algorithm.
- ``average``: every chunk learns from the round's weights; the mean of what they reach, by queries, is the next.
- ``gradient``: the mean gradient of all queries makes one step of Adam; it needs several times the rounds and patience.

Params named ``expert_*`` hold a row for each expert and are aligned by name; an expert unseen in training has
``Model.unseen`` there. Params named ``shared_*`` serve experts that are not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Model, param
from distagg.models.rounds import Params, Statistics, kept

MODES = ("serial", "average", "gradient")
MODE_HELP = (
    "serial (SGD through all queries in turn), average (SGD in every chunk, then the mean), gradient (all queries, one "
    "step of Adam a round)"
)


@dataclass(frozen=True, kw_only=True)
class Trained(Model):
    """Base of models that are trained in rounds."""

    supervised: ClassVar[bool] = True
    learner: ClassVar[str] = "trained"
    overflows: ClassVar[bool] = True
    adam: ClassVar[tuple[float, float, float, float]] = (0.1, 0.9, 0.999, 1e-8)  # step, decay of both moments, floor

    mode: str = param("serial", MODE_HELP, choices=MODES)
    rounds: int = param(100, "largest number of rounds of training", least=1)
    patience: int = param(20, "stop after this many rounds without a better value on the validation queries", least=1)
    rate: float = param(0.1, "length of a step of SGD (for Adam times 0.1)", above=0.0)
    seed: int = param(0, "seed of all random draws", least=0)

    @property
    def weight_names(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def weight_columns(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def ignored(self) -> float:
        return 0.0  # an unseen expert may have the shared weights instead

    def start(self, n_experts: int) -> Params:
        """The first weights, by name."""
        raise NotImplementedError

    def first(self, n_experts: int, highest: float) -> Params:
        """The params before the first round; ``highest`` is the highest label of the training data."""
        return {**self.start(n_experts), "round": np.zeros(1), "highest": np.array([float(highest)])}

    def prepare(self, chunk: Chunk) -> dict[str, np.ndarray]:
        """Arrays that depend on the chunk and the settings alone."""
        return {}

    def learn(self, chunk: Chunk, params: Params) -> tuple[Params, int]:
        """The weights after one pass of SGD over the chunk's queries, and how many queries had a gradient."""
        raise NotImplementedError

    def slope(self, chunk: Chunk, params: Params) -> tuple[Params, int]:
        """The gradient of the objective, by weight, summed over the queries that have one; and their number."""
        raise NotImplementedError

    def prepared(self, chunk: Chunk) -> dict[str, np.ndarray]:
        """The arrays of ``prepare``, cached while the chunk is in memory."""
        return kept(chunk, self, self.prepare)

    def draws(self, chunk: Chunk, params: Params) -> np.random.Generator:
        """The random numbers of this round for this chunk, the same on every worker."""
        first = int(chunk.positions[0]) if chunk.n_queries else 0
        return np.random.default_rng(np.random.SeedSequence([self.seed, int(params["round"][0]), first]))

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        """Sums over chunks: of gradients, or of learned weights times the number of queries that they come from."""
        if self.mode == "gradient":
            slope, count = self.slope(chunk, params)
            return {**slope, "count": np.array([float(count)])}
        reached, count = self.learn(chunk, params)
        return {**{name: reached[name] * count for name in self.weight_names}, "count": np.array([float(count)])}

    def finish(self, statistics: Statistics, params: Params) -> Params:
        """The next round's params."""
        count = max(float(statistics["count"][0]), 1.0)
        mean = {name: statistics[name] / count for name in self.weight_names}
        if self.mode == "gradient":
            return self._adam(mean, params)
        if not statistics["count"][0]:
            mean = {name: params[name] for name in self.weight_names}
        return {**params, **mean, "round": params["round"] + 1.0}

    def done(self, params: Params) -> bool:
        return bool(params["round"][0] >= self.rounds)

    def _adam(self, slope: Params, params: Params) -> Params:
        share, first, second, floor = self.adam
        state = {**params, "round": params["round"] + 1.0}
        step = float(state["round"][0])
        for name in self.weight_names:
            zero = np.zeros_like(params[name])
            mean = first * params.get(f"mean of {name}", zero) + (1.0 - first) * slope[name]
            square = second * params.get(f"square of {name}", zero) + (1.0 - second) * slope[name] ** 2
            length = np.sqrt(square / (1.0 - second**step)) + floor
            state[name] = params[name] + share * self.rate * (mean / (1.0 - first**step)) / length
            state[f"mean of {name}"], state[f"square of {name}"] = mean, square
        return state
