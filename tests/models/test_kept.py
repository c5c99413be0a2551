"""What is made of chunks is kept within a budget: one model's chunks stay, other models make way."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import Query, build_chunk

from distagg.models import rounds as module
from distagg.models.rounds import kept


def test_other_keys_make_way_and_the_first_of_one_key_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 200)
    monkeypatch.setattr(module, "_kept", type(module._kept)())
    chunks, made = [build_chunk([Query(1, {})], n_experts=1) for _ in range(3)], []

    def make(name: str, size: int):
        return lambda chunk: made.append(name) or {"array": np.zeros(size, dtype=np.int8)}

    for _ in range(2):
        for chunk in chunks:
            kept(chunk, "one", make("one", 80))
    assert made == ["one"] * 4  # the third finds no room, and is made again
    made.clear()
    for _ in range(3):
        for chunk in chunks[:2]:
            kept(chunk, "two", make("two", 90))
    assert made == ["two"] * 2  # both have room, where the other model's were
    kept(chunks[0], "one", make("one", 80))
    assert made[2:] == ["one"]
    del chunk
    chunks.clear()  # what was made goes with its chunk
    assert not module._kept
