"""lambdarank: a scoring function on features of lists, trained for a metric. Paper 000, section 3.5.

Cost: SVD features once for every list, O(entries) a step; then O(entries) for each query and round, and the pairs of
differently labelled items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.kernels.lambdarank import OBJECTIVES, climb, score_rows
from distagg.kernels.lists import PAIR_FUNCTIONS
from distagg.kernels.ordering import order_spans
from distagg.models.base import Params, param
from distagg.models.features import KINDS, FeatureSettings, chunk_features
from distagg.models.trained import Trained
from distagg.types import INDEX, NO_LABEL, OFFSET, Bools, Floats


@dataclass(frozen=True, kw_only=True)
class LambdaRank(Trained):
    """Scores linear in the features of every expert's list, or with a layer of hidden units.

    An expert that leaves an item out gives it the expert's bias. Items in no list get every expert's bias. In training,
    unlabelled items hold their places and make no pairs. Data with experts that it was not trained on are refused,
    unless features are combined.
    """

    name: ClassVar[str] = "lambdarank"
    summary: ClassVar[str] = "features of every expert's list, weighted by LambdaRank from labels"
    paper: ClassVar[str] = "000 section 3.5; Burges, Ragno & Le 2006"
    cost: ClassVar[str] = "entries x rounds"
    takes_strangers: ClassVar[bool] = False

    features: Any = param(
        "svd", "what lists say of items: svd (leading singular vectors of pairs) or borda", choices=KINDS
    )
    pairs: Any = param(
        "log",
        "how two ranks become a preference, for svd features; all: binary, normalised and log together",
        choices=(*PAIR_FUNCTIONS, "all"),
    )
    rank: Any = param(1, "how many singular triplets", least=1)
    experts: Any = param(
        "individual",
        "individual (features and weights for every expert) or combined (features of the sum of all experts)",
        choices=("individual", "combined"),
    )
    objective: Any = param("ndcg", "the metric to train for", choices=tuple(OBJECTIVES))
    hidden: Any = param(0, "hidden units; 0 for a linear scoring function", least=0)
    rounds: Any = param(200, "most rounds of training", least=1)
    rate: Any = param(0.003, "length of a step (the papers' 0.01 is more than these forces need)", above=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("rank", "hidden"):
            if getattr(self, key) != int(getattr(self, key)):
                found = getattr(self, key)
                raise UsageError(f"parameter {key} of lambdarank: found {found!r}, expected a whole number")

    @property
    def weights(self) -> tuple[str, ...]:
        return (self._weight, "bias", "output") if self.hidden else (self._weight,)

    @property
    def columns(self) -> tuple[str, ...]:
        names = (*self._settings.names, "missing")
        return tuple(f"{name} {unit}" for name in names for unit in range(self.hidden)) if self.hidden else names

    @property
    def _weight(self) -> str:
        return "expert_weight" if self.experts == "individual" else "weight"

    @property
    def _settings(self) -> FeatureSettings:
        return FeatureSettings(self.features, self.pairs, self.rank, self.experts == "combined")

    def start(self, n_experts: int) -> Params:
        """Zeros for a linear function; hidden units start at random."""
        shape = (n_experts if self.experts == "individual" else 1, self._settings.width, max(self.hidden, 1))
        if not self.hidden:
            return {self._weight: np.zeros(shape)}
        draws = np.random.default_rng(np.random.SeedSequence([self.seed]))
        spread = 1.0 / np.sqrt(shape[0] * shape[1])
        return {
            self._weight: draws.normal(0.0, spread, shape),
            "bias": np.zeros(self.hidden), "output": draws.normal(0.0, 1.0 / np.sqrt(self.hidden), self.hidden),
        }  # fmt: skip

    def prepare(self, chunk: Chunk) -> dict[str, np.ndarray]:
        return chunk_features(chunk, self._settings).arrays()

    def score(self, chunk: Chunk, params: Params) -> Floats:
        net, score = self._net(params), np.zeros(chunk.n_items)
        state = np.empty((_longest(chunk), len(net[1])))
        arguments: tuple[Any, ...] = (chunk.item_offsets, *self._rows(chunk), *net, state, score)
        score_rows(bool(self.hidden), *arguments)
        return score

    def learn(self, chunk: Chunk, params: Params) -> tuple[Params, int]:
        net = self._net(params)
        taught = self._climb(chunk, params, self.draws(chunk, params).permutation(chunk.n_queries), net, self.rate, net)
        return dict(zip(self.weights, net, strict=False)), taught

    def slope(self, chunk: Chunk, params: Params) -> tuple[Params, int]:
        net = self._net(params)
        slope = tuple(np.zeros_like(part) for part in net)
        taught = self._climb(chunk, params, np.arange(chunk.n_queries), net, 1.0, slope)
        return dict(zip(self.weights, slope, strict=False)), taught

    def _net(self, params: Params) -> tuple[Floats, Floats, Floats]:
        """Weights, biases and outputs, to write on; unseen experts weigh nothing."""
        weight = np.where(np.isfinite(params[self._weight]), params[self._weight], 0.0)
        if not self.hidden:
            return weight, np.zeros(1), np.ones(1)
        return weight, params["bias"].copy(), params["output"].copy()

    def _climb(
        self, chunk: Chunk, params: Params, queries: np.ndarray, net: tuple[Floats, ...], step: float,
        target: tuple[Floats, ...],
    ) -> int:  # fmt: skip
        n_items, longest = chunk.n_items, _longest(chunk)
        room = (
            np.empty((longest, len(net[1]))), np.empty(n_items), np.empty(n_items), np.empty(n_items, dtype=INDEX),
            np.empty(n_items), np.empty((3, longest)), np.empty(longest, dtype=INDEX), np.zeros(1, dtype=OFFSET),
        )  # fmt: skip
        problem = (chunk.item_offsets, chunk.labels, self._whole(chunk), *self._rows(chunk))
        arguments: tuple[Any, ...] = (queries, *problem, *net, step, *target, *room)
        return climb(OBJECTIVES[self.objective], float(params["highest"][0]), bool(self.hidden), *arguments)

    def _rows(self, chunk: Chunk) -> tuple[Any, ...]:
        return tuple(self.prepared(chunk).values())

    def _whole(self, chunk: Chunk) -> Floats:
        """What the metric of each query is divided by: the best gain there is, or the number of relevant items."""
        known: Bools = chunk.labels != NO_LABEL
        if self.objective == "err":
            return np.ones(chunk.n_queries)
        if self.objective == "map":
            return np.bincount(chunk.item_query(), known & (chunk.labels >= 1), chunk.n_queries).astype(np.float64)
        gains = np.where(known, np.exp2(np.where(known, chunk.labels, 0)) - 1.0, 0.0)
        position = np.arange(chunk.n_items) - chunk.item_offsets[chunk.item_query()]
        best = order_spans(chunk.item_offsets, gains)[1] / np.log2(position + 2.0)
        return np.bincount(chunk.item_query(), best, chunk.n_queries).astype(np.float64)


def _longest(chunk: Chunk) -> int:
    return int(np.diff(chunk.item_offsets).max(initial=0))
