"""Models that score items by features of lists and are trained in rounds: what lambdarank and stagg share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import param
from distagg.models.lists import PAIR_FUNCTIONS
from distagg.models.rounds import Params
from distagg.models.scorers.features import KINDS, FeatureSettings, chunk_features
from distagg.models.scorers.kernels import Net, Rows, score_rows
from distagg.models.trained import MODE_HELP, MODES, Trained
from distagg.ordering import order_spans
from distagg.types import Floats


@dataclass(frozen=True, kw_only=True)
class Scorer(Trained):
    """Scores linear in the features of every expert's list, or with layers of hidden units.

    An expert that leaves an item out gives it the expert's bias. Items in no list get every expert's bias. Experts that
    it was not trained on weigh nothing, unless all experts share the weights.
    """

    cost: ClassVar[str] = "entries x rounds"

    features: str = param(
        "svd",
        "what lists say of items: svd (leading singular vectors of each expert's pairs), borda (points), or cp "
        "(factors of all experts' pairs at once, the same weights for all)",
        choices=KINDS,
    )
    pairs: str = param(
        "log",
        "how two ranks become a preference, for svd and cp; all: binary, normalised and log together",
        choices=(*PAIR_FUNCTIONS, "all"),
    )
    rank: int = param(1, "how many singular triplets, or factors of cp", least=1)
    experts: str = param(
        "individual",
        "individual (features and weights for every expert) or combined (features of the sum of all experts)",
        choices=("individual", "combined"),
    )
    hidden: int = param(0, "hidden units of a layer; 0 for a linear scoring function", least=0)
    layers: int = param(1, "layers of hidden units", least=1)
    mode: str = param(
        "average", MODE_HELP, choices=MODES
    )  # better than serial on validation queries of both LETOR sets
    rounds: int = param(200, "most rounds of training", least=1)

    @property
    def weight_names(self) -> tuple[str, ...]:
        inner = ("inner",) if self.layers > 1 else ()
        return (self._weight, "bias", *inner, "output") if self.hidden else (self._weight,)

    @property
    def weight_columns(self) -> tuple[str, ...]:
        names = (*self._settings.names, "missing")
        return tuple(f"{name} {unit}" for name in names for unit in range(self.hidden)) if self.hidden else names

    @property
    def _weight(self) -> str:
        return "weight" if self._settings.shared else "expert_weight"

    @property
    def _settings(self) -> FeatureSettings:
        return FeatureSettings(self.features, self.pairs, self.rank, self.experts == "combined")

    def start(self, n_experts: int) -> Params:
        """Zeros for a linear function; hidden units start at random."""
        shape = (1 if self._settings.shared else n_experts, self._settings.width, max(self.hidden, 1))
        if not self.hidden:
            return {self._weight: np.zeros(shape)}
        draws = np.random.default_rng(np.random.SeedSequence([self.seed]))
        spread = 1.0 / np.sqrt(shape[0] * shape[1])
        weights = {
            self._weight: draws.normal(0.0, spread, shape),
            "bias": np.zeros((self.layers, self.hidden)),
            "output": draws.normal(0.0, 1.0 / np.sqrt(self.hidden), self.hidden),
        }
        if self.layers > 1:
            inner = (self.layers - 1, self.hidden, self.hidden)
            weights["inner"] = draws.normal(0.0, 1.0 / np.sqrt(self.hidden), inner)
        return weights

    def prepare(self, chunk: Chunk) -> dict[str, np.ndarray]:
        return chunk_features(chunk, self._settings).arrays()

    def score(self, chunk: Chunk, params: Params) -> Floats:
        net, score = self._net(params), np.zeros(chunk.n_items)
        score_rows(bool(self.hidden), self._rows(chunk), net, score)
        return score

    def learn(self, chunk: Chunk, params: Params) -> tuple[Params, int]:
        net = self._net(params)
        queries = self.draws(chunk, params).permutation(chunk.n_queries)
        taught = self._climb(chunk, params, queries, net, self._step, net)
        return self._named(net), taught

    def slope(self, chunk: Chunk, params: Params) -> tuple[Params, int]:
        net = self._net(params)
        slope = Net(*(np.zeros_like(part) for part in net))
        taught = self._climb(chunk, params, np.arange(chunk.n_queries), net, 1.0, slope)
        return self._named(slope), taught

    @property
    def _step(self) -> float:
        """The length of a query's step, in multiples of its gradient."""
        return float(self.rate)

    def _climb(self, chunk: Chunk, params: Params, queries: np.ndarray, net: Net, step: float, target: Net) -> int:
        """Add ``step`` times the gradient of every query, in that order, to ``target``; returns how many had one."""
        raise NotImplementedError

    def _net(self, params: Params) -> Net:
        """A writable copy of the learned weights; those of unseen experts are 0."""
        weight = np.where(np.isfinite(params[self._weight]), params[self._weight], 0.0)
        if not self.hidden:
            return Net(weight, np.zeros((1, 1)), np.zeros((0, 1, 1)), np.ones(1))
        inner = params["inner"].copy() if self.layers > 1 else np.zeros((0, self.hidden, self.hidden))
        return Net(weight, params["bias"].copy(), inner, params["output"].copy())

    def _named(self, net: Net) -> Params:
        named = {self._weight: net.weight, "bias": net.bias, "inner": net.inner, "output": net.output}
        return {name: named[name] for name in self.weight_names}

    def _rows(self, chunk: Chunk) -> Rows:
        return Rows(chunk.item_offsets, **self.prepared(chunk))


def longest_query(chunk: Chunk) -> int:
    """Items of the largest query."""
    return int(np.diff(chunk.item_offsets).max(initial=0))


def gains(chunk: Chunk) -> Floats:
    """2^label - 1 of every item; 0 where the label is unknown or negative."""
    gain: Floats = np.exp2(np.maximum(chunk.labels, 0)) - 1.0
    return gain


def best_dcg(chunk: Chunk) -> Floats:
    """The largest sum of gain / log2(1 + position) of every query, shape (Q,)."""
    position = np.arange(chunk.n_items) - chunk.item_offsets[chunk.item_query()]
    best = order_spans(chunk.item_offsets, gains(chunk))[1] / np.log2(position + 2.0)
    return np.bincount(chunk.item_query(), best, chunk.n_queries).astype(np.float64)
