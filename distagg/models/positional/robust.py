"""rra and dibra: consensus in spite of lists that are noise.

rra is robust rank aggregation (Kolde et al. 2012): how unlikely would an item's places be if all lists were random? An
item that many lists put high is significant even if some lists leave it out. Cost: entries log entries.

dibra lets experts earn weight by agreeing with the consensus, round after round (Akritidis et al. 2022).
Cost: rounds x (entries + items log items).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Model, Params, Statistics, param, sum_entries
from distagg.models.lists import mid_positions
from distagg.models.positional.model import Histogram, some
from distagg.models.positional.scores import CombSum
from distagg.types import Floats


@dataclass(frozen=True, kw_only=True)
class Rra(Histogram):
    """Minus the logarithm of the item's rho, times the number of lists: Kolde's p-value is min(1, exp(-score)).

    Divide the k-th best of an item's n places by the number of items. In random lists it follows a beta distribution,
    which gives the chance of a place so good; rho is the least of these chances over k. A list that leaves the item out
    gives it the last place. Scores below 0 all have the p-value 1, but still order the items.
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
        better = count - (np.cumsum(held) - held)[row]  # how many places of the item are as good or better
        chance = betainc(better, lists[row] - better + 1.0, tally["value"])
        rho = np.ones(chunk.n_items)
        np.minimum.at(rho, row, chance)
        return -np.log(np.maximum(rho, np.finfo(float).tiny) * lists)


DIGITS = 9  # decimal places of scores; smaller differences are rounding


@dataclass(frozen=True, kw_only=True)
class Dibra(Model):
    """Borda points of the lists, weighted by how near each list is to the consensus of the query.

    All weights start at 1. In round t a list gains exp(-gamma t d), d its scaled footrule distance from the consensus:
    twice the mean of |place in the consensus / items - place in the list / its length|. Rounds end when no list that
    differs from the consensus gains more than the tolerance. Weights belong to a query, as in the paper.

    FLAGR, the authors' program, differs: it counts places of the consensus from 0 and of lists from 1, leaves out each
    list's last item, gives a list that equals the consensus nothing, does not use the last round's gains, and takes tau
    and rho, which are similarities, for distances. Its pruning of lists is not here: ``depth`` and ``top`` cut lists
    and rankings.
    """

    name: ClassVar[str] = "dibra"
    summary: ClassVar[str] = "Borda points, lists weighted by their nearness to the consensus, in rounds"
    paper: ClassVar[str] = "Akritidis et al. 2022"
    cost: ClassVar[str] = "rounds x (entries + items log items)"

    gamma: float = param(1.5, "how fast gains fall with the distance and with the rounds", above=0.0)
    tolerance: float = param(0.01, "stop when no gain is larger than this", above=0.0)
    rounds: int = param(50, "largest number of rounds", least=1)

    def score(self, chunk: Chunk, params: Params) -> Floats:
        points, length = CombSum(norm="borda").points(chunk, {}), np.diff(chunk.entry_offsets)
        of_list, rows = np.repeat(np.arange(chunk.n_lists), length), chunk.entry_row()
        place = mid_positions(chunk.entry_offsets, chunk.entry_rank) / np.repeat(length, length)
        items = np.diff(chunk.item_offsets)[chunk.item_query()].astype(float)
        query = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
        weight, open_ = np.ones(chunk.n_lists), np.ones(chunk.n_queries, dtype=bool)
        for number in range(1, int(self.rounds) + 1):
            consensus = consensus_places(chunk, sum_entries(chunk, points * weight[of_list])) / items
            apart = np.bincount(of_list, np.abs(consensus[rows] - place), chunk.n_lists)
            distance = 2.0 * apart / some(length.astype(float))
            gain = np.exp(-self.gamma * number * distance)
            weight = weight + np.where(open_[query], gain, 0.0)
            still = (gain > self.tolerance) & (distance > 0)
            open_ &= np.bincount(query, still, chunk.n_queries) > 0
            if not open_.any():
                break
        return sum_entries(chunk, points * weight[of_list])


def consensus_places(chunk: Chunk, score: Floats) -> Floats:
    """The place of every item in its query by score, from 1; tied items share the mean of their places."""
    rounded = np.round(score, DIGITS)
    order = np.lexsort((-rounded, chunk.item_query()))
    place = np.empty(chunk.n_items)
    place[order] = mid_positions(chunk.item_offsets, -rounded[order])
    return place
