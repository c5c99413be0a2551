"""outranking: an item outranks another if enough lists agree and few object strongly (Farah & Vanderpooten 2007).

Cost: items^2 x lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.jit import kernel
from distagg.models.base import Params, Statistics, param
from distagg.models.lists import Lists
from distagg.models.majority.kernels import ROUNDING, query_table, query_weight
from distagg.models.majority.model import check_matrix
from distagg.models.pairs import list_arrays
from distagg.models.weights import Weighted, list_weight
from distagg.types import Floats, Indices


@kernel
def agreement(
    table: Indices,  # (size, lists) places
    weight: Floats,  # (lists,); empty where each counts 1
    preference: int,
    veto: int,
) -> tuple[Floats, Floats]:  # (size, size) each
    """The lists in which i stands ``preference`` places or more before j, and ``veto`` places or more behind it."""
    size = len(table)
    agree, object_ = np.zeros((size, size)), np.zeros((size, size))
    for a in range(table.shape[1]):
        share = weight[a] if len(weight) > 0 else 1.0
        for i in range(size):
            here = np.int64(table[i, a])
            for j in range(size):
                there = np.int64(table[j, a])
                if i != j and here + preference <= there:
                    agree[i, j] += share
                if i != j and here >= there + veto:
                    object_[i, j] += share
    return agree, object_


@kernel
def outranking_scores(agree: Floats, objecting: Floats, least: float, most: float, score: Floats) -> None:
    """Add up, over the items that an item outranks, the lists that agree."""
    for i in range(len(agree)):
        for j in range(len(agree)):
            if i != j and agree[i, j] >= least and objecting[i, j] <= most:
                score[i] += agree[i, j]


@kernel
def outranking_chunk(
    preference: float, veto: float, concordance: float, discordance: float, weight: Floats, lists: Lists
) -> Floats:  # (I,)
    """The scores of every query."""
    score = np.zeros(lists.item_offsets[-1])
    for q in range(len(lists.item_offsets) - 1):
        base, end = lists.item_offsets[q], lists.item_offsets[q + 1]
        weights = query_weight(q, weight, lists)
        total = 0.0
        for a in range(lists.list_offsets[q + 1] - lists.list_offsets[q]):
            total += weights[a] if len(weight) > 0 else 1.0
        size = end - base
        agree, objecting = agreement(query_table(q, lists), weights, int(preference * size), int(veto * size))
        least, most = np.floor(concordance * total + ROUNDING), np.floor(discordance * total + ROUNDING)
        outranking_scores(agree, objecting, least, most, score[base:end])
    return score


@dataclass(frozen=True, kw_only=True)
class Outranking(Weighted):
    """The lists that agree, summed over the items that an item outranks.

    An item outranks another if at least the concordance's share of lists puts it before the other by the preference's
    share of places, and at most the discordance's share puts it behind by the veto's share of places. Shares of places
    are of the query's items; all are rounded down. Items that a list leaves out stand far behind the listed ones, and
    level with each other. Farah & Vanderpooten go on to distil an order from the relation; as in FLAGR, the sum orders
    the items here.
    """

    name: ClassVar[str] = "outranking"
    summary: ClassVar[str] = "items outrank others that enough lists put behind and few put far ahead"
    paper: ClassVar[str] = "Farah & Vanderpooten 2007"
    cost: ClassVar[str] = "items^2 x lists"
    additive: ClassVar[bool] = True

    preference: float = param(0.0, "places, as a share of the items, by which an item must be ahead", least=0.0)
    veto: float = param(0.75, "places, as a share of the items, behind which a list objects", least=0.0)
    concordance: float = param(0.0, "least share of lists that agree", least=0.0)
    discordance: float = param(0.25, "most share of lists that object", least=0.0)

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        """The matrices of the one query of an expert-partitioned chunk."""
        check_matrix(self.name, chunk.n_items, matrices=2)
        weight, size = list_weight(chunk, params), chunk.n_items
        places = int(self.preference * size), int(self.veto * size)
        agree, objecting = agreement(query_table(0, list_arrays(chunk)), weight, *places)
        total = weight.sum() if len(weight) else float(chunk.n_lists)
        return {"agree": agree, "objecting": objecting, "total": np.array([total])}

    def score(self, chunk: Chunk, params: Params) -> Floats:
        if "agree" not in params:
            preference, veto = float(self.preference), float(self.veto)
            concordance, discordance = float(self.concordance), float(self.discordance)
            arrays = list_weight(chunk, params), list_arrays(chunk)
            return outranking_chunk(preference, veto, concordance, discordance, *arrays)
        score, total = np.zeros(chunk.n_items), float(params["total"][0])
        least, most = np.floor(self.concordance * total + ROUNDING), np.floor(self.discordance * total + ROUNDING)
        outranking_scores(params["agree"], params["objecting"], least, most, score)
        return score
