"""The same synthetic lists in every format that a contestant reads.

A folder holds ``dataset`` (ours), ``flat.parquet`` (pandas, polars, ranx) and ``flat.csv`` (pyflagr). ranx and pyflagr
know only the order of a list, not its rank values, so ranks are positions 1, 2, 3, ... here: one problem for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from distagg.dataset import Chunk, Dataset, write_dataset
from distagg.sources.source import SourceTable
from distagg.sources.synthetic import SyntheticSource

DATASET, FLAT, CSV = "dataset", "flat.parquet", "flat.csv"


@dataclass(frozen=True)
class Positions:
    """Entries of a synthetic source with their position in the list as rank; items in no list are left out.

    ranx and pyflagr never hear of such items, which would change Borda points.
    """

    source: SyntheticSource
    partition: Literal["query", "expert"] = "query"
    files: tuple[Path, ...] = ()
    name: str = "synthetic"

    def tables(self) -> Iterator[SourceTable]:
        for rows in self.source.tables():
            if rows.kind == "entries":
                query, expert = (rows.table[name].combine_chunks().indices.to_numpy() for name in ("query", "expert"))
                new = np.flatnonzero((np.diff(query, prepend=-1) != 0) | (np.diff(expert, prepend=-1) != 0))
                length = np.diff(new, append=len(query))
                position = np.arange(len(query)) - np.repeat(new, length) + 1.0
                yield SourceTable("entries", rows.table.set_column(3, "rank", pa.array(position)), rows.part)

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        return []


def make_dataset(folder: Path, source: SyntheticSource) -> Dataset:
    """The lists as our dataset, in a new folder."""
    folder.mkdir(parents=True)
    write_dataset(Positions(source), folder / DATASET)
    return Dataset.open(folder / DATASET)


def export(folder: Path) -> None:
    """The lists of ``folder``'s dataset as flat files for the others."""
    flat = pa.concat_tables([_flat(chunk) for chunk in Dataset.open(folder / DATASET).chunks()])
    pq.write_table(flat, folder / FLAT)
    rank = flat["rank"].to_numpy()
    # Six columns: 1.0.21 takes five, as its manual has it, without a word and ranks nothing.
    lines = pa.table(
        {
            "query": flat["query_id"],
            "voter": pa.array([f"e{expert}" for expert in flat["expert"].to_pylist()]),
            "item": flat["item_id"],
            "rank": rank.astype(np.int64),
            "score": (10_000 - rank).astype(np.int64),
            "dataset": pa.array(["d"] * len(flat)),
        }
    )
    csv.write_csv(lines, folder / CSV, csv.WriteOptions(include_header=False, quoting_style="none"))


def _flat(chunk: Chunk) -> pa.Table:
    """A row for each entry. Codes as well as ids, so that nobody has to group strings; ``size``: items of the query."""
    entries = np.diff(chunk.entry_offsets[chunk.list_offsets])
    position = np.repeat(np.arange(chunk.n_queries), entries)
    return pa.table(
        {
            "query": (position + chunk.positions[0]).astype(np.int32),
            "expert": np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets)),
            "item": chunk.entry_item,
            "rank": chunk.entry_rank,
            "size": np.diff(chunk.item_offsets)[position].astype(np.int32),
            "query_id": chunk.query_ids.take(pa.array(position)),
            "item_id": chunk.item_ids.take(pa.array(chunk.entry_row())),
        }
    )
