"""Pair counts of a chunk's queries, whichever way they are counted best, and how they add up over chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.kernels.counts import count_squares, deal, expand, merge_rows
from distagg.kernels.lists import LOG
from distagg.models.pairs import pair_ranks
from distagg.types import INDEX, OFFSET, Bools, Floats, Indices, Offsets

PAIRS_BYTES = 4 << 30
PAIR_BYTES = 37  # a pair while it is dealt into rows
SMALL_SQUARE = 1 << 16
BLOCK = 1 << 17  # pairs of lists that are held at once


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Rows of pairs for all items of a chunk; see ``distagg.kernels.counts``."""

    item_offsets: Offsets  # (Q + 1,)
    offsets: Offsets  # (I + 1,)
    other: Indices  # (E,)
    ahead: Floats  # (E,)
    behind: Floats  # (E,)
    won: Floats  # (I,)
    lost: Floats  # (I,)
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

    function: int  # of PAIR_FUNCTIONS
    unlisted_last: bool
    share: float

    def count(self, chunk: Chunk, list_weight: Floats | None = None, pair_weight: Floats | None = None) -> Counts:
        """Counts of all queries; lists and pairs may be weighted anew (by how often a resample holds them)."""
        list_weight = np.ones(chunk.n_lists) if list_weight is None else list_weight
        pair_weight = chunk.pair_weight if pair_weight is None else pair_weight
        pair_weight.setflags(write=False)
        made, sparse = self._sizes(chunk)
        if not sparse.any():
            return self._squares(chunk, made, list_weight, pair_weight)
        if chunk.n_queries == 1:
            _, winner, loser, weight, tie = self._stream(chunk, 0, 1, int(made[0]), list_weight, pair_weight)
            return dealt(self.share, chunk.n_items, winner, loser, weight, tie)
        each = []
        for q in range(chunk.n_queries):
            lists = slice(chunk.list_offsets[q], chunk.list_offsets[q + 1])
            pairs = slice(chunk.pair_offsets[q], chunk.pair_offsets[q + 1])
            one = chunk.select(np.arange(chunk.n_queries) == q)
            each.append(self.count(one, list_weight[lists], pair_weight[pairs]))
        return joined(each)

    def _sizes(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:  # (Q,), (Q,)
        """Pairs of every query, and which have too few for a square; what cannot be held is refused."""
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
        return pairs, np.asarray(sparse)

    def _values(self, chunk: Chunk) -> tuple[Floats, Floats]:  # (E,), (L,)
        """Ranks as the pair function compares them, and where every list ends: at its unlisted items, if they count."""
        end = np.ones(chunk.n_lists)
        listed = np.diff(chunk.entry_offsets)
        full = listed > 0
        rank = pair_ranks(chunk, self.function)
        end[full] = rank[chunk.entry_offsets[1:][full] - 1]
        if self.unlisted_last:
            end += listed < np.repeat(np.diff(chunk.item_offsets), np.diff(chunk.list_offsets))
        if self.function != LOG:
            return rank, end
        value = np.log(rank)
        value.setflags(write=False)
        return value, np.log(end)

    def _stream(
        self, chunk: Chunk, first: int, end: int, room: int, list_weight: Floats, pair_weight: Floats
    ) -> tuple[Offsets, Indices, Indices, Floats, Bools]:
        """Offsets, winners, losers, weights and ties of some queries: raw pairs, and lists turned into such."""
        if not chunk.n_entries:
            return chunk.pair_offsets, chunk.pair_winner, chunk.pair_loser, pair_weight, chunk.pair_tie
        value, list_end = self._values(chunk)
        made = expand(
            self.function, self.unlisted_last, first, end, room, list_weight, list_end,
            chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.entry_item, value, chunk.pair_offsets,
            chunk.pair_winner, chunk.pair_loser, pair_weight, chunk.pair_tie,
        )  # fmt: skip
        for column in made:
            column.setflags(write=False)
        return made

    def _squares(self, chunk: Chunk, made: np.ndarray, list_weight: Floats, pair_weight: Floats) -> Counts:
        """Queries counted in squares, as many at a time as their pairs fit into a block."""
        size = np.diff(chunk.item_offsets)
        room = int((size * (size - 1) // 2).sum())
        offsets, ties = np.zeros(chunk.n_items + 1, dtype=OFFSET), np.zeros(chunk.n_queries)
        other, ahead, behind = np.empty(room, dtype=INDEX), np.empty(room), np.empty(room)
        won, lost = np.zeros(chunk.n_items), np.zeros(chunk.n_items)
        sums = np.concatenate([[0], np.cumsum(made)])
        edges = first = 0
        while first < chunk.n_queries:
            end = chunk.n_queries
            if chunk.n_entries:
                end = max(first + 1, int(np.searchsorted(sums, sums[first] + BLOCK, side="right")) - 1)
            pair_offsets, winner, loser, weight, tie = self._stream(
                chunk, first, end, int(sums[end] - sums[first]), list_weight, pair_weight
            )
            edges = count_squares(
                self.share, first, chunk.item_offsets, pair_offsets, winner, loser, weight, tie, edges, offsets, other,
                ahead, behind, won, lost, ties,
            )  # fmt: skip
            first = end
        return Counts(chunk.item_offsets, offsets, other[:edges], ahead[:edges], behind[:edges], won, lost, ties)


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
    won, lost = np.zeros(size), np.zeros(size)
    edges, ties = merge_rows(share, start, code, amount, offsets, other, ahead, behind, won, lost)
    item_offsets = np.array([0, size], dtype=OFFSET)
    return Counts(item_offsets, offsets, other[:edges], ahead[:edges], behind[:edges], won, lost, np.array([ties]))


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
        np.concatenate([part.won for part in parts]),
        np.concatenate([part.lost for part in parts]),
        np.concatenate([part.ties for part in parts]),
    )
