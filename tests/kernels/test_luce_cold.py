"""What Plackett-Luce runs on before anything is compiled gives the bits of the compiled kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distagg.kernels import jit, luce_cold, luce_fit, mpm, plackett_luce
from distagg.kernels.luce_fit import climb
from distagg.kernels.luce_graph import examine, reach
from distagg.kernels.plackett_luce import Choices, count_choices


def drawn(seed: int, sizes: list[int], lists: int, spread: float = 1.0) -> tuple[Choices, np.ndarray]:
    """Lists of some of the items of every query, drawn from strengths, and item offsets."""
    draw = np.random.default_rng(seed)
    held: list[np.ndarray] = []
    query = [0]
    for size in sizes:
        truth = draw.normal(scale=spread, size=size)
        for _ in range(lists if size > 1 else 0):
            order = np.argsort(-(truth + draw.gumbel(size=size)))
            held.append(order[np.sort(draw.permutation(size)[: draw.integers(2, size + 1)])])
        query.append(len(held))
    start = np.concatenate([[0], np.cumsum([len(one) for one in held])]).astype(np.int64)
    item = np.concatenate([*held, []]).astype(np.int32)
    behind = np.concatenate([*(1 + np.arange(len(one)) for one in held), []]).astype(np.int32)
    weight = draw.choice([1.0, 1.0, 0.7], len(held))
    choices = Choices(np.array(query), start, item, behind, weight, np.zeros(len(held), dtype=np.bool_))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    offsets.setflags(write=False)
    return choices, offsets


def both(kernel: jit.Kernel, cold, *arguments: object) -> object:
    """What the twin says, which filled the same bits as the kernel, or touched nothing."""
    first, second = ([a.copy() if type(a) is np.ndarray else a for a in arguments] for _ in range(2))
    for a, b, given_ in zip(first, second, arguments, strict=True):
        if type(given_) is np.ndarray and not given_.flags.writeable:
            a.setflags(write=False)
            b.setflags(write=False)
    found = cold(*first)
    kernel.compiled(*second)
    for ours, theirs in zip(first, arguments if found is NotImplemented else second, strict=True):
        if type(ours) is np.ndarray:
            np.testing.assert_array_equal(ours, theirs)
    return found


def fitted(choices: Choices, offsets: np.ndarray, shape: float, steps: int = 200) -> object:
    wins, number = count_choices(choices, offsets)
    theta, ended, trace = np.zeros(int(offsets[-1])), np.zeros((len(number), 3)), np.full((len(number), 5), np.nan)
    return both(climb, luce_cold.climb, choices, offsets, wins, number, shape, 1e-11, steps, theta, ended, trace)


@given(
    seed=st.integers(0, 999), sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4), lists=st.integers(1, 12),
    shape=st.sampled_from([0.0, 1.0, 0.3]), steps=st.sampled_from([1, 3, 200]),
)  # fmt: skip
def test_fits_and_what_is_reached(seed: int, sizes: list[int], lists: int, shape: float, steps: int) -> None:
    choices, offsets = drawn(seed, sizes, lists)
    component = examine(choices, offsets, count_choices(choices, offsets)[0])[1]
    for forward in (False, True):
        said = both(reach, luce_cold.reach, forward, choices, offsets, component, np.ones(sum(sizes), dtype=np.bool_))
        assert said is not NotImplemented
    fitted(choices, offsets, shape, steps)


def test_constants_are_the_kernels() -> None:
    known = mpm.MEMORY, luce_fit.SEARCHES, luce_fit.KEPT, plackett_luce.LEAST
    assert known == (luce_cold.MEMORY, luce_cold.SEARCHES, luce_cold.KEPT, luce_cold.LEAST)


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_long_lists(spread: float) -> None:
    choices, offsets = drawn(4, [200], 60, spread)  # their products go below LEAST
    assert fitted(choices, offsets, 1.0) is not NotImplemented


def test_what_twins_leave_to_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    choices, offsets = drawn(4, [6], 20)
    opened = choices._replace(opened=np.ones(20, dtype=np.bool_))
    assert luce_cold.reach(True, opened, offsets, np.zeros(6, dtype=np.int32), np.ones(6, dtype=np.bool_)) is (
        NotImplemented
    )
    assert fitted(opened, offsets, 1.0) is NotImplemented
    tied = choices.behind.copy()
    tied[0] = 2
    assert fitted(choices._replace(behind=tied), offsets, 1.0) is NotImplemented
    assert fitted(choices, offsets, 1.0) is not NotImplemented
    monkeypatch.setattr(luce_cold, "WORK", 3 * luce_cold.CALLS)
    assert fitted(choices, offsets, 1.0) is NotImplemented
