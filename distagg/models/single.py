"""median (Fagin et al. 2003) and bestinput, the best single expert (paper 004, section 5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.kernels.lists import median_ranks
from distagg.models.base import Model, Params, Statistics, Tally, param
from distagg.types import Floats

MOST_CANDIDATES = 10_000


@dataclass(frozen=True, kw_only=True)
class Median(Tally):
    """Median rank, smallest first; items without one come last, those in more lists first."""

    name: ClassVar[str] = "median"
    summary: ClassVar[str] = "median rank"
    paper: ClassVar[str] = "000 section 2.2; Fagin et al. 2003"

    unlisted: Any = param(
        "last",
        "items a list leaves out: last (they stand behind all) or ignore (median over the lists that hold the item)",
        choices=("last", "ignore"),
    )

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        """How often each item has each rank: sorted (row, rank) pairs with counts, and the number of lists."""
        rows, ranks = chunk.entry_row(), chunk.entry_rank
        return _merged(rows, ranks, np.ones(len(rows))) | {"lists": np.diff(chunk.list_offsets).astype(float)}

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        both = (np.concatenate([a[key], b[key]]) for key in ("row", "rank", "count"))
        return _merged(*both) | {"lists": a["lists"] + b["lists"]}

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        """From the histogram; whole queries take the kernel instead."""
        held = np.bincount(tally["row"], tally["count"], chunk.n_items).astype(float)
        lists = np.repeat(tally["lists"], np.diff(chunk.item_offsets))
        count = lists if self.unlisted == "last" else held
        upto = np.cumsum(tally["count"])
        before = np.concatenate([[0.0], np.cumsum(held)[:-1]])
        median = np.full(chunk.n_items, np.inf)
        low, high = np.floor((count - 1) / 2), np.floor(count / 2)
        some = (held > 0) & (high < held)
        at = [np.searchsorted(upto, before[some] + place[some], side="right") for place in (low, high)]
        median[some] = 0.5 * (tally["rank"][at[0]] + tally["rank"][at[1]])
        return _last_by_support(chunk, median, held)

    def score(self, chunk: Chunk, params: Params) -> Floats:
        if "tallied" in params:
            return super().score(chunk, params)
        arrays = (chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.entry_item, chunk.entry_rank)
        return _last_by_support(chunk, *median_ranks(*arrays, self.unlisted == "last"))


def _merged(row: np.ndarray, rank: np.ndarray, count: np.ndarray) -> Statistics:
    order = np.lexsort((rank, row))
    row, rank, count = row[order], rank[order], count[order]
    new = np.ones(len(row), dtype=bool)
    new[1:] = (row[1:] != row[:-1]) | (rank[1:] != rank[:-1])
    starts = np.flatnonzero(new)
    return {"row": row[starts], "rank": rank[starts], "count": np.add.reduceat(count, starts) if len(row) else count}


def _last_by_support(chunk: Chunk, median: Floats, held: Floats) -> Floats:
    """Minus the median; items without one stand behind all others of their query, by the lists that hold them."""
    finite = np.isfinite(median)
    queries = chunk.item_query()
    worst = np.zeros(chunk.n_queries)
    np.maximum.at(worst, queries[finite], median[finite])
    return -np.where(finite, median, worst[queries] + 1.0 + 1.0 / (1.0 + held))


@dataclass(frozen=True, kw_only=True)
class BestInput(Model):
    """The one expert that did best on labelled data; where it is silent, the next best that spoke."""

    name: ClassVar[str] = "bestinput"
    summary: ClassVar[str] = "the single expert that is best on labelled data"
    paper: ClassVar[str] = "004 section 5.1"
    supervised: ClassVar[bool] = True
    unseen: ClassVar[float] = -np.inf  # behind every expert that is known

    def candidates(self, n_experts: int) -> list[Params]:
        if n_experts > MOST_CANDIDATES:
            raise UsageError(f"bestinput tries every expert; {n_experts:,} experts are more than {MOST_CANDIDATES:,}")
        return [{"expert_quality": np.eye(1, n_experts, expert)[0]} for expert in range(n_experts)]

    def chosen(self, candidates: list[Params], values: Floats) -> Params:
        """Every expert's quality: the metric it reached alone."""
        return {"expert_quality": values}

    def score(self, chunk: Chunk, params: Params) -> Floats:
        score = np.zeros(chunk.n_items)
        quality = params["expert_quality"]
        for q in range(chunk.n_queries):
            lists = np.arange(chunk.list_offsets[q], chunk.list_offsets[q + 1])
            if not len(lists):
                continue
            best = lists[np.argmax(quality[chunk.list_expert[lists]])]
            span = slice(chunk.entry_offsets[best], chunk.entry_offsets[best + 1])
            ranks = chunk.entry_rank[span]
            behind = ranks[-1] + 1.0 if len(ranks) else 0.0
            score[chunk.item_offsets[q] : chunk.item_offsets[q + 1]] = -behind
            score[chunk.item_offsets[q] + chunk.entry_item[span]] = -ranks
        return score
