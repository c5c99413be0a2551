"""outranking: an item outranks another if enough lists agree and few object strongly (Farah & Vanderpooten 2007).

Cost: items^2 x lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import param
from distagg.models.majority.kernels import ROUNDING, query_table
from distagg.models.majority.model import check_matrix
from distagg.models.majority.outranking_kernels import agreement, outranking_chunk, outranking_scores
from distagg.models.pairs import list_arrays
from distagg.models.pool import Pooled
from distagg.models.rounds import Gathered, Params, Statistics
from distagg.models.weights import Weighted, list_weight
from distagg.types import Floats


@dataclass(frozen=True, kw_only=True)
class Outranking(Pooled, Weighted):
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

    def score_pool(self, chunk: Chunk, params: Params) -> Floats:
        preference, veto = float(self.preference), float(self.veto)
        concordance, discordance = float(self.concordance), float(self.discordance)
        arrays = list_weight(chunk, params), list_arrays(chunk)
        return outranking_chunk(preference, veto, concordance, discordance, *arrays)

    def score_split(self, chunk: Chunk, gathered: Gathered) -> Floats:
        known, score = gathered.statistics, np.zeros(chunk.n_items)
        total = float(known["total"][0])
        least, most = np.floor(self.concordance * total + ROUNDING), np.floor(self.discordance * total + ROUNDING)
        outranking_scores(known["agree"], known["objecting"], least, most, score)
        return score
