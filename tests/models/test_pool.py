"""Large queries: the pool is ranked by the model, the rest follows by reciprocal ranks."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import Query, build_chunk

from distagg.dataset.chunk import Chunk
from distagg.models import MODELS, model_named
from distagg.models.pool import Pool, Pooled

POOLED = [name for name, model in MODELS.items() if issubclass(model, Pooled) and not model().needs_labels]


def drawn(size: int, seed: int = 0) -> Chunk:
    """A small query and one of ``size`` items, four lists of 10 each."""
    rng = np.random.default_rng(seed)
    queries = [Query(5, {0: {0: 1.0, 3: 2.0}, 1: {3: 1.0}})]
    lists = {e: {int(i): n + 1.0 for n, i in enumerate(rng.permutation(size)[:10])} for e in range(4)}
    return build_chunk([*queries, Query(size, lists)], n_experts=4)


def reciprocal(chunk: Chunk) -> np.ndarray:
    return np.bincount(chunk.entry_row(), 1.0 / (60.0 + chunk.entry_rank), chunk.n_items)


@pytest.mark.parametrize("name", POOLED)
def test_the_pool_comes_first_and_the_rest_follows_by_reciprocal_ranks(name: str) -> None:
    chunk = drawn(30)
    score = model_named(name, {"pool": 8}).score(chunk, {})
    start = reciprocal(chunk)
    large = np.arange(5, 35)
    order = large[np.argsort(-score[large], kind="stable")]
    by_start = large[np.argsort(-start[large], kind="stable")]
    assert set(order[:8]) == set(by_start[:8])
    assert order[8:].tolist() == by_start[8:].tolist()
    kept = np.zeros(35, dtype=bool)
    kept[[0, 1, 2, 3, 4, *by_start[:8]]] = True
    alone = model_named(name, {"pool": 0}).score(chunk.keep_items(kept), {})
    np.testing.assert_array_equal(score[kept], alone)


@pytest.mark.parametrize("name", POOLED)
def test_queries_that_are_not_larger_than_the_pool_are_untouched(name: str) -> None:
    chunk = drawn(30)
    np.testing.assert_array_equal(
        model_named(name, {"pool": 30}).score(chunk, {}), model_named(name, {"pool": 0}).score(chunk, {})
    )


def test_columns_of_items_outside_of_the_pool_say_nothing() -> None:
    outcome = model_named("bradley_terry", {"pool": 8, "errors": "standard"}).solve(drawn(30), {})
    assert len(outcome.score) == len(outcome.items["uncertainty"]) == 35
    assert np.isnan(outcome.items["uncertainty"]).sum() == 22


def test_ratings_and_pairs_are_taken_whole() -> None:
    ratings = build_chunk([Query(6, {0: {i: -float(i) for i in range(6)}})])
    pairs = build_chunk([Query(6, pairs=[(0, 5, 1.0, False)])])
    for chunk in (ratings, pairs):
        assert Pool(chunk, 3).chunk is chunk


def test_kept_items_keep_their_ranks_and_ids() -> None:
    chunk = drawn(12, seed=3)
    kept = np.arange(17) % 2 == 0
    cut = chunk.keep_items(kept)
    assert cut.item_offsets.tolist() == [0, 3, 9]
    old = {(row, rank) for row, rank in zip(chunk.entry_row(), chunk.entry_rank, strict=True) if kept[row]}
    assert {
        (int(np.flatnonzero(kept)[row]), rank) for row, rank in zip(cut.entry_row(), cut.entry_rank, strict=True)
    } == old
    assert cut.item_ids.to_pylist() == [
        name for name, keep in zip(chunk.item_ids.to_pylist(), kept, strict=True) if keep
    ]
