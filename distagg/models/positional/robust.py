"""rra: robust rank aggregation (Kolde et al. 2012). Cost: entries log entries.

How unlikely would an item's places be if all lists were random? An item that many lists put high is significant even if
some lists leave it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Params, Statistics
from distagg.models.lists import mid_positions
from distagg.models.positional.model import Histogram, some
from distagg.types import Floats


@dataclass(frozen=True, kw_only=True)
class Rra(Histogram):
    """Minus the logarithm of the item's rho, times the number of lists: Kolde's p-value is min(1, exp(-score)).

    The k-th best of n places, over the number of items, would be so good in random lists with the chance of a beta
    distribution; rho is the least of these chances over k. A list that leaves the item out gives it the last place.
    Scores below 0, which the p-value makes equal, still order the items.
    """

    name: ClassVar[str] = "rra"
    summary: ClassVar[str] = "robust rank aggregation: how unlikely such places are in random lists"
    paper: ClassVar[str] = "Kolde et al. 2012"
    cost: ClassVar[str] = "entries log entries"

    def values(self, chunk: Chunk, params: Params) -> Floats:
        entries = np.diff(chunk.entry_offsets[chunk.list_offsets])
        items = np.repeat(np.diff(chunk.item_offsets), entries)
        return mid_positions(chunk.entry_offsets, chunk.entry_rank) / items

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        from scipy.special import betainc

        row, count = tally["row"], np.cumsum(tally["count"])
        held = np.bincount(row, tally["count"], chunk.n_items)
        lists = np.repeat(some(tally["lists"]), np.diff(chunk.item_offsets))
        better = count - (np.cumsum(held) - held)[row]  # places of the item so good or better
        chance = betainc(better, lists[row] - better + 1.0, tally["value"])
        rho = np.ones(chunk.n_items)
        np.minimum.at(rho, row, chance)
        return -np.log(np.maximum(rho, np.finfo(float).tiny) * lists)
