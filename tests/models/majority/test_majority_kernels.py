"""Majority kernels against twins that look at every pair of items in every list."""

import functools
import itertools

import numpy as np
import pytest
from naive_pairs import naive_margins
from strategies import Query, build_chunk, on_chunks

from distagg.models.majority.kernels import chunk_margins, copeland_chunk, sort_chunk
from distagg.models.pairs import list_arrays, pair_arrays
from distagg.models.weights import NO_WEIGHTS
from distagg.rankings.ordering import order_items


def arrays(chunk, last):
    return last, NO_WEIGHTS, list_arrays(chunk), pair_arrays(chunk)


@pytest.mark.parametrize("last", [True, False])
@on_chunks()
def test_margins_and_copeland(last, drawn):
    made, chunk = drawn
    scores = copeland_chunk(*arrays(chunk, last))
    for q, query in enumerate(made):
        expected = naive_margins(query, last)
        np.testing.assert_array_equal(chunk_margins(q, *arrays(chunk, last)), expected)
        span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
        np.testing.assert_array_equal(scores[span], np.sign(expected).sum(axis=1))


def test_pairs_count_with_their_weight_and_ties_do_not():
    chunk = build_chunk([Query(3, {0: {0: 1, 1: 2}}, pairs=[(1, 0, 2.5, False), (2, 1, 1.0, True)])])
    assert chunk_margins(0, *arrays(chunk, False)).tolist() == [[0, -1.5, 0], [1.5, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("last", [True, False])
@on_chunks()
def test_where_majorities_are_transitive_sorting_finds_their_order(last, drawn):
    made, chunk = drawn
    start = order_items(chunk.item_offsets, np.zeros(chunk.n_items))
    for local in (False, True):
        scores = sort_chunk(local, start, *arrays(chunk, last))
        for q, query in enumerate(made):
            matrix = naive_margins(query, last)
            found = np.argsort(-scores[chunk.item_offsets[q] : chunk.item_offsets[q + 1]], kind="stable")
            assert sorted(found) == list(range(query.size))
            if local:  # locally Kemeny-optimal: no neighbour would win by changing places
                assert all(matrix[a, b] >= 0 for a, b in itertools.pairwise(found))
            elif _strict_order(matrix):
                compare = functools.cmp_to_key(lambda a, b, m=matrix: -int(m[a, b]))
                assert found.tolist() == sorted(range(query.size), key=compare)


def _strict_order(matrix: np.ndarray) -> bool:
    """Whether majorities form a strict linear order: wins 0, 1, ..., M - 1."""
    return sorted((matrix > 0).sum(axis=1)) == list(range(len(matrix)))
