"""Bradley-Terry scores by minorisation-maximisation (Hunter 2004; with a gamma prior Caron & Doucet 2012)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.pairwise.graph import Graph
from distagg.models.pairwise.kernels import GAMMA
from distagg.types import Floats, Offsets


class Fit(NamedTuple):
    """The objective to maximise, and the tolerance."""

    prior: int  # NONE or GAMMA
    rate: float  # of a gamma prior
    shape: float  # of a gamma prior
    tolerance: float
    steps: int


class Sums(NamedTuple):
    """Sums over the comparisons of every item of one query, prior included: (size,) each."""

    won: Floats
    share: Floats  # the sum of n / (w_i + w_j), where n counts the comparisons of items i and j
    curve: Floats  # minus the second derivative of the log likelihood by the score log w_i


@kernel
def minorise_queries(
    how: Fit,
    graph: Graph,
    score: Floats,  # (I,) where to start, filled
    iterations: Offsets,  # (Q,) filled
    left: Floats,  # (Q,) filled: the longest Newton step that a single score would still take
) -> None:
    """Fit every query: each step sets the strength of an item to its wins divided by its sum of shares."""
    for q in range(len(graph.item_offsets) - 1):
        base, end = graph.item_offsets[q], graph.item_offsets[q + 1]
        w = np.exp(score[base:end])
        sums = Sums(np.empty(end - base), np.empty(end - base), np.empty(end - base))
        iterations[q] = 0
        while True:
            add_up(how, graph, base, w, sums)
            left[q] = longest_step(w, sums)
            if left[q] <= how.tolerance or iterations[q] == how.steps:
                break
            iterations[q] += 1
            step(how, sums, w)
        for i in range(end - base):
            score[base + i] = math.log(w[i])


@kernel
def add_up(how: Fit, graph: Graph, base: int, w: Floats, sums: Sums) -> None:
    """Write to ``sums`` the sums at strengths w (size,), for the query whose items begin at ``base``."""
    won, share, curve = sums
    offsets, other, ahead, behind = graph.offsets, graph.other, graph.ahead, graph.behind
    for i in range(len(w)):
        won[i], share[i], curve[i] = 0.0, 0.0, 0.0
        if how.prior == GAMMA:
            won[i], share[i], curve[i] = how.shape - 1.0, how.rate, how.rate * w[i]
    for i in range(len(w)):
        for e in range(offsets[base + i], offsets[base + i + 1]):
            j = other[e]
            each = (ahead[e] + behind[e]) / (w[i] + w[j])
            won[i] += ahead[e]
            won[j] += behind[e]
            share[i] += each
            share[j] += each
            bend = each * w[i] * w[j] / (w[i] + w[j])
            curve[i] += bend
            curve[j] += bend


@kernel
def longest_step(w: Floats, sums: Sums) -> float:
    """The longest Newton step that a score would take if all others were held fixed."""
    longest = 0.0
    for i in range(len(w)):
        if sums.curve[i] > 0.0:
            longest = max(longest, abs(w[i] * sums.share[i] - sums.won[i]) / sums.curve[i])
    return longest


@kernel
def step(how: Fit, sums: Sums, w: Floats) -> None:
    """Update strengths w in place. Without a prior their scale is arbitrary, so their geometric mean is set to 1."""
    middle = 0.0
    for i in range(len(w)):
        if sums.share[i] > 0.0:
            w[i] = sums.won[i] / sums.share[i]
        middle += math.log(w[i]) / len(w)
    if how.prior != GAMMA:
        for i in range(len(w)):
            w[i] *= math.exp(-middle)
