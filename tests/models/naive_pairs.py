"""Pair matrices and majority margins, pair by pair from their definitions."""

from __future__ import annotations

import math

import numpy as np
from strategies import Query


def naive_pair_matrix(ranks: list[float], function: str) -> np.ndarray:
    """Y of Volkovs & Zemel 2014, sections 2.1 and 3.2, of the items of one list."""
    size = len(ranks)
    matrix = np.zeros((size, size))
    top = max(ranks, default=1.0)
    for i in range(size):
        for j in range(size):
            if ranks[i] < ranks[j]:
                matrix[i, j] = {
                    "binary": lambda a, b: 1.0,
                    "difference": lambda a, b: b - a,
                    "normalised": lambda a, b: (b - a) / top,
                    "log": lambda a, b: (math.log(b) - math.log(a)) / math.log(top),
                }[function](ranks[i], ranks[j])
    return matrix


def naive_query_matrix(ranks: dict[int, float], size: int, function: str) -> np.ndarray:
    """The same for all items of the query; rows and columns of unlisted items are 0."""
    matrix = np.zeros((size, size))
    matrix[np.ix_(list(ranks), list(ranks))] = naive_pair_matrix(list(ranks.values()), function)
    return matrix


def naive_margins(query: Query, last: bool) -> np.ndarray:
    """Lists and raw pairs that put i over j, less those that put j over i; unlisted items stand last, or nowhere."""
    matrix = np.zeros((query.size, query.size))
    for ranks in query.lists.values():
        for i in range(query.size):
            for j in range(query.size):
                a, b = ranks.get(i, math.inf), ranks.get(j, math.inf)
                if last or (a < math.inf and b < math.inf):
                    matrix[i, j] += (a < b) - (a > b)
    for winner, loser, weight, tie in query.pairs:
        if not tie:
            matrix[winner, loser] += weight
            matrix[loser, winner] -= weight
    return matrix
