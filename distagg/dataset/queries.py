"""Regrouping for many queries: blocks of whole queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from distagg.arrays import as_arrow
from distagg.dataset.block import BlockTables, QueryRows, query_block
from distagg.dataset.gather import KEY
from distagg.dataset.intake import Regroup, Rows, RowSource, cut, number_column, strings
from distagg.dataset.manifest import Partition
from distagg.dataset.spill import Grouper, make_key
from distagg.threads import ordered_map


class QueryRegroup(Regroup):
    """Rows to blocks of whole queries."""

    partition: Partition = "query"

    def __init__(self, source: RowSource, directory: Path) -> None:
        super().__init__(source, directory)
        self.declared, self.judged = Grouper("declared", directory), Grouper("judged", directory)

    @property
    def groupers(self) -> list[Grouper]:
        return [self.ranked, self.declared, self.judged]

    def add(self, rows: Rows, batch: pa.RecordBatch) -> None:
        query = self.queries.encode(batch["query"])
        if rows.kind != "judgements":
            self.note_parts(rows.part)
        if rows.kind in ("items", "judgements"):
            columns = {KEY: as_arrow(make_key(query, 0)), "item": strings(batch["item"])}
            columns["label"] = number_column(batch, "label", pa.int32())
            (self.declared if rows.kind == "items" else self.judged).add(pa.record_batch(columns))
            return
        key = as_arrow(make_key(query, self.experts.encode(batch["expert"])))
        if rows.kind == "entries":
            rank, score = self.ranks(batch)
            columns = {KEY: key, "item": strings(batch["item"]), "rank": rank, "score": score}
        else:
            columns = {KEY: key, "winner": strings(batch["winner"]), "loser": strings(batch["loser"])}
            columns["weight"] = number_column(batch, "weight", pa.float64())
            columns["tie"] = number_column(batch, "tie", pa.bool_())
        self.ranked.add(pa.record_batch(columns))

    def blocks(self, block_entries: int) -> Iterator[BlockTables]:
        return self.explained(ordered_map(query_block, self._rows(block_entries)))

    def _rows(self, block_entries: int) -> Iterator[QueryRows]:
        n = len(self.queries.names)
        weights = self.ranked.counts(n) + self.declared.counts(n)
        first_query = 0
        for lo, hi in cut(weights, block_entries):
            # Queries that only judgements name have nothing to rank: they are dropped here.
            codes = lo + np.flatnonzero(weights[lo:hi])
            if not len(codes):
                continue
            yield QueryRows(
                codes=codes,
                first_query=first_query,
                names=[self.queries.names[code] for code in codes],
                parts=[self.parts[code] for code in codes.tolist()],
                ranked=self.ranked.rows(lo, hi),
                declared=self.declared.rows(lo, hi),
                judged=self.judged.rows(lo, hi),
                scores=self.scores,
            )
            first_query += len(codes)
