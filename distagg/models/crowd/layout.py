"""Where the scores of queries stand among all scores, and how the statistics of chunks are joined."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.rounds import Statistics
from distagg.types import Offsets

PART = "part_"  # statistics that are concatenated; all others are added up


def joined(a: Statistics, b: Statistics) -> Statistics:
    """The statistics of two neighbouring chunks."""
    return {key: np.concatenate([a[key], b[key]]) if key.startswith(PART) else a[key] + b[key] for key in a}


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the scores of a chunk's queries stand among all scores."""

    split: bool  # all chunks hold the same query
    positions: Offsets  # (Q,) of queries in the dataset
    starts: Offsets  # (Q + 1,)

    def rows(self, chunk: Chunk) -> slice:
        if self.split or not chunk.n_queries:
            return slice(0, chunk.n_items)
        at = int(np.flatnonzero(self.positions == chunk.positions[0])[0])
        return slice(int(self.starts[at]), int(self.starts[at]) + chunk.n_items)

    def key(self, name: str) -> str:
        return name if self.split else PART + name
