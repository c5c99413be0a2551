"""stagg: a scoring function on features of lists, trained on the metric expected over uncertain ranks.

Niu et al. 2013, section 4.3. Scores are normal with deviation ``sigma``, so the ranking is uncertain, and the expected
NDCG, ERR or RBP is smooth in the scores. Its gradient is exact (``stagg_kernels``).
Cost: a query of training takes items x relevant items x terms (about 20); ranking O(entries).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import param
from distagg.models.positional.kernels import size_class, terms_by_class
from distagg.models.rounds import Params
from distagg.models.scorers.kernels import PERSISTENCE, Net
from distagg.models.scorers.scorer import Scorer, best_dcg, gains, longest_query
from distagg.models.scorers.stagg_kernels import Metric, climb_expected
from distagg.types import OFFSET, Floats, Offsets

STRIDES = {"ndcg": 1.0, "err": 10.0, "rbp": 10.0}  # err and rbp are not divided by their best value: small gradients
TOLERANCE = 1e-6  # of the exponentials that stand for a discount


@dataclass(frozen=True, kw_only=True)
class Stagg(Scorer):
    """In training, unlabelled items take part in contests and gain nothing.

    Of a linear function, ``sigma`` and ``rate`` are one setting: what they learn depends on rate / sigma^2 alone, up to
    the scale of the scores.
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
    rate: float = param(0.1, "length of a step of SGD, times 10 for err and rbp; Adam's is a tenth of it", above=0.0)

    @property
    def _step(self) -> float:
        return float(self.rate) * STRIDES[self.objective]

    def _climb(self, chunk: Chunk, params: Params, queries: np.ndarray, net: Net, step: float, target: Net) -> int:
        longest = longest_query(chunk)
        gain, keep = self._items(chunk, float(params["highest"][0]))
        terms = discount_terms(self.objective, size_class(longest))
        table = discounts(self.objective, np.arange(float(longest)))
        metric = Metric(self.ranks == "normal", float(self.sigma), gain, keep, table, *terms)
        return climb_expected(metric, bool(self.hidden), queries, chunk.grades(), self._rows(chunk), net, step, target)

    def _items(self, chunk: Chunk, highest: float) -> tuple[Floats, Floats]:
        """The gain of every item, and the probability that it does not satisfy (err; 1 for the others)."""
        keep = np.ones(chunk.n_items)
        if self.objective == "rbp":
            return (1.0 - PERSISTENCE) * np.maximum(chunk.labels, 0), keep
        gain = gains(chunk)
        if self.objective == "err":
            return gain / 2.0**highest, 1.0 - gain / 2.0**highest
        whole = np.repeat(best_dcg(chunk), np.diff(chunk.item_offsets))
        return np.divide(gain, whole, out=np.zeros_like(gain), where=whole > 0.0), keep


def discounts(objective: str, rank: Floats) -> Floats:
    """What the metric multiplies an item's gain by, at ranks from 0."""
    if objective == "rbp":
        return PERSISTENCE**rank
    return 1.0 / (1.0 + rank) if objective == "err" else 1.0 / np.log2(2.0 + rank)


@lru_cache(maxsize=64)
def discount_terms(objective: str, largest: int) -> tuple[Offsets, Floats, Floats]:
    """The discount as exponentials for each class of sizes up to the largest: where they start, ratios, weights."""
    if objective == "rbp":
        return np.arange(largest + 2, dtype=OFFSET), np.full(largest + 1, PERSISTENCE), np.ones(largest + 1)
    return terms_by_class(lambda size: lambda rank: discounts(objective, rank), largest, 1.0, TOLERANCE)
