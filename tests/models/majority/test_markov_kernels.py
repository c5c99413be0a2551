"""Markov chain kernels against dense transition matrices and their eigenvectors."""

import numpy as np
import pytest
from naive_pairs import naive_margins
from strategies import Query, on_chunks

from distagg.models.majority.kernels import list_walks, majority_walks
from distagg.models.pairs import list_arrays, pair_arrays
from distagg.models.weights import NO_WEIGHTS

TELEPORT = 0.1


def naive_transitions(kind: int, query: Query) -> np.ndarray:
    """Row i: where the walk goes from item i, without teleport (Dwork et al. 2001, section 5.1)."""
    size = query.size
    matrix = np.zeros((size, size))
    margins = naive_margins(query, True)
    for i in range(size):
        lists = [ranks for ranks in query.lists.values() if i in ranks]
        if kind == 4:
            for j in range(size):
                if margins[j, i] > 0:
                    matrix[i, j] += 1 / size
            matrix[i, i] += 1 - matrix[i].sum()
        elif not lists:
            matrix[i, i] = 1.0
        elif kind == 1:
            better = [j for ranks in lists for j, rank in ranks.items() if rank <= ranks[i]]
            for j in better:
                matrix[i, j] += 1 / len(better)
        else:
            for ranks in lists:
                better = [j for j, rank in ranks.items() if rank <= ranks[i]]
                for j, rank in ranks.items():
                    if kind == 2 and j in better:
                        matrix[i, j] += 1 / (len(lists) * len(better))
                    if kind == 3:
                        to = j if rank < ranks[i] else i
                        matrix[i, to] += 1 / (len(lists) * len(ranks))
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0)
    return matrix


def stationary(matrix: np.ndarray) -> np.ndarray:
    size = len(matrix)
    full = (1 - TELEPORT) * matrix + TELEPORT / size
    system = np.vstack([full.T - np.eye(size), np.ones(size)])
    return np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0]


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@on_chunks()
def test_walks_reach_the_stationary_distribution(kind, drawn):
    made, chunk = drawn
    if kind == 4:
        scores, unfinished = majority_walks(
            TELEPORT, 1e-13, 5000, True, NO_WEIGHTS, list_arrays(chunk), pair_arrays(chunk)
        )
    else:
        scores, unfinished = list_walks(kind, TELEPORT, 1e-13, 5000, NO_WEIGHTS, list_arrays(chunk))
    assert unfinished == 0
    for q, query in enumerate(made):
        found = scores[chunk.item_offsets[q] : chunk.item_offsets[q + 1]]
        np.testing.assert_allclose(found, stationary(naive_transitions(kind, query)), atol=1e-9)


def test_a_walk_that_is_cut_short_says_so():
    from strategies import build_chunk

    chunk = build_chunk([Query(3, {0: {0: 1, 1: 2, 2: 3}})])
    assert list_walks(1, TELEPORT, 1e-13, 2, NO_WEIGHTS, list_arrays(chunk))[1] == 1
