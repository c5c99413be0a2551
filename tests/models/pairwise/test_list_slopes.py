"""Bradley-Terry straight from lists: against a loop over pairs, and against finite differences."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distagg.models.lists import BINARY, DIFFERENCE
from distagg.models.pairwise.kernels import ComparedLists, list_slopes

LISTS = st.lists(st.dictionaries(st.integers(0, 5), st.integers(1, 5), max_size=6), min_size=1, max_size=5)


def flat(lists: list[dict[int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
    entries = [entry for one in lists for entry in sorted(one.items(), key=lambda e: e[1])]
    item = np.array([i for i, _ in entries], dtype=np.int32)
    value = np.array([float(v) for _, v in entries])
    for array in (offsets, item, value):
        array.setflags(write=False)
    return offsets, item, value


def naive(lists: list[dict[int, int]], score: np.ndarray, function: int, share: float, scale: np.ndarray) -> float:
    total = 0.0
    for weight, one in zip(scale, lists, strict=True):
        for (i, a), (j, b) in combinations(one.items(), 2):
            if a > b:
                i, j, a, b = j, i, b, a
            ahead, behind = (-np.log1p(np.exp(-gap)) for gap in (score[i] - score[j], score[j] - score[i]))
            if a == b:
                total += share * (ahead + behind) if function == BINARY else 0.0
            else:
                total += ahead if function == BINARY else weight * (b - a) * ahead
    return total


def slopes(lists: list[dict[int, int]], score: np.ndarray, function: int, share: float, scale: np.ndarray):
    return list_slopes(ComparedLists(function == BINARY, share, *flat(lists), scale), score, True)


@pytest.mark.parametrize(("function", "share"), [(BINARY, 0.5), (BINARY, 0.0), (DIFFERENCE, 0.5)])
@settings(max_examples=40)
@given(lists=LISTS, seed=st.integers(0, 99))
def test_value_gradient_and_curvature(function: int, share: float, lists: list[dict[int, int]], seed: int) -> None:
    draw = np.random.default_rng(seed)
    score, scale = 2 * draw.standard_normal(6), draw.random(len(lists)) + 0.5
    value, slope, curve = slopes(lists, score, function, share, scale)
    assert value == pytest.approx(naive(lists, score, function, share, scale), abs=1e-9)
    step = 1e-5
    for i in range(6):
        up, down = score.copy(), score.copy()
        up[i], down[i] = up[i] + step, down[i] - step
        high, low = (naive(lists, s, function, share, scale) for s in (up, down))
        assert slope[i] == pytest.approx((high - low) / (2 * step), abs=1e-6)
        bent = [slopes(lists, s, function, share, scale)[1][i] for s in (up, down)]
        assert curve[i] == pytest.approx((bent[1] - bent[0]) / (2 * step), abs=1e-6)
