"""Models that score items by features of lists and are trained in rounds: lambdarank and stagg.

lambdarank is trained for a metric (Volkovs & Zemel 2014, section 3.5). Cost: SVD features once for every list,
O(entries) a step; then O(entries) for each query and round, and the pairs of differently labelled items.

stagg is trained on the metric expected over uncertain ranks (Niu et al. 2013, section 4.3). Scores are normal with
deviation ``sigma``, so the ranking is uncertain, and the expected NDCG, ERR or RBP is smooth in the scores. Its
gradient is exact (``stagg_kernels``). Cost: a query of training takes items x relevant items x terms (about 20);
ranking O(entries).

Both learn from the labelled items of a large query and the first of its other items by reciprocal rank fusion
(``pool``). Ranking scores every item.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import param
from distagg.models.lists import PAIR_FUNCTIONS
from distagg.models.pool import LEARNS_FROM_POOL, fused_places, has_places, training_pool_param
from distagg.models.positional.kernels import size_class, terms_by_class
from distagg.models.rounds import Params, kept
from distagg.models.scorers.features import KINDS, FeatureSettings, chunk_features, kept_features
from distagg.models.scorers.kernels import OBJECTIVES, PERSISTENCE, Goal, Net, Rows, climb, score_rows
from distagg.models.scorers.stagg_kernels import Metric, climb_expected
from distagg.models.trained import MODE_HELP, MODES, Leaning, TrainingState, prior_param
from distagg.models.unjudged import MOST, training_labels, unjudged_param
from distagg.rankings.ordering import order_spans
from distagg.types import NO_LABEL, OFFSET, Floats, Labels, Offsets


@dataclass(frozen=True, kw_only=True)
class Scorer(Leaning):
    """A score per item, computed from the features of every expert's list: linear, or with layers of hidden units.

    An expert that omits an item adds the expert's bias to its score; items in no list get the bias of every expert.
    Experts unseen in training have weight 0, unless all experts share the weights.
    """

    cost: ClassVar[str] = "entries x rounds"
    pairs_setting: ClassVar[str] = "features=sums"
    pooling: ClassVar[str] = LEARNS_FROM_POOL
    usual_prior: ClassVar[float] = 1.0

    features: str = param(
        "svd",
        "what lists say of items: svd (leading singular vectors of each expert's pairs), borda (points), cp (factors "
        "of all experts' pairs at once, the same weights for all), or sums (what items won and lost, from lists or raw "
        "pairs)",
        choices=KINDS,
    )
    pairs: str = param(
        "log",
        "how two ranks become a preference, for svd, cp and sums; all: binary, normalised and log together; "
        "raw pairs count their weight",
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
    rounds: int = param(200, "largest number of rounds of training", least=1)
    pool: int = training_pool_param(1000)
    prior: float | Literal["auto"] = prior_param(1.0)

    @property
    def takes(self) -> tuple[str, ...]:
        return ("lists", "pairs") if self.features == "sums" else self.inputs

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
    def _most(self) -> int:
        """The largest number of unlabelled items of a query to train on as irrelevant items; 0 sets no limit."""
        return MOST

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

    @property
    def has_prior(self) -> bool:
        return not self.hidden and not self._settings.shared

    def leaning(self, quality: Floats) -> Params:
        """The first feature (how much an item won in each list), weighted by the quality of the experts."""
        weights = self.start(len(quality))
        weights[self._weight][:, 0, 0] = float(self.prior) * quality
        return weights

    def prepare(self, chunk: Chunk) -> dict[str, np.ndarray]:
        return chunk_features(chunk, self._settings).arrays()

    def _taught(self, chunk: Chunk) -> tuple[Chunk, Rows, Labels]:
        """The chunk to train on, its feature rows and its labels.

        Large queries are cut to their labelled items and their pool. Features are computed before the cut.
        """
        if not 0 < self.pool < longest_query(chunk) or not has_places(chunk):
            return chunk, self._rows(chunk), training_labels(chunk, self.unjudged, most=self._most)
        cut = kept(chunk, ("taught", self), self._cut)
        rows = Rows(cut["chunk"].item_offsets, *(cut[name] for name in Rows._fields[1:]))
        return cut["chunk"], rows, cut["chunk"].labels

    def _cut(self, chunk: Chunk) -> dict[str, Any]:
        taught = (fused_places(chunk) < self.pool) | (chunk.labels != NO_LABEL)
        features = kept_features(chunk, chunk_features(chunk, self._settings), taught)
        empty = replace(
            chunk,
            labels=training_labels(chunk, self.unjudged, most=self._most),
            entry_offsets=np.zeros_like(chunk.entry_offsets),
            entry_item=chunk.entry_item[:0],
            entry_rank=chunk.entry_rank[:0],
            entry_score=chunk.entry_score[:0],
        )
        return {"chunk": empty.keep_items(taught), **features.arrays()}  # the features say what lists said

    def score(self, chunk: Chunk, params: Params) -> Floats:
        net, score = self._net(params), np.zeros(chunk.n_items)
        score_rows(bool(self.hidden), self._rows(chunk), net, score)
        return score

    def learn(self, chunk: Chunk, state: TrainingState) -> tuple[Params, int]:
        net = self._net(state.weights)
        queries = self.draws(chunk, state).permutation(chunk.n_queries)
        taught = self._climb(chunk, state.highest, queries, net, self._step, net)
        return self._named(net), taught

    def slope(self, chunk: Chunk, state: TrainingState) -> tuple[Params, int]:
        net = self._net(state.weights)
        slope = Net(*(np.zeros_like(part) for part in net))
        taught = self._climb(chunk, state.highest, np.arange(chunk.n_queries), net, 1.0, slope)
        return self._named(slope), taught

    @property
    def _step(self) -> float:
        """The length of a query's step, in multiples of its gradient."""
        return float(self.rate)

    def _climb(self, chunk: Chunk, highest: float, queries: np.ndarray, net: Net, step: float, target: Net) -> int:
        """Add ``step`` times every query's gradient to ``target``; returns the number of queries with a gradient.

        ``highest`` is the highest label of the training data.
        """
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


