"""The result of a model on a chunk: scores, and what else it knows about items and its own fit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from distagg.types import Floats

# Extra columns that a model may give for each item, one meaning each.
#   uncertainty  how little is known: a standard error, a posterior deviation, or mpm's gamma
#   low, high    an interval for the score
#   resamples    how many bootstrap resamples hold the item; uncertainty and interval come from these
#   status       a code of STATUS: what the comparisons can say about the item
#   component    number of the item's connected component in its query, from 0
ITEM_COLUMNS = ("uncertainty", "low", "high", "resamples", "status", "component")
STATUS = ("ok", "unbeaten", "winless", "isolated")
OK, UNBEATEN, WINLESS, ISOLATED = range(4)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Scores of a chunk's items (I,); ``items`` holds extra (I,) columns, ``queries`` extra (Q,) columns.

    ``trace`` (Q, T), when asked for, holds the log likelihood after every step, nan behind the last.
    """

    score: Floats
    items: dict[str, np.ndarray] = field(default_factory=dict)
    queries: dict[str, np.ndarray] = field(default_factory=dict)
    trace: Floats | None = None
