"""Regroup the rows of a source, in any order, into the blocks of a dataset, in bounded memory.

Queries and experts become codes in order of first appearance. Rows go to groupers (``merge.py``) keyed by these codes
and come back query by query or, where one query has very many experts, expert by expert; in the second case the items
are numbered while reading and stay in memory, so that a row is a few numbers. Two threads build the blocks, which come
in order. Cost: linear in rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from distagg.arrow import as_arrow, as_words
from distagg.dataset.build.block import BlockTables, interleaved
from distagg.dataset.build.grouped import ExpertSet, OneQuery, QuerySet, expert_cuts, query_cuts
from distagg.dataset.build.intake import (
    Codes,
    Progress,
    Regroup,
    RowSource,
    RowTable,
    keyed,
    number_column,
    strings,
)
from distagg.dataset.build.merge import Grouper
from distagg.dataset.build.positions import Mentions, NumberedItems, number_items
from distagg.dataset.manifest import Partition
from distagg.storage.paths import Place

MEMORY_BYTES = 256 << 20


class QueryRegroup(Regroup):
    """Rows to blocks of whole queries."""

    partition: Partition = "query"

    def __init__(self, source: RowSource, directory: Place) -> None:
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
        names = self.queries.names
        queries = QuerySet(
            names=names,
            parts=[self.parts.get(code, "") for code in range(len(names))],
            weights=self.ranked.counts(len(names)) + self.declared.counts(len(names)),
            ranked=self.ranked,
            declared=self.declared,
            judged=self.judged,
            scores=self.scores,
            moved=self.moved,
            once=getattr(self.source, "items_once", False),
            first_query=self.first_query,
        )
        return self.explained(queries.blocks(query_cuts(queries.weights, block_entries)))


class ExpertRegroup(Regroup):
    """Rows of a single query to blocks of whole experts (pairs: to blocks of any rows)."""

    partition: Partition = "expert"

    def __init__(self, source: RowSource, directory: Place) -> None:
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
        names = as_words(self.items.names)
        items = number_one(labelled(self.declared), names, labelled(self.judged))
        experts = ExpertSet(
            ranked=self.ranked,
            kind=self.kind,
            part=self.parts[0],
            position=items.position,
            item_names=names,
            scores=self.scores,
            moved=self.moved,
        )
        counts = self.ranked.counts(len(self.experts.names))
        cuts = expert_cuts(counts, self.kind, block_entries)
        yield from experts.blocks(cuts, OneQuery(self.queries.names[0], items))


def labelled(batches: Sequence[pa.RecordBatch]) -> tuple[pa.Array, pa.Array]:
    """Item and label of rows of a single query."""
    items = [strings(batch["item"]) for batch in batches]
    labels = [number_column(batch, "label", pa.int32()).cast(pa.int32()) for batch in batches]
    return pa.concat_arrays([as_words([]), *items]), pa.concat_arrays([pa.array([], pa.int32()), *labels])


def number_one(
    declared: tuple[pa.Array, pa.Array], names: pa.StringArray, judged: tuple[pa.Array, pa.Array]
) -> NumberedItems:
    """Number the items of a single query; ``names`` are those of ranked rows, in order of first mention."""

    def of(item: pa.Array, label: pa.Array | None = None) -> Mentions:
        return Mentions(np.zeros(len(item), dtype=np.int64), item, label)

    return number_items(1, of(*declared), of(names), of(*judged))


def no_progress(rows: int) -> None:
    """Ignore progress."""


def regroup(
    source: RowSource,
    directory: Place,
    *,
    memory_bytes: int = MEMORY_BYTES,
    progress: Progress = no_progress,
) -> Regroup:
    """Read a source; the result's ``blocks`` returns the dataset's blocks. Spills, if any, go to ``directory``."""
    grouped = regrouper(source, directory)
    grouped.read(memory_bytes, progress)
    grouped.finish()
    if grouped.empty:
        raise grouped.bad_source("an empty source without rows to rank", "at least one row")
    return grouped


def regrouper(source: RowSource, directory: Place) -> QueryRegroup | ExpertRegroup:
    """What regroups a source of this partition; nothing is read yet."""
    return ExpertRegroup(source, directory) if source.partition == "expert" else QueryRegroup(source, directory)
