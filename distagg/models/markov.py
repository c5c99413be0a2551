"""Markov chains mc1-mc4 (Dwork, Kumar, Naor & Sivakumar 2001): walks that move on to better items.

mc1: anywhere at least as good in any list; mc2: a list first, then anywhere at least as good in it; mc3: a list,
then any item of it, moving if it is better; mc4: any item, moving if a majority of lists puts it over the present
one. Teleporting makes every walk converge. mc1-mc3 cost O(entries) a step, mc4 O(items^2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.kernels.markov import list_reach, list_walks, majority_walk, majority_walks, step_lists, teleported
from distagg.models.base import Params, Statistics, not_converged, param
from distagg.models.majority import Majority
from distagg.models.pairs import list_arrays
from distagg.types import Floats

NOISE_DIGITS = 7  # of a mass relative to 1 / size; the tolerance leaves more
PAPER = "004 section 5.1; Dwork et al. 2001"


@dataclass(frozen=True, kw_only=True)
class Markov(Majority):
    """What the four chains share."""

    paper: ClassVar[str] = PAPER

    teleport: Any = param(
        0.3, "chance to jump anywhere at each step; 0.3 is better on MQ2007 and MQ2008 than 0.05, and faster", above=0.0
    )
    tolerance: Any = param(1e-10, "stop when a step changes less than this in all", above=0.0)
    steps: Any = param(2000, "most steps to take", least=1)
    local_kemeny: Any = param(False, "afterwards lift items over neighbours that a majority puts below them")

    def _finished(self, scores: Floats, unfinished: int, sizes: np.ndarray) -> Floats:
        """Scores with the rounding noise taken off, so that items that tie do so to the last bit."""
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

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        if "x" not in params:  # first round: the shape of the chain
            holders, reach = list_reach(0, list_arrays(chunk))
            shape = {"lists": holders, "reach": reach}
            return {**shape, **super().map(chunk, params)} if self.local_kemeny else shape
        flow = step_lists(self.kind, params["x"], params["lists"], params["reach"], 0, list_arrays(chunk))
        return {"flow": np.where(params["lists"] > 0, flow, 0.0)}

    def finish(self, statistics: Statistics, params: Params) -> Params:
        if "x" not in params:
            size = len(statistics["lists"])
            return {**statistics, "x": np.full(size, 1.0 / size), "step": np.array(0), "change": np.array(np.inf)}
        x = params["x"]
        y = np.where(params["lists"] > 0, statistics["flow"], x)
        change = teleported(y, x, self.teleport)
        return {**params, "x": y, "step": params["step"] + 1, "change": np.array(change)}

    def done(self, params: Params) -> bool:
        return "x" in params and bool(params["change"] <= self.tolerance or params["step"] >= self.steps)

    def score(self, chunk: Chunk, params: Params) -> Floats:
        if "x" in params:
            scores = self._finished(params["x"], int(params["change"] > self.tolerance), np.diff(chunk.item_offsets))
            return self._sorted_margins(params["margins"], scores, local=True) if self.local_kemeny else scores
        scores, unfinished = list_walks(self.kind, self.teleport, self.tolerance, self.steps, list_arrays(chunk))
        scores = self._finished(scores, unfinished, np.diff(chunk.item_offsets))
        return self._sorted(chunk, scores, local=True) if self.local_kemeny else scores


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
class Mc4(Markov):
    name: ClassVar[str] = "mc4"
    summary: ClassVar[str] = "Markov chain to items that a majority of lists puts higher"

    def _score_chunk(self, chunk: Chunk) -> Floats:
        scores, unfinished = majority_walks(self.teleport, self.tolerance, self.steps, *self._arrays(chunk))
        scores = self._finished(scores, unfinished, np.diff(chunk.item_offsets))
        return self._sorted(chunk, scores, local=True) if self.local_kemeny else scores

    def _score_margins(self, margins: Floats, start: Floats) -> Floats:
        scores, converged = majority_walk(margins, self.teleport, self.tolerance, self.steps)
        scores = self._finished(scores, int(not converged), np.array([len(scores)]))
        return self._sorted_margins(margins, scores, local=True) if self.local_kemeny else scores
