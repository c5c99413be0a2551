"""The base of models that are trained in rounds, and what they give the engine.

Volkovs & Zemel 2014, algorithms 1 and 2, and their map-reduce forms.
A model's weights are arrays named by ``weight_names``. A model writes ``start`` (the first weights), ``learn`` (one
pass of SGD over a chunk's queries), ``slope`` (the summed gradient at fixed weights) and ``score``; ``prepare``
computes the arrays that depend on the chunk alone (features, potentials). ``TrainingState`` holds everything that the
next round depends on; the engine (``engine.fitting.train``) runs the rounds. Objectives are maximised: a slope points
up.

- ``serial``: the weights go through all chunks one after the other, the papers' algorithm.
- ``sum``: every chunk learns from the round's weights, and their steps are added up, as if chunks came one after the
  other. There are few chunks, and large ones; the steps of more than ``MOST_ADDED`` chunks, or of more than
  ``QUERIES_ADDED`` queries, count less, down to their mean: sums of more would overshoot.
- ``average``: every chunk learns from the round's weights; the next weights are the mean of those that the chunks
  reach, in proportion to their queries.
- ``gradient``: the mean gradient of all queries makes one step of Adam; it needs several times the rounds and patience.

``keep`` says which weights are the result. The papers make a fixed number of rounds and keep the ``last``; ``best``
keeps those of the round that does best on validation queries and stops early; ``mean`` averages what SGD leaves noisy.

Params named ``expert_*`` hold a row for each expert and are aligned by name; an expert unseen in training has
``Model.unseen`` there. Params named ``shared_*`` serve experts that are not known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Model, param
from distagg.models.rounds import Params, Stage, Statistics, kept
from distagg.models.unjudged import unjudged_param
from distagg.types import Floats

AUTO: Literal["auto"] = "auto"


def prior_param(usual: float) -> float | Literal["auto"]:
    return param(
        AUTO,
        "start training from experts weighted by how good each is alone on the training queries, as in tuned rrf, "
        f"times this number; 0 starts from nothing; auto tries 0 and {usual:g} where there are fewer than 100 "
        "validation queries, and is 0 elsewhere",
        choices=(AUTO,),
        least=0,
    )


def validation_param(counted: str, *, limit: str = "") -> str:
    return param(
        AUTO,
        f"what chooses the number of {counted}: given (the validation queries), cross (cross-validation over all "
        "labelled queries, which then all teach), auto (cross where fewer than 100 validation queries and the training "
        f"queries are parts of one dataset, as in folds{limit})",
        choices=(AUTO, "given", "cross"),
    )


SERIAL, SUM, AVERAGE, GRADIENT = MODES = ("serial", "sum", "average", "gradient")
MODE_HELP = (
    "serial (SGD through all queries in turn), sum (SGD in every chunk, then the sum of their steps), average (SGD in "
    "every chunk, then the mean), gradient (all queries, one step of Adam a round)"
)
MOST_ADDED, QUERIES_ADDED = 6, 1000  # with mode=sum: chunks, and queries, whose steps are added up
BEST, LAST, MEAN = KEEP = ("best", "last", "mean")
KEEP_HELP = (
    "which weights are kept: best (of the round with the best value on the validation queries), last (of the last "
    "round), mean (the mean over the second half of the rounds); last and mean make all rounds, patience ends none"
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
    keep: str = param(BEST, KEEP_HELP, choices=KEEP)
    patience: int = param(
        20, "with keep=best: stop after this many rounds without a better value on the validation queries", least=1
    )
    rate: float = param(0.1, "length of a step of SGD (for Adam times 0.1)", above=0.0)
    validation: str = validation_param("rounds")
    unjudged: str = unjudged_param("ignore")
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

    def starts(self, *, few: bool) -> list[Self]:
        """The models to choose from: with few validation queries, from nothing and from the quality of experts."""
        return [self]

    @property
    def wants_quality(self) -> bool:
        """Whether training starts from the quality of experts."""
        return False

    def leaning(self, quality: Floats) -> Params:
        """The first weights, when each expert counts by its quality (experts,), shares that add up to 1."""
        return self.start(len(quality))

    def first(self, n_experts: int, highest: float, quality: Floats | None = None) -> TrainingState:
        """The state before the first round; ``highest`` is the highest label of the training data."""
        weights = self.start(n_experts) if quality is None else self.leaning(quality)
        return TrainingState(self, weights, float(highest))

    def after(self, kept: Params, state: TrainingState) -> Params:
        """What is to be kept after a round, if that is the last one; ``kept`` is what was to be kept before it.

        With ``keep=mean`` that is the mean of the weights since the second half of the rounds began, of a single round
        before.
        """
        averaged = state.round - int(self.rounds) // 2
        if self.keep != MEAN or averaged <= 1:
            return state.params
        return {name: kept[name] + (value - kept[name]) / averaged for name, value in state.params.items()}

    def prepare(self, chunk: Chunk) -> dict[str, np.ndarray]:
        """Arrays that depend on the chunk and the settings alone."""
        return {}

    def learn(self, chunk: Chunk, state: TrainingState) -> tuple[Params, int]:
        """The weights after one pass of SGD over the chunk's queries, and how many queries had a gradient."""
        raise NotImplementedError

    def slope(self, chunk: Chunk, state: TrainingState) -> tuple[Params, int]:
        """The gradient of the objective, by weight, summed over the queries that have one; and their number."""
        raise NotImplementedError

    def prepared(self, chunk: Chunk) -> dict[str, np.ndarray]:
        """The arrays of ``prepare``, cached while the chunk is in memory."""
        return kept(chunk, self, self.prepare)

    def draws(self, chunk: Chunk, state: TrainingState) -> np.random.Generator:
        """The random numbers of this round for this chunk, the same on every worker."""
        first = int(chunk.positions[0]) if chunk.n_queries else 0
        return np.random.default_rng(np.random.SeedSequence([self.seed, state.round, first]))


