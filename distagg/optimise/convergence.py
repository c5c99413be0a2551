"""How fits ended: one record for every query, filled by kernels, and its columns in results."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.types import Floats, Offsets

# How the fit of a query ended. ``converged`` is the flag, ``gradient`` the largest gradient entry left (or what the
# model's criterion says), ``iterations`` the steps taken, ``likelihood`` the log likelihood reached.
FIT_COLUMNS = ("converged", "iterations", "gradient", "likelihood")


class Ended(NamedTuple):
    """How the fit of every query ended: filled by kernels."""

    iterations: Offsets  # (Q,) steps taken
    gradient: Floats  # (Q,) the number that the model's criterion compares with its tolerance
    objective: Floats  # (Q,) the value reached
    trace: Floats  # (Q, T) the value after each of the first T steps

    def columns(self, tolerance: float) -> dict[str, np.ndarray]:
        """FIT_COLUMNS; a fit converged if no more than ``tolerance`` is left of its gradient."""
        values = (self.gradient <= tolerance, self.iterations, self.gradient, self.objective)
        return dict(zip(FIT_COLUMNS, values, strict=True))

    def steps(self) -> Floats:
        """The trace up to the last step of the query that took most."""
        return self.trace[:, : int(self.iterations.max(initial=0))]


def not_begun(queries: int, steps: int = 0) -> Ended:
    """The record of this many queries before their fits, with room for a trace of this many steps."""
    trace = np.full((queries, steps), np.nan)
    return Ended(np.zeros(queries, dtype=np.int64), np.zeros(queries), np.zeros(queries), trace)
