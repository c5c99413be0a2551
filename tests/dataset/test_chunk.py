"""The chunk: selection, views, and arrays that nobody can change."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Query, build_chunk, chunks, on_chunks

from distagg.dataset import Dataset
from distagg.errors import UsageError
from distagg.types import NO_LABEL


@given(drawn=chunks(), keep=st.lists(st.booleans(), min_size=4, max_size=4))
def test_selection_equals_building_from_the_kept_queries(drawn, keep):
    made, chunk = drawn
    mask = np.array(keep[: len(made)])
    found = chunk.select(mask)
    expected = build_chunk([query for query, kept in zip(made, mask, strict=True) if kept], n_experts=5)
    for name in ("item_offsets", "labels", "list_offsets", "list_expert", "entry_offsets", "entry_item", "entry_rank"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.positions.tolist() == np.flatnonzero(mask).tolist()


def test_arrays_are_read_only():
    chunk = build_chunk([Query(2, {0: {0: 1, 1: 2}})])
    with pytest.raises(ValueError, match="read-only"):
        chunk.entry_rank[0] = 5.0


def test_unknown_labels_are_marked():
    chunk = build_chunk([Query(3, labels=[2, None, 0])])
    assert chunk.labels.tolist() == [2, NO_LABEL, 0]
    assert chunk.has_labels
    assert not build_chunk([Query(2)]).has_labels


@on_chunks()
def test_matrix_and_tensor_views(drawn):
    """R of the papers, and the binary Y for each expert, from the flat arrays."""
    made, chunk = drawn
    for q, query in enumerate(made):
        ranks = chunk.rank_matrix(q).toarray()
        tensor = chunk.pair_tensor(q).todense()
        assert ranks.shape == (query.size, 5)
        for expert in range(5):
            said = query.lists.get(expert, {})
            assert {i: r for i, r in enumerate(ranks[:, expert]) if r} == said
            for i in range(query.size):
                for j in range(query.size):
                    wins = i in said and j in said and said[i] < said[j]
                    assert tensor[i, j, expert] == wins


def test_entry_rows_point_into_the_whole_chunk():
    chunk = build_chunk([Query(2, {0: {1: 1}}), Query(3, {0: {0: 1}, 1: {2: 1, 1: 2}})])
    assert chunk.entry_row().tolist() == [1, 2, 4, 3]
    assert chunk.item_query().tolist() == [0, 0, 1, 1, 1]


@given(drawn=chunks(), gone=st.sets(st.integers(0, 4)))
def test_without_experts_equals_building_from_the_others(drawn, gone):
    made, chunk = drawn
    found = chunk.without(gone)
    kept = [replace(query, lists={e: r for e, r in query.lists.items() if e not in gone}) for query in made]
    expected = build_chunk(kept, n_experts=5)
    for name in ("item_offsets", "labels", "list_offsets", "list_expert", "entry_offsets", "entry_item", "entry_rank"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_without_experts_their_pairs_are_gone():
    table = pa.table({"expert": ["a", "b", "a"], "winner": ["x", "y", "y"], "loser": ["y", "x", "z"]})
    dataset = Dataset.from_arrow(table).select(without=["b"])
    (chunk,) = dataset.chunks()
    assert (chunk.n_pairs, chunk.pair_offsets.tolist(), chunk.n_items) == (2, [0, 2], 3)
    with pytest.raises(UsageError, match="unknown expert 'c'"):
        dataset.select(without=["c"])
