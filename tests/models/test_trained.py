"""The state of training: what a round makes of it, and what a checkpoint keeps."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import Query, build_chunk

from distagg.dataset.chunk import Chunk
from distagg.models.crf.model import Crf
from distagg.models.scorers.scorer import LambdaRank
from distagg.models.trained import MODES, Trained, TrainingState

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


def test_a_round_without_any_gradient_keeps_the_weights() -> None:
    alike = build_chunk([Query(3, {0: {0: 1.0, 1: 2.0}}, [1, 1, 1])])
    state = Crf(mode="average").first(1, 1.0)
    moved = state.finish(state.map(alike))
    assert moved.round == 1
    np.testing.assert_array_equal(moved.weights["expert_weights"], state.weights["expert_weights"])
