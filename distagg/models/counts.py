"""Pair counts of a chunk's queries, whichever way they are counted best, and how they add up over chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.kernels.counts import count_squares, deal, expand_lists, merge_rows
from distagg.kernels.lists import PAIR_FUNCTIONS
from distagg.types import INDEX, OFFSET, Bools, Floats, Indices, Offsets

PAIRS_BYTES = 4 << 30
PAIR_BYTES = 37  # a pair while it is dealt into rows
SMALL_SQUARE = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Rows of pairs for all items of a chunk; see ``distagg.kernels.counts``."""

    item_offsets: Offsets  # (Q + 1,)
    offsets: Offsets  # (I + 1,)
    other: Indices  # (E,)
    ahead: Floats  # (E,)
    behind: Floats  # (E,)
    ties: Floats  # (Q,)

    def __post_init__(self) -> None:
        self.item_offsets.setflags(write=False)  # as a chunk's, so that kernels see one type

    @property
    def graph(self) -> tuple[Offsets, Offsets, Indices, Floats, Floats]:
        """The arrays that make the graph, in the order in which kernels take them."""
        return self.item_offsets, self.offsets, self.other, self.ahead, self.behind

    def directed(self) -> dict[str, np.ndarray]:
        """One query's counts as weighted pairs: statistics that ``merged`` adds up."""
        low = np.repeat(np.arange(len(self.offsets) - 1, dtype=INDEX), np.diff(self.offsets))
        won, lost = self.ahead > 0, self.behind > 0
        return {
            "pair_winner": np.concatenate([low[won], self.other[lost]]),
            "pair_loser": np.concatenate([self.other[won], low[lost]]),
            "pair_weight": np.concatenate([self.ahead[won], self.behind[lost]]),
            "ties": self.ties,
        }


