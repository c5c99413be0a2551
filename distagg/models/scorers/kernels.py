"""The scoring function of items on feature rows, linear or with hidden layers, and its gradient. Cost: O(entries)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.types import NO_LABEL, Floats, Indices, Labels, Offsets


class Rows(NamedTuple):
    """Feature rows of a chunk, query after query."""

    item_offsets: Offsets  # (Q + 1,) items of each query
    offsets: Offsets  # (Q + 1,) rows of each query
    item: Indices  # (N,) position of the item in its query
    expert: Indices  # (N,)
    values: Floats  # (N, width)


class Net(NamedTuple):
    """What is learned: D layers of as many units each. A linear function is one layer of one unit, with output 1."""

    weight: Floats  # (experts, width, units)
    bias: Floats  # (D, units)
    inner: Floats  # (D - 1, units, units), from a layer's units to the next one's
    output: Floats  # (units,)


@kernel
def label_range(labels: Labels) -> tuple[float, float]:
    """The lowest and the highest known label; inf and -inf where all are unknown."""
    low, high = np.inf, -np.inf
    for i in range(len(labels)):
        if labels[i] != NO_LABEL:
            low, high = min(low, labels[i] * 1.0), max(high, labels[i] * 1.0)
    return low, high


@kernel
def unit_state(rows: Rows, net: Net) -> Floats:
    """An array (D + 1, longest query or units, units) for ``forward`` to fill: what units give, layer by layer.

    Its last layer is for ``backward`` to work in.
    """
    depth, units = net.bias.shape
    longest = units
    for q in range(len(rows.offsets) - 1):
        longest = max(longest, rows.item_offsets[q + 1] - rows.item_offsets[q])
    return np.empty((depth + 1, longest, units))


@kernel
def forward(q: int, hidden: bool, rows: Rows, net: Net, state: Floats, score: Floats) -> None:
    """Fill ``score`` (I,) for the items of query q, and ``state`` (see ``unit_state``).

    Without ``hidden`` there is one unit, and its input is the score.
    """
    first, size = rows.item_offsets[q], rows.item_offsets[q + 1] - rows.item_offsets[q]
    depth, units = net.bias.shape
    for i in range(size):
        for h in range(units):
            state[0, i, h] = net.bias[0, h]
    for n in range(rows.offsets[q], rows.offsets[q + 1]):
        i, x = rows.item[n], rows.expert[n]
        for f in range(rows.values.shape[1]):
            for h in range(units):
                state[0, i, h] += net.weight[x, f, h] * rows.values[n, f]
    for i in range(size):
        for d in range(depth):
            for h in range(units):
                if d > 0:
                    state[d, i, h] = net.bias[d, h]
                    for g in range(units):
                        state[d, i, h] += net.inner[d - 1, g, h] * state[d - 1, i, g]
                if hidden:
                    state[d, i, h] = np.tanh(state[d, i, h])
        total = 0.0
        for h in range(units):
            total += net.output[h] * state[depth - 1, i, h]
        score[first + i] = total


@kernel
def score_rows(hidden: bool, rows: Rows, net: Net, score: Floats) -> None:
    """Fill ``score`` (I,) for the items of all queries."""
    state = unit_state(rows, net)
    for q in range(len(rows.offsets) - 1):
        forward(q, hidden, rows, net, state, score)


@kernel
def backward(q: int, hidden: bool, step: float, rows: Rows, net: Net, force: Floats, state: Floats, new: Net) -> None:
    """Add ``step`` times the gradient to ``new``, which may be ``net``.

    It takes the gradient of the items' scores (``force``) and the state that ``forward`` left; layer by layer from the
    last, what a unit gave is replaced by the gradient of its input.
    """
    begin, size = rows.item_offsets[q], rows.item_offsets[q + 1] - rows.item_offsets[q]
    depth, units = net.bias.shape
    for h in range(units):
        up = 0.0
        for i in range(size):
            unit, push = state[depth - 1, i, h], step * force[begin + i]
            state[depth - 1, i, h] = push * net.output[h] * (1.0 - unit * unit) if hidden else push
            up += push * unit
        if hidden:
            new.output[h] += up
    for d in range(depth - 1, 0, -1):
        slope = state[depth]  # of the weights between two layers, which are still needed
        slope[:units] = 0.0
        for i in range(size):
            for g in range(units):
                unit, back = state[d - 1, i, g], 0.0
                for h in range(units):
                    slope[g, h] += unit * state[d, i, h]
                    back += net.inner[d - 1, g, h] * state[d, i, h]
                state[d - 1, i, g] = back * (1.0 - unit * unit)
        for g in range(units):
            for h in range(units):
                new.inner[d - 1, g, h] += slope[g, h]
    if hidden:
        for d in range(depth):
            for i in range(size):
                for h in range(units):
                    new.bias[d, h] += state[d, i, h]
    for n in range(rows.offsets[q], rows.offsets[q + 1]):
        i, x = rows.item[n], rows.expert[n]
        for f in range(rows.values.shape[1]):
            for h in range(units):
                new.weight[x, f, h] += state[0, i, h] * rows.values[n, f]
