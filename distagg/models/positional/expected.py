"""stagg_bc and stagg_rrf: Borda count and reciprocal rank as expectations over uncertain ranks.

Niu et al. 2013, section 4.2.
Cost: O(entries) and O(entries x terms), a dozen to a few dozen terms; see ``kernels``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Params, Statistics, Tally, param
from distagg.models.pairs import list_arrays
from distagg.models.positional.kernels import Utility, size_class, sum_expectations, terms_by_class
from distagg.models.positional.model import RRF_CANDIDATES
from distagg.models.weights import Weighted, list_weight
from distagg.types import OFFSET, Floats, Offsets


@dataclass(frozen=True, kw_only=True)
class StaggBorda(Tally, Weighted):
    """Sum over lists of the number of items less the expected rank.

    In a list the better of two items wins with a chance that grows with the places between them; an item that the list
    leaves out is even with all. ``contest=paper unlisted=average`` are the paper's rules.
    """

    name: ClassVar[str] = "stagg_bc"
    summary: ClassVar[str] = "Borda count expected over uncertain ranks"
    paper: ClassVar[str] = "Niu et al. 2013, section 4.2"

    contest: str = param(
        "graded",
        "the chance that the better of two listed items wins, d their distance in places over the query's items: "
        "graded (1 - exp(-steep d) / 2) or paper (the larger of d and 1 - d: neighbours decide most surely)",
        choices=("graded", "paper"),
    )
    steep: float = param(12.0, "how fast the chance in a graded contest rises to 1 with the distance", above=0.0)
    unlisted: str = param(
        "zero",
        "what a list gives the items it leaves out: zero, or the utility of an average rank (the paper's)",
        choices=("zero", "average"),
    )

    def terms(self, largest: int, params: Params) -> tuple[Offsets, Floats, Floats]:
        """Exponentials of the utility, by classes of sizes up to the largest (``terms_by_class``); none for Borda."""
        return np.zeros(1, dtype=OFFSET), np.zeros(0), np.zeros(0)

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        largest = size_class(int(np.diff(chunk.item_offsets).max(initial=1)))
        steep = 0.0 if self.contest == "paper" else float(self.steep)
        utility = Utility(steep, self.unlisted == "average", *self.terms(largest, params))
        return {"sum": sum_expectations(utility, list_weight(chunk, params), list_arrays(chunk))}


@dataclass(frozen=True, kw_only=True)
class StaggRrf(StaggBorda):
    """Sum over lists of the expectation of 1 / (c + rank), ranks from 0."""

    name: ClassVar[str] = "stagg_rrf"
    summary: ClassVar[str] = "reciprocal rank expected over uncertain ranks"
    cost: ClassVar[str] = "entries x terms"

    c: float | Literal["auto"] = param(
        25.0,
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
    return terms_by_class(lambda rank: 1.0 / (c + rank), largest, c)
