"""Kernels that complete ratings: nearest neighbours among users, and one half of alternating least squares.

Neighbours: the likeness of two users is the correlation of their deviations from the baseline over the items that both
rated, shrunk where these are few. An item's prediction is the mean deviation of the nearest users who rated it,
weighted by likeness, and drawn to the baseline where there are few of them. Cost for each user: one pass over the
pool's ratings and a sort of its users.

Least squares: a rating is mean + c_u + b_i + u . v_i. With the items' b and v held, a user's (c, u) is a ridge
regression on its own ratings; with users held, an item's (b, v) is one whose sums add up over chunks.
Cost: O(entries x factors^2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.optimise.linear import cholesky, solve_factored
from distagg.types import Bools, Floats, Indices, Offsets


class Ratings(NamedTuple):
    """The ratings of U users, as deviations from their baselines."""

    offsets: Offsets  # (U + 1,)
    item: Indices  # (N,)
    deviation: Floats  # (N,)
    expert: Indices  # (U,) who they are


@kernel
def nearest(
    most: int,  # neighbours for each item
    shrink: float,
    damp: float,  # the weight of a deviation of 0, which draws predictions to the baseline
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
    """The likeness of one user to every user of the pool; 0 for the user itself."""
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


@kernel
def fit_users(
    mean: float,
    ridge: Floats,  # (1 + d,)
    entry_offsets: Offsets,  # (L + 1,)
    entry_item: Indices,  # (E,)
    rating: Floats,  # (E,)
    item: Floats,  # (I, 1 + d): b, v
    user: Floats,  # (L, 1 + d) filled: c, u
) -> None:
    """Every user's offset and factors, given those of the items."""
    size = item.shape[1]
    matrix, right = np.empty((size, size)), np.empty(size)
    for a in range(len(entry_offsets) - 1):
        first, last = entry_offsets[a], entry_offsets[a + 1]
        for i in range(size):
            right[i] = 0.0
            for j in range(size):
                matrix[i, j] = 0.0
            matrix[i, i] = ridge[i]
        for e in range(first, last):
            i = entry_item[e]
            left = rating[e] - mean - item[i, 0]
            matrix[0, 0] += 1.0
            right[0] += left
            for j in range(1, size):
                right[j] += left * item[i, j]
                matrix[j, 0] += item[i, j]
                for k in range(1, j + 1):
                    matrix[j, k] += item[i, j] * item[i, k]
        cholesky(matrix)
        solve_factored(matrix, right)
        for j in range(size):
            user[a, j] = right[j]


@kernel
def item_sums(
    mean: float,
    entry_offsets: Offsets,  # (L + 1,)
    entry_item: Indices,  # (E,)
    rating: Floats,  # (E,)
    user: Floats,  # (L, 1 + d)
    item: Floats,  # (I, 1 + d)
    matrix: Floats,  # (I, 1 + d, 1 + d) filled, lower triangles: sums of x x' with x = (1, u)
    right: Floats,  # (I, 1 + d) filled: sums of x times what is left
) -> float:
    """Sums over users for the regressions of items; returns the squared error before items are updated."""
    size, squared = item.shape[1], 0.0
    for a in range(len(entry_offsets) - 1):
        for e in range(entry_offsets[a], entry_offsets[a + 1]):
            i = entry_item[e]
            left = rating[e] - mean - user[a, 0]
            error = left - item[i, 0]
            matrix[i, 0, 0] += 1.0
            right[i, 0] += left
            for j in range(1, size):
                error -= user[a, j] * item[i, j]
                right[i, j] += left * user[a, j]
                matrix[i, j, 0] += user[a, j]
                for k in range(1, j + 1):
                    matrix[i, j, k] += user[a, j] * user[a, k]
            squared += error * error
    return squared


@kernel
def predict_all(mean: float, user: Floats, item: Floats, out: Floats) -> None:  # (L, 1 + d), (1 + d, I), (L, I)
    """Every user's predicted rating of every item. BLAS is not used: its last bits depend on the number of threads."""
    for a in range(len(user)):
        for i in range(item.shape[1]):
            out[a, i] = mean + user[a, 0] + item[0, i]
        for j in range(1, len(item)):
            u = user[a, j]
            for i in range(item.shape[1]):
                out[a, i] += u * item[j, i]


@kernel
def fit_items(ridge: Floats, matrix: Floats, right: Floats) -> None:
    """Every item's offset and factors from the sums, into ``right``."""
    size = right.shape[1]
    for i in range(len(right)):
        for j in range(size):
            matrix[i, j, j] += ridge[j]
        cholesky(matrix[i])
        solve_factored(matrix[i], right[i])
