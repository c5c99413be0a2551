"""Fixed points of walks over pair counts: a step costs O(distinct pairs)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats, Indices, Offsets


class Moves(NamedTuple):
    """How weight moves between the items of every query. Pairs stand in the rows of their lower items.

    A step sends x to y with y_i = (sum over pairs of rate x_j + background (sum of the other x) + constant) / out_i.
    """

    item_offsets: Offsets  # (Q + 1,)
    offsets: Offsets  # (I + 1,)
    other: Indices  # (E,)
    up: Floats  # (E,) rate from the other item to the row's item
    down: Floats  # (E,) and back
    out: Floats  # (I,) 0 where an item keeps what it has
    background: Floats  # (Q,)
    constant: float  # 0 where only the ratios of x are determined


@kernel
def step(moves: Moves, q: int, x: Floats, y: Floats) -> None:
    """One step of query q, from x to y (size,)."""
    base, size = moves.item_offsets[q], len(x)
    total = 0.0
    for i in range(size):
        total += x[i]
    for i in range(size):
        y[i] = moves.background[q] * (total - x[i]) + moves.constant
    for i in range(size):
        for e in range(moves.offsets[base + i], moves.offsets[base + i + 1]):
            j = moves.other[e]
            y[i] += moves.up[e] * x[j]
            y[j] += moves.down[e] * x[i]
    for i in range(size):
        y[i] = y[i] / moves.out[base + i] if moves.out[base + i] > 0.0 else x[i]


@kernel
def scaled(x: Floats) -> float:
    """Divide x by its sum, in place; returns that sum, and leaves x alone where it is 0."""
    total = 0.0
    for i in range(len(x)):
        total += x[i]
    if total > 0.0:
        for i in range(len(x)):
            x[i] /= total
    return total


@kernel
def walk_queries(
    moves: Moves,
    tolerance: float,
    steps: int,
    taken: Offsets,  # (Q,) filled: steps taken
    left: Floats,  # (Q,) filled: change of the last step, as a share of the sum
) -> Floats:  # (I,) sums to 1 in every query
    """Walk every query to its fixed point.

    Without a constant only half a step is taken, or weight could go to and fro between two halves of the items for
    ever.
    """
    result = np.empty(moves.item_offsets[-1])
    for q in range(len(moves.item_offsets) - 1):
        base, end = moves.item_offsets[q], moves.item_offsets[q + 1]
        size = end - base
        x, y = np.full(size, 1.0 / max(size, 1)), np.empty(size)
        left[q], taken[q] = np.inf if size > 0 else 0.0, 0
        while left[q] > tolerance and taken[q] < steps:
            step(moves, q, x, y)
            keep, total = 0.0, 1.0
            if moves.constant == 0.0:
                keep = 0.5
                if scaled(y) == 0.0:  # nothing moves
                    left[q] = 0.0
                    break
            change = 0.0
            for i in range(size):
                value = keep * x[i] + (1.0 - keep) * y[i]
                change += abs(value - x[i])
                x[i] = value
            if moves.constant != 0.0:
                total = 0.0
                for i in range(size):
                    total += x[i]
            left[q] = change / total
            taken[q] += 1
        scaled(x)
        for i in range(size):
            result[base + i] = x[i]
    return result
