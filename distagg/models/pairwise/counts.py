"""Pair counts of a chunk's queries, in squares or by sorting, and their sums over chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.lists import BINARY, LOG, NORMALISED, Pairs, sum_by_item
from distagg.models.pairs import list_arrays, pair_arrays, pair_ranks
from distagg.models.pairwise.count_kernels import Comparison, Rows, count_squares, deal, expand, merge_rows
from distagg.models.pairwise.graph import Graph
from distagg.types import INDEX, OFFSET, Floats, Indices, Offsets

PAIRS_BYTES = 4 << 30
PAIR_BYTES = 37  # a pair while it is dealt into rows
SMALL_SQUARE = 1 << 16
BLOCK = 1 << 17  # pairs of lists that are held at once


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """The pair counts of a chunk, in rows by item; see ``distagg.models.pairwise.count_kernels``."""

    item_offsets: Offsets  # (Q + 1,)
    offsets: Offsets  # (I + 1,)
    other: Indices  # (E,)
    ahead: Floats  # (E,)
    behind: Floats  # (E,)
    won: Floats  # (I,)
    lost: Floats  # (I,)
    ties: Floats  # (Q,)
    independent: Floats  # (Q,) comparisons that do not follow from each other; see ``Counting.independent``

    def __post_init__(self) -> None:
        self.item_offsets.setflags(write=False)  # as a chunk's, so that kernels see one type

    @property
    def graph(self) -> Graph:
        """The comparison graph, as kernels take it."""
        return Graph(self.item_offsets, self.offsets, self.other, self.ahead, self.behind, self.ties)

    def directed(self) -> dict[str, np.ndarray]:
        """One query's counts as weighted pairs: statistics that ``merged`` adds up."""
        low = np.repeat(np.arange(len(self.offsets) - 1, dtype=INDEX), np.diff(self.offsets))
        won, lost = self.ahead > 0, self.behind > 0
        return {
            "pair_winner": np.concatenate([low[won], self.other[lost]]),
            "pair_loser": np.concatenate([self.other[won], low[lost]]),
            "pair_weight": np.concatenate([self.ahead[won], self.behind[lost]]),
            "ties": self.ties,
            "independent": self.independent,
        }

    def evidence(self, tie_share: float) -> Floats:  # (Q,)
        """How many independent comparisons there are for each one that is counted, at most 1.

        ``tie_share`` is what a tie counted for each side.
        """
        sums = np.concatenate([[0.0], np.cumsum(self.ahead + self.behind)])[self.offsets[self.item_offsets]]
        return share_of_evidence(self.independent, np.diff(sums) - max(2.0 * tie_share - 1.0, 0.0) * self.ties)


def share_of_evidence(independent: Floats, counted: Floats) -> Floats:
    """Independent comparisons for each one that is counted, at most 1."""
    share = np.divide(independent, counted, out=np.ones(len(counted)), where=(counted > 0.0) & (independent > 0.0))
    return np.minimum(share, 1.0)