def different_pairs(chunk: Chunk, labels: Labels) -> Floats:
    """The number of pairs of items with different labels (I,) in each query, shape (Q,)."""
    known, query = labels != NO_LABEL, chunk.item_query()
    alike = np.zeros(chunk.n_queries)
    for label in np.unique(labels[known]):
        alike += np.bincount(query, labels == label, chunk.n_queries) ** 2
    count: Floats = (np.bincount(query, known, chunk.n_queries) ** 2 - alike) / 2
    return count


RANKERS = ("sgd", "lightgbm")


@dataclass(frozen=True, kw_only=True)
class LambdaRank(Scorer):
    """LambdaRank, which raises the metric itself. ``rankagg``, the baseline of Niu et al. 2013, is the same model.

    With ``unjudged=ignore``, unjudged items keep their positions in training but form no pairs.
    """

    name: ClassVar[str] = "lambdarank"
    summary: ClassVar[str] = "features of every expert's list, weighted by LambdaRank from labels"
    paper: ClassVar[str] = (
        "Volkovs & Zemel 2014, section 3.5; Burges, Ragno & Le 2006; as rankagg: Niu et al. 2013, section 5.2; with "
        "objective=ranknet: Burges et al. 2005"
    )

    ranker: str = param(
        "sgd",
        "what learns on them: sgd (LambdaRank), or lightgbm (an extra): the model lambdamart, with its settings",
        choices=RANKERS,
    )
    objective: str = param(
        "ndcg",
        "the metric to train for, or ranknet: the logistic loss of differently labelled pairs, whatever their places",
        choices=tuple(OBJECTIVES),
    )
    rate: float = param(
        0.003,
        "length of a step (for ranknet times 3); smaller than the papers' 0.01, which is too long for these gradients",
        above=0.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ranker != "sgd":
            raise UsageError("ranker=lightgbm is the model lambdamart: LambdaMart(features='svd')")

    def _climb(self, chunk: Chunk, highest: float, queries: np.ndarray, net: Net, step: float, target: Net) -> int:
        chunk, rows, labels = self._taught(chunk)
        goal = Goal(OBJECTIVES[self.objective], highest, self._whole(chunk, labels))
        return climb(goal, bool(self.hidden), queries, labels, rows, net, step, target)

    @property
    def _step(self) -> float:
        return float(self.rate) * (3.0 if self.objective == "ranknet" else 1.0)

    def _whole(self, chunk: Chunk, labels: Labels) -> Floats:
        """The normaliser of each query's metric: the best possible gain, or the number of relevant items.

        For ranknet it is the number of the query's pairs.
        """
        if self.objective == "ranknet":
            return different_pairs(chunk, labels)
        if self.objective in ("err", "rbp"):
            return np.ones(chunk.n_queries)
        if self.objective == "map":
            return np.bincount(chunk.item_query(), chunk.labels >= 1, chunk.n_queries).astype(np.float64)
        return best_dcg(chunk)


STRIDES = {"ndcg": 1.0, "err": 10.0, "rbp": 10.0}  # err and rbp are not divided by their best value: small gradients
TOLERANCE = 1e-6  # of the exponentials that stand for a discount


@dataclass(frozen=True, kw_only=True)
class Stagg(Scorer):
    """Stochastic aggregation. With ``unjudged=ignore``, unjudged items do not compete for ranks in training.

    For a linear scoring function, ``sigma`` and ``rate`` act as one setting: up to the scale of the scores, the result
    depends on rate / sigma^2 alone.
    """

    name: ClassVar[str] = "stagg"
    summary: ClassVar[str] = "features of lists, weighted for the metric expected over uncertain ranks"
    paper: ClassVar[str] = "Niu et al. 2013, section 4.3"

    objective: str = param(
        "ndcg", "the metric whose expectation is maximised (rbp's persistence is 0.95)", choices=("ndcg", "err", "rbp")
    )
    sigma: float = param(1.0, "standard deviation of a score", above=0.0)
    ranks: str = param(
        "exact", "distribution of a rank: exact, or normal (the paper's approximation)", choices=("exact", "normal")
    )
    rate: float = param(0.1, "length of a step of SGD (for err and rbp times 10, for Adam times 0.1)", above=0.0)
    unjudged: str = unjudged_param("zero", most=0)
    pool: int = training_pool_param(200)

    @property
    def _most(self) -> int:
        return 0

    @property
    def _step(self) -> float:
        return float(self.rate) * STRIDES[self.objective]

    def _climb(self, chunk: Chunk, highest: float, queries: np.ndarray, net: Net, step: float, target: Net) -> int:
        chunk, rows, labels = self._taught(chunk)
        longest = longest_query(chunk)
        gain, keep = self._items(chunk, highest)
        terms = discount_terms(self.objective, size_class(longest))
        table = discounts(self.objective, np.arange(float(longest)))
        rival = np.ones(chunk.n_items, np.bool_) if self.unjudged == "zero" else chunk.labels != NO_LABEL
        metric = Metric(self.ranks == "normal", float(self.sigma), gain, keep, rival, table, *terms)
        return climb_expected(metric, bool(self.hidden), queries, labels, rows, net, step, target)

    def _items(self, chunk: Chunk, highest: float) -> tuple[Floats, Floats]:
        """The gain of every item, and the probability that it does not satisfy the reader (1 except for err)."""
        keep = np.ones(chunk.n_items)
        if self.objective == "rbp":
            return (1.0 - PERSISTENCE) * np.maximum(chunk.labels, 0), keep
        gain = gains(chunk)
        if self.objective == "err":
            return gain / 2.0**highest, 1.0 - gain / 2.0**highest
        whole = np.repeat(best_dcg(chunk), np.diff(chunk.item_offsets))
        return np.divide(gain, whole, out=np.zeros_like(gain), where=whole > 0.0), keep


def discounts(objective: str, rank: Floats) -> Floats:
    """The factor by which the metric multiplies an item's gain, for each rank from 0 on."""
    if objective == "rbp":
        return PERSISTENCE**rank
    return 1.0 / (1.0 + rank) if objective == "err" else 1.0 / np.log2(2.0 + rank)


@lru_cache(maxsize=64)
def discount_terms(objective: str, largest: int) -> tuple[Offsets, Floats, Floats]:
    """The discount as sums of exponentials, one for each class of query sizes: where each starts, ratios, weights."""
    if objective == "rbp":
        return np.arange(largest + 2, dtype=OFFSET), np.full(largest + 1, PERSISTENCE), np.ones(largest + 1)
    return terms_by_class(lambda size: lambda rank: discounts(objective, rank), largest, 1.0, TOLERANCE)
