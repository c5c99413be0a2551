"""The expected metric over a fixed set of orders of a query, as in BoltzRank (Volkovs & Zemel 2009).

The orders of each query are drawn once, before training, and cover all its labelled items, where the exact expectation
takes a few items at a time. The field's probabilities are normalised over these orders. Each round costs orders x items
for a query; the orders are kept in memory.

The fixed set of orders is BoltzRank's idea. The weight of an order is that of ``crf``, and the orders are drawn in a
different way: uniformly random orders of many items are almost all poor, so each order sorts the items by strength x
label plus Gumbel noise (a draw from a Plackett-Luce distribution). The strength rises from 0 (a uniformly random order)
to ``STRONGEST`` over the orders of a query.
"""

from __future__ import annotations

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.crf.orders_kernels import Orders
from distagg.types import INDEX, NO_LABEL, OFFSET, Labels

STRONGEST = 3.0


def draw_orders(chunk: Chunk, labels: Labels, count: int, seed: int) -> Orders:
    """Draw orders for the queries whose labels (I,) differ, with values of 0. The draw does not depend on chunks."""
    strength = np.linspace(0.0, STRONGEST, count)[:, None]
    start, items, orders = [0], [np.zeros(0, OFFSET)], [np.zeros(0, INDEX)]
    for q in range(chunk.n_queries):
        rows = np.arange(chunk.item_offsets[q], chunk.item_offsets[q + 1])
        rows = rows[labels[rows] != NO_LABEL]
        if len(np.unique(labels[rows])) < 2:
            continue
        draws = np.random.default_rng(np.random.SeedSequence([seed, int(chunk.positions[q])]))
        keys = strength * labels[rows] + draws.gumbel(size=(count, len(rows)))
        items.append(rows)
        orders.append(np.argsort(-keys, axis=1, kind="stable").astype(INDEX).ravel())
        start.append(start[-1] + len(rows))
    value = np.zeros((len(start) - 1, count))
    return Orders(np.array(start, dtype=OFFSET), np.concatenate(items), np.concatenate(orders), value)
