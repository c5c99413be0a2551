"""Parquet files on disk or in an object store."""

from __future__ import annotations

import pyarrow.parquet as pq

from distagg.storage.paths import Place, Store


def open_parquet(file: Place) -> pq.ParquetFile:
    """Open a Parquet file on disk or in an object store."""
    if isinstance(file, Store):  # joins many small reads into a few
        return pq.ParquetFile(file.inside, filesystem=file.filesystem, pre_buffer=True)
    return pq.ParquetFile(file, memory_map=False)


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
