"""Multinomial Preference Model kernels (paper 000, sections 2.3 to 2.5; paper 002).

The partition function over ordered pairs factors,

    sum_{k != l} exp(t (s_k - s_l)) = (sum_k exp(t s_k)) (sum_l exp(-t s_l)) - M

so the log likelihood and its gradient cost O(M) for every distinct adherence t; the data enter only as net wins.
What is minimised for one query is the negative log likelihood for each observed preference, plus a weak Gaussian
prior that keeps scores finite where the likelihood has no maximum (an item that wins everything):

    f(s) = -sum_i n_i s_i + sum_g w_g log Z(t_g, s) + prior / 2 sum_i s_i^2

with n the net wins weighted by adherence and w the share of preferences of group g. It is convex.

With variances exp(b) every difference is divided by exp(b_k) + exp(b_l); nothing factors any more, the sum is over
all pairs, and the data enter as margins. The prior then holds b as well: s and exp(b) have a common scale.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import Bools, Floats, Indices, Offsets

MEMORY = 10  # curvature pairs that L-BFGS keeps


@kernel
def likelihood(
    s: Floats,  # (size,)
    data: Floats,  # (1, size) net wins, for each observed preference
    adherence: Floats,  # (groups,)
    share: Floats,  # (groups,)
    prior: float,
    gradient: Floats,  # (size,) filled
) -> float:
    """f and its gradient."""
    size, net = len(s), data[0]
    low, high = s[0], s[0]
    value = 0.0
    for i in range(size):
        low, high = min(low, s[i]), max(high, s[i])
        value += 0.5 * prior * s[i] * s[i] - net[i] * s[i]
        gradient[i] = prior * s[i] - net[i]
    for g in range(len(adherence)):
        t = adherence[g]
        if t == 0.0 or share[g] == 0.0:
            continue  # a uniform distribution says nothing about the scores
        up, down = 0.0, 0.0  # sums of exp(t s) and exp(-t s), each over its largest term
        for i in range(size):
            up += np.exp(t * (s[i] - high))
            down += np.exp(t * (low - s[i]))
        span = np.exp(t * (low - high))
        z = up * down - size * span
        value += share[g] * (np.log(z) + t * (high - low))
        scale = share[g] * t / z
        for i in range(size):
            gradient[i] += scale * (np.exp(t * (s[i] - high)) * down - np.exp(t * (low - s[i])) * up)
    return value


@kernel
def spread_likelihood(
    x: Floats,  # (2 size,) scores, then logarithms of variances
    margins: Floats,  # (size, size) skew-symmetric, for each observed preference
    adherence: Floats,  # (groups,)
    share: Floats,  # (groups,)
    prior: float,  # on scores
    tightness: float,  # on logarithms of variances
    gradient: Floats,  # (2 size,) filled
) -> float:
    """f with variances, and its gradient: one exponential for each unordered pair and group."""
    size = len(margins)
    variance = np.exp(x[size:])
    value = 0.0
    for i in range(size):
        value += 0.5 * (prior * x[i] * x[i] + tightness * x[size + i] * x[size + i])
        gradient[i], gradient[size + i] = prior * x[i], 0.0
    widest = 0.0
    for i in range(size):
        for j in range(i + 1, size):
            inverse = 1.0 / (variance[i] + variance[j])
            d = (x[i] - x[j]) * inverse
            widest = max(widest, abs(d))
            pull = margins[i, j] * inverse
            value -= margins[i, j] * d
            gradient[i] -= pull
            gradient[j] += pull
            gradient[size + i] += pull * d
            gradient[size + j] += pull * d
    slope = np.empty(2 * size)
    for g in range(len(adherence)):
        t = adherence[g]
        if t == 0.0 or share[g] == 0.0:
            continue
        for i in range(2 * size):
            slope[i] = 0.0
        z = 0.0
        for i in range(size):
            for j in range(i + 1, size):
                inverse = 1.0 / (variance[i] + variance[j])
                d = (x[i] - x[j]) * inverse
                up = np.exp(t * (abs(d) - widest))
                down = np.exp(-t * (abs(d) + widest))
                z += up + down
                push = np.copysign(up - down, d) * inverse
                slope[i] += push
                slope[j] -= push
                slope[size + i] -= push * d
                slope[size + j] -= push * d
        value += share[g] * (np.log(z) + t * widest)
        for i in range(2 * size):
            gradient[i] += share[g] * t / z * slope[i]
    for i in range(size):
        gradient[size + i] = gradient[size + i] * variance[i] + tightness * x[size + i]
    return value


@kernel
def direction(gradient: Floats, moves: Floats, turns: Floats, held: int, step: int, out: Floats) -> None:
    """L-BFGS direction into ``out`` from ``held`` curvature pairs, the newest at row (step - 1) % MEMORY."""
    size = len(gradient)
    weight = np.empty(MEMORY)
    for i in range(size):
        out[i] = -gradient[i]
    for back in range(held):
        row = (step - 1 - back) % MEMORY
        dot, curvature = 0.0, 0.0
        for i in range(size):
            dot += moves[row, i] * out[i]
            curvature += moves[row, i] * turns[row, i]
        weight[row] = dot / curvature
        for i in range(size):
            out[i] -= weight[row] * turns[row, i]
    if held > 0:
        row = (step - 1) % MEMORY
        top, bottom = 0.0, 0.0
        for i in range(size):
            top += moves[row, i] * turns[row, i]
            bottom += turns[row, i] * turns[row, i]
        for i in range(size):
            out[i] *= top / bottom
    for back in range(held - 1, -1, -1):
        row = (step - 1 - back) % MEMORY
        dot, curvature = 0.0, 0.0
        for i in range(size):
            dot += turns[row, i] * out[i]
            curvature += moves[row, i] * turns[row, i]
        for i in range(size):
            out[i] += moves[row, i] * (weight[row] - dot / curvature)


@kernel
def objective(
    spread: bool, x: Floats, data: Floats, adherence: Floats, share: Floats, prior: float, tightness: float,
    gradient: Floats,
) -> float:  # fmt: skip
    """f and its gradient, with variances where ``spread``."""
    if spread:
        return spread_likelihood(x, data, adherence, share, prior, tightness, gradient)
    return likelihood(x, data, adherence, share, prior, gradient)


@kernel
def maximise(
    spread: bool, data: Floats, adherence: Floats, share: Floats, prior: float, tightness: float,
    tolerance: float, steps: int, rate: float, x: Floats, trace: Floats,
) -> tuple[int, float, float]:  # fmt: skip
    """Fit x in place from where it stands; gives the steps taken, the largest gradient entry left, and f.

    ``rate`` 0 is L-BFGS with backtracking; otherwise plain gradient steps of that length, as in the papers. Minus f
    after every step goes to ``trace``, as far as it reaches.
    """
    size = len(x)
    gradient, trial, trial_gradient, ahead = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    moves, turns = np.empty((MEMORY, size)), np.empty((MEMORY, size))
    value = objective(spread, x, data, adherence, share, prior, tightness, gradient)
    step = 0
    held, kept = step + len(x) - size, step + len(x) - size  # 0; a literal would compile ``direction`` twice
    while True:
        if step < len(trace):
            trace[step] = -value
        left = 0.0
        for i in range(size):
            left = max(left, abs(gradient[i]))
        if left <= tolerance or step == steps:
            break
        if rate > 0.0:
            for i in range(size):
                x[i] -= rate * gradient[i]
            value = objective(spread, x, data, adherence, share, prior, tightness, gradient)
            step += 1
            continue
        direction(gradient, moves, turns, held, kept, ahead)
        slope = 0.0
        for i in range(size):
            slope += gradient[i] * ahead[i]
        length, better, found = 1.0, False, value
        for _ in range(40):
            for i in range(size):
                trial[i] = x[i] + length * ahead[i]
            found = objective(spread, trial, data, adherence, share, prior, tightness, trial_gradient)
            if found <= value + 1e-4 * length * slope:
                better = True
            elif found <= value + 1e-13 * abs(value):  # too close to tell: the slope decides (Hager & Zhang 2005)
                ahead_slope = 0.0
                for i in range(size):
                    ahead_slope += trial_gradient[i] * ahead[i]
                better = ahead_slope <= -0.8 * slope
            if better:
                break
            length *= 0.5
        if not better:
            break  # rounding: nothing lower can be told apart
        curvature = 0.0
        row = kept % MEMORY
        for i in range(size):
            moves[row, i] = trial[i] - x[i]
            turns[row, i] = trial_gradient[i] - gradient[i]
            curvature += moves[row, i] * turns[row, i]
            x[i], gradient[i] = trial[i], trial_gradient[i]
        value = found
        if curvature > 0.0:
            kept += 1
            held += held < MEMORY
        step += 1
    return step, left, value


@kernel
def fit_queries(
    spread: bool,  # fit variances too
    levels: Floats,  # (levels,) adherence
    item_offsets: Offsets,
    data_offsets: Offsets,  # (Q + 1,) where each query's rows of data start
    data: Floats,  # flat: net wins of every query, or its margins row by row
    observed: Floats,  # (Q, levels) preferences of experts of that adherence
    prior: float,  # both are shared out over the items
    tightness: float,
    tolerance: float,
    steps: int,
    rate: float,
    score: Floats,  # (I,) where to start, filled
    variance: Floats,  # (I,) ones, filled where ``spread``
    taken: Offsets,  # (Q,) filled
    left: Floats,  # (Q,) filled
    reached: Floats,  # (Q,) filled: penalised log likelihood
    trace: Floats,  # (Q, T) filled
) -> None:
    """Scores (and variances) of every query. One that says nothing keeps its scores. (One long function: nested
    ones are compiled over and over.)"""
    present, share = np.empty(len(levels)), np.empty(len(levels))
    for q in range(len(item_offsets) - 1):
        base, size, total = item_offsets[q], item_offsets[q + 1] - item_offsets[q], 0.0
        groups = 0
        for g in range(len(levels)):
            if observed[q, g] > 0.0:
                present[groups], share[groups] = levels[g], observed[q, g]
                total += observed[q, g]
                groups += 1
        if total == 0.0 or size < 2:
            continue
        for g in range(groups):
            share[g] /= total
        rows = size if spread else 1
        each = np.empty((rows, size))
        for i in range(rows):
            for j in range(size):
                each[i, j] = data[data_offsets[q] + i * size + j] / total
        x = np.zeros(2 * size if spread else size)
        for i in range(size):
            x[i] = score[base + i]
        taken[q], left[q], value = maximise(
            spread, each, present[:groups], share[:groups], prior / size, tightness / size, tolerance, steps, rate,
            x, trace[q],
        )  # fmt: skip
        reached[q] = -total * value
        for n in range(min(taken[q] + 1, trace.shape[1])):
            trace[q, n] *= total
        for i in range(size):
            score[base + i] = x[i]
            if spread:
                variance[base + i] = np.exp(x[size + i])


@kernel
def log_partition_slopes(t: float, s: Floats) -> tuple[float, float]:
    """First and second derivative of log Z(t, s) in t."""
    size = len(s)
    low, high = s[0], s[0]
    for i in range(size):
        low, high = min(low, s[i]), max(high, s[i])
    up, up1, up2, down, down1, down2 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(size):
        u, v = s[i] - high, low - s[i]
        a, b = np.exp(t * u), np.exp(t * v)
        up += a
        up1 += u * a
        up2 += u * u * a
        down += b
        down1 += v * b
        down2 += v * v * b
    span = low - high
    rest = size * np.exp(t * span)
    z = up * down - rest
    first = (up1 * down + up * down1 - rest * span) / z
    second = (up2 * down + 2.0 * up1 * down1 + up * down2 - rest * span * span) / z
    return first - span, second - first * first


@kernel
def adherence_slopes(
    theta: Floats,  # (experts,)
    score: Floats,  # (I,)
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    list_expert: Indices,
    entry_item: Indices,
    won: Floats,  # (E,)
    lost: Floats,  # (E,)
    behind: Floats,  # (L,)
    pair_offsets: Offsets,
    pair_expert: Indices,
    pair_winner: Indices,
    pair_loser: Indices,
    pair_weight: Floats,
    pair_tie: Bools,
    slope: Floats,  # (experts,) added to
    curve: Floats,  # (experts,) added to
) -> None:
    """First and minus second derivative of the log likelihood in each expert's adherence, scores fixed."""
    experts = len(theta)
    observed = np.zeros(experts)
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        if size < 2:
            continue
        total = 0.0
        for i in range(size):
            total += score[base + i]
        for a in range(list_offsets[q], list_offsets[q + 1]):
            expert = list_expert[a]
            agreed = -behind[a] * total
            for e in range(entry_offsets[a], entry_offsets[a + 1]):
                agreed += (won[e] - lost[e] + behind[a]) * score[base + entry_item[e]]
                observed[expert] += won[e]
            slope[expert] += agreed
        for p in range(pair_offsets[q], pair_offsets[q + 1]):
            if not pair_tie[p]:
                expert, weight = pair_expert[p], pair_weight[p]
                slope[expert] += weight * (score[base + pair_winner[p]] - score[base + pair_loser[p]])
                observed[expert] += weight
        known = -1.0
        f, g = 0.0, 0.0
        for expert in range(experts):
            if observed[expert] == 0.0:
                continue
            if theta[expert] != known:
                known = theta[expert]
                f, g = log_partition_slopes(known, score[base : base + size])
            slope[expert] -= observed[expert] * f
            curve[expert] += observed[expert] * g
            observed[expert] = 0.0
