"""Which pairs to compare next: those whose answers are expected to tell most about the scores.

The scores of a query have, given its battles, about a normal distribution with covariance C (Laplace's approximation of
``bradley_terry``'s posterior). The gap of i and j then has the variance v = c_ii + c_jj - 2 c_ij, and an answer adds
the information w about it: the variance of an outcome, p (1 - p) without ties (Davidson 1970 with ties), averaged over
the uncertain gap (MacKay 1992). It is expected to tell log2(1 + w v) / 2 bits. Pairs that join two connected
components come first, since scores of different components cannot be compared. After each choice C is updated as if
its answer were known (a greedy D-optimal batch), so that the next one asks for something else. Cost: items^3, and
items^2 for each suggestion.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from distagg.errors import UsageError
from distagg.models.pairwise.counts import Counts
from distagg.models.pairwise.covariance import curvature, expected
from distagg.models.pairwise.model import BradleyTerry
from distagg.models.pairwise.suggesting_kernels import choose_pairs
from distagg.types import Floats, Offsets

MOST_ITEMS = 5_000  # of a query: a matrix of 0.2 GiB, and its inverse


class Suggestions(NamedTuple):
    """Pairs of one query to compare next, the first one first: (n,) each."""

    one: Offsets
    other: Offsets
    gain: Floats  # bits that the answer is expected to tell, given the answers before it
    joins: np.ndarray  # whether the pair joins two components
    chance: Floats  # that one beats the other, plus half the chance of a tie
    gap: Floats  # of scores, one less the other
    error: Floats  # its standard error before any answer


def suggest_pairs(model: BradleyTerry, counts: Counts, count: int) -> list[Suggestions]:
    """Suggestions for every query of a chunk, from its pair counts."""
    sizes = np.diff(counts.item_offsets)
    if sizes.max(initial=0) > MOST_ITEMS:
        raise UsageError(
            f"suggestions need a matrix of items x items, and a query has {sizes.max():,} items; {MOST_ITEMS:,} are "
            "the most. Leave out items that are not of interest"
        )
    graph = model.examine(counts)
    outcome, eta = model.fitted(counts, graph)
    terms, result = model.terms(outcome), []
    for q in range(len(sizes)):
        items = slice(int(counts.item_offsets[q]), int(counts.item_offsets[q + 1]))
        score, component = outcome.score[items], graph.component[items].copy()
        bent = curvature(counts, q, component, score, float(eta[q]), terms)
        covariance = np.ascontiguousarray(np.linalg.inv(bent.information)[: len(score), : len(score)])
        learned = model.ties == "davidson" and counts.ties[q] > 0
        tie = math.exp(eta[q]) if learned else 0.0
        before = covariance.copy()
        one, other, gain, joins = choose_pairs(score, covariance, tie, component, int(graph.connected[q]), count)
        gap = score[one] - score[other]
        variance = np.maximum(before[one, one] + before[other, other] - 2.0 * before[one, other], 0.0)
        shrunk = gap / np.sqrt(1.0 + np.pi * variance / 8.0)
        chance = expected(model.link, shrunk, float(eta[q]))
        result.append(Suggestions(one, other, gain, joins, chance, gap, np.sqrt(variance)))
    return result
