"""Likelihood of battles with covariates: value, gradient and blocks of the Hessian, a battle at a time.

The gap of a battle is s_winner - s_loser + x'b. With the chance p = 1 / (1 + exp(-gap)), weight w and outcome y (1 for
a win, 1/2 for a tie that counts half), the battle adds w (log(1 + exp(gap)) - y gap) to minus the log likelihood,
w (p - y) to its slope along the gap and w p (1 - p) to its curvature. Cost: K^2 for each battle of K covariates.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.types import Bools, Floats, Indices, Offsets

BLOCK = 64  # battles whose gaps are computed together
SQUARE = 1 << 22  # cells of a square of items by items that is filled, and then cut to the pairs that occur


class Battles(NamedTuple):
    """P battles with K covariates, as seen from the winner."""

    winner: Indices  # (P,)
    loser: Indices  # (P,)
    weight: Floats  # (P,)
    tie: Bools  # (P,)
    covariates: Floats  # (K, P)


class Blocks(NamedTuple):
    """Sums over battles: M items, E distinct pairs, K covariates."""

    slope: Floats  # (M + K,) the gradient of minus the log likelihood
    curve: Floats  # (E,) curvature of every distinct pair
    cross: Floats  # (M, K) items by covariates
    square: Floats  # (K, K) covariates by covariates
    value: Floats  # (1,) minus the log likelihood


@kernel
def measure_columns(battles: Battles, share: float, squares: Floats, low: Floats, high: Floats) -> float:
    """Fill the weighted sum of squares and the bounds of every column (K,); returns the weight of all battles.

    A tie that counts bounds its column on both sides.
    """
    total = 0.0
    for p in range(len(battles.winner)):
        total += (2.0 * share if battles.tie[p] else 1.0) * battles.weight[p]
    for k in range(len(squares)):
        summed, least, most = 0.0, 0.0, 0.0
        for p in range(len(battles.winner)):
            x, tie = battles.covariates[k, p], battles.tie[p]
            w = (2.0 * share if tie else 1.0) * battles.weight[p]
            if w == 0.0:
                continue
            summed += w * x * x
            least = min(least, -abs(x) if tie else x)
            most = max(most, abs(x) if tie else x)
        squares[k], low[k], high[k] = summed, least, most
    return total


@kernel
def battle_slopes(
    battles: Battles,
    share: float,  # of a tie that counts for each side: 0.5, or 0 to ignore ties
    score: Floats,  # (M,)
    coefficient: Floats,  # (K,) of scaled covariates
    scale: Floats,  # (K,)
    offsets: Offsets,  # (M + 1,) distinct pairs, by their lower item
    other: Indices,  # (E,) the higher item
    out: Blocks,  # filled
) -> None:
    """Add up the blocks of all battles."""
    winner, loser, weight, tie, covariates = battles
    size, count = len(score), len(coefficient)
    dense = size * size <= SQUARE
    cells = np.zeros(size * size if dense else 0)
    gap = np.empty(BLOCK)
    rows = np.zeros((BLOCK, count))  # scaled covariates of a block's battles
    bent = np.zeros((BLOCK, count + 1))  # the same times curvature; in the last column the slope along the gap
    square = np.zeros((count + 1, count))  # of covariates; in the last row their slope
    for first in range(0, len(winner), BLOCK):
        length = min(BLOCK, len(winner) - first)
        for b in range(length):
            gap[b] = score[winner[first + b]] - score[loser[first + b]]
        for k in range(count):
            by, scaled = coefficient[k], scale[k]
            for b in range(length):
                x = scaled * covariates[k, first + b]
                rows[b, k] = x
                gap[b] += by * x
        for b in range(length):
            w = weight[first + b]
            y = 1.0
            if tie[first + b]:
                w *= 2.0 * share
                y = 0.5
            small = math.exp(-abs(gap[b]))
            p = 1.0 / (1.0 + small) if gap[b] >= 0.0 else small / (1.0 + small)
            along = w * (p - y)
            h = w * small / ((1.0 + small) * (1.0 + small))
            out.value[0] += w * (math.log1p(small) + max(gap[b], 0.0) - y * gap[b])
            i, j = winner[first + b], loser[first + b]
            out.slope[i] += along
            out.slope[j] -= along
            low, high = min(i, j), max(i, j)
            if dense:
                cells[low * size + high] += h
            else:
                out.curve[place(offsets, other, low, high)] += h
            bent[b, count] = along
            for k in range(count):
                hx = h * rows[b, k]
                bent[b, k] = hx
                out.cross[i, k] += hx
                out.cross[j, k] -= hx
        for b in range(length, BLOCK):
            for k in range(count + 1):
                bent[b, k] = 0.0
        add_squares(rows, bent, length, square)
    out.slope[size:] += square[count]
    out.square[:] += square[:count]
    if dense:
        for i in range(size):
            for e in range(offsets[i], offsets[i + 1]):
                out.curve[e] = cells[i * size + other[e]]


@kernel
def add_squares(rows: Floats, bent: Floats, length: int, square: Floats) -> None:
    """Add bent' rows to the square (K + 1, K), four battles at a time; rows beyond ``length`` have bent = 0."""
    for b in range(0, length, 4):
        for k in range(square.shape[0]):
            c0, c1, c2, c3 = bent[b, k], bent[b + 1, k], bent[b + 2, k], bent[b + 3, k]
            for m in range(square.shape[1]):
                square[k, m] += (c0 * rows[b, m] + c1 * rows[b + 1, m]) + (c2 * rows[b + 2, m] + c3 * rows[b + 3, m])


@kernel
def place(offsets: Offsets, other: Indices, low: int, high: int) -> int:
    """The position of a pair among the distinct ones."""
    first, end = offsets[low], offsets[low + 1]
    while end - first > 1:
        middle = (first + end) // 2
        if other[middle] <= high:
            first = middle
        else:
            end = middle
    return first
