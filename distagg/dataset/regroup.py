"""Rows of a source, in any order, to the blocks of a dataset, in bounded memory.

Queries and experts become codes in order of first appearance; rows go to groupers (``spill.py``) keyed by them, and
come back query by query (``queries.py``) or, where one query has very many experts, expert by expert
(``experts.py``). Blocks are built on two threads and come in order. Cost: linear in rows.
"""

from __future__ import annotations

from pathlib import Path

from distagg.dataset.experts import ExpertRegroup
from distagg.dataset.intake import Progress, Regroup, RowSource
from distagg.dataset.queries import QueryRegroup

MEMORY_BYTES = 256 << 20


def no_progress(rows: int) -> None:
    """Say nothing."""


def regroup(
    source: RowSource,
    directory: Path,
    *,
    memory_bytes: int = MEMORY_BYTES,
    progress: Progress = no_progress,
) -> Regroup:
    """Read a source; the result's ``blocks`` gives the dataset. Spills, if any, go to ``directory``."""
    how = ExpertRegroup if source.partition == "expert" else QueryRegroup
    grouped = how(source, directory)
    grouped.read(memory_bytes, progress)
    if not len(grouped.parts):
        raise grouped.bad_source("an empty source: no row names anything to rank", "at least one row")
    return grouped
