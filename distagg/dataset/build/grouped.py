"""Grouped rows to blocks: of whole queries or, where one query has very many experts, of whole experts.

A cut says which rows are in a block. Cuts depend on the counts of rows only, so that whoever builds a block, and with
which others, the block is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from distagg.arrow import as_numpy
from distagg.dataset.build.block import (
    BadRow,
    BlockCounts,
    BlockTables,
    QueryRows,
    Runs,
    count_labels,
    list_rows,
    pair_rows,
    queries_table,
    query_block,
)
from distagg.dataset.build.intake import cut
from distagg.dataset.build.keyed import GroupedRows, key_major
from distagg.dataset.build.merge import Grouper
from distagg.dataset.build.positions import Clash, NumberedItems
from distagg.dataset.manifest import Kind
from distagg.threads import ordered_map
from distagg.types import INDEX, Indices, Offsets


class Cut(NamedTuple):
    """The rows of a block: codes ``lo`` to ``hi`` (exclusive); or, of the one code, rows ``first`` to ``last``."""

    lo: int
    hi: int
    first: int = 0
    last: int | None = None


def query_cuts(weights: Offsets, block_entries: int) -> list[Cut]:
    """Cuts of whole queries; ``weights`` are their rows to rank and declared items.

    Queries without weight occur only in judgements. They have nothing to rank, and a cut of them alone is dropped.

    >>> query_cuts(np.array([2, 2, 0, 9]), 4)
    [Cut(lo=0, hi=3, first=0, last=None), Cut(lo=3, hi=4, first=0, last=None)]
    """
    return [Cut(lo, hi) for lo, hi in cut(weights, block_entries) if weights[lo:hi].any()]


def expert_cuts(counts: Offsets, kind: Kind, block_entries: int) -> list[Cut]:
    """Cuts of whole experts; the pairs of one expert may be divided.

    >>> expert_cuts(np.array([1, 5]), "pairs", 3)
    [Cut(lo=0, hi=1, first=0, last=None), Cut(lo=1, hi=2, first=0, last=3), Cut(lo=1, hi=2, first=3, last=5)]
    """
    if not len(counts):
        return [Cut(0, 0)]
    cuts = []
    for lo, hi in cut(counts, block_entries):
        n = int(counts[lo])
        if kind == "pairs" and hi == lo + 1 and n > block_entries:
            cuts += [Cut(lo, hi, at, min(at + block_entries, n)) for at in range(0, n, block_entries)]
        else:
            cuts.append(Cut(lo, hi))
    return cuts


@dataclass(frozen=True, slots=True, eq=False)
class QuerySet:
    """Consecutive queries with their grouped rows; codes count from the first of them."""

    names: Sequence[str]
    parts: Sequence[str]
    weights: Offsets
    ranked: Grouper
    declared: Grouper
    judged: Grouper
    scores: bool
    moved: bool
    once: bool = False  # whether an item is declared at most once in its query
    first_query: int = 0  # dataset position of the first one

    def blocks(self, cuts: Sequence[Cut]) -> Iterator[BlockTables]:
        """The blocks of the cuts, which cover the queries in order."""
        return ordered_map(query_block, self._rows(cuts))

    def _rows(self, cuts: Sequence[Cut]) -> Iterator[QueryRows]:
        first_query = self.first_query
        for lo, hi, _, _ in cuts:
            codes = lo + np.flatnonzero(self.weights[lo:hi])
            yield QueryRows(
                codes=codes,
                first_query=first_query,
                names=[self.names[code] for code in codes.tolist()],
                parts=[self.parts[code] for code in codes.tolist()],
                ranked=self.ranked.rows(lo, hi),
                declared=self.declared.rows(lo, hi),
                judged=self.judged.rows(lo, hi),
                scores=self.scores,
                moved=self.moved,
                once=self.once,
            )
            first_query += len(codes)


@dataclass(frozen=True, slots=True, eq=False)
class OneQuery:
    """The single query of an expert-partitioned dataset."""

    name: str
    items: NumberedItems

    def table(self, part: str) -> pa.Table:
        return queries_table([self.name], [part], self.items)

    def count(self, tally: BlockCounts) -> None:
        """Add the query to the counts of its first block."""
        labels = self.items.labels
        tally.queries, tally.items = 1, len(labels)
        tally.labels.update(count_labels(labels))
        tally.query_sizes[len(labels)] += 1


@dataclass(frozen=True, slots=True, eq=False)
class ExpertSet:
    """Consecutive experts of a single query with their grouped rows; codes count from the first of them."""

    ranked: Grouper  # entries: key, item, rank, score; pairs: key, winner, loser, weight, tie, ...; items are codes
    kind: Kind
    part: str
    position: Indices  # (I,) of every item code
    item_names: pa.StringArray  # (I,)
    scores: bool
    moved: bool
    first_expert: int = 0

    def blocks(self, cuts: Sequence[Cut], query: OneQuery | None) -> Iterator[BlockTables]:
        """The blocks of the cuts; ``query`` is written with the first of them."""
        for rows, tally in ordered_map(self._block, map(self._rows, cuts)):
            table = None
            if query is not None:
                query.count(tally)
                table, query = query.table(self.part), None
            yield BlockTables(0, table, rows, (self.part,), tally)

    def _rows(self, each: Cut) -> GroupedRows:
        if each.last is None:
            return self.ranked.rows(each.lo, each.hi)
        return self.ranked.slice(each.lo, each.first, each.last)

    def _block(self, rows: GroupedRows) -> tuple[pa.Table, BlockCounts]:
        ranked = rows.joined()
        runs = Runs.of(ranked, np.zeros_like)
        runs = replace(runs, expert=(key_major(ranked.key) + self.first_expert).astype(INDEX))
        tally = BlockCounts()
        names = ("winner", "loser") if self.kind == "pairs" else ("item",)
        try:
            position = [self.position[as_numpy(ranked.columns[name])] for name in names if len(ranked)]
            if self.kind == "pairs":
                return pair_rows(ranked.columns, runs, np.stack(position, axis=1), tally, self.moved), tally
            flat = position[0] if position else np.zeros(0, INDEX)
            return list_rows(ranked.columns, runs, flat, self.scores, tally), tally
        except BadRow as bad:
            item = self.item_names[ranked.columns[names[0]][bad.row].as_py()].as_py()
            raise Clash(bad.kind, 0, int(runs.expert[ranked.run_of(bad.row)]), item) from None
