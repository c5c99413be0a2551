"""How well each expert agrees with labels: one round over labelled queries (Volkovs & Zemel 2014, section 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.lists import sum_by_item
from distagg.models.mpm.adherence import agreement
from distagg.models.pairs import list_arrays
from distagg.models.rounds import Params, Stage, Statistics
from distagg.models.unjudged import training_labels
from distagg.types import Floats, Labels


@dataclass(frozen=True, slots=True, eq=False)
class Agreement(Stage):
    """The one round that measures how well experts agree with labels; ``learned`` is the name of the params.

    The mean share of rightly ordered pairs over an expert's lists; with ``chance`` it is rescaled, so that an expert no
    better than chance gets 0 and the best expert 1.
    """

    repeated: ClassVar[bool] = False

    model: Any
    params: Params  # known before
    learned: str
    chance: bool = True
    unjudged: str = "ignore"

    def map(self, chunk: Chunk) -> Statistics:
        labels = training_labels(chunk, self.unjudged, most=0)
        share = self.shares(chunk, labels)
        told = ~np.isnan(share)
        total = sum_by_item(chunk.list_expert[told], share[told], chunk.n_experts)
        count = np.bincount(chunk.list_expert[told], minlength=chunk.n_experts).astype(np.float64)
        return {"total": total, "count": count}

    def shares(self, chunk: Chunk, labels: Labels) -> Floats:  # (I,) -> (L,)
        """The share of pairs that each list orders rightly, nan where it lists no items of different labels."""
        return agreement(int(labels.max(initial=0)) + 1, list_arrays(chunk), labels)

    def finish(self, statistics: Statistics) -> Params:
        share = np.where(statistics["count"] > 0, statistics["total"] / np.maximum(statistics["count"], 1.0), 0.5)
        return {**self.params, self.learned: above_chance(share) if self.chance else share}


def above_chance(share: Floats) -> Floats:
    """Shares of rightly ordered pairs rescaled: 0 for chance and below, 1 for the best; all 1 if none beats chance."""
    best = float(share.max(initial=0.0)) - 0.5
    rescaled: Floats = np.clip((share - 0.5) / best, 0.0, 1.0) if best > 0.0 else np.ones(len(share))
    return rescaled
