"""crf: a conditional random field over rankings, trained on the expected metric.

Volkovs & Zemel 2014, section 3.6; Volkovs & Zemel 2013.

An item's score is a sum over the experts that list it: weights of the expert times what it won and lost there, and its
bias. Training takes a few items of each query at a time, at least one of every label, and climbs the exact gradient of
the expected metric under the field, or of the likelihood of the labels' order. With ``orders`` it takes all labelled
items of a query, and some orders of them (``crf.orders``). Ranking sorts by score: one pass over the entries.

Queries whose labels are all equal have no gradient and are skipped. If a query has more different labels than the
sample has items, the sample represents a random choice of the labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from typing import ClassVar, Literal

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import param, sum_entries
from distagg.models.compared import by_expert
from distagg.models.crf.kernels import (
    ALONE,
    AS_IS,
    CASCADE,
    HITS,
    IDEAL,
    LIKELIHOOD,
    MOST,
    TOTAL,
    Field,
    Potentials,
    Room,
    Samples,
    climb,
    draw_samples,
    index_by_item,
    normalise,
    score_lists,
)
from distagg.models.crf.orders import draw_orders
from distagg.models.crf.orders_kernels import Orders, climb_orders, fill_values
from distagg.models.lists import NORMALISED, PAIR_FUNCTIONS, TOP
from distagg.models.pairs import check_ranks, list_arrays, pair_ranks, won_and_lost, won_and_lost_names
from distagg.models.positional.scores import scores_of
from distagg.models.rounds import Params, kept
from distagg.models.trained import MODE_HELP, MODES, SUM, Leaning, TrainingState, prior_param
from distagg.models.unjudged import training_labels
from distagg.types import NO_LABEL, Bools, Floats, Labels, Offsets

OBJECTIVES = (
    "ndcg",
    "ndcg@1",
    "ndcg@3",
    "ndcg@5",
    "ndcg@10",
    "p@1",
    "p@3",
    "p@5",
    "p@10",
    "map",
    "err",
    "rbp",
    "likelihood",
)
STRIDE_OF_LIKELIHOOD, STRIDE_OF_ORDERS = 0.02, 0.1  # their gradients are longer than those of a sample's metric
FUNCTIONS = {**PAIR_FUNCTIONS, "top": TOP}
PERSISTENCE = 0.8  # of rbp
HIDDEN = 0.2  # mixed sharing: how often a known expert's list is treated as an unseen expert's in training


def _pair_choices() -> Iterator[str]:
    """The names of the pair functions, and of all combinations of them, such as log+binary."""
    names = ("log", "binary", "normalised", "difference", "top")
    for count in range(1, len(names) + 1):
        for some in combinations(names, count):
            yield "+".join(some)


@dataclass(frozen=True, kw_only=True)
class Crf(Leaning):
    """Weights for each expert (b, positive, negative), shared by all (consensus), or both (mixed)."""

    name: ClassVar[str] = "crf"
    summary: ClassVar[str] = "conditional random field over rankings, trained on the expected metric"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 3.6; Volkovs & Zemel 2013; with orders: Volkovs & Zemel 2009"
    cost: ClassVar[str] = "entries; training: queries x 2^sample x sample a round"
    inputs: ClassVar[tuple[str, ...]] = ("lists", "pairs")
    usual_prior: ClassVar[float] = 100.0
    unseen: ClassVar[float] = -np.inf  # marks unseen experts: the parameters of known ones are finite

    pairs: str = param(
        "log",
        "how two ranks become a preference: log, binary, normalised, difference, top (1 if an item is among the first "
        "of its list and the other is not), or several at once: log+top; raw pairs count their weight",
        choices=tuple(_pair_choices()),
    )
    reciprocal: float = param(
        10.0,
        "c of one more potential, c / (c + rank), which is 0 for raw pairs; 0 leaves it out, as in the paper",
        least=0,
    )
    scores: str = param(
        "no",
        "one more potential, the expert's own score: no, or minmax (from 0, the lowest of its list, to 1, the highest, "
        "as in combsum); it needs lists with scores",
        choices=("no", "minmax"),
    )
    top: int = param(5, "with pairs=top, how many items of a list are its first; ties with the last count", least=1)
    metric: str = param(
        "ndcg",
        "the metric whose expectation is maximised, or likelihood: the log likelihood of the order of the labels",
        choices=OBJECTIVES,
    )
    orders: int = param(
        0,
        "0 counts all orders of a sample of items; another number draws that many orders of all labelled items of a "
        "query before training, and counts these, as in BoltzRank",
        least=0,
    )
    sample: int = param(6, f"items of a query in a training step, 2 to {MOST}", least=2)
    sharing: str = param(
        "individual",
        "individual (weights for each expert, unseen experts are ignored), consensus (the same for all), mixed (known "
        "experts have their own, unseen ones the consensus)",
        choices=("individual", "consensus", "mixed"),
    )
    mode: str = param(SUM, MODE_HELP, choices=MODES)  # level with serial on validation queries of both LETOR sets
    rate: float = param(
        4.0, "length of a step of SGD (for likelihood times 0.02, for orders and for Adam times 0.1)", above=0.0
    )
    prior: float | Literal["auto"] = prior_param(100.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample > MOST:
            raise UsageError(f"parameter sample of crf: found {self.sample}, expected at most {MOST}")
        if self.orders and self.metric == "likelihood":
            raise UsageError("crf: the likelihood of the labels' order counts all orders; omit orders")
        if self.metric.startswith("p@") and not self.orders and int(self.metric[2:]) >= self.sample:
            raise UsageError(f"crf: {self.metric} is the same for every ranking of {self.sample} items; raise sample")

    @property
    def weight_names(self) -> tuple[str, ...]:
        names = {"individual": ("expert_weights",), "consensus": ("shared_weights",)}
        return names.get(self.sharing, ("expert_weights", "shared_weights"))

    @property
    def weight_columns(self) -> tuple[str, ...]:
        """Names of the columns of the weights: first the bias of items that an expert leaves out."""
        names = won_and_lost_names(self.pairs.split("+"), self.reciprocal)
        return names if self.scores == "no" else (*names, "score")

    def start(self, n_experts: int) -> Params:
        rows = {"expert_weights": n_experts, "shared_weights": 1}
        return {name: np.zeros((rows[name], len(self.weight_columns))) for name in self.weight_names}

    @property
    def has_prior(self) -> bool:
        return self.reciprocal > 0.0 and self.sharing != "consensus"

    def leaning(self, quality: Floats) -> Params:
        """Reciprocal ranks, weighted by the quality of experts."""
        weights = self.start(len(quality))
        weights["expert_weights"][:, self.weight_columns.index("reciprocal")] = float(self.prior) * quality
        return weights

    def prepare(self, chunk: Chunk) -> dict[str, np.ndarray]:
        """Potentials of the labelled items (only they are sampled), grouped by item, and where each item's start."""
        lists, start = by_expert(chunk), np.zeros(chunk.n_items + 1, dtype=np.int64)
        entry, holder = np.zeros(lists.n_entries, dtype=np.int64), np.zeros(lists.n_entries, dtype=np.int64)
        index_by_item(*_shape(lists), lists.entry_item, start, entry, holder)
        known = training_labels(chunk, self.unjudged) != NO_LABEL
        if not known.all():
            count = np.diff(start)
            of_known = np.repeat(known, count)
            entry, holder = entry[of_known], holder[of_known]
            start = np.concatenate([[0], np.cumsum(np.where(known, count, 0))])
        potentials = won_and_lost(self.name, chunk, self.pairs.split("+"), self.reciprocal, self.top)
        if self.scores != "no":
            potentials = np.column_stack([potentials, self._own_scores(chunk)])
        potentials = potentials[entry]
        return {"start": start, "holder": holder, "potentials": potentials}

    def score(self, chunk: Chunk, params: Params) -> Floats:
        parts = [params[name] for name in self.weight_names]
        compared = by_expert(chunk)
        weights, row = np.concatenate([*parts, np.zeros((1, parts[0].shape[1]))]), self._rows(compared)
        if self.sharing != "consensus":
            known: Bools = np.isfinite(params["expert_weights"][:, 0])
            row = np.where(known[row], row, chunk.n_experts)  # the shared row where there is one, or zeros
        names = self.pairs.split("+")
        if chunk.n_pairs:
            if self.scores != "no":
                raise UsageError("crf with scores=minmax needs lists with scores, and the data are pairs; omit scores")
            values = won_and_lost(self.name, chunk, names, self.reciprocal)
            own = weights[np.repeat(row, np.diff(compared.entry_offsets))]
            return sum_entries(compared, np.einsum("ef,ef->e", own, values))
        check_ranks(self.name, chunk, names, self.reciprocal)
        functions = np.array([FUNCTIONS[name] for name in names])
        rank = pair_ranks(chunk, NORMALISED) if "normalised" in names else chunk.entry_rank
        lists = list_arrays(chunk)._replace(entry_rank=rank)
        by_rank = weights if self.scores == "no" else np.ascontiguousarray(weights[:, :-1])
        score: Floats = score_lists(functions, float(self.reciprocal), int(self.top), lists, row, by_rank)
        if self.scores != "no":
            own = np.repeat(weights[row, -1], np.diff(chunk.entry_offsets))
            score += sum_entries(chunk, own * self._own_scores(chunk))
        return score

    def _own_scores(self, chunk: Chunk) -> Floats:  # (E,)
        """The experts' own scores, from 0 to 1 in every list."""
        if chunk.n_entries and not len(chunk.entry_score):
            raise UsageError(
                "crf with scores=minmax needs lists with scores, and the data have ranks only; omit scores"
            )
        return scores_of(chunk).unit()[0]

    def learn(self, chunk: Chunk, state: TrainingState) -> tuple[Params, int]:
        weights = np.concatenate([state.weights[name] for name in self.weight_names])
        count = self._climb(chunk, state, self._step, weights, weights)
        return self._named(weights, state.weights), count

    @property
    def _step(self) -> float:
        """The length of a query's step, in multiples of its gradient."""
        if self.metric == "likelihood":
            return self.rate * STRIDE_OF_LIKELIHOOD
        return self.rate * (STRIDE_OF_ORDERS if self.orders else 1.0)

    def slope(self, chunk: Chunk, state: TrainingState) -> tuple[Params, int]:
        weights = np.concatenate([state.weights[name] for name in self.weight_names])
        total = np.zeros_like(weights)
        count = self._climb(chunk, state, 1.0, weights, total)
        return self._named(total, state.weights), count

    def _climb(self, chunk: Chunk, state: TrainingState, rate: float, weights: Floats, into: Floats) -> int:
        """Add a gradient step for every query's sample to ``into``; returns how many queries had a gradient."""
        prepared = self.prepared(chunk)
        draws = self.draws(chunk, state)
        order, keys = draws.permutation(chunk.n_queries), draws.random(chunk.n_items)
        row = self._rows(by_expert(chunk))
        if self.sharing == "mixed":
            row = np.where(draws.random(len(row)) < HIDDEN, chunk.n_experts, row)
        potentials = Potentials(prepared["start"], prepared["holder"], prepared["potentials"], row)
        labels = training_labels(chunk, self.unjudged)
        means = np.zeros(chunk.n_queries)
        if self.orders:
            drawn = kept(chunk, ("orders", self, state.highest), lambda of: self._orders(of, labels, state.highest))
            sequence, place = (
                draws.permutation(len(drawn.value)),
                position_weights(int(np.diff(drawn.start).max(initial=0))),
            )
            climb_orders(rate, sequence, drawn, place, potentials, weights, into, means)
            return len(sequence)
        most = int(self.sample)
        gain, discount, kind, how = metric_terms(self.metric, most, labels, state.highest)
        sizes, picked, gains = samples(chunk.item_offsets, labels, order, keys, gain, most)
        drawn_samples = Samples(sizes, picked, gains, normalise(how, discount, gains))
        climb(rate, kind, drawn_samples, potentials, field_of(most), room_for(most), weights, into, means)
        return len(sizes)

    def _orders(self, chunk: Chunk, labels: Labels, highest: float) -> Orders:
        """The drawn orders of a chunk's queries, and the metric of each order."""
        orders = draw_orders(chunk, labels, int(self.orders), self.seed)
        sizes = np.diff(orders.start)
        gain, discount, kind, how = metric_terms(self.metric, int(sizes.max(initial=1)), labels, highest)
        gains = gain[orders.item]
        spans = [gains[None, a:b] for a, b in pairwise(orders.start)]
        shares = [normalise(how, discount[: span.shape[1]], span)[0] for span in spans]
        fill_values(kind, gains, np.concatenate([np.zeros(0), *shares]), orders)
        for array in orders:
            array.setflags(write=False)
        return orders

    def _rows(self, chunk: Chunk) -> Offsets:
        """The row of weights that each list takes, shape (L,)."""
        if self.sharing == "consensus":
            return np.zeros(chunk.n_lists, dtype=np.int64)
        return chunk.list_expert.astype(np.int64)

    def _named(self, rows: Floats, weights: Params) -> Params:
        ends = np.cumsum([len(weights[name]) for name in self.weight_names])
        return dict(zip(self.weight_names, np.split(rows, ends[:-1]), strict=True))


