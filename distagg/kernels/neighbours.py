"""User-based nearest neighbours: predictions of all items for users, from a pool of other users.

Two users are as alike as their deviations from the baseline correlate over the items that both rated, shrunk where
these are few. An item's prediction is the mean deviation of the nearest users who rated it, weighted by likeness, and
drawn to the baseline where there are few of them.
Cost for each user: one pass over the pool's ratings and a sort of its users.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import Floats, Indices, Offsets


@kernel
def nearest(
    most: int,  # neighbours for each item
    shrink: float,
    damp: float,  # likeness of nobody in particular, who deviates by nothing
    entry_offsets: Offsets,  # (L + 1,) of the users to predict for
    entry_item: Indices,  # (E,)
    deviation: Floats,  # (E,)
    list_expert: Indices,  # (L,) who they are
    pool_offsets: Offsets,  # (P + 1,)
    pool_item: Indices,
    pool_deviation: Floats,
    pool_expert: Indices,  # (P,) who they are: nobody is a neighbour of itself
    out: Floats,  # (L, I) filled: predicted deviations, 0 where no neighbour rated the item
) -> None:
    n_pool, n_items = len(pool_expert), out.shape[1]
    own = np.zeros(n_items)
    rated, likeness = np.zeros(n_items, dtype=np.bool_), np.empty(n_pool)
    weight, count = np.empty(n_items), np.empty(n_items, dtype=np.int64)
    for a in range(len(entry_offsets) - 1):
        for e in range(entry_offsets[a], entry_offsets[a + 1]):
            own[entry_item[e]], rated[entry_item[e]] = deviation[e], True
        for v in range(n_pool):
            both, mine, theirs, shared = 0.0, 0.0, 0.0, 0
            if pool_expert[v] != list_expert[a]:
                for e in range(pool_offsets[v], pool_offsets[v + 1]):
                    i = pool_item[e]
                    if rated[i]:
                        d = pool_deviation[e]
                        both += own[i] * d
                        mine += own[i] * own[i]
                        theirs += d * d
                        shared += 1
            likeness[v] = 0.0
            if shared > 1 and mine > 0.0 and theirs > 0.0:
                likeness[v] = both / np.sqrt(mine * theirs) * (shared - 1) / (shared - 1 + shrink)
        order = np.argsort(-likeness)
        for i in range(n_items):
            out[a, i], weight[i], count[i] = 0.0, 0.0, 0
        for n in range(n_pool):
            v = order[n]
            like = likeness[v]
            if like <= 0.0:
                break
            for e in range(pool_offsets[v], pool_offsets[v + 1]):
                i = pool_item[e]
                if count[i] < most:
                    count[i] += 1
                    weight[i] += like
                    out[a, i] += like * pool_deviation[e]
        for i in range(n_items):
            if weight[i] > 0.0:
                out[a, i] /= weight[i] + damp
        for e in range(entry_offsets[a], entry_offsets[a + 1]):
            own[entry_item[e]], rated[entry_item[e]] = 0.0, False
