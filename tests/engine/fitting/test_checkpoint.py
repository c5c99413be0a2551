"""Checkpoints: when they are saved, how many are kept, and that a resumed fit has the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distagg.dataset import Dataset
from distagg.engine.fitting.checkpoint import KEPT, Checkpoints, packed, unpacked
from distagg.engine.fitting.fit import fit
from distagg.models import Model, Params, model_named


def state(number: int) -> Params:
    return {"weights": np.array([[number, -np.inf], [0.1, np.pi]]), "empty": np.zeros(0), "scalar": np.array(2.0)}


def test_every_so_many_rounds_or_seconds(tmp_path: Path) -> None:
    now = [0.0]
    keeper = Checkpoints(tmp_path / "c", rounds=3, seconds=10.0, clock=lambda: now[0])
    assert keeper.load() is None
    saved = []
    for number in range(1, 9):
        now[0] += 6.0 if number > 6 else 0.1
        keeper.offer(number, state(number))
        saved.append(keeper.saved)
    assert saved == [0, 0, 3, 3, 3, 6, 6, 8]  # after 3 rounds, and after 10 seconds
    assert len(list((tmp_path / "c").iterdir())) == KEPT


def test_what_comes_back_is_what_was_saved(tmp_path: Path) -> None:
    keeper = Checkpoints(tmp_path, rounds=100, seconds=1e9)
    keeper.load()
    keeper.offer(5, state(5))
    assert list(tmp_path.iterdir()) == []
    keeper.flush()
    found = Checkpoints(tmp_path).load()
    assert found is not None
    for name, array in state(5).items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].shape == array.shape


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_one_is_said_and_the_one_before_taken(damage: str, tmp_path: Path) -> None:
    keeper = Checkpoints(tmp_path, rounds=1)
    keeper.load()
    for number in range(1, 4):
        keeper.offer(number, state(number))
    newest = sorted(tmp_path.iterdir())[-1]
    body = bytearray(newest.read_bytes())
    body[len(body) // 2] ^= 4
    newest.write_bytes({"flip": body, "cut": body[:40], "empty": b""}[damage])
    said: list[tuple[str, Any]] = []
    found = Checkpoints(tmp_path, say=lambda event, **about: said.append((event, about["round"]))).load()
    assert found is not None
    assert found["weights"][0, 0] == 2
    assert said == [("checkpoint damaged", 3), ("checkpoint resumed", 2)]


def test_groups() -> None:
    both = packed(params=state(1), best=state(2))
    assert unpacked(both, "best")["weights"][0, 0] == 2
    assert unpacked(both, "params").keys() == state(1).keys()


class Stopping(Checkpoints):
    """Training is told to stop after some round."""

    def offer(self, number: int, state: Params) -> None:
        super().offer(number, state)
        if number == 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "model",
    [
        *(model_named("crf", {"mode": mode, "rounds": 6, "sample": 3}) for mode in ("serial", "average", "gradient")),
        *(
            model_named("crf", {"keep": keep, "rounds": rounds, "sample": 3})
            for keep, rounds in (("last", 6), ("mean", 4))
        ),
        model_named("theta_mpm", {"pairs": "difference", "unlisted": "ignore"}),
        model_named("cps", {"theta": "learn", "distance": "footrule"}),
        model_named("cranking", {"sweeps": 1, "tolerance": 0.05}),
    ],
    ids=lambda model: f"{model.name} {getattr(model, 'mode', '')} {getattr(model, 'keep', '')}",
)
def test_stopped_and_resumed_training_has_the_same_bits(model: Model, planted: Path, tmp_path: Path) -> None:
    dataset = Dataset.open(planted)
    expected = fit(model, dataset)
    with pytest.raises(KeyboardInterrupt):
        fit(model, dataset, keeper=Stopping(tmp_path, rounds=100, seconds=1e9))
    said: list[tuple[str, Any]] = []
    keeper = Checkpoints(tmp_path, say=lambda event, **about: said.append((event, about["round"])))
    found = fit(model, dataset, keeper=keeper)
    assert said[0] == ("checkpoint resumed", 3)  # saved when it was told to stop
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