def metric_terms(metric: str, most: int, labels: Labels, highest: float) -> tuple[Floats, Floats, int, int]:
    """What the field needs of a metric: gains of items, discounts of ``most`` positions, kind of state, normaliser.

    ndcg has gains of 2^label - 1 and discounts of log 2 / log(position + 1); p divides by its depth, or by the sample
    where that is smaller; rbp's persistence is 0.8. Labels above 0 are relevant. likelihood has
    the labels themselves as gains.
    """
    name, _, written = metric.partition("@")
    depth = min(int(written or most), most)
    grade, position = np.maximum(labels, 0).astype(np.float64), np.arange(1.0, most + 1.0)
    gain = np.where(grade > 0.0, 1.0, 0.0)
    state, how = ALONE, AS_IS
    if name == "ndcg":
        gain, discount, how = np.exp2(grade) - 1.0, np.log(2.0) / np.log(position + 1.0), IDEAL
    elif name == "p":
        discount = np.full(most, 1.0 / depth)
    elif name == "map":
        discount, state, how = 1.0 / position, HITS, TOTAL
    elif name == "likelihood":
        gain, discount, state = grade, np.ones(most), LIKELIHOOD
    elif name == "err":
        gain, discount, state = (np.exp2(grade) - 1.0) / np.exp2(highest), 1.0 / position, CASCADE
    else:
        discount = (1.0 - PERSISTENCE) * PERSISTENCE ** (position - 1.0)
    return gain, np.where(position <= depth, discount, 0.0), state, how


