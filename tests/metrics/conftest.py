"""Chunks from plain lists of labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from distagg.dataset.chunk import Chunk, chunk_from_tables
from distagg.types import QUERIES_TABLE

MakeChunk = Callable[..., Chunk]


@pytest.fixture
def make_chunk() -> MakeChunk:
    """A function of labels per query (None: unlabelled), and optionally item ids and missed labels per query."""

    def make(
        labels: Sequence[Sequence[int | None]],
        ids: Sequence[Sequence[str]] | None = None,
        missed: Sequence[Sequence[int]] | None = None,
    ) -> Chunk:
        rows = [
            {
                "query": f"q{q}",
                "part": "",
                "item": list(ids[q]) if ids else [f"d{i}" for i in range(len(of_query))],
                "label": list(of_query),
                "missed": list(missed[q]) if missed else [],
            }
            for q, of_query in enumerate(labels)
        ]
        return chunk_from_tables(pa.Table.from_pylist(rows, QUERIES_TABLE), None, None, n_experts=0)

    return make
