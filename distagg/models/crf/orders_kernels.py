"""The expected metric over a fixed set of orders, and its gradient in the weights of the field."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.crf.kernels import CASCADE, HITS, Potentials, add_potentials, item_score
from distagg.types import Floats, Indices, Offsets


class Orders(NamedTuple):
    """Orders of the labelled items of N queries, R of each."""

    start: Offsets  # (N + 1,) where the items of each query start
    item: Offsets  # (items,) rows of the chunk
    order: Indices  # (items x R,) for each query R rows of positions among its items, best first
    value: Floats  # (N, R) the metric of each order


@kernel
def fill_values(
    kind: int,  # of the metric's state
    gains: Floats,  # (items,)
    shares: Floats,  # (items,) discounts of positions, query after query, divided by the query's normaliser
    orders: Orders,
) -> None:
    """The metric of every order: the sum over positions of gain x discount x the state left by the items before."""
    count = orders.value.shape[1]
    for n in range(len(orders.value)):
        first, size = orders.start[n], orders.start[n + 1] - orders.start[n]
        for r in range(count):
            state, total = 1.0, 0.0
            for p in range(size):
                gain = gains[first + orders.order[first * count + r * size + p]]
                total += gain * shares[first + p] * state
                if kind == HITS:
                    state += gain
                elif kind == CASCADE:
                    state *= 1.0 - gain
            orders.value[n, r] = total


@kernel
def climb_orders(
    rate: float,
    sequence: Offsets,  # queries among those of the orders, in the order in which they are learned from
    orders: Orders,
    place: Floats,  # (longest,) weights of positions
    potentials: Potentials,
    weights: Floats,  # (rows, F)
    into: Floats,  # (rows, F) added to: ``weights`` itself for SGD, another array for the gradient
    means: Floats,  # (N,) filled in: the expected metric of each query
) -> None:
    """For each query in turn, take a gradient step of length ``rate`` that raises its expected metric."""
    count, longest = orders.value.shape[1], len(place)
    score, slope, chance = np.empty(longest), np.empty(longest), np.empty(count)
    for n in sequence:
        first, size = orders.start[n], orders.start[n + 1] - orders.start[n]
        for k in range(size):
            score[k], slope[k] = item_score(potentials, orders.item[first + k], weights), 0.0
        total, mean = 0.0, 0.0
        for r in range(count):
            chance[r] = 0.0
            for p in range(size):
                chance[r] += score[orders.order[first * count + r * size + p]] * place[p]
        top = chance.max()
        for r in range(count):
            chance[r] = np.exp(chance[r] - top)
            total += chance[r]
            mean += chance[r] * orders.value[n, r]
        mean /= total
        for r in range(count):
            push = chance[r] / total * (orders.value[n, r] - mean)
            for p in range(size):
                slope[orders.order[first * count + r * size + p]] += push * place[p]
        means[n] = mean
        for k in range(size):
            add_potentials(potentials, orders.item[first + k], rate * slope[k], into)