def samples(
    item_offsets: Offsets, labels: Labels, order: Offsets, keys: Floats, gain: Floats, most: int
) -> tuple[Offsets, Offsets, Floats]:  # (N,), (N, most), (N, most)
    """Samples of the queries with different labels, in ``order``: sizes, items, and the items' gains."""
    picked, sizes = np.zeros((len(order), most), dtype=np.int64), np.zeros(len(order), dtype=np.int64)
    kinds = np.zeros(int(np.diff(item_offsets).max(initial=1)), dtype=np.int64)
    draw_samples(item_offsets, labels, keys, kinds, picked, sizes)
    order = order[sizes[order] > 0]
    sizes, picked = sizes[order], picked[order]
    return sizes, picked, np.where(np.arange(most) < sizes[:, None], gain[picked], 0.0)


@cache
def field_of(most: int) -> Field:
    """The field of samples of up to ``most`` items."""
    held = np.arange(1 << most)[:, None] >> np.arange(most) & 1
    lacking = np.argsort(held, axis=1, kind="stable").astype(np.int32)
    return Field(position_weights(most), held.sum(axis=1), lacking)


def position_weights(most: int) -> Floats:
    """1 / log(position + 1) of the first positions."""
    weights: Floats = 1.0 / np.log(np.arange(2.0, most + 2.0))
    return weights


def room_for(most: int) -> Room:
    """Room for the passes over the subsets of ``most`` items."""
    score, slope = np.zeros((2, most))
    state, follow, ahead, reach, behind = np.zeros((5, 1 << most))
    return Room(score, slope, state, follow, ahead, reach, behind, np.zeros((1 << most, most)))


def _shape(chunk: Chunk) -> tuple[Offsets, Offsets, Offsets]:
    return chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets
