"""The work of an import, estimated before it starts: rows to read and entries to write, from sizes and first lines."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SAMPLE_BYTES, UNPACKED_BYTES = 1 << 18, 1 << 24
PARQUET = (".parquet", ".pq")


def estimated_rows(files: Sequence[Path], kind: str | None) -> int:
    """About as many rows as importing the files will read and write; 0 if a file tells nothing.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".run") as file:
    ...     print("q1 Q0 d1 1 9.5 bm25", file=file, flush=True)
    ...     estimated_rows([Path(file.name)], "trec")
    2
    """
    total = 0.0
    with suppress(OSError, ValueError, zlib.error):  # the import itself says what is wrong with a file
        for file in files:
            if not file.is_file():  # a pipe would wait for its writer
                return 0
            total += _parquet_rows(file) if file.suffix in PARQUET else _text_rows(file, kind)
        return round(total)
    return 0


def _parquet_rows(file: Path) -> float:
    import pyarrow.parquet as pq  # late: text files do without it

    return 2.0 * pq.ParquetFile(file).metadata.num_rows


def _text_rows(file: Path, kind: str | None) -> float:
    """Lines by the mean length of the first ones; a line of LETOR holds an item and its ranks in several lists."""
    with open(file, "rb") as raw:
        sample = raw.read(SAMPLE_BYTES)
    taken = len(sample)
    if file.suffix == ".gz":
        sample = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(sample, UNPACKED_BYTES)
    lines = sample.count(b"\n")
    if not lines:
        return 0.0
    rows = lines * file.stat().st_size / taken
    if kind != "letor":
        return 2.0 * rows
    ranks = sum(value.partition(b":")[2] != b"NULL" for value in sample.split() if b":" in value[:5]) / lines - 1.0
    return rows * (1.0 + 2.0 * max(ranks, 0.0))
