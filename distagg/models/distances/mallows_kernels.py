"""Mallows' distribution with Kendall's distance, by stages (Fligner & Verducci 1986).

A ranking is built from the front. At a stage with m items left, the one that v others of them precede in the centre
is taken with odds exp(-theta v), v = 0 .. m - 1; the v add up to the distance. So whatever the lists, the likelihood
needs only their total distance and how many stages had how many items left:

    log L(theta) = -theta distance - sum over m of stages(m) log((1 - exp(-m theta)) / (1 - exp(-theta)))

It is concave, and its slope is the expected less the observed distance: convex and falling in theta, so Newton's steps
from 0 never overshoot.
"""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats, Offsets

SMALL = 0.05  # below it series are more exact than closed forms


@kernel
def stage_moments(theta: float, m: int) -> tuple[float, float]:
    """Mean and variance of v at a stage with m items left."""
    if m * theta < SMALL:
        t2, m2 = theta * theta, float(m) * m
        mean = 0.5 * (m - 1) - theta * (m2 - 1) / 12 + theta * t2 * (m2 * m2 - 1) / 720
        mean -= theta * t2 * t2 * (m2 * m2 * m2 - 1) / 30240
        return mean, (m2 - 1) / 12 - t2 * (m2 * m2 - 1) / 240
    one, all_of = np.exp(-theta), np.exp(-m * theta)
    near, far = one / (1.0 - one), m * all_of / (1.0 - all_of)
    return near - far, near / (1.0 - one) - far * m / (1.0 - all_of)


@kernel
def log_normaliser(theta: float, m: int) -> float:
    """Of one stage with m items left."""
    if theta == 0.0:
        return np.log(m)
    return np.log(-np.expm1(-m * theta)) - np.log(-np.expm1(-theta))


@kernel
def log_likelihood(theta: float, distance: float, stages: Floats) -> float:
    """``stages[m - 1]`` counts those with m items left."""
    value = -theta * distance
    for at in range(len(stages)):
        if stages[at] > 0.0:
            value -= stages[at] * log_normaliser(theta, at + 1)
    return value


@kernel
def fit_theta(
    distance: float, stages: Floats, tolerance: float, steps: int, limit: float, trace: Floats
) -> tuple[float, int, float]:
    """The likeliest theta from 0 to ``limit``; gives it, the steps and the slope left for each stage.

    A distance that chance would give makes theta 0, none at all the limit. ``trace`` (steps or 0,) gets the log
    likelihood after every step.
    """
    theta, step, slope = 0.0, 0, 0.0
    count = 0.0
    for at in range(1, len(stages)):
        count += stages[at]
    if distance == 0.0 and count > 0.0:
        return limit, 0, 0.0
    while count > 0.0:
        mean, variance = 0.0, 0.0
        for at in range(1, len(stages)):
            if stages[at] > 0.0:
                a, b = stage_moments(theta, at + 1)
                mean += stages[at] * a
                variance += stages[at] * b
        slope = (mean - distance) / count
        held = (theta == 0.0 and slope <= 0.0) or (theta == limit and slope >= 0.0)
        if held:
            slope = 0.0
        if abs(slope) <= tolerance or step == steps:
            break
        theta = min(max(theta + slope * count / variance, 0.0), limit)
        if len(trace) > 0:
            trace[step] = log_likelihood(theta, distance, stages)
        step += 1
    return theta, step, abs(slope)


@kernel
def count_stages(
    unlisted_last: bool,
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    entry_rank: Floats,
    row: Offsets,  # (L,) where a list counts: its query, or its expert
    stages: Floats,  # (rows, longest) added to: stages with m items left at m - 1
    tied: Floats,  # (rows,) added to: tied pairs of listed items
) -> None:
    """Stages and tied pairs of lists; an unlisted item is left to the end (last) or is not there."""
    for q in range(len(item_offsets) - 1):
        size = item_offsets[q + 1] - item_offsets[q]
        for a in range(list_offsets[q], list_offsets[q + 1]):
            start, end = entry_offsets[a], entry_offsets[a + 1]
            left = size if unlisted_last else end - start
            group = 0
            for e in range(start, end):
                group = group + 1 if e > start and entry_rank[e] == entry_rank[e - 1] else 0
                tied[row[a]] += group
                stages[row[a], left - (e - start) - 1] += 1.0
