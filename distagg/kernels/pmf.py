"""One half of alternating least squares: every user's best factors, and what they say about the items.

A rating is mean + c_u + b_i + u . v_i. With the items' b and v held, a user's (c, u) is a ridge regression on its own
ratings; with users held, an item's (b, v) is one whose sums add up over chunks. Cost: O(entries x factors^2).
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import Floats, Indices, Offsets


@kernel
def solve_ridge(matrix: Floats, right: Floats) -> None:
    """Cholesky in place of a symmetric positive definite matrix (d, d); ``right`` (d,) becomes the solution."""
    size = len(right)
    for i in range(size):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = np.sqrt(total) if i == j else total / matrix[j, j]
    for i in range(size):
        for k in range(i):
            right[i] -= matrix[i, k] * right[k]
        right[i] /= matrix[i, i]
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            right[i] -= matrix[k, i] * right[k]
        right[i] /= matrix[i, i]


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
    """Every user's offset and factors at the present items."""
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
        solve_ridge(matrix, right)
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
    """What users say about items; gives the squared error before items move."""
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
    """Every user's rating of every item. Not BLAS: its threads would decide the last bits."""
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
        solve_ridge(matrix[i], right[i])
