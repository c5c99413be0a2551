"""How much memory a worker may use, and what follows from it: the caches, and which chunks are refused.

The plan of chunks does not follow from it: the same data gives the same chunks, and the same bits, anywhere. Sums over
chunks would have other bits if chunks were cut otherwise. Models that treat each query on its own would not, but parts
of their rankings are chunks, too. And there is little to gain: a chunk of ``CHUNK_ENTRIES`` needs 0.4 to 0.6 GB, and a
larger one is a single query, which cannot be cut.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from distagg.dataset.chunk_ref import ChunkRef
from distagg.errors import UsageError
from distagg.models.rounds import MEMORY

PROCESS_BYTES = 300 << 20  # a worker with everything imported
ENTRY_BYTES, ITEM_BYTES = 24, 64  # of a chunk in memory: item, rank, score; id, label
COPIES = 4  # of a chunk while it is worked on: as read, as arrays, in the model, as the part to write
UNITS = {"": 1, "B": 1, **{unit: 10 ** (3 * n) for n, unit in enumerate(("KB", "MB", "GB", "TB"), 1)}}
UNITS |= {unit: 1 << (10 * n) for n, unit in enumerate(("KIB", "MIB", "GIB", "TIB"), 1)}


def parse_size(text: str) -> int:
    """The bytes that a size names.

    >>> parse_size("4GB"), parse_size("1.5 GiB")
    (4000000000, 1610612736)
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].upper() not in UNITS:
        raise UsageError(f"found '{text}', expected a size such as 4GB or 512MiB")
    return int(float(found[1]) * UNITS[found[2].upper()])


def parse_memory(text: str) -> int:
    """The bytes that a worker may use; refuses less than it takes without work."""
    size = parse_size(text)
    if size < PROCESS_BYTES:
        raise UsageError(
            f"found {text}, expected at least {size_text(PROCESS_BYTES)}, which a worker takes without work"
        )
    return size


def size_text(size: float) -> str:
    """Bytes for people.

    >>> size_text(4_000_000_000), size_text(314_572_800)
    ('4.0 GB', '315 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def note_memory(worker: Any) -> None:
    """In a worker process: size the caches by the limit that ``dask worker --memory-limit`` gave it."""
    limit = worker.memory_manager.memory_limit
    if worker.nanny and limit:  # without a nanny it may share the driver's process
        os.environ.setdefault(MEMORY, str(limit))


def needed_by(ref: ChunkRef) -> int:
    """About how many bytes a worker needs to work on a chunk."""
    items = sum(block.items for block in ref.blocks)
    return PROCESS_BYTES + COPIES * (ref.entries * ENTRY_BYTES + items * ITEM_BYTES)


def refuse_large_chunks(refs: Iterable[ChunkRef], memory: int) -> None:
    """Refuse chunks that do not fit into a worker's memory, before any work starts."""
    needed, largest = max(((needed_by(ref), ref.entries) for ref in refs), default=(0, 0))
    if needed > memory:
        wanted = -(-needed // 10**8) / 10
        raise UsageError(
            f"memory of a worker: found {size_text(memory)} and a chunk of {largest:,} entries, which needs about "
            f"{size_text(needed)}; give --memory {wanted:.1f}GB or more, on fewer workers if need be "
            "(place.memory of a job; dask worker --memory-limit)"
        )
