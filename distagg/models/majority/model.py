"""Models on majorities: condorcet (Montague & Aslam 2002), copeland (1951), the Markov chains mc1 to mc4, outranking.

Lists and raw pairs both say who beats whom. On whole queries of lists without weights condorcet builds no matrix: it
sorts by comparing rows of places. On an expert-partitioned dataset margins add up over chunks in an items x items
matrix.

The chains (Dwork et al. 2001) are walks that move on to better items. mc1 moves to any item that is at least as good in
any list; mc2 draws a list, then moves to any item that is at least as good in it; mc3 draws a list, then an item of it,
and moves if that is better; mc4 draws any item, and moves if a majority of lists puts it over the present one.
Teleporting makes every walk converge. Cost: mc1 to mc3 O(entries) a step, mc4 O(items^2).

With outranking an item stands over another if enough lists agree and few object strongly (Farah & Vanderpooten 2007).
Cost: items^2 x lists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Model, not_converged, param, reciprocals, sum_entries
from distagg.models.lists import Lists, Pairs
from distagg.models.majority.kernels import (
    ROUNDING,
    chunk_margins,
    copeland_chunk,
    copeland_scores,
    list_reach,
    list_walks,
    local_kemeny,
    majority_sort,
    majority_walk,
    majority_walks,
    query_table,
    sort_chunk,
    step_lists,
    teleported,
)
from distagg.models.majority.outranking_kernels import agreement, outranking_chunk, outranking_scores
from distagg.models.pairs import list_arrays, pair_arrays
from distagg.models.pool import Pooled
from distagg.models.rounds import Gathered, Params, Stage, Statistics
from distagg.models.weights import Weighted, entry_weight, list_weight, pair_weight, weighed
from distagg.rankings.ordering import order_items
from distagg.types import Floats

MATRIX_BYTES = 2 << 30
NO_TABLE = np.zeros((0, 0), dtype=np.int32)


def check_matrix(model: str, items: int, matrices: int = 1) -> None:
    """Refuse a query whose matrices of items x items are too large to add up over chunks."""
    need = matrices * items**2 * 8
    if need > MATRIX_BYTES:
        raise UsageError(
            f"{model} needs a matrix of {items:,} x {items:,} items ({need / 2**30:.1f} GiB) "
            "on data partitioned by expert; choose a model that adds up by item, such as borda or rrf"
        )


@dataclass(frozen=True, kw_only=True)
class Majority(Model):
    """Base of majority models: margins, and their sum over the chunks of an expert-partitioned query."""

    cost: ClassVar[str] = "items^2 x lists"
    inputs: ClassVar[tuple[str, ...]] = ("lists", "pairs")
    additive: ClassVar[bool] = True

    unlisted: str = param(
        "last",
        "how to read a list that leaves an item out: last (the item ranks behind all listed ones) or ignore (the list "
        "says nothing about it)",
        choices=("last", "ignore"),
    )

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        """Margins of the one query of an expert-partitioned chunk, and where its items start."""
        check_matrix(self.name, chunk.n_items)
        margins = chunk_margins(0, *self._arrays(chunk, params))
        return {"margins": margins, "start": start_scores(chunk, params)}

    def score(self, chunk: Chunk, params: Params) -> Floats:
        return self._score_chunk(chunk, params)

    def score_split(self, chunk: Chunk, gathered: Gathered) -> Floats:
        return self._score_margins(gathered.statistics["margins"], gathered.statistics["start"])

    def _arrays(self, chunk: Chunk, params: Params) -> tuple[bool, Floats, Lists, Pairs]:
        pairs = pair_arrays(chunk)._replace(weight=pair_weight(chunk, params))
        return self.unlisted == "last", list_weight(chunk, params), list_arrays(chunk), pairs

    def _score_margins(self, margins: Floats, start: Floats) -> Floats:
        raise NotImplementedError

    def _score_chunk(self, chunk: Chunk, params: Params) -> Floats:
        raise NotImplementedError

    def _sorted(self, chunk: Chunk, params: Params, start: Floats, *, local: bool) -> Floats:
        """Scores of whole queries that are sorted by majority, starting from the order of the scores ``start`` (I,)."""
        return sort_chunk(local, order_items(chunk.item_offsets, start), *self._arrays(chunk, params))

    def _sorted_margins(self, margins: Floats, start: Floats, *, local: bool) -> Floats:
        """Scores of one query that is sorted by majority, given its margins (size, size) and start scores (size,)."""
        order = np.argsort(-start, kind="stable")
        sort = local_kemeny if local else majority_sort
        order = sort(order, NO_TABLE, margins, self.unlisted == "last")
        score = np.empty(len(order))
        score[order] = np.arange(len(order), 0, -1)
        return score


@dataclass(frozen=True, kw_only=True)
class Condorcet(Majority, Weighted):
    """Condorcet fusion: a merge sort whose comparison is the majority of lists.

    Majorities can be cyclic, so the outcome depends on where sorting starts: from the order of reciprocal ranks.
    """

    name: ClassVar[str] = "condorcet"
    summary: ClassVar[str] = "merge sort by the majority of lists"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Montague & Aslam 2002"
    cost: ClassVar[str] = "items log items x lists"

    def _score_chunk(self, chunk: Chunk, params: Params) -> Floats:
        return self._sorted(chunk, params, start_scores(chunk, params), local=False)

    def _score_margins(self, margins: Floats, start: Floats) -> Floats:
        return self._sorted_margins(margins, start, local=False)


@dataclass(frozen=True, kw_only=True)
class Copeland(Pooled, Majority, Weighted):
    """Majorities won less majorities lost."""

    square_bytes: ClassVar[int] = 12

    name: ClassVar[str] = "copeland"
    summary: ClassVar[str] = "pairwise majorities won less lost"
    paper: ClassVar[str] = "Copeland 1951"

    def _score_chunk(self, chunk: Chunk, params: Params) -> Floats:
        return copeland_chunk(*self._arrays(chunk, params))

    def _score_margins(self, margins: Floats, start: Floats) -> Floats:
        score = np.zeros(len(margins))
        copeland_scores(margins, score)
        return score


def start_scores(chunk: Chunk, params: Params) -> Floats:
    """Where sorting starts: reciprocal ranks and net wins in pairs, so that the input order decides little."""
    start = np.zeros(chunk.n_items)
    if chunk.n_entries:
        positive = chunk.entry_rank.min() > 0
        value = reciprocals(chunk, 60.0) if positive else np.exp2(-chunk.entry_rank)
        start = sum_entries(chunk, weighed(value, entry_weight(chunk, params)))
    if chunk.n_pairs:
        base = np.repeat(chunk.item_offsets[:-1], np.diff(chunk.pair_offsets))
        weight = np.where(chunk.pair_tie, 0.0, pair_weight(chunk, params))
        start = start + np.bincount(base + chunk.pair_winner, weight, chunk.n_items)
        start = start - np.bincount(base + chunk.pair_loser, weight, chunk.n_items)
    return start


NOISE_DIGITS = 7  # of a mass relative to 1 / size; the tolerance leaves more
PAPER = "Niu et al. 2013, section 5.1; Dwork et al. 2001"


@dataclass(frozen=True, kw_only=True)
class Markov(Majority, Weighted):
    """Base of the four Markov chains."""

    paper: ClassVar[str] = PAPER

    teleport: float = param(
        0.3, "chance to jump anywhere at each step; 0.3 is better on MQ2007 and MQ2008 than 0.05, and faster", above=0.0
    )
    tolerance: float = param(1e-10, "stop when a step changes the scores by less than this in total", above=0.0)
    steps: int = param(2000, "largest number of steps to take", least=1)
    local_kemeny: bool = param(False, "finally move each item up past neighbours that a majority ranks below it")

    def _finished(self, scores: Floats, unfinished: int, sizes: np.ndarray) -> Floats:
        """Scores without their rounding noise, so that tied items have the same bits."""
        if unfinished:
            not_converged(
                f"{self.name}: {unfinished} queries not converged after {self.steps} steps; raise steps or teleport"
            )
        per_item = np.repeat(sizes, sizes)  # masses are about 1 / size
        return np.round(scores * per_item, NOISE_DIGITS) / per_item


@dataclass(frozen=True, kw_only=True)
class ListChain(Markov):
    """mc1, mc2 and mc3. On an expert-partitioned dataset every step is a round of map and reduce."""

    kind: ClassVar[int]
    cost: ClassVar[str] = "entries x steps"
    inputs: ClassVar[tuple[str, ...]] = ("lists",)

    def gathering(self, params: Params) -> Stage:
        return ChainShape(self, params)

    def score(self, chunk: Chunk, params: Params) -> Floats:
        arrays = list_weight(chunk, params), list_arrays(chunk)
        scores, unfinished = list_walks(self.kind, self.teleport, self.tolerance, self.steps, *arrays)
        scores = self._finished(scores, unfinished, np.diff(chunk.item_offsets))
        return self._sorted(chunk, params, scores, local=True) if self.local_kemeny else scores

    def score_split(self, chunk: Chunk, gathered: Gathered) -> Floats:
        walk: ChainStep = gathered.statistics
        scores = self._finished(walk.x, int(walk.change > self.tolerance), np.diff(chunk.item_offsets))
        return self._sorted_margins(walk.shape["margins"], scores, local=True) if self.local_kemeny else scores


@dataclass(frozen=True, slots=True, eq=False)
class ChainShape(Stage):
    """The first round over a split query: how many lists hold each item, and how many moves each item has."""

    model: ListChain
    params: Params

    def map(self, chunk: Chunk) -> Statistics:
        holders, reach = list_reach(0, list_weight(chunk, self.params), list_arrays(chunk))
        shape = {"lists": holders, "reach": reach}
        return {**shape, **self.model.map(chunk, self.params)} if self.model.local_kemeny else shape

    def finish(self, statistics: Statistics) -> ChainStep:
        size = len(statistics["lists"])
        return ChainStep(self.model, self.params, statistics, np.full(size, 1.0 / size), 0, np.inf)


@dataclass(frozen=True, slots=True, eq=False)
class ChainStep(Stage):
    """One step of the chain."""

    model: ListChain
    params: Params
    shape: Statistics  # of ChainShape
    x: Floats  # (items,) the distribution
    step: int
    change: float  # by the last step

    def sent(self) -> ChainStep:
        return replace(self, shape={name: self.shape[name] for name in ("lists", "reach")})

    def map(self, chunk: Chunk) -> Statistics:
        lists, arrays = self.shape["lists"], (list_weight(chunk, self.params), list_arrays(chunk))
        flow = step_lists(self.model.kind, self.x, lists, self.shape["reach"], 0, *arrays)
        return {"flow": np.where(lists > 0, flow, 0.0)}

    def finish(self, statistics: Statistics) -> ChainStep | Gathered:
        y = np.where(self.shape["lists"] > 0, statistics["flow"], self.x)
        change = float(teleported(y, self.x, self.model.teleport))
        after = replace(self, x=y, step=self.step + 1, change=change)
        over = change <= self.model.tolerance or after.step >= self.model.steps
        return Gathered(self.params, after) if over else after


@dataclass(frozen=True, kw_only=True)
class Mc1(ListChain):
    name: ClassVar[str] = "mc1"
    kind: ClassVar[int] = 1
    summary: ClassVar[str] = "Markov chain to any item at least as good in any list"


@dataclass(frozen=True, kw_only=True)
class Mc2(ListChain):
    name: ClassVar[str] = "mc2"
    kind: ClassVar[int] = 2
    summary: ClassVar[str] = "Markov chain: a list, then any item at least as good in it"


@dataclass(frozen=True, kw_only=True)
class Mc3(ListChain):
    name: ClassVar[str] = "mc3"
    kind: ClassVar[int] = 3
    summary: ClassVar[str] = "Markov chain: a list, then an item of it, moving if better"


@dataclass(frozen=True, kw_only=True)
class Mc4(Pooled, Markov):
    name: ClassVar[str] = "mc4"
    square_bytes: ClassVar[int] = 16
    summary: ClassVar[str] = "Markov chain to items that a majority of lists puts higher"

    def _score_chunk(self, chunk: Chunk, params: Params) -> Floats:
        scores, unfinished = majority_walks(self.teleport, self.tolerance, self.steps, *self._arrays(chunk, params))
        scores = self._finished(scores, unfinished, np.diff(chunk.item_offsets))
        return self._sorted(chunk, params, scores, local=True) if self.local_kemeny else scores

    def _score_margins(self, margins: Floats, start: Floats) -> Floats:
        scores, converged = majority_walk(margins, self.teleport, self.tolerance, self.steps)
        scores = self._finished(scores, int(not converged), np.array([len(scores)]))
        return self._sorted_margins(margins, scores, local=True) if self.local_kemeny else scores


@dataclass(frozen=True, kw_only=True)
class Outranking(Pooled, Weighted):
    """The lists that agree, summed over the items that an item outranks.

    An item outranks another if at least the concordance's share of lists puts it before the other by the preference's
    share of places, and at most the discordance's share puts it behind by the veto's share of places. Shares of places
    are of the query's items; all are rounded down. Items that a list leaves out stand far behind the listed ones, and
    level with each other. Farah & Vanderpooten go on to distil an order from the relation; as in FLAGR, the sum orders
    the items here.
    """

    square_bytes: ClassVar[int] = 16

    name: ClassVar[str] = "outranking"
    summary: ClassVar[str] = "items outrank others that enough lists put behind and few put far ahead"
    paper: ClassVar[str] = "Farah & Vanderpooten 2007"
    cost: ClassVar[str] = "items^2 x lists"
    additive: ClassVar[bool] = True

    preference: float = param(0.0, "smallest lead at which a list agrees, in places as a share of the items", least=0.0)
    veto: float = param(0.75, "smallest lag at which a list objects, in places as a share of the items", least=0.0)
    concordance: float = param(0.0, "smallest share of lists that must agree", least=0.0)
    discordance: float = param(0.25, "largest share of lists that may object", least=0.0)

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
