"""Small dense linear algebra in a fixed order of operations: the same bits everywhere, and no threads of a library.

LAPACK's threads fight over the cores when many small matrices come one by one.
"""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats, Offsets

MOST_ROWS = 2_000  # beyond, LAPACK is much faster; its last bits may depend on the number of its threads


@kernel
def dot(x: Floats, y: Floats) -> float:
    """The inner product."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@kernel
def copy_to(target: Floats | Offsets, source: Floats | Offsets) -> None:
    """Copy as many numbers as ``source`` has to the beginning of ``target``.

    numba compiles ``target[:] = source`` together with code that words an error about shapes: 3 to 5 seconds more.
    """
    for i in range(len(source)):
        target[i] = source[i]


@kernel
def cholesky(matrix: Floats) -> None:
    """The Cholesky factor of a symmetric positive definite matrix (size, size), into its lower triangle."""
    for i in range(len(matrix)):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = np.sqrt(total) if i == j else total / matrix[j, j]


@kernel
def solve_factored(lower: Floats, right: Floats) -> None:
    """Solve with a matrix given by its Cholesky factor (size, size); ``right`` (size,) becomes the solution."""
    size = len(right)
    for i in range(size):
        total = right[i]
        for k in range(i):
            total -= lower[i, k] * right[k]
        right[i] = total / lower[i, i]
    for i in range(size - 1, -1, -1):
        total = right[i]
        for k in range(i + 1, size):
            total -= lower[k, i] * right[k]
        right[i] = total / lower[i, i]


@kernel
def invert(matrix: Floats) -> None:
    """A symmetric positive definite matrix (size, size) turned into its inverse, by sweeps (Gauss-Jordan)."""
    size = len(matrix)
    for k in range(size):
        pivot = 1.0 / matrix[k, k]
        for j in range(size):
            matrix[k, j] *= pivot
        matrix[k, k] = pivot
        for i in range(size):
            if i != k:
                factor = matrix[i, k]
                matrix[i, k] = 0.0
                for j in range(size):
                    matrix[i, j] -= factor * matrix[k, j]


def solved(matrix: Floats, right: Floats) -> Floats:
    """The solution of a symmetric positive definite system (size, size), (size,); arguments stay as they are."""
    if len(matrix) > MOST_ROWS:
        return np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)
    lower, solution = matrix.copy(), right.copy()
    cholesky(lower)
    solve_factored(lower, solution)
    return solution


def inverse(matrix: Floats) -> Floats:
    """The inverse of a symmetric positive definite matrix (size, size), which stays as it is."""
    if len(matrix) > MOST_ROWS:
        return np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    result = matrix.copy()
    invert(result)
    return result