@dataclass(frozen=True, slots=True)
class Counting:
    """What becomes a pair: the function of ranks, unlisted items, and the share of a tie that counts for each side."""

    function: str
    unlisted_last: bool
    share: float

    def count(self, chunk: Chunk, list_weight: Floats | None = None, pair_weight: Floats | None = None) -> Counts:
        """Counts of all queries; lists and pairs may be weighted anew (by how often a resample holds them)."""
        list_weight = np.ones(chunk.n_lists) if list_weight is None else list_weight
        pair_weight = chunk.pair_weight if pair_weight is None else pair_weight
        pair_weight.setflags(write=False)
        if self.function in ("normalised", "log") and chunk.n_entries and chunk.entry_rank.min() <= 0:
            raise UsageError(f"pairs={self.function} needs ranks above 0, and the dataset holds ratings")
        if not self._sparse(chunk).any():
            return self._squares(chunk, list_weight, pair_weight)
        if chunk.n_queries == 1:
            return self._rows(chunk, list_weight, pair_weight)
        each = []
        for q in range(chunk.n_queries):
            lists = slice(chunk.list_offsets[q], chunk.list_offsets[q + 1])
            pairs = slice(chunk.pair_offsets[q], chunk.pair_offsets[q + 1])
            one = chunk.select(np.arange(chunk.n_queries) == q)
            each.append(self.count(one, list_weight[lists], pair_weight[pairs]))
        return joined(each)

    def _sparse(self, chunk: Chunk) -> np.ndarray:
        """Which queries have too few pairs for a square; those with too many to hold are refused."""
        size = np.diff(chunk.item_offsets)
        listed = np.diff(chunk.entry_offsets)
        made = listed * (listed - 1) // 2
        if self.unlisted_last:
            made = made + listed * (np.repeat(size, np.diff(chunk.list_offsets)) - listed)
        sums = np.concatenate([[0], np.cumsum(made)])[chunk.list_offsets]
        pairs = np.diff(chunk.pair_offsets) + np.diff(sums)
        sparse = size**2 > 4 * pairs + SMALL_SQUARE
        need = np.where(sparse, pairs * PAIR_BYTES, size**2 * 26)
        if len(need) and need.max() > PAIRS_BYTES:
            q = int(need.argmax())
            raise UsageError(
                f"query {chunk.query_ids[q]} has {size[q]:,} items and {pairs[q]:,} pairs "
                f"({need[q] / 2**30:.1f} GiB); choose unlisted=ignore, or a model that needs no pairs, such as borda"
            )
        return np.asarray(sparse)

    def _values(self, chunk: Chunk) -> tuple[Floats, Floats]:  # (E,), (L,)
        """Ranks as the pair function compares them, and where every list ends: at its unlisted items, if they count."""
        end = np.ones(chunk.n_lists)
        listed = np.diff(chunk.entry_offsets)
        full = listed > 0
        end[full] = chunk.entry_rank[chunk.entry_offsets[1:][full] - 1]
        if self.unlisted_last:
            end += listed < np.repeat(np.diff(chunk.item_offsets), np.diff(chunk.list_offsets))
        if self.function != "log":
            return chunk.entry_rank, end
        value = np.log(chunk.entry_rank)
        value.setflags(write=False)
        return value, np.log(end)

    def _squares(self, chunk: Chunk, list_weight: Floats, pair_weight: Floats) -> Counts:
        size = np.diff(chunk.item_offsets)
        room = int((size * (size - 1) // 2).sum())
        offsets, ties = np.zeros(chunk.n_items + 1, dtype=OFFSET), np.zeros(chunk.n_queries)
        other, ahead, behind = np.empty(room, dtype=INDEX), np.empty(room), np.empty(room)
        value, end = self._values(chunk)
        edges = count_squares(
            PAIR_FUNCTIONS[self.function], self.unlisted_last, self.share, list_weight, end, chunk.item_offsets,
            chunk.list_offsets, chunk.entry_offsets, chunk.entry_item, value, chunk.pair_offsets, chunk.pair_winner,
            chunk.pair_loser, pair_weight, chunk.pair_tie, offsets, other, ahead, behind, ties,
        )  # fmt: skip
        return Counts(chunk.item_offsets, offsets, other[:edges], ahead[:edges], behind[:edges], ties)

    def _rows(self, chunk: Chunk, list_weight: Floats, pair_weight: Floats) -> Counts:
        pairs: list[Any] = [chunk.pair_winner, chunk.pair_loser, pair_weight, chunk.pair_tie]
        if chunk.n_entries:
            value, end = self._values(chunk)
            made: tuple[Any, ...] = expand_lists(
                PAIR_FUNCTIONS[self.function], self.unlisted_last, chunk.n_items, chunk.entry_offsets,
                chunk.entry_item, value, list_weight, end,
            )  # fmt: skip
            pairs = [np.concatenate([mine, theirs]) for mine, theirs in zip(made, pairs, strict=True)]
        winner, loser, weight, tie = pairs
        return dealt(self.share, chunk.n_items, winner, loser, weight, tie)


def dealt(share: float, size: int, winner: Indices, loser: Indices, weight: Floats, tie: Bools) -> Counts:
    """One query's counts from (winner, loser, weight, tie)."""
    for column in (winner, loser, weight, tie):
        column.setflags(write=False)
    room = len(winner)
    start, code = np.zeros(size + 1, dtype=OFFSET), np.empty(room, dtype=INDEX)
    amount = np.empty(0 if (weight == 1.0).all() else room)
    deal(size, winner, loser, weight, tie, start, code, amount)
    offsets = np.zeros(size + 1, dtype=OFFSET)
    other, ahead, behind = np.empty(room, dtype=INDEX), np.empty(room), np.empty(room)
    edges, ties = merge_rows(share, start, code, amount, offsets, other, ahead, behind)
    item_offsets = np.array([0, size], dtype=OFFSET)
    return Counts(item_offsets, offsets, other[:edges], ahead[:edges], behind[:edges], np.array([ties]))


def merged(size: int, parts: Sequence[dict[str, np.ndarray]]) -> Counts:
    """One query's counts from the statistics of its chunks."""
    winner, loser, weight = (
        np.concatenate([part[name] for part in parts]) for name in ("pair_winner", "pair_loser", "pair_weight")
    )
    counts = dealt(0.0, size, winner, loser, weight, np.zeros(len(winner), dtype=np.bool_))
    counts.ties[:] = sum(float(part["ties"][0]) for part in parts)
    return counts


def joined(parts: Sequence[Counts]) -> Counts:
    """Queries that were counted one by one, as one chunk again."""
    sizes = np.concatenate([np.diff(part.item_offsets) for part in parts])
    rows = np.concatenate([np.diff(part.offsets) for part in parts])
    return Counts(
        np.concatenate([[0], np.cumsum(sizes)]).astype(OFFSET),
        np.concatenate([[0], np.cumsum(rows)]).astype(OFFSET),
        np.concatenate([part.other for part in parts]),
        np.concatenate([part.ahead for part in parts]),
        np.concatenate([part.behind for part in parts]),
        np.concatenate([part.ties for part in parts]),
    )
