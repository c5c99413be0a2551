"""Parquet files on disk or in an object store, with checksums of their pages."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from distagg.storage.paths import Place, Store

CHECKSUMS: dict[str, Any] = {"write_page_checksum": True}  # of every Parquet file that is written
VERIFY: dict[str, Any] = {"page_checksum_verification": True}  # of every Parquet file that is read, where it has them


def open_parquet(file: Place, metadata: Any = None) -> pq.ParquetFile:
    """Open a Parquet file on disk or in an object store; ``metadata`` is its footer, if that was read already."""
    if isinstance(file, Store):  # joins many small reads into a few
        return pq.ParquetFile(file.inside, filesystem=file.filesystem, pre_buffer=True, metadata=metadata, **VERIFY)
    return pq.ParquetFile(file, memory_map=False, metadata=metadata, **VERIFY)


def groups_between(parquet: pq.ParquetFile, start: int, stop: int) -> tuple[list[int], int]:
    """The row groups whose first byte is in this span of the file, and the number of rows before them."""
    metadata = parquet.metadata
    groups, before = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        column = group.column(0)
        first = min(at for at in (column.dictionary_page_offset, column.data_page_offset) if at)
        if start <= first < stop:
            groups.append(number)
        elif first < start:
            before += group.num_rows
    return groups, before
