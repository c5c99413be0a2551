"""Sums of products of experts' points: by loops, because the last bits of BLAS depend on its threads."""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats, Offsets


@kernel
def level_moments(
    of_items: Floats,  # (items, experts) points
    level: Offsets,  # (items,) from 0; items below 0 do not count
    first: Floats,  # (levels, experts) sums of points, added to
    second: Floats,  # (levels, experts, experts) sums of their products, added to
) -> None:
    """Sums over the items of each level. Most points are 0, and cost nothing in the products."""
    size, experts = of_items.shape
    some = np.empty(experts, dtype=np.int64)
    for i in range(size):
        if level[i] < 0:
            continue
        count = 0
        for e in range(experts):
            if of_items[i, e] != 0.0:
                some[count] = e
                count += 1
                first[level[i], e] += of_items[i, e]
        for a in range(count):
            for b in range(count):
                second[level[i], some[a], some[b]] += of_items[i, some[a]] * of_items[i, some[b]]


@kernel
def similar_gaps(of_items: Floats, total: Floats) -> None:  # (items, experts), (experts, experts) added to
    """Mean over pairs of items of the products of gaps in points, times the similarity of the two items.

    The similarity of i and j is exp(-d_ij / (2 mean d)), d the squared distance of their points.
    """
    size, experts = of_items.shape
    distance, mean = np.zeros((size, size)), 0.0
    for i in range(size):
        for j in range(i):
            for e in range(experts):
                gap = of_items[i, e] - of_items[j, e]
                distance[i, j] += gap * gap
            mean += 2.0 * distance[i, j] / size**2
    gaps = np.zeros((size, experts))  # the Laplacian of the similarities times the points
    for i in range(size):
        for j in range(i):
            similarity = np.exp(-0.5 * distance[i, j] / mean) if mean > 0.0 else 1.0
            for e in range(experts):
                gap = similarity * (of_items[i, e] - of_items[j, e])
                gaps[i, e] += gap
                gaps[j, e] -= gap
    for i in range(size):
        for e in range(experts):
            if of_items[i, e] != 0.0:
                for f in range(experts):
                    total[e, f] += 2.0 * of_items[i, e] * gaps[i, f] / size**2
