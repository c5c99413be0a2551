"""Parquet files on disk or in an object store, with checksums of their pages."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from distagg.storage.paths import Place, Store, size_of

CHECKSUMS: dict[str, Any] = {"write_page_checksum": True}  # of every Parquet file that is written
VERIFY: dict[str, Any] = {"page_checksum_verification": True}  # of every Parquet file that is read, where it has them


def open_parquet(file: Place, metadata: Any = None, *, pre_buffer: bool = False) -> pq.ParquetFile:
    """Open a Parquet file on disk or in an object store; ``metadata`` is its footer, if that was read already.

    Arrow must not be asked about a column (``metadata.row_group(g).column(n)``) before it has read from it with
    ``pre_buffer``: if the footer describes the column wrongly, the question ends the whole process, but reading raises
    an error. With ``pre_buffer`` Arrow looks at all columns of all row groups that it reads before it reads the first,
    and keeps their bytes until the file is closed. Files in object stores are always read so, in a few large requests.
    """
    options = {"metadata": metadata, **VERIFY}
    if isinstance(file, Store):
        return pq.ParquetFile(file.inside, filesystem=file.filesystem, pre_buffer=True, **options)
    return pq.ParquetFile(file, memory_map=False, pre_buffer=pre_buffer, **options)


def columns_of(file: Place, group: int) -> list[Any]:
    """Arrow's descriptions of the columns of a row group, after it has read one row of them."""
    with open_parquet(file, pre_buffer=True) as parquet:
        next(parquet.iter_batches(1, row_groups=[group], use_threads=False), None)
        columns = parquet.metadata.row_group(group)
        return [columns.column(n) for n in range(columns.num_columns)]


def groups_between(file: Place, metadata: Any, start: int, stop: int) -> tuple[list[int], int]:
    """The row groups that belong to this span of bytes of a file, and the number of rows before them.

    The bytes of the file are shared among row groups by their sizes before compression; a row group belongs to the span
    in which its share begins.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes = [max(0, group.total_byte_size) for group in groups]
    bytes_of_file, total = size_of(file), max(1, sum(sizes))
    numbers, before, passed = [], 0, 0
    for number, group in enumerate(groups):
        first = min(passed * bytes_of_file // total, bytes_of_file - 1)
        if start <= first < stop:
            numbers.append(number)
        elif first < start:
            before += group.num_rows
        passed += sizes[number]
    return numbers, before
