"""A dataset held in memory: the blocks that ``write_dataset`` would write, as chunks."""

from __future__ import annotations

import tempfile
from pathlib import Path

from distagg.dataset.chunk import Chunk, chunk_from_tables
from distagg.dataset.intake import Progress, Regroup, RowSource
from distagg.dataset.manifest import Block
from distagg.dataset.reader import Dataset
from distagg.dataset.regroup import MEMORY_BYTES, no_progress, regroup
from distagg.dataset.tally import Tally
from distagg.dataset.writer import layout_of, make_block, make_manifest
from distagg.errors import InfrastructureError

HELD_ENTRIES = 1 << 16  # of a block: what building two at once needs is held beside the dataset


def read_dataset(
    source: RowSource, *, progress: Progress = no_progress, memory_bytes: int = MEMORY_BYTES,
    block_entries: int = HELD_ENTRIES,
) -> Dataset:  # fmt: skip
    """Import a source of whole queries into memory; the parameters are those of ``write_dataset``."""
    try:
        with tempfile.TemporaryDirectory(prefix="distagg-") as spills:
            grouped = regroup(source, Path(spills), memory_bytes=memory_bytes, progress=progress)
            return held(grouped, source, block_entries, progress)
    except OSError as error:
        raise InfrastructureError(
            f"importing into memory failed: {error}; check the disk for temporary files and run it again"
        ) from error


def held(grouped: Regroup, source: RowSource, block_entries: int, progress: Progress = no_progress) -> Dataset:
    """What was regrouped, a chunk for every block."""
    total = Tally()
    blocks: list[Block] = []
    chunks: list[Chunk] = []
    for tables in grouped.blocks(block_entries):
        total.add(tables.tally)
        blocks.append(make_block(tables, total, 0, len(blocks)))
        assert tables.queries is not None  # only blocks of one query that many experts rank come without
        lists, pairs = (tables.rows, None) if grouped.kind == "lists" else (None, tables.rows)
        chunks.append(
            chunk_from_tables(
                tables.queries, lists, pairs, n_experts=len(grouped.experts.names), first_query=tables.first_query
            )
        )
        progress(tables.tally.entries)
    manifest = make_manifest(layout_of(grouped, source), total, tuple(blocks), ())
    return Dataset("", manifest, tuple(grouped.experts.names), held=tuple(chunks))
