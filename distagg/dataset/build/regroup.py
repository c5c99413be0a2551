"""Regroup the rows of a source, in any order, into the blocks of a dataset, in bounded memory.

Queries and experts become codes in order of first appearance. Rows go to groupers (``merge.py``) keyed by these codes
and come back query by query or, where one query has very many experts, expert by expert; in the second case the items
are numbered while reading and stay in memory, so that a row is a few numbers. Two threads build the blocks, which come
in order. Cost: linear in rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from distagg.arrow import as_arrow, as_numpy
from distagg.dataset.build.block import (
    BadRow,
    BlockCounts,
    BlockTables,
    QueryRows,
    Runs,
    count_labels,
    interleaved,
    list_rows,
    pair_rows,
    queries_table,
    query_block,
)
from distagg.dataset.build.intake import (
    Codes,
    Progress,
    Regroup,
    RowSource,
    RowTable,
    cut,
    keyed,
    number_column,
    strings,
)
from distagg.dataset.build.keyed import GroupedRows, key_major
from distagg.dataset.build.merge import Grouper
from distagg.dataset.build.positions import Clash, Mentions, NumberedItems, number_items
from distagg.dataset.manifest import Kind, Partition
from distagg.threads import ordered_map
from distagg.types import INDEX, Indices

MEMORY_BYTES = 256 << 20


class QueryRegroup(Regroup):
    """Rows to blocks of whole queries."""

    partition: Partition = "query"

    def __init__(self, source: RowSource, directory: Path) -> None:
        super().__init__(source, directory)
        self.declared, self.judged = Grouper("declared", directory), Grouper("judged", directory)

    @property
    def groupers(self) -> list[Grouper]:
        return [self.ranked, self.declared, self.judged]

    def add(self, rows: RowTable, batch: pa.RecordBatch) -> None:
        query = self.queries.encode(batch["query"])
        if rows.kind != "judgements":
            self.note_parts(rows.part)
        if rows.kind in ("items", "judgements"):
            columns = {"item": strings(batch["item"]), "label": number_column(batch, "label", pa.int32())}
            (self.declared if rows.kind == "items" else self.judged).add(keyed(columns, query))
            return
        expert = self.experts.encode(batch["expert"])
        if rows.kind == "entries":
            rank, score = self.ranks(batch)
            self.ranked.add(keyed({"item": strings(batch["item"]), "rank": rank, "score": score}, query, expert))
        else:
            sides = {"winner": strings(batch["winner"]), "loser": strings(batch["loser"])}
            self.add_pairs(keyed({**sides, **self.pair_columns(batch)}, query, expert))

    def blocks(self, block_entries: int) -> Iterator[BlockTables]:
        return self.explained(ordered_map(query_block, self._rows(block_entries)))

    def _rows(self, block_entries: int) -> Iterator[QueryRows]:
        names = self.queries.names
        weights = self.ranked.counts(len(names)) + self.declared.counts(len(names))
        first_query = 0
        for lo, hi in cut(weights, block_entries):
            # Queries that occur only in judgements have nothing to rank: drop them.
            codes = lo + np.flatnonzero(weights[lo:hi])
            if not len(codes):
                continue
            yield QueryRows(
                codes=codes,
                first_query=first_query,
                names=[names[code] for code in codes.tolist()],
                parts=[self.parts[code] for code in codes.tolist()],
                ranked=self.ranked.rows(lo, hi),
                declared=self.declared.rows(lo, hi),
                judged=self.judged.rows(lo, hi),
                scores=self.scores,
                moved=self.moved,
            )
            first_query += len(codes)


@dataclass(frozen=True, slots=True, eq=False)
class _ExpertRows:
    """Gathered rows of consecutive experts."""

    ranked: GroupedRows  # entries: key, item, rank, score; pairs: key, winner, loser, weight, tie, ...; items are codes
    kind: Kind
    position: Indices  # (I,) of every item code
    scores: bool


class ExpertRegroup(Regroup):
    """Rows of a single query to blocks of whole experts (pairs: to blocks of any rows)."""

    partition: Partition = "expert"

    def __init__(self, source: RowSource, directory: Path) -> None:
        super().__init__(source, directory)
        self.items = Codes()
        self.declared: list[pa.RecordBatch] = []
        self.judged: list[pa.RecordBatch] = []

    def add(self, rows: RowTable, batch: pa.RecordBatch) -> None:
        self.queries.encode(batch["query"])
        if len(self.queries.names) > 1:
            raise self.bad_source(f"queries {' and '.join(map(repr, self.queries.names[:2]))}", "one query")
        if rows.kind in ("items", "judgements"):
            (self.declared if rows.kind == "items" else self.judged).append(batch)
        else:
            self._add_ranked(rows, batch)
        if rows.kind != "judgements":
            self.note_parts(rows.part)

    def _add_ranked(self, rows: RowTable, batch: pa.RecordBatch) -> None:
        expert = self.experts.encode(batch["expert"])
        if rows.kind == "entries":
            rank, score = self.ranks(batch)
            item = as_arrow(self.items.encode(batch["item"]).rows())
            self.ranked.add(keyed({"item": item, "rank": rank, "score": score}, expert))
            return
        both = self.items.encode(interleaved(strings(batch["winner"]), strings(batch["loser"]))).rows().reshape(-1, 2)
        sides = {"winner": as_arrow(both[:, 0]), "loser": as_arrow(both[:, 1])}
        self.add_pairs(keyed({**sides, **self.pair_columns(batch)}, expert))

    def blocks(self, block_entries: int) -> Iterator[BlockTables]:
        return self.explained(self._blocks(block_entries))

    def _blocks(self, block_entries: int) -> Iterator[BlockTables]:
        names = pa.array(self.items.names, pa.string())
        ranked = Mentions(np.zeros(len(names), dtype=np.int64), names)
        items = number_items(1, _mentions(self.declared), ranked, _mentions(self.judged))
        part = self.parts[0]
        queries: pa.Table | None = queries_table(self.queries.names, [part], items)
        tables = (_ExpertRows(table, self.kind, items.position, self.scores) for table in self._tables(block_entries))
        for rows, tally in ordered_map(self._block, tables):
            if queries is not None:
                _count_query(tally, items)
            yield BlockTables(0, queries, rows, (part,), tally)
            queries = None

    def _tables(self, block_entries: int) -> Iterator[GroupedRows]:
        counts = self.ranked.counts(len(self.experts.names))
        if not len(counts):
            yield self.ranked.rows(0, 0)
        for lo, hi in cut(counts, block_entries):
            if self.kind == "pairs" and hi == lo + 1 and counts[lo] > block_entries:
                yield from self.ranked.slices(lo, block_entries)
            else:
                yield self.ranked.rows(lo, hi)

    def _block(self, rows: _ExpertRows) -> tuple[pa.Table, BlockCounts]:
        ranked = rows.ranked.joined()
        runs = Runs.of(ranked, np.zeros_like)
        runs = replace(runs, expert=key_major(ranked.key).astype(INDEX))
        tally = BlockCounts()
        names = ("winner", "loser") if rows.kind == "pairs" else ("item",)
        try:
            position = [rows.position[as_numpy(ranked.columns[name])] for name in names if len(ranked)]
            if rows.kind == "pairs":
                return pair_rows(ranked.columns, runs, np.stack(position, axis=1), tally, self.moved), tally
            flat = position[0] if position else np.zeros(0, INDEX)
            return list_rows(ranked.columns, runs, flat, rows.scores, tally), tally
        except BadRow as bad:
            item = self.items.names[ranked.columns[names[0]][bad.row].as_py()]
            raise Clash(bad.kind, 0, int(runs.expert[ranked.run_of(bad.row)]), item) from None


def _count_query(tally: BlockCounts, items: NumberedItems) -> None:
    tally.queries, tally.items = 1, len(items.labels)
    tally.labels.update(count_labels(items.labels))
    tally.query_sizes[len(items.labels)] += 1


def _mentions(batches: list[pa.RecordBatch]) -> Mentions:
    """Labelled rows of a single query."""
    items = [strings(batch["item"]) for batch in batches]
    labels = [number_column(batch, "label", pa.int32()).cast(pa.int32()) for batch in batches]
    item = pa.concat_arrays(items) if items else pa.array([], pa.string())
    label = pa.concat_arrays(labels) if labels else pa.array([], pa.int32())
    return Mentions(np.zeros(len(item), dtype=np.int64), item, label)


def no_progress(rows: int) -> None:
    """Ignore progress."""


def regroup(
    source: RowSource,
    directory: Path,
    *,
    memory_bytes: int = MEMORY_BYTES,
    progress: Progress = no_progress,
) -> Regroup:
    """Read a source; the result's ``blocks`` returns the dataset's blocks. Spills, if any, go to ``directory``."""
    kind = ExpertRegroup if source.partition == "expert" else QueryRegroup
    grouped = kind(source, directory)
    grouped.read(memory_bytes, progress)
    if not len(grouped.parts):
        raise grouped.bad_source("an empty source without rows to rank", "at least one row")
    return grouped
