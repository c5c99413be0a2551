"""The supervised Markov chain: its slopes by finite differences, planted experts, and mc2 as its start."""

from dataclasses import replace

import numpy as np
import pytest
from strategies import Query, build_chunk, drawn_chunks

from distagg.dataset.chunk import Chunk
from distagg.models.majority.kernels import list_reach
from distagg.models.majority.model import Mc2
from distagg.models.majority.supervised import SupervisedChain
from distagg.models.majority.supervised_kernels import Walk, climb_chain, expected_next
from distagg.models.pairs import list_arrays
from distagg.types import NO_LABEL

WALK = Walk(0.2, 1e-14, 10_000)


def objective(chunk: Chunk, log_weight: np.ndarray) -> tuple[float, np.ndarray]:
    slope = np.zeros(chunk.n_experts)
    order = np.arange(chunk.n_queries, dtype=np.int32)
    arrays = chunk.list_expert, list_arrays(chunk), chunk.grades()
    value, _ = climb_chain(WALK, 0.0, order, *arrays, log_weight.copy(), slope)
    return value, slope


def naive_chain(chunk: Chunk, q: int, weight: np.ndarray) -> np.ndarray:
    """Row i: where the walk goes from item i of query q, without teleport; experts have weights."""
    ranks = chunk.rank_matrix(q).toarray()  # 0 where an expert leaves an item out
    matrix, held = np.zeros((len(ranks), len(ranks))), ranks > 0
    for i in range(len(ranks)):
        for e in np.flatnonzero(held[i]):
            better = held[:, e] & (ranks[:, e] <= ranks[i, e])
            matrix[i, better] += weight[e] / weight[held[i]].sum() / better.sum()
        matrix[i, i] += not held[i].any()
    return matrix


def naive_objective(chunk: Chunk, weight: np.ndarray) -> float:
    """From dense matrices of every query."""
    total = 0.0
    for q in range(chunk.n_queries):
        matrix, labels = (
            naive_chain(chunk, q, weight),
            chunk.grades()[chunk.item_offsets[q] : chunk.item_offsets[q + 1]],
        )
        size = len(matrix)
        full = (1 - WALK.teleport) * matrix + WALK.teleport / size
        system = np.vstack([full.T - np.eye(size), np.ones(size)])
        score = size * np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0]
        gaps = [score[i] - score[j] for i in range(size) for j in range(size) if labels[i] > labels[j] >= 0]
        total -= np.mean(np.log1p(np.exp(-np.array(gaps)))) if gaps else 0.0
    return total


def labelled_chunks() -> list[Chunk]:
    draw, chunks = np.random.default_rng(3), []
    for made, _ in drawn_chunks(100):
        queries = [Query(q.size, q.lists, draw.integers(0, 3, q.size).tolist()) for q in made]
        chunks.append(build_chunk(queries, n_experts=5))
    return chunks


def test_objective_and_slopes_are_those_of_dense_matrices():
    draw, told = np.random.default_rng(4), 0
    for chunk in labelled_chunks():
        log_weight = draw.normal(size=5)
        value, slope = objective(chunk, log_weight)
        assert value == pytest.approx(naive_objective(chunk, np.exp(log_weight)), abs=1e-9)
        for e in range(5):
            step = np.eye(5)[e] * 1e-6
            numeric = (objective(chunk, log_weight + step)[0] - objective(chunk, log_weight - step)[0]) / 2e-6
            assert slope[e] == pytest.approx(numeric, abs=1e-7)
        told += bool(np.abs(slope).max() > 1e-4)
    assert told > 10


def test_expected_next_is_the_matrix_times_the_vector():
    draw = np.random.default_rng(5)
    for made, chunk in drawn_chunks(20):
        lists, weight = list_arrays(chunk), np.ones(chunk.n_lists)
        for q, query in enumerate(made):
            v = draw.normal(size=query.size)
            holders, _ = list_reach(q, weight, lists)
            after = expected_next(v, holders, q, weight, lists, np.empty(query.size))
            np.testing.assert_allclose(after, naive_chain(chunk, q, np.ones(5)) @ v, atol=1e-12)


def planted(queries: int, seed: int) -> Chunk:
    """Experts 0 and 1 see the labels through little noise, 2 and 3 through much, 4 orders at random."""
    draw, made = np.random.default_rng(seed), []
    for _ in range(queries):
        labels = draw.integers(0, 3, 12)
        orders = [np.argsort(-(labels + noise * draw.normal(size=12))) for noise in (0.3, 0.3, 2.0, 2.0, 100.0)]
        lists = {e: {int(item): place + 1.0 for place, item in enumerate(order)} for e, order in enumerate(orders)}
        made.append(Query(12, lists, labels.tolist()))
    return build_chunk(made, n_experts=5)


@pytest.mark.parametrize("mode", ["gradient", "average"])
def test_good_experts_gain_weight_and_the_order_gets_better(mode):
    model, train, test = SupervisedChain(mode=mode, rounds=40), planted(40, 1), planted(200, 2)
    state = model.first(5, 2.0)
    before = objective(test, state.weights["expert_log_weight"])[0]
    while not state.done:
        state = state.finish(state.map(train))
    learned = state.weights["expert_log_weight"]
    assert learned[:2].min() > learned[2:4].max() > learned[4]
    assert objective(test, learned)[0] > before + 10.0


def test_without_training_it_is_mc2():
    for _, chunk in drawn_chunks(10):
        model = SupervisedChain()
        assert model.score(chunk, model.start(5)).tobytes() == Mc2().score(chunk, {}).tobytes()


def test_large_queries_teach_by_their_labelled_items_and_their_pool() -> None:
    draws = np.random.default_rng(1)
    lists = {e: {int(i): n + 1.0 for n, i in enumerate(draws.permutation(40)[:30])} for e in range(5)}
    labels = np.where(np.arange(40) < 12, np.arange(40) % 3, NO_LABEL).astype(np.int32)
    chunk = replace(build_chunk([Query(40, lists)], n_experts=5), labels=labels)

    def slope(chunk: Chunk, pool: int) -> np.ndarray:
        model = SupervisedChain(pool=pool)
        return model.slope(chunk, model.first(5, 2.0))[0]["expert_log_weight"]

    assert slope(chunk, 0).tobytes() == slope(chunk, 40).tobytes()
    points = np.bincount(chunk.entry_item, 1.0 / (60.0 + chunk.entry_rank), 40)
    kept = np.isin(np.arange(40), np.argsort(-points, kind="stable")[:8]) | (labels != NO_LABEL)
    assert slope(chunk, 8).tobytes() == slope(chunk.keep_items(kept), 0).tobytes()
    assert slope(chunk, 8).tobytes() != slope(chunk, 0).tobytes()
