"""Multinomial Preference Model kernels (paper 000, sections 2.3 and 2.5; paper 002).

The partition function over ordered pairs factors,

    sum_{k != l} exp(t (s_k - s_l)) = (sum_k exp(t s_k)) (sum_l exp(-t s_l)) - M

so the log likelihood and its gradient cost O(M) for every distinct adherence t; the data enter only as net wins.
What is minimised for one query is the negative log likelihood for each observed preference, plus a weak Gaussian
prior that keeps scores finite where the likelihood has no maximum (an item that wins everything):

    f(s) = -sum_i n_i s_i + sum_g w_g log Z(t_g, s) + prior / 2 sum_i s_i^2

with n the net wins weighted by adherence and w the share of preferences of group g. It is convex.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import Floats, Indices, Offsets

MEMORY = 10  # curvature pairs that L-BFGS keeps


@kernel
def likelihood(
    s: Floats,  # (size,)
    net: Floats,  # (size,)
    adherence: Floats,  # (groups,)
    share: Floats,  # (groups,)
    prior: float,
    gradient: Floats,  # (size,) filled
) -> float:
    """f and its gradient."""
    size = len(s)
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
def maximise(
    net: Floats, adherence: Floats, share: Floats, prior: float, tolerance: float, steps: int, rate: float, s: Floats
) -> tuple[int, float]:
    """Fit s (size,) in place from where it stands; gives the steps taken and the largest gradient entry left.

    ``rate`` 0 is L-BFGS with backtracking; otherwise plain gradient steps of that length, as in the papers.
    """
    size = len(s)
    gradient, trial, trial_gradient, ahead = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    moves, turns = np.empty((MEMORY, size)), np.empty((MEMORY, size))
    value = likelihood(s, net, adherence, share, prior, gradient)
    held, kept, step, left = 0, 0, 0, np.inf
    while step < steps:
        left = 0.0
        for i in range(size):
            left = max(left, abs(gradient[i]))
        if left <= tolerance:
            break
        if rate > 0.0:
            for i in range(size):
                s[i] -= rate * gradient[i]
            value = likelihood(s, net, adherence, share, prior, gradient)
            step += 1
            continue
        direction(gradient, moves, turns, held, kept, ahead)
        slope = 0.0
        for i in range(size):
            slope += gradient[i] * ahead[i]
        length, better = 1.0, False
        for _ in range(40):
            for i in range(size):
                trial[i] = s[i] + length * ahead[i]
            found = likelihood(trial, net, adherence, share, prior, trial_gradient)
            if found <= value + 1e-4 * length * slope:
                better = True
                break
            length *= 0.5
        if not better:
            break  # rounding: nothing lower can be told apart
        curvature = 0.0
        row = kept % MEMORY
        for i in range(size):
            moves[row, i] = trial[i] - s[i]
            turns[row, i] = trial_gradient[i] - gradient[i]
            curvature += moves[row, i] * turns[row, i]
            s[i], gradient[i] = trial[i], trial_gradient[i]
        value = found
        if curvature > 0.0:
            kept += 1
            held = min(held + 1, MEMORY)
        step += 1
    left = 0.0
    for i in range(size):
        left = max(left, abs(gradient[i]))
    return step, left


@kernel
def fit_queries(
    theta: Floats,  # (experts,)
    prior: float,
    tolerance: float,
    steps: int,
    rate: float,
    item_offsets: Offsets,
    list_offsets: Offsets,
    entry_offsets: Offsets,
    list_expert: Indices,
    entry_item: Indices,
    won: Floats,  # (E,)
    lost: Floats,  # (E,)
    score: Floats,  # (I,) zeros, filled
    left: Floats,  # (Q,) filled: the largest gradient entry of each query
) -> None:
    """Scores of every query, given every expert's adherence."""
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        first, last = list_offsets[q], list_offsets[q + 1]
        net, adherence, share = np.zeros(size), np.zeros(last - first), np.zeros(last - first)
        groups, total = 0, 0.0
        for a in range(first, last):
            t, observed = theta[list_expert[a]], 0.0
            for e in range(entry_offsets[a], entry_offsets[a + 1]):
                net[entry_item[e]] += t * (won[e] - lost[e])
                observed += won[e]
            total += observed
            g = 0
            while g < groups and adherence[g] != t:
                g += 1
            adherence[g] = t
            share[g] += observed
            groups = max(groups, g + 1)
        left[q] = 0.0
        if total == 0.0 or size < 2:
            continue  # nothing was said: all scores stay 0
        for i in range(size):
            net[i] /= total
        for g in range(groups):
            share[g] /= total
        span = score[base : base + size]
        left[q] = maximise(net, adherence[:groups], share[:groups], prior, tolerance, steps, rate, span)[1]
