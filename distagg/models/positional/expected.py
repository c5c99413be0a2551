"""stagg_bc and stagg_rrf: Borda count and reciprocal rank as expectations over uncertain ranks.

Niu et al. 2013, section 4.2. By default only listed items meet in contests, and Borda's points are discounted. If they
counted all items of the query, listed or not, a deep list would be hardly more than a vote for each of its items.
Cost: O(entries) and O(entries x terms), a dozen to a few dozen terms; see ``kernels``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Tally, param
from distagg.models.lists import STEADY
from distagg.models.pairs import list_arrays
from distagg.models.positional.kernels import Utility, size_class, sum_expectations, terms_by_class
from distagg.models.positional.model import RRF_CANDIDATES
from distagg.models.rounds import Params, Statistics
from distagg.models.weights import Weighted, list_weight
from distagg.types import OFFSET, Floats, Offsets


@dataclass(frozen=True, kw_only=True)
class Expected(Tally, Weighted):
    """Sum over lists of the expected utility of an item's rank.

    In a list the better of two items wins with a chance that grows with the places between them; a rank counts the
    contests that an item loses. ``contest=paper unlisted=average`` are the paper's rules.
    """

    paper: ClassVar[str] = "Niu et al. 2013, section 4.2"

    contest: str = param(
        "graded",
        "the chance that the better of two listed items wins, d their distance in places over the number of items that "
        "meet: graded (1 - exp(-steep d) / 2; from 40 items on, d is over 40) or paper (the larger of d and 1 - d: "
        "neighbours decide most surely)",
        choices=("graded", "paper"),
    )
    steep: float = param(6.0, "how fast the chance in a graded contest rises to 1 with the distance", above=0.0)
    unlisted: str = param(
        "zero",
        "what a list gives the items it leaves out: zero (they meet nobody), or the utility of an average rank (the "
        "paper's: they are even with every item of the query)",
        choices=("zero", "average"),
    )

    @property
    def discounted(self) -> bool:
        """Whether points are discounted, and counted from the place of the items that a list leaves out."""
        return False

    def terms(self, largest: int, params: Params) -> tuple[Offsets, Floats, Floats]:
        """Exponentials of the utility, by classes of sizes up to the largest (``terms_by_class``); none for Borda."""
        raise NotImplementedError

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        largest = size_class(int(np.diff(chunk.item_offsets).max(initial=1)))
        steep = 0.0 if self.contest == "paper" else float(self.steep)
        utility = Utility(steep, self.unlisted == "average", self.discounted, *self.terms(largest, params))
        return {"sum": sum_expectations(utility, list_weight(chunk, params), list_arrays(chunk))}


@dataclass(frozen=True, kw_only=True)
class StaggBorda(Expected):
    """The Borda count of expected ranks, by discounted points or by plain ones."""

    name: ClassVar[str] = "stagg_bc"
    summary: ClassVar[str] = "Borda count expected over uncertain ranks"

    discount: bool = param(
        True,
        "true: points fall with log(5 + place), to 0 at the place of the unlisted items, which suits short and deep "
        "lists; false: points are the number of items that meet less the rank (always with unlisted=average)",
    )

    @property
    def discounted(self) -> bool:
        return self.discount and self.unlisted == "zero"

    def terms(self, largest: int, params: Params) -> tuple[Offsets, Floats, Floats]:
        if self.discounted:
            return discounted_terms(largest)
        return np.zeros(1, dtype=OFFSET), np.zeros(0), np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class StaggRrf(Expected):
    """Sum over lists of the expectation of 1 / (c + rank), ranks from 0."""

    name: ClassVar[str] = "stagg_rrf"
    summary: ClassVar[str] = "reciprocal rank expected over uncertain ranks"
    cost: ClassVar[str] = "entries x terms"

    c: float | Literal["auto"] = param(
        10.0,
        "the constant (ranks count from 0); auto chooses it by a metric on labelled data",
        choices=("auto",),
        above=0.0,
    )

    @property
    def needs_labels(self) -> bool:
        return self.c == "auto" or super().needs_labels

    def candidates(self, n_experts: int) -> list[Params]:
        return [{"c": np.array(c)} for c in RRF_CANDIDATES] if self.c == "auto" else []

    def terms(self, largest: int, params: Params) -> tuple[Offsets, Floats, Floats]:
        c = float(params["c"] if self.c == "auto" else self.c)
        return reciprocal_terms(c, largest)


@lru_cache(maxsize=256)
def reciprocal_terms(c: float, largest: int) -> tuple[Offsets, Floats, Floats]:
    """1 / (c + r) as exponentials."""
    return terms_by_class(lambda size: lambda rank: 1.0 / (c + rank), largest, c)


@lru_cache(maxsize=256)
def discounted_terms(largest: int) -> tuple[Offsets, Floats, Floats]:
    """The utility of ``discounted_value`` as exponentials."""
    c = STEADY + 1.0
    return terms_by_class(lambda size: lambda rank: np.log((c + 2.0 * size) / (c + rank)), largest, c)
