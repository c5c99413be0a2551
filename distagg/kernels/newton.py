"""Scores from pair counts by Newton's method: every step solves with the Laplacian of the comparison graph.

What is minimised is the negative log likelihood of a link (see ``links``) and, with a prior, prior / 2 * sum s^2
(GAUSSIAN) or sum (rate exp(s) - (shape - 1) s) (GAMMA: the mode of strengths exp(s)). It is convex, so a step is safe
once the slope along it has not turned uphill: no values are needed, and no logarithms. Steps are solved by conjugate
gradients, preconditioned by the diagonal, O(edges) each, and no closer than the progress so far deserves.

How strong a GAUSSIAN prior is can be sought from the data (``seek``): the weight of the largest marginal likelihood in
Laplace's approximation, with the diagonal of the second derivatives d (MacKay 1992). There weight = known / sum s^2,
where known = sum d / (d + weight) counts the scores that the data determine. One item more of score 1 that is known for
sure keeps the weight between 1 / (1 + sum s^2) and 1 + items, where data say little.
"""

from __future__ import annotations

import math

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.links import LOGIT, RAO_KUPPER, logit_slopes, slopes
from distagg.types import Floats, Indices, Offsets

NONE, GAUSSIAN, GAMMA = 0, 1, 2
UPHILL = 0.1  # a step may end this much of its first slope uphill
TRIES = 60  # of shorter steps
SETTLED, CHANGES = 0.01, 100  # a weight is found when it changes by no larger part; the most changes


@kernel
def solve_step(
    offsets: Offsets,  # (size + 1,)
    other: Indices,
    curve: Floats,  # second derivatives by gap, for every edge
    diagonal: Floats,  # (size + 1,)
    cross: Floats,  # (size + 1,)
    gradient: Floats,  # (size + 1,)
    closeness: float,
    x: Floats,  # (size + 1,) filled
) -> None:
    """x with (second derivatives) x = -gradient, to a relative residual of ``closeness``, by conjugate gradients."""
    length = len(x)
    size = length - 1
    rest, ahead, out, scale = np.empty(length), np.empty(length), np.empty(length), np.empty(length)
    now = 0.0
    for i in range(length):
        scale[i] = 1.0 / diagonal[i] if diagonal[i] > 0.0 else 0.0
        x[i], rest[i] = 0.0, -gradient[i]
        ahead[i] = scale[i] * rest[i]
        now += rest[i] * ahead[i]
    goal = now * closeness * closeness
    for _ in range(2 * length + 10):
        if now <= goal or now == 0.0:
            break
        for i in range(length):
            out[i] = diagonal[i] * ahead[i] + cross[i] * ahead[size]
        for i in range(size):
            mine, taken = ahead[i], cross[i] * ahead[i]
            out[size] += taken
            taken = 0.0
            for e in range(offsets[i], offsets[i + 1]):
                j = other[e]
                taken += curve[e] * ahead[j]
                out[j] -= curve[e] * mine
            out[i] -= taken
        bend = 0.0
        for i in range(length):
            bend += ahead[i] * out[i]
        if bend <= 0.0:
            break  # rounding: what is left lies in the null space
        alpha, before = now / bend, now
        now = 0.0
        for i in range(length):
            x[i] += alpha * ahead[i]
            rest[i] -= alpha * out[i]
            now += rest[i] * rest[i] * scale[i]
        for i in range(length):
            ahead[i] = scale[i] * rest[i] + now / before * ahead[i]


@kernel
def fit_queries(
    link: int,
    prior: int,
    weight: Floats,  # (Q,) or a gamma prior's rate; filled with ``seek``
    shape: float,
    seek: bool,  # whether to change weights until they settle
    tolerance: float,
    steps: int,
    item_offsets: Offsets,
    offsets: Offsets,
    other: Indices,
    ahead: Floats,
    behind: Floats,
    ties: Floats,
    score: Floats,  # (I,) where to start, filled
    eta: Floats,  # (Q,) where to start, filled; queries of infinite eta are passed over
    iterations: Offsets,  # (Q,) filled
    left: Floats,  # (Q,) filled: the longest step that any score alone would still take
) -> None:
    """Scores of every query from its counts. (One long function: nested ones are compiled over and over.)"""
    curve = np.empty(len(other))
    for q in range(len(item_offsets) - 1):
        base, length = item_offsets[q], item_offsets[q + 1] - item_offsets[q] + 1
        if eta[q] == np.inf or length == 1:
            continue
        rows = offsets[base : base + length]
        s, start, x = np.empty(length), np.empty(length), np.zeros(length)
        gradient, diagonal, cross = np.empty(length), np.empty(length), np.empty(length)
        for i in range(length - 1):
            s[i] = start[i] = score[base + i]
        s[length - 1] = start[length - 1] = eta[q]
        taken, tries, first, part, changes = 0, 0, 0.0, 1.0, CHANGES if seek else 0
        while True:
            if tries > 0:
                for i in range(length):
                    s[i] = start[i] + part * x[i]
            good = link != RAO_KUPPER or ties[q] == 0.0 or s[length - 1] > 0.0
            now = -2.0 * first  # uphill, so that the step is halved
            if good:
                if link == LOGIT:
                    logit_slopes(link, s, ties[q], rows, other, ahead, behind, gradient, diagonal, cross, curve)
                else:
                    slopes(link, s, ties[q], rows, other, ahead, behind, gradient, diagonal, cross, curve)
                now = gradient[length - 1] * x[length - 1]
                for i in range(length - 1):
                    if prior == GAUSSIAN:
                        gradient[i] += weight[q] * s[i]
                        diagonal[i] += weight[q]
                    elif prior == GAMMA:
                        mean = weight[q] * math.exp(s[i])
                        gradient[i] += mean - (shape - 1.0)
                        diagonal[i] += mean
                    now += gradient[i] * x[i]
                good = now <= -UPHILL * first
            tries += 1
            if not good and tries < TRIES:
                part *= max(0.1, min(0.5, first / (first - now)))
                continue
            left[q] = 0.0
            for i in range(length):
                if diagonal[i] > 0.0:
                    left[q] = max(left[q], abs(gradient[i]) / diagonal[i])
            if left[q] <= tolerance or taken == steps or not good:
                if changes == 0 or taken == steps or not good:
                    break
                known, squares = 1.0, 1.0
                for i in range(length - 1):
                    known += (diagonal[i] - weight[q]) / diagonal[i]
                    squares += s[i] * s[i]
                settled = abs(known / squares - weight[q]) <= SETTLED * weight[q]
                weight[q] = known / squares
                if settled:
                    break
                changes, tries, first = changes - 1, 0, 0.0
                for i in range(length):
                    x[i] = 0.0
                continue
            solve_step(rows, other, curve, diagonal, cross, gradient, min(0.02, left[q]), x)
            first = 0.0
            for i in range(length):
                start[i] = s[i]
                first += gradient[i] * x[i]
            taken, part, tries = taken + 1, 1.0, 1
        iterations[q], eta[q] = taken, s[length - 1]
        for i in range(length - 1):
            score[base + i] = s[i]
