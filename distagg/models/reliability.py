"""What a model says about the worth of each expert: reliability, its standard error and interval, and its evidence.

Columns of a table with a row for each expert:

- ``reliability``: crowd_bt's chance to agree, noisy_bt's chance to follow the strengths, theta_mpm's adherence;
- ``error``: its standard error; ``low`` and ``high``: a 95% interval, inside the range of the reliability;
- ``votes``: the decisive comparisons (no ties) that it rests on;
- ``bias`` and ``bias_error``: noisy_bt's chance that a random vote goes to the item shown first.

Experts that the model has not seen have no numbers, and 0 votes.
"""

from __future__ import annotations

import numpy as np

from distagg.models.intervals import between
from distagg.types import Floats

LEVEL = 0.95


def reliability_columns(value: Floats, error: Floats, votes: Floats, highest: float = 1.0) -> dict[str, np.ndarray]:
    """The columns of every model; a reliability lies between 0 and ``highest``.

    >>> columns = reliability_columns(np.array([0.9, 0.0]), np.array([0.1, 0.0]), np.array([12.0, 0.0]))
    >>> {name: column.round(2).tolist() for name, column in columns.items()}
    {'reliability': [0.9, nan], 'error': [0.1, nan], 'low': [0.7, nan], 'high': [1.0, nan], 'votes': [12, 0]}
    """
    unseen = (votes == 0.0) & (error == 0.0)
    spread = between(value, error, LEVEL)
    columns = {
        "reliability": value,
        "error": error,
        "low": np.clip(spread["low"], 0.0, highest),
        "high": np.clip(spread["high"], 0.0, highest),
    }
    known = {name: np.where(unseen, np.nan, column) for name, column in columns.items()}
    return {**known, "votes": votes.astype(np.int64)}
