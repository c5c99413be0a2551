"""The scoring function of items on feature rows, linear or with hidden units, and its gradient. Cost: O(entries)."""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import Floats, Indices, Offsets


@kernel
def forward(
    q: int, hidden: bool, item_offsets: Offsets, offsets: Offsets, item: Indices, expert: Indices, values: Floats,
    weight: Floats, bias: Floats, output: Floats, state: Floats, score: Floats,
) -> None:  # fmt: skip
    """Fill ``score`` (I,) for the items of query q, and ``state`` (longest query, units) with what the units give.

    Without ``hidden`` there is one unit, and its input is the score.
    """
    first, size, units, width = item_offsets[q], item_offsets[q + 1] - item_offsets[q], len(bias), values.shape[1]
    for i in range(size):
        for h in range(units):
            state[i, h] = bias[h]
    for n in range(offsets[q], offsets[q + 1]):
        i, x = item[n], expert[n]
        for f in range(width):
            for h in range(units):
                state[i, h] += weight[x, f, h] * values[n, f]
    for i in range(size):
        total = 0.0
        for h in range(units):
            if hidden:
                state[i, h] = np.tanh(state[i, h])
            total += output[h] * state[i, h]
        score[first + i] = total


@kernel
def score_rows(
    hidden: bool, item_offsets: Offsets, offsets: Offsets, item: Indices, expert: Indices, values: Floats,
    weight: Floats, bias: Floats, output: Floats, state: Floats, score: Floats,
) -> None:  # fmt: skip
    """Scores of all queries."""
    for q in range(len(offsets) - 1):
        forward(q, hidden, item_offsets, offsets, item, expert, values, weight, bias, output, state, score)


@kernel
def backward(
    q: int, hidden: bool, step: float, item_offsets: Offsets, offsets: Offsets, item: Indices, expert: Indices,
    values: Floats, output: Floats, force: Floats, state: Floats, new_weight: Floats, new_bias: Floats,
    new_output: Floats,
) -> None:  # fmt: skip
    """Add ``step`` times the gradient, given that of the items' scores (``force``) and the state that forward left."""
    begin, end, units, width = item_offsets[q], item_offsets[q + 1], len(output), values.shape[1]
    for h in range(units):
        up, along = 0.0, 0.0
        for i in range(end - begin):
            unit, push = state[i, h], step * force[begin + i]
            state[i, h] = push
            if hidden:
                state[i, h] = push * output[h] * (1.0 - unit * unit)
                up += push * unit
                along += state[i, h]
        new_output[h] += up
        new_bias[h] += along
    for n in range(offsets[q], offsets[q + 1]):
        i, x = item[n], expert[n]
        for f in range(width):
            for h in range(units):
                new_weight[x, f, h] += state[i, h] * values[n, f]
