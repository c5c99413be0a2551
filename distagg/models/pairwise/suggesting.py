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
from distagg.jit import kernel
from distagg.models.pairwise.counts import Counts
from distagg.models.pairwise.covariance import curvature, expected
from distagg.models.pairwise.model import BradleyTerry
from distagg.types import Floats, Labels, Offsets

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


@kernel
def information(gap: float, variance: float, tie: float) -> float:
    """Expected information of an answer about an uncertain gap; ``tie`` is Davidson's nu.

    The mean over a normal gap is that at a shrunken gap, times the same factor (MacKay 1992).
    """
    shrink = 1.0 / math.sqrt(1.0 + math.pi * variance / 8.0)
    half = 0.5 * shrink * abs(gap)
    up, down, tied = 1.0, math.exp(-2.0 * half), tie * math.exp(-half)
    total = up + down + tied
    decided, lead = (up + down) / total, (up - down) / total
    return shrink * 0.25 * (decided - lead * lead)


@kernel
def best_pair(
    score: Floats, covariance: Floats, tie: float, component: Labels, used: np.ndarray, joining: bool
) -> tuple[int, int, float, float]:
    """The unused pair of most expected bits (of different components where joining): items, bits, information."""
    best, one, other, weight = -1.0, -1, -1, 0.0
    size = len(score)
    for i in range(size):
        for j in range(i + 1, size):
            if used[i, j] or (joining and component[i] == component[j]):
                continue
            variance = max(covariance[i, i] + covariance[j, j] - 2.0 * covariance[i, j], 0.0)
            told = information(score[i] - score[j], variance, tie)
            bits = 0.5 * math.log2(1.0 + told * variance)
            if bits > best:
                best, one, other, weight = bits, i, j, told
    return one, other, best, weight


@kernel
def answered(covariance: Floats, i: int, j: int, weight: float) -> None:
    """Update the covariance, in place, for an answer of that information about the gap of i and j."""
    size = len(covariance)
    along = np.empty(size)
    for k in range(size):
        along[k] = covariance[k, i] - covariance[k, j]
    factor = weight / (1.0 + weight * (along[i] - along[j]))
    for k in range(size):
        for m in range(size):
            covariance[k, m] -= factor * along[k] * along[m]


@kernel
def choose_pairs(
    score: Floats,  # (size,)
    covariance: Floats,  # (size, size), overwritten
    tie: float,
    component: Labels,  # (size,), overwritten: pairs join components
    components: int,
    count: int,
) -> tuple[Offsets, Offsets, Floats, np.ndarray]:
    """As many pairs as asked for, or all there are: items, expected bits, and whether they join components."""
    size = len(score)
    count = min(count, size * (size - 1) // 2)
    one, other = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    gain, joins = np.empty(count), np.zeros(count, dtype=np.bool_)
    used = np.zeros((size, size), dtype=np.bool_)
    for n in range(count):
        joining = components > 1
        i, j, bits, weight = best_pair(score, covariance, tie, component, used, joining)
        one[n], other[n], gain[n], joins[n] = i, j, bits, joining
        used[i, j] = True
        answered(covariance, i, j, weight)
        if joining:
            gone, kept = component[j], component[i]
            for k in range(size):
                if component[k] == gone:
                    component[k] = kept
            components -= 1
    return one, other, gain, joins


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
