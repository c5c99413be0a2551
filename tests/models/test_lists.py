"""Linear list kernels against twins written from the definitions."""

import math

import numpy as np
import pytest
from naive_pairs import naive_pair_matrix
from strategies import Query, build_chunk, on_chunks

from distagg.models.lists import PAIR_FUNCTIONS, median_ranks, mid_positions, sum_by_item
from distagg.models.pairs import list_sums


@pytest.mark.parametrize("left_out", [0, 1, 3])
@pytest.mark.parametrize("function", PAIR_FUNCTIONS)
@on_chunks()
def test_pair_sums_are_the_row_and_column_sums(function, left_out, drawn):
    """Items left out are one more tie group, one place behind the last."""
    made, chunk = drawn
    out = np.full(chunk.n_lists, left_out)
    won, lost, behind = list_sums(chunk, out, PAIR_FUNCTIONS[function])
    at = 0
    lists = [sorted(ranks.values()) for query in made for _, ranks in sorted(query.lists.items())]
    for a, values in enumerate(lists):
        matrix = naive_pair_matrix(values + [values[-1] + 1.0] * left_out, function)
        size = len(values)
        np.testing.assert_allclose(won[at : at + size], matrix.sum(axis=1)[:size], atol=1e-9)
        np.testing.assert_allclose(lost[at : at + size], matrix.sum(axis=0)[:size], atol=1e-9)
        np.testing.assert_allclose(np.repeat(behind[a], left_out), matrix.sum(axis=0)[size:], atol=1e-9)
        at += size
    assert at == len(won)


def test_pair_sums_of_the_papers_example():
    """Volkovs & Zemel 2014, figure 1: ranks 1, 2, 3 give x1 wins 1 and 2; ranks 30, 20, 1 give x3 wins 29 and 19."""
    chunk = build_chunk([Query(3, {0: {0: 1, 1: 2, 2: 3}, 1: {0: 30, 1: 20, 2: 1}})])
    nobody = np.zeros(2, dtype=np.int64)
    won, lost, _ = list_sums(chunk, nobody, PAIR_FUNCTIONS["difference"])
    assert won.tolist() == [3, 1, 0, 48, 10, 0]
    assert lost.tolist() == [0, 1, 3, 0, 19, 39]


@on_chunks()
def test_mid_positions_share_tied_places(drawn):
    made, chunk = drawn
    found = mid_positions(chunk.entry_offsets, chunk.entry_rank)
    expected = [
        sum(other < rank for other in ranks.values()) + (sum(other == rank for other in ranks.values()) + 1) / 2
        for query in made
        for _, ranks in sorted(query.lists.items())
        for rank in sorted(ranks.values())
    ]
    np.testing.assert_array_equal(found, expected)


@on_chunks()
def test_sum_by_item_adds_every_mention(drawn):
    made, chunk = drawn
    found = sum_by_item(chunk.entry_row(), chunk.entry_rank, chunk.n_items)
    expected = [sum(r.get(i, 0.0) for r in query.lists.values()) for query in made for i in range(query.size)]
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("last", [True, False])
@on_chunks()
def test_median_ranks(last, drawn):
    made, chunk = drawn
    arrays = (chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.entry_item, chunk.entry_rank)
    expected = []
    for query in made:
        for i in range(query.size):
            ranks = [r.get(i, math.inf) for r in query.lists.values()]
            kept = ranks if last else [r for r in ranks if r < math.inf]
            expected.append(float(np.median(kept)) if kept else math.inf)
    median, held = median_ranks(*arrays, last)
    np.testing.assert_array_equal(median, expected)
    assert held.tolist() == [sum(i in r for r in query.lists.values()) for query in made for i in range(query.size)]
