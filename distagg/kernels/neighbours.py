"""User-based nearest neighbours: predictions of all items for users, from a pool of other users.

Two users are as alike as their deviations from the baseline correlate over the items that both rated, shrunk where
these are few. An item's prediction is the mean deviation of the nearest users who rated it, weighted by likeness, and
drawn to the baseline where there are few of them.
Cost for each user: one pass over the pool's ratings and a sort of its users.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import Bools, Floats, Indices, Offsets


class Ratings(NamedTuple):
    """What U users' ratings deviate from their baselines by."""

    offsets: Offsets  # (U + 1,)
    item: Indices  # (N,)
    deviation: Floats  # (N,)
    expert: Indices  # (U,) who they are


@kernel
def nearest(
    most: int,  # neighbours for each item
    shrink: float,
    damp: float,  # likeness of nobody in particular, who deviates by nothing
    users: Ratings,  # to predict for
    pool: Ratings,
    n_items: int,
) -> Floats:  # (users, items)
    """Predicted deviations, 0 where no neighbour rated the item."""
    predicted = np.empty((len(users.expert), n_items))
    for a in range(len(users.expert)):
        own, rated = by_item(users, a, n_items)
        likeness = alike(own, rated, users.expert[a], shrink, pool)
        predict_user(most, damp, likeness, pool, predicted[a])
    return predicted


@kernel
def by_item(users: Ratings, a: int, n_items: int) -> tuple[Floats, Bools]:  # (items,), (items,)
    """The deviation of user a for every item, and whether the user rated it."""
    own, rated = np.zeros(n_items), np.zeros(n_items, dtype=np.bool_)
    for e in range(users.offsets[a], users.offsets[a + 1]):
        own[users.item[e]], rated[users.item[e]] = users.deviation[e], True
    return own, rated


@kernel
def alike(own: Floats, rated: Bools, expert: int, shrink: float, pool: Ratings) -> Floats:  # (users of the pool,)
    """How alike everybody in the pool is to one user; nobody is alike to itself."""
    offsets, item, deviation, _ = pool
    likeness = np.zeros(len(pool.expert))
    for v in range(len(likeness)):
        if pool.expert[v] == expert:
            continue
        both, mine, theirs, shared = 0.0, 0.0, 0.0, 0
        for e in range(offsets[v], offsets[v + 1]):
            i = item[e]
            if rated[i]:
                both += own[i] * deviation[e]
                mine += own[i] * own[i]
                theirs += deviation[e] * deviation[e]
                shared += 1
        if shared > 1 and mine > 0.0 and theirs > 0.0:
            likeness[v] = both / np.sqrt(mine * theirs) * (shared - 1) / (shared - 1 + shrink)
    return likeness


@kernel
def predict_user(most: int, damp: float, likeness: Floats, pool: Ratings, predicted: Floats) -> None:
    """Fill ``predicted`` (items,) with the mean deviations of the nearest users who rated each item."""
    weight, count = np.zeros(len(predicted)), np.zeros(len(predicted), dtype=np.int64)
    predicted[:] = 0.0
    for v in np.argsort(-likeness):
        like = likeness[v]
        if like <= 0.0:
            break
        for e in range(pool.offsets[v], pool.offsets[v + 1]):
            i = pool.item[e]
            if count[i] < most:
                count[i] += 1
                weight[i] += like
                predicted[i] += like * pool.deviation[e]
    for i in range(len(predicted)):
        if weight[i] > 0.0:
            predicted[i] /= weight[i] + damp
