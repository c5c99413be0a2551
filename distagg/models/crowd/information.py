"""Standard errors of the parameters of experts, from the expected information of votes.

Laplace's approximation. No two experts share a vote, so the information about their parameters is a small block D for
each. With H the information about scores and C that about scores and parameters together, the covariance of the
parameters is D^-1 + D^-1 C' (H - C D^-1 C')^-1 C D^-1. Above MOST_ITEMS items or MOST_VOTES votes scores are taken as
known, and the covariance is D^-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.crowd.kernels import information
from distagg.models.crowd.layout import PART, Layout
from distagg.models.rounds import Stage, Statistics
from distagg.types import Floats, Offsets

if TYPE_CHECKING:
    from distagg.models.crowd.model import Crowd

MOST_ITEMS, MOST_VOTES = 2000, 2_000_000
BLOCK = 4_000_000  # numbers that are held at once


@dataclass(frozen=True, slots=True, eq=False)
class Information(Stage):
    """What a worker computes in the last round: the expected information of a chunk's votes."""

    model: Crowd
    layout: Layout
    theta: Floats
    score: Floats
    coupled: bool  # with what is known of scores

    def map(self, chunk: Chunk) -> Statistics:
        rows, votes = self.layout.rows(chunk), self.model.votes(chunk)
        chain = self.model.chain(self.theta)
        score = np.ascontiguousarray(self.score[rows])
        gaps, cross, own = information(votes, self.model.mixture(self.theta), chain, score)
        if not self.coupled:
            return {"own": own}
        winner, loser = rows.start + votes.winner, rows.start + votes.loser
        count, size = cross.shape[1], len(self.score)
        column = (count * votes.expert[:, None] + np.arange(count)).ravel()
        edges = _summed(winner * size + loser, gaps)
        each = np.concatenate([np.repeat(winner, count), np.repeat(loser, count)])
        sides = _summed(
            each * (count * chunk.n_experts) + np.tile(column, 2), np.concatenate([cross.ravel(), -cross.ravel()])
        )
        return {
            "own": own,
            PART + "edge": edges[0],
            PART + "gap": edges[1],
            PART + "side": sides[0],
            PART + "cross": sides[1],
        }


def _summed(key: Offsets, value: Floats) -> tuple[Offsets, Floats]:
    """The distinct keys, and the sum of the values of each."""
    known, where = np.unique(key, return_inverse=True)
    return known, np.bincount(where, value, len(known)).astype(np.float64, copy=False)


def covariance(statistics: Statistics, prior: Floats, curve: Floats) -> Floats:  # (experts, k, k)
    """The covariance of every expert's parameters.

    ``prior`` (experts, k, k) is what the prior knows of parameters, ``curve`` (items,) what that of scores knows.
    """
    variance = np.asarray(np.linalg.inv(statistics["own"] + prior), dtype=np.float64)
    return variance + _of_scores(statistics, curve, variance) if PART + "edge" in statistics else variance


def _of_scores(statistics: Statistics, curve: Floats, variance: Floats) -> Floats:
    """What the uncertainty of scores adds to the variance of parameters (experts, k, k)."""
    import scipy.sparse

    items, (experts, count, _) = len(curve), variance.shape
    matrix = np.diag(curve)
    low, high = np.divmod(statistics[PART + "edge"], items)
    gap = statistics[PART + "gap"]
    np.add.at(matrix, (low, low), gap)
    np.add.at(matrix, (high, high), gap)
    np.add.at(matrix, (low, high), -gap)
    np.add.at(matrix, (high, low), -gap)
    row, column = np.divmod(statistics[PART + "side"], experts * count)
    cross = scipy.sparse.csr_array((statistics[PART + "cross"], (column, row)), shape=(experts * count, items))
    at = np.arange(experts * count).reshape(experts, count)
    first, second = np.repeat(at, count, axis=1).ravel(), np.tile(at, (1, count)).ravel()
    inverse = scipy.sparse.csr_array((variance.ravel(), (first, second)), shape=(experts * count, experts * count))
    spread = inverse @ cross  # (experts k, items)
    matrix -= (cross.T @ spread).toarray()
    added = np.zeros((experts, count, count))
    solution = np.linalg.inv(matrix)
    block = max(1, BLOCK // max(items * count, 1))
    for first_expert in range(0, experts, block):
        some = spread[count * first_expert : count * (first_expert + block)].toarray().reshape(-1, count, items)
        added[first_expert : first_expert + block] = np.einsum("ekn,emn->ekm", some @ solution, some)
    return added
