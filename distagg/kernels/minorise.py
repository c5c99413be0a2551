"""Bradley-Terry scores by minorisation-maximisation (Hunter 2004; with a gamma prior Caron & Doucet 2012)."""

from __future__ import annotations

import math

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.newton import GAMMA, Graph
from distagg.types import Floats, Offsets


@kernel
def minorise_queries(
    prior: int,  # NONE or GAMMA
    rate: float,
    shape: float,
    tolerance: float,
    steps: int,
    graph: Graph,
    score: Floats,  # (I,) where to start, filled
    iterations: Offsets,  # (Q,) filled
    left: Floats,  # (Q,) filled: the longest step that any score alone would still take
) -> None:
    """Every step sets all strengths to wins over the sum of n / (w_i + w_j), n the comparisons of a pair."""
    item_offsets, offsets, other, ahead, behind, _ = graph
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        w, won, share, curve = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
        for i in range(size):
            w[i] = math.exp(score[base + i])
        iterations[q] = 0
        while True:
            for i in range(size):
                won[i], share[i], curve[i] = 0.0, 0.0, 0.0
                if prior == GAMMA:
                    won[i], share[i], curve[i] = shape - 1.0, rate, rate * w[i]
            for i in range(size):
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
            left[q] = 0.0
            for i in range(size):
                if curve[i] > 0.0:
                    left[q] = max(left[q], abs(w[i] * share[i] - won[i]) / curve[i])
            if left[q] <= tolerance or iterations[q] == steps:
                break
            iterations[q] += 1
            middle = 0.0
            for i in range(size):
                if share[i] > 0.0:
                    w[i] = won[i] / share[i]
                middle += math.log(w[i]) / size
            if prior != GAMMA:  # the scale is free
                for i in range(size):
                    w[i] *= math.exp(-middle)
        for i in range(size):
            score[base + i] = math.log(w[i])