@dataclass(frozen=True, kw_only=True)
class Leaning(Trained):
    """Base of trained models that can start from the quality of experts."""

    usual_prior: ClassVar[float]

    prior: float | Literal["auto"] = prior_param(100.0)

    @property
    def has_prior(self) -> bool:
        """Whether the settings allow a start from the quality of experts."""
        raise NotImplementedError

    def starts(self, *, few: bool) -> list[Self]:
        if self.prior != AUTO:
            return [self]
        return [replace(self, prior=prior) for prior in ((0.0, self.usual_prior) if few and self.has_prior else (0.0,))]

    @property
    def wants_quality(self) -> bool:
        return self.prior != AUTO and self.prior > 0.0 and self.has_prior


@dataclass(frozen=True, slots=True, eq=False)
class TrainingState(Stage):
    """The state of training between two rounds, and the round that follows: its ``map``, ``reduce`` and ``finish``."""

    model: Trained
    weights: Params  # by name
    highest: float  # the highest label of the training data
    round: int = 0  # rounds done
    mean: Params = field(default_factory=dict)  # Adam's mean of gradients, by weight; empty before its first step
    square: Params = field(default_factory=dict)  # Adam's mean of squared gradients

    @property
    def done(self) -> bool:
        return self.round >= self.model.rounds

    @property
    def params(self) -> Params:
        """What the model scores with, and what is saved of it."""
        return {**self.weights, "highest": np.array([self.highest])}

    def sent(self) -> TrainingState:
        return replace(self, mean={}, square={})

    def map(self, chunk: Chunk) -> Statistics:
        """Sums over chunks: of gradients, of steps, or of learned weights times the queries that they come from."""
        if self.model.mode == GRADIENT:
            slope, count = self.model.slope(chunk, self)
            return {**slope, "count": np.array([float(count)])}
        reached, count = self.model.learn(chunk, self)
        if self.model.mode == SUM:
            steps = {name: reached[name] - weights for name, weights in self.weights.items()}
            return {**steps, "count": np.array([float(count)]), "chunks": np.array([float(count > 0)])}
        return {**{name: reached[name] * count for name in self.weights}, "count": np.array([float(count)])}

    def finish(self, statistics: Statistics) -> TrainingState:
        """The state after the round; without any query that had a gradient, the weights stay."""
        count = float(statistics["count"][0])
        if self.model.mode == SUM:
            share = share_added(count, float(statistics["chunks"][0]))
            weights = {name: value + share * statistics[name] for name, value in self.weights.items()}
            return replace(self, weights=weights, round=self.round + 1)
        mean = {name: statistics[name] / max(count, 1.0) for name in self.weights}
        if self.model.mode == GRADIENT:
            return self._adam(mean)
        return replace(self, weights=mean if count else self.weights, round=self.round + 1)

    def _adam(self, slope: Params) -> TrainingState:
        """One step of Adam (Kingma & Ba 2015) uphill."""
        share, first, second, floor = self.model.adam
        step = self.round + 1
        weights, means, squares = {}, {}, {}
        for name, weight in self.weights.items():
            zero = np.zeros_like(weight)
            mean = first * self.mean.get(name, zero) + (1.0 - first) * slope[name]
            square = second * self.square.get(name, zero) + (1.0 - second) * slope[name] ** 2
            length = np.sqrt(square / (1.0 - second**step)) + floor
            weights[name] = weight + share * self.model.rate * (mean / (1.0 - first**step)) / length
            means[name], squares[name] = mean, square
        return replace(self, weights=weights, round=step, mean=means, square=squares)

    def state(self) -> Params:
        """All fields but the model as arrays, for a checkpoint."""
        means = {f"mean of {name}": value for name, value in self.mean.items()}
        squares = {f"square of {name}": value for name, value in self.square.items()}
        return {**self.params, "round": np.array([float(self.round)]), **means, **squares}

    def resumed(self, state: Params) -> TrainingState:
        """The state that a checkpoint holds."""

        def named(prefix: str) -> Params:
            return {name: state[prefix + name] for name in self.weights if prefix + name in state}

        return TrainingState(
            self.model,
            named(""),
            float(state["highest"][0]),
            int(state["round"][0]),
            named("mean of "),
            named("square of "),
        )


def share_added(queries: float, chunks: float) -> float:
    """The share of the summed steps that a round of ``mode=sum`` takes; at least their mean.

    >>> share_added(1000, 5), share_added(264, 12), share_added(1_000_000, 100)
    (1.0, 0.5, 0.01)
    """
    added = min(float(MOST_ADDED), QUERIES_ADDED * chunks / max(queries, 1.0))
    return min(1.0, max(added, 1.0) / max(chunks, 1.0))
