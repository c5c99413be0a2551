"""Models on majorities: condorcet (Montague & Aslam 2002), copeland (1951) and mc4 (Dwork et al. 2001).

Lists and raw pairs both say who beats whom. On whole queries condorcet builds no matrix: it sorts by comparing
rows of places. On an expert-partitioned dataset margins add up over chunks in an items x items matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.kernels.lists import Lists, Pairs
from distagg.kernels.majority import (
    chunk_margins,
    copeland_chunk,
    copeland_scores,
    local_kemeny,
    majority_sort,
    sort_chunk,
)
from distagg.kernels.ordering import order_items
from distagg.models.base import Model, Params, Statistics, param, sum_entries, sum_reciprocals
from distagg.models.pairs import list_arrays, pair_arrays
from distagg.types import Floats

MATRIX_BYTES = 2 << 30
NO_TABLE = np.zeros((0, 0), dtype=np.int32)


@dataclass(frozen=True, kw_only=True)
class Majority(Model):
    """What majority models share: margins, and their sum over the chunks of an expert-partitioned query."""

    cost: ClassVar[str] = "items^2 x lists"
    inputs: ClassVar[tuple[str, ...]] = ("lists", "pairs")
    additive: ClassVar[bool] = True

    unlisted: Any = param(
        "last",
        "what it means that a list leaves an item out: last (it stands behind all listed ones) or ignore (the list "
        "says nothing about it)",
        choices=("last", "ignore"),
    )

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        """Margins of the one query of an expert-partitioned chunk, and where its items start."""
        need = chunk.n_items**2 * 8
        if need > MATRIX_BYTES:
            raise UsageError(
                f"{self.name} needs a matrix of {chunk.n_items:,} x {chunk.n_items:,} items ({need / 2**30:.1f} GiB) "
                "on data partitioned by expert; choose a model that adds up by item, such as borda or rrf"
            )
        margins = chunk_margins(0, *self._arrays(chunk))
        return {"margins": margins, "start": start_scores(chunk)}

    def score(self, chunk: Chunk, params: Params) -> Floats:
        if "margins" in params:
            return self._score_margins(params["margins"], params["start"])
        return self._score_chunk(chunk)

    def _arrays(self, chunk: Chunk) -> tuple[bool, Lists, Pairs]:
        return self.unlisted == "last", list_arrays(chunk), pair_arrays(chunk)

    def _score_margins(self, margins: Floats, start: Floats) -> Floats:
        raise NotImplementedError

    def _score_chunk(self, chunk: Chunk) -> Floats:
        raise NotImplementedError

    def _sorted(self, chunk: Chunk, start: Floats, *, local: bool) -> Floats:
        """Whole queries sorted by majority from the order of some scores."""
        return sort_chunk(local, order_items(chunk.item_offsets, start), *self._arrays(chunk))

    def _sorted_margins(self, margins: Floats, start: Floats, *, local: bool) -> Floats:
        """One query, given by its margins, sorted likewise."""
        order = np.argsort(-start, kind="stable")
        sort = local_kemeny if local else majority_sort
        order = sort(order, NO_TABLE, margins, self.unlisted == "last")
        score = np.empty(len(order))
        score[order] = np.arange(len(order), 0, -1)
        return score


@dataclass(frozen=True, kw_only=True)
class Condorcet(Majority):
    """Condorcet fusion: a merge sort whose comparison is the majority of lists.

    Majorities can be cyclic, so the outcome depends on where sorting starts: from the order of reciprocal ranks.
    """

    name: ClassVar[str] = "condorcet"
    summary: ClassVar[str] = "merge sort by the majority of lists"
    paper: ClassVar[str] = "000 section 2.2; Montague & Aslam 2002"
    cost: ClassVar[str] = "items log items x lists"

    def _score_chunk(self, chunk: Chunk) -> Floats:
        return self._sorted(chunk, start_scores(chunk), local=False)

    def _score_margins(self, margins: Floats, start: Floats) -> Floats:
        return self._sorted_margins(margins, start, local=False)


@dataclass(frozen=True, kw_only=True)
class Copeland(Majority):
    """Majorities won less majorities lost."""

    name: ClassVar[str] = "copeland"
    summary: ClassVar[str] = "pairwise majorities won less lost"
    paper: ClassVar[str] = "Copeland 1951"

    def _score_chunk(self, chunk: Chunk) -> Floats:
        return copeland_chunk(*self._arrays(chunk))

    def _score_margins(self, margins: Floats, start: Floats) -> Floats:
        score = np.zeros(len(margins))
        copeland_scores(margins, score)
        return score


def start_scores(chunk: Chunk) -> Floats:
    """Where sorting starts: reciprocal ranks and net wins in pairs, so that the input order decides little."""
    start = np.zeros(chunk.n_items)
    if chunk.n_entries:
        positive = chunk.entry_rank.min() > 0
        start = sum_reciprocals(chunk, 60.0) if positive else sum_entries(chunk, np.exp2(-chunk.entry_rank))
    if chunk.n_pairs:
        base = np.repeat(chunk.item_offsets[:-1], np.diff(chunk.pair_offsets))
        weight = np.where(chunk.pair_tie, 0.0, chunk.pair_weight)
        start = start + np.bincount(base + chunk.pair_winner, weight, chunk.n_items)
        start = start - np.bincount(base + chunk.pair_loser, weight, chunk.n_items)
    return start
