"""The state of training: what a round makes of it, and what a checkpoint keeps."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from strategies import Query, build_chunk

from distagg.dataset.chunk import Chunk
from distagg.models.crf.model import Crf
from distagg.models.scorers.scorer import LambdaRank
from distagg.models.trained import MODES, MOST_ADDED, QUERIES_ADDED, Trained, TrainingState, share_added

MODELS = (Crf(sharing="mixed", rounds=6), LambdaRank(hidden=2, layers=2, rounds=6))


@pytest.fixture
def chunk() -> Chunk:
    lists = {0: {0: 1.0, 1: 2.0, 2: 3.0}, 1: {2: 1.0, 3: 2.0}}
    return build_chunk([Query(4, lists, [2, 0, 1, 0]), Query(4, lists, [0, 1, 0, 2])])


def after(model: Trained, chunk: Chunk, rounds: int) -> TrainingState:
    state = model.first(chunk.n_experts, 2.0)
    for _ in range(rounds):
        state = state.finish(state.sent().map(chunk))
    return state


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_training_goes_on_from_a_checkpoint_with_the_same_bits(model: Trained, mode: str, chunk: Chunk) -> None:
    model = type(model)(**{**vars(model), "mode": mode})
    half = after(model, chunk, 3)
    resumed = model.first(chunk.n_experts, 7.0).resumed(half.state())
    assert (resumed.round, resumed.highest) == (3, 2.0)
    for state in (half, resumed):
        for _ in range(3):
            state = state.finish(state.sent().map(chunk))
        assert state.done
        for name, value in after(model, chunk, 6).state().items():
            np.testing.assert_array_equal(state.state()[name], value)


def test_the_names_in_a_checkpoint(chunk: Chunk) -> None:
    """Checkpoints outlive the program that wrote them, so these names stay."""
    state = after(Crf(mode="gradient"), chunk, 1)
    names = {"expert_weights", "mean of expert_weights", "square of expert_weights", "highest", "round"}
    assert state.state().keys() == names
    assert state.params.keys() == {"expert_weights", "highest"}


def test_adam_is_kingma_and_bas(chunk: Chunk) -> None:
    """Two steps, written out for one weight at a time."""
    model = Crf(mode="gradient", rate=0.5)
    share, first, second, floor = model.adam
    state, mean, square = model.first(chunk.n_experts, 2.0), 0.0, 0.0
    for step in (1, 2):
        slope, count = model.slope(chunk, state)
        gradient = slope["expert_weights"] / count
        mean, square = first * mean + (1 - first) * gradient, second * square + (1 - second) * gradient**2
        move = share * 0.5 * (mean / (1 - first**step)) / (np.sqrt(square / (1 - second**step)) + floor)
        moved = state.finish(state.map(chunk))
        np.testing.assert_allclose(moved.weights["expert_weights"] - state.weights["expert_weights"], move, rtol=1e-9)
        assert np.abs(move).max() > 0.01
        state = moved


def queries(count: int) -> list[Query]:
    lists = {0: {0: 1.0, 1: 2.0, 2: 3.0}, 1: {2: 1.0, 3: 2.0}}
    return [Query(4, lists, [2, n % 2, 1, 0]) for n in range(count)]


@pytest.mark.parametrize("chunks", [2, MOST_ADDED, 2 * MOST_ADDED])
def test_steps_of_few_chunks_are_added_up(chunks: int) -> None:
    """The sum, written out: every chunk starts from the same weights, and each adds the step that it makes."""
    whole = build_chunk(queries(2 * chunks))
    pieces = [whole.select(np.arange(2 * chunks) // 2 == n) for n in range(chunks)]
    model = Crf(mode="sum", sample=3)
    state = after(model, pieces[0], 1)
    before = state.weights["expert_weights"]
    steps = [model.learn(piece, state)[0]["expert_weights"] - before for piece in pieces]
    statistics = reduce(state.reduce, [state.sent().map(piece) for piece in pieces])
    moved = state.finish(statistics).weights["expert_weights"] - before
    np.testing.assert_allclose(moved, sum(steps) * min(1.0, MOST_ADDED / chunks), rtol=1e-9)
    assert np.abs(moved).max() > np.abs(np.mean(steps, axis=0)).max() > 0.0


def test_steps_of_many_queries_are_averaged() -> None:
    assert share_added(QUERIES_ADDED, 2) == 1.0
    assert share_added(4 * QUERIES_ADDED, 2) == 1 / 2
    assert share_added(1.5 * QUERIES_ADDED, 3) == pytest.approx(2 / 3)
    shares = [chunks * share_added(queries, chunks) for queries in (1, 500, 10**4, 10**9) for chunks in (1, 3, 10**5)]
    assert all(1.0 <= share <= MOST_ADDED for share in shares)


@pytest.mark.parametrize("mode", ["average", "sum"])
def test_a_round_without_any_gradient_keeps_the_weights(mode: str) -> None:
    alike = build_chunk([Query(3, {0: {0: 1.0, 1: 2.0}}, [1, 1, 1])])
    state = Crf(mode=mode).first(1, 1.0)
    moved = state.finish(state.map(alike))
    assert moved.round == 1
    np.testing.assert_array_equal(moved.weights["expert_weights"], state.weights["expert_weights"])