@dataclass(frozen=True, slots=True)
class Counting:
    """How lists are counted: the pair function, the place of unlisted items, and the share of a tie for each side."""

    function: int  # of PAIR_FUNCTIONS
    unlisted_last: bool
    share: float

    def count(self, chunk: Chunk, list_weight: Floats | None = None, pair_weight: Floats | None = None) -> Counts:
        """Counts of all queries; lists and pairs may have other weights (how often a resample holds them)."""
        list_weight = np.ones(chunk.n_lists) if list_weight is None else list_weight
        pair_weight = chunk.pair_weight if pair_weight is None else pair_weight
        pair_weight.setflags(write=False)
        counts = self._count(chunk, list_weight, pair_weight)
        counts.independent[:] = self.independent(chunk, list_weight, pair_weight)
        return counts

    def independent(self, chunk: Chunk, list_weight: Floats, pair_weight: Floats) -> Floats:  # (Q,)
        """Comparisons of every query that do not follow from others.

        A list that orders n items makes n (n - 1) / 2 pairs, but n - 1 comparisons of neighbours carry the same
        information. If unlisted items are ranked last, every list compares all items and all its pairs are counted: on
        planted lists of every depth, counting fewer gave no better order.
        """
        listed, lists = np.diff(chunk.entry_offsets), np.diff(chunk.list_offsets)
        free = np.maximum(listed - 1, 0)
        if self.function != BINARY or self.share == 0.0:  # a list that ranks all its items alike says nothing
            some = listed > 0
            first, last = chunk.entry_offsets[:-1][some], chunk.entry_offsets[1:][some] - 1
            free[some] *= chunk.entry_rank[first] < chunk.entry_rank[last]
        if self.unlisted_last:
            free = listed * (listed - 1) // 2 + listed * (np.repeat(np.diff(chunk.item_offsets), lists) - listed)
        query = np.repeat(np.arange(chunk.n_queries), lists)
        of_pair = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.pair_offsets))
        said = np.where(chunk.pair_tie & (self.share == 0.0), 0.0, pair_weight)
        told = sum_by_item(query, free * list_weight, chunk.n_queries)
        return told + sum_by_item(of_pair, said, chunk.n_queries)

    def _count(self, chunk: Chunk, list_weight: Floats, pair_weight: Floats) -> Counts:
        sizes, sparse = self._sizes(chunk)
        if not sparse.any() or chunk.n_queries == 1:
            how, pairs = self._comparison(chunk, list_weight), pair_arrays(chunk)._replace(weight=pair_weight)
            if not sparse.any():
                return self._squares(chunk, sizes, how, pairs)
            return dealt(self.share, chunk.n_items, all_pairs(chunk, how, pairs, 0, 1, int(sizes[0])))
        each = []
        for q in range(chunk.n_queries):
            lists = slice(chunk.list_offsets[q], chunk.list_offsets[q + 1])
            raw = slice(chunk.pair_offsets[q], chunk.pair_offsets[q + 1])
            query = chunk.select(np.arange(chunk.n_queries) == q)
            each.append(self._count(query, list_weight[lists], pair_weight[raw]))
        return joined(each)

    def _sizes(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:  # (Q,), (Q,)
        """The number of pairs of every query, and which queries have too few of them to be counted in a square matrix.

        A query that needs too much memory is refused.
        """
        size = np.diff(chunk.item_offsets)
        listed = np.diff(chunk.entry_offsets)
        of_list = listed * (listed - 1) // 2
        if self.unlisted_last:
            of_list = of_list + listed * (np.repeat(size, np.diff(chunk.list_offsets)) - listed)
        sums = np.concatenate([[0], np.cumsum(of_list)])[chunk.list_offsets]
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

    def _comparison(self, chunk: Chunk, list_weight: Floats) -> Comparison:
        """How lists compare items: by ranks, or by their logarithms in the LOG function."""
        outside = np.ones(chunk.n_lists)
        listed = np.diff(chunk.entry_offsets)
        value = pair_ranks(chunk, self.function)
        outside[listed > 0] = value[chunk.entry_offsets[1:][listed > 0] - 1]
        if self.unlisted_last:
            outside += listed < np.repeat(np.diff(chunk.item_offsets), np.diff(chunk.list_offsets))
        if self.function == LOG:
            value, outside = np.log(value), np.log(outside)
            value.setflags(write=False)
        scale = list_weight.copy()
        if self.function in (NORMALISED, LOG):
            scale = np.divide(list_weight, outside, out=np.zeros(chunk.n_lists), where=outside > 0.0)
        return Comparison(self.function == BINARY, self.unlisted_last, value, outside, scale)

    def _squares(self, chunk: Chunk, sizes: np.ndarray, how: Comparison, raw: Pairs) -> Counts:
        """Count queries in square matrices, as many of them at a time as have their pairs fit into a block."""
        size = np.diff(chunk.item_offsets)
        room = int((size * (size - 1) // 2).sum())
        rows = empty_rows(chunk.n_items, chunk.n_queries, room)
        sums = np.concatenate([[0], np.cumsum(sizes)])
        edges = first = 0
        while first < chunk.n_queries:
            end = chunk.n_queries
            if chunk.n_entries:
                end = max(first + 1, int(np.searchsorted(sums, sums[first] + BLOCK, side="right")) - 1)
            pairs = all_pairs(chunk, how, raw, first, end, int(sums[end] - sums[first]))
            edges = count_squares(self.share, first, chunk.item_offsets, pairs, edges, rows)
            first = end
        return of_rows(chunk.item_offsets, rows, edges)


def all_pairs(chunk: Chunk, how: Comparison, raw: Pairs, first: int, end: int, room: int) -> Pairs:
    """Pairs of some queries: raw pairs, and the pairs of lists."""
    return read_only(expand(how, list_arrays(chunk), raw, first, end, room)) if chunk.n_entries else raw


def empty_rows(n_items: int, n_queries: int, room: int) -> Rows:
    """Rows for the kernels to fill, with room for that many edges."""
    offsets, other = np.zeros(n_items + 1, dtype=OFFSET), np.empty(room, dtype=INDEX)
    won, lost = np.zeros(n_items), np.zeros(n_items)
    return Rows(offsets, other, np.empty(room), np.empty(room), won, lost, np.zeros(n_queries))


def of_rows(item_offsets: Offsets, rows: Rows, edges: int) -> Counts:
    """Counts from rows of which that many edges are filled."""
    offsets, other, ahead, behind, won, lost, ties = rows
    rest = ahead[:edges], behind[:edges], won, lost, ties, np.zeros(len(ties))
    return Counts(item_offsets, offsets, other[:edges], *rest)


def read_only(pairs: Pairs) -> Pairs:
    """Read-only pairs, as a chunk has them, so that kernels are compiled for one type."""
    for column in pairs:
        column.setflags(write=False)
    return pairs


def dealt(share: float, size: int, pairs: Pairs) -> Counts:
    """One query's counts from its pairs."""
    rows = empty_rows(size, 1, len(pairs.winner))
    edges = merge_rows(share, deal(size, pairs), rows)
    return of_rows(np.array([0, size], dtype=OFFSET), rows, edges)


def merged(size: int, parts: Sequence[dict[str, np.ndarray]]) -> Counts:
    """One query's counts from the statistics of its chunks."""
    winner, loser, weight = (
        np.concatenate([part[name] for part in parts]) for name in ("pair_winner", "pair_loser", "pair_weight")
    )
    offsets, tie = np.array([0, len(winner)], dtype=OFFSET), np.zeros(len(winner), dtype=np.bool_)
    counts = dealt(0.0, size, read_only(Pairs(offsets, winner, loser, weight, tie)))
    for name, total in (("ties", counts.ties), ("independent", counts.independent)):
        total[:] = sum(float(part[name][0]) for part in parts)
    return counts


def joined(parts: Sequence[Counts]) -> Counts:
    """The counts of queries that were counted one by one, as the counts of one chunk."""
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
        np.concatenate([part.independent for part in parts]),
    )
