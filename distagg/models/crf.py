"""crf: a conditional random field over rankings, trained on the expected metric. Papers 000 (section 3.6) and 001.

An item's score is a sum over the experts that list it: weights of the expert times what it won and lost there, and its
bias. Training takes a few items of each query at a time, at least one of every label, and climbs the exact gradient of
the expected metric under the field. Ranking sorts by score: one pass over the entries.

Queries that have no two items with different labels teach nothing and are passed over, items without a label are never
sampled; with more labels than the sample holds, random ones of them are represented.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.kernels.crf import METRICS, MOST, climb
from distagg.kernels.lists import LOG, PAIR_FUNCTIONS, pair_sums
from distagg.kernels.potentials import fill_potentials, index_by_item, score_items
from distagg.models.base import Params, param
from distagg.models.trained import Trained
from distagg.types import Floats, Offsets

OBJECTIVES = ("ndcg", "ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "p@1", "p@3", "p@5", "p@10", "map", "err", "rbp")
HIDDEN = 0.2  # mixed sharing: how often a known expert's list is taken as a stranger's in training


def _pair_choices() -> Iterator[str]:
    """The pair functions alone, and any of them together: log+binary."""
    names = ("log", "binary", "normalised", "difference")
    for count in range(1, len(names) + 1):
        for some in combinations(names, count):
            yield "+".join(some)


@dataclass(frozen=True, kw_only=True)
class Crf(Trained):
    """Weights for each expert (b, positive, negative), shared by all (consensus), or both (mixed)."""

    name: ClassVar[str] = "crf"
    summary: ClassVar[str] = "conditional random field over rankings, trained on the expected metric"
    paper: ClassVar[str] = "000 section 3.6; 001"
    cost: ClassVar[str] = "entries; training: queries x 2^sample x sample a round"

    pairs: Any = param(
        "log", "how two ranks become a preference; several at once: log+binary", choices=tuple(_pair_choices())
    )
    metric: Any = param("ndcg", "the metric whose expectation is maximised", choices=OBJECTIVES)
    sample: Any = param(6, f"items of a query in a training step, 2 to {MOST}", least=2)
    sharing: Any = param(
        "individual",
        "individual (weights for each expert, strangers are silent), consensus (the same for all), mixed (known experts "
        "their own, strangers the consensus)",
        choices=("individual", "consensus", "mixed"),
    )
    rate: Any = param(1.0, "length of a step", above=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample > MOST or self.sample != int(self.sample):
            raise UsageError(f"parameter sample of crf: found {self.sample}, expected a whole number from 2 to {MOST}")

    @property
    def weights(self) -> tuple[str, ...]:
        names = {"individual": ("expert_weights",), "consensus": ("shared_weights",)}
        return names.get(self.sharing, ("expert_weights", "shared_weights"))

    def start(self, n_experts: int) -> Params:
        width = 1 + 2 * len(self.pairs.split("+"))
        shapes = {"expert_weights": (n_experts, width), "shared_weights": (1, width)}
        return {name: np.zeros(shapes[name]) for name in self.weights}

    def prepare(self, chunk: Chunk) -> dict[str, np.ndarray]:
        names = self.pairs.split("+")
        potentials = np.zeros((chunk.n_entries, 1 + 2 * len(names)))
        nobody = np.zeros(chunk.n_lists, dtype=np.int64)
        for n, name in enumerate(names):
            if PAIR_FUNCTIONS[name] == LOG and chunk.n_entries and chunk.entry_rank.min() <= 0.0:
                raise UsageError("crf with pairs=log needs ranks above 0, and the dataset holds ratings; choose binary")
            won, lost, _ = pair_sums(chunk.entry_offsets, chunk.entry_rank, nobody, PAIR_FUNCTIONS[name])
            fill_potentials(1 + 2 * n, *_shape(chunk), won, lost, potentials)
        return {"potentials": potentials}

    def score(self, chunk: Chunk, params: Params) -> Floats:
        known = [params[name] for name in self.weights]
        weights = np.concatenate([*known, np.zeros((1, known[0].shape[1]))])
        row = self._rows(chunk)
        if self.sharing != "consensus":
            strangers = ~np.isfinite(params["expert_weights"]).all(axis=1)
            row = np.where(strangers[row], chunk.n_experts, row)  # the shared row where there is one, or zeros
            weights[:-1][~np.isfinite(weights[:-1])] = 0.0
        score = np.zeros(chunk.n_items)
        score_items(*_shape(chunk), chunk.entry_item, self.prepared(chunk)["potentials"], row, weights, score)
        return score

    def learn(self, chunk: Chunk, params: Params) -> tuple[Params, int]:
        weights = np.concatenate([params[name] for name in self.weights])
        count = self._climb(chunk, params, self.rate, weights, weights)
        return self._named(weights, params), count

    def slope(self, chunk: Chunk, params: Params) -> tuple[Params, int]:
        weights = np.concatenate([params[name] for name in self.weights])
        total = np.zeros_like(weights)
        count = self._climb(chunk, params, 1.0, weights, total)
        return self._named(total, params), count

    def _climb(self, chunk: Chunk, params: Params, rate: float, weights: Floats, into: Floats) -> int:
        made = self.prepared(chunk)
        if "start" not in made:
            made.update(_index(chunk))
        draws = self.draws(chunk, params)
        order, keys = draws.permutation(chunk.n_queries), draws.random(chunk.n_items)
        row = self._rows(chunk)
        if self.sharing == "mixed":
            row = np.where(draws.random(chunk.n_lists) < HIDDEN, chunk.n_experts, row)
        name, _, depth = self.metric.partition("@")
        count, _ = climb(
            rate, METRICS[name], int(depth or MOST), float(params["highest"][0]), int(self.sample), order,
            chunk.item_offsets, chunk.labels, keys, made["start"], made["entry"], made["holder"], made["potentials"],
            row, weights, into,
        )  # fmt: skip
        return int(count)

    def _rows(self, chunk: Chunk) -> Offsets:
        """The row of weights that each list takes, shape (L,)."""
        if self.sharing == "consensus":
            return np.zeros(chunk.n_lists, dtype=np.int64)
        return chunk.list_expert.astype(np.int64)

    def _named(self, rows: Floats, params: Params) -> Params:
        ends = np.cumsum([len(params[name]) for name in self.weights])
        return dict(zip(self.weights, np.split(rows, ends[:-1]), strict=True))


def _shape(chunk: Chunk) -> tuple[Offsets, Offsets, Offsets]:
    return chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets


def _index(chunk: Chunk) -> dict[str, np.ndarray]:
    start = np.zeros(chunk.n_items + 1, dtype=np.int64)
    entry, holder = np.zeros(chunk.n_entries, dtype=np.int64), np.zeros(chunk.n_entries, dtype=np.int64)
    index_by_item(*_shape(chunk), chunk.entry_item, start, entry, holder)
    return {"start": start, "entry": entry, "holder": holder}
