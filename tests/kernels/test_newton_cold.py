"""What pairwise fits run on before anything is compiled gives the bits of the compiled kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distagg.kernels import jit, newton_cold
from distagg.kernels.counts import count_squares
from distagg.kernels.graph import count_strong, examine
from distagg.kernels.links import LOGIT, PROBIT, log_likelihood
from distagg.kernels.newton import GAMMA, GAUSSIAN, NONE, fit_queries


def drawn(seed: int, sizes: list[int], density: float, most: int = 4) -> tuple[np.ndarray, ...]:
    """Counts in rows of lower items: item offsets, offsets, other, ahead, behind."""
    draw = np.random.default_rng(seed)
    rows, other = [], []
    for size in sizes:
        for i in range(size):
            found = i + 1 + np.flatnonzero(draw.random(size - i - 1) < density)
            rows.append(len(found))
            other.append(found)
    edges = int(sum(rows))
    ahead, behind = (draw.integers(0, most, edges) * draw.choice([1.0, 0.5], edges) for _ in range(2))
    item_offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    item_offsets.setflags(write=False)
    offsets = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
    return item_offsets, offsets, np.concatenate([*other, []]).astype(np.int32), ahead, behind


def both(kernel: jit.Kernel, *arguments: object) -> object:
    """What the twin says, which filled or gave the same bits as the kernel."""
    first, second = (
        [a.copy() if isinstance(a, np.ndarray) and a.flags.writeable else a for a in arguments] for _ in range(2)
    )
    assert kernel.cold is not None
    found, known = kernel.cold(*first), kernel.compiled(*second)
    left = found is NotImplemented  # then nothing may be touched
    for ours, theirs in zip([*first, found], [*arguments, found] if left else [*second, known], strict=True):
        if isinstance(ours, np.ndarray):
            np.testing.assert_array_equal(ours, theirs)
    return found


sizes = st.lists(st.integers(0, 12), min_size=1, max_size=5)


@given(seed=st.integers(0, 999), sizes=sizes, density=st.sampled_from([0.1, 0.4, 1.0]), block=st.integers(1, 99))
def test_graphs(seed: int, sizes: list[int], density: float, block: int) -> None:
    graph, items = drawn(seed, sizes, density), sum(sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newton_cold, "BLOCK", block)
        check_graphs(graph, items, sizes)


def check_graphs(graph: tuple[np.ndarray, ...], items: int, sizes: list[int]) -> None:
    rooms = np.zeros(items, dtype=np.int32), np.zeros(items, dtype=np.int32), np.zeros(len(sizes), dtype=np.int64)
    both(examine, *graph, *rooms)
    both(count_strong, *graph, np.zeros(len(sizes), dtype=np.int64))


def test_a_long_path_is_one_component() -> None:
    size = 200
    offsets = np.minimum(np.arange(size + 1), size - 1)
    graph = np.array([0, size]), offsets, np.arange(1, size, dtype=np.int32), np.ones(size - 1), np.ones(size - 1)
    component, connected = np.zeros(size, dtype=np.int32), np.zeros(1, dtype=np.int64)
    newton_cold.examine(*graph, np.zeros(size, dtype=np.int32), component, connected)
    assert connected[0] == 1
    assert not component.any()
    assert newton_cold.count_strong(*graph, connected) is NotImplemented  # too many sweeps: the kernel's


@given(
    seed=st.integers(0, 999), sizes=sizes, density=st.sampled_from([0.3, 1.0]), prior=st.sampled_from([0, 1, 2]),
    steps=st.sampled_from([1, 3, 100]),
)  # fmt: skip
def test_fits(seed: int, sizes: list[int], density: float, prior: int, steps: int) -> None:
    assert (NONE, GAUSSIAN, GAMMA) == (0, newton_cold.GAUSSIAN, newton_cold.GAMMA)
    assert newton_cold.LOGIT == LOGIT
    graph, draw = drawn(seed, sizes, density), np.random.default_rng(seed)
    score, ties = draw.normal(size=sum(sizes)), np.zeros(len(sizes))
    rooms = score, np.zeros(len(sizes)), np.zeros(len(sizes), dtype=np.int64), np.zeros(len(sizes))
    both(fit_queries, LOGIT, prior, 0.3, 2.0, 1e-8, steps, *graph, ties, *rooms)
    assert both(log_likelihood, LOGIT, *graph, ties, score, np.zeros(len(sizes))) is not NotImplemented


def test_many_edges() -> None:
    graph = drawn(3, [300], 0.9, most=2)
    score, ties = np.random.default_rng(3).normal(size=300), np.zeros(1)
    rooms = score, np.zeros(1), np.zeros(1, dtype=np.int64), np.zeros(1)
    found = both(fit_queries, LOGIT, NONE, 0.0, 0.0, 1e-8, 100, *graph, ties, *rooms)
    assert found is not NotImplemented
    assert both(log_likelihood, LOGIT, *graph, ties, score, np.zeros(1)) is not NotImplemented
    assert both(count_strong, *graph, np.zeros(1, dtype=np.int64)) is not NotImplemented


def test_what_twins_leave_to_kernels() -> None:
    graph, far = drawn(1, [5], 1.0), np.array([0.0, 900.0, -5.0, 2.0, 1.0])
    rooms = np.zeros(1), np.zeros(1, dtype=np.int64), np.zeros(1)
    for link, score in ((PROBIT, np.zeros(5)), (LOGIT, far)):
        fit = fit_queries.cold(link, NONE, 0.0, 0.0, 1e-8, 9, *graph, np.zeros(1), score, *rooms)
        assert fit is NotImplemented
        assert log_likelihood.cold(link, *graph, np.zeros(1), score, np.zeros(1)) is NotImplemented


def test_a_fit_that_takes_long_is_left_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newton_cold, "WORK", 3 * newton_cold.CALLS)
    graph, score = drawn(2, [40], 1.0), np.zeros(40)
    rooms = np.zeros(1), np.zeros(1, dtype=np.int64), np.zeros(1)
    fit = fit_queries.cold(LOGIT, GAUSSIAN, 1.0, 0.0, 1e-8, 99, *graph, np.zeros(1), score, *rooms)
    assert fit is NotImplemented
    assert not score.any()


def test_many_edges_are_left_to_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newton_cold, "EDGES", 9)
    graph, rooms = drawn(2, [5], 1.0), (np.zeros(1), np.zeros(1, dtype=np.int64), np.zeros(1))
    said = [
        fit_queries.cold(LOGIT, NONE, 0.0, 0.0, 1e-8, 9, *graph, np.zeros(1), np.zeros(5), *rooms),
        log_likelihood.cold(LOGIT, *graph, np.zeros(1), np.zeros(5), np.zeros(1)),
    ]
    assert all(one is NotImplemented for one in said)


@given(seed=st.integers(0, 999), sizes=sizes, pairs=st.integers(0, 60), share=st.sampled_from([0.0, 0.5, 0.3]))
def test_counts(seed: int, sizes: list[int], pairs: int, share: float) -> None:
    draw, some = np.random.default_rng(seed), np.array([n for n in sizes if n] or [1])
    query = np.sort(draw.integers(0, len(some), pairs))
    winner, loser = (draw.integers(0, some[query]).astype(np.int32) for _ in range(2))
    item_offsets = np.concatenate([[0], np.cumsum(some)]).astype(np.int64)
    pair_offsets = np.searchsorted(query, np.arange(len(some) + 1)).astype(np.int64)
    weight, tie = draw.choice([0.0, 0.1, 0.7, 1.0], pairs), draw.random(pairs) < 0.3
    given = (item_offsets, pair_offsets, winner, loser, weight, tie)
    for array in given:
        array.setflags(write=False)
    items, room = int(some.sum()), int((some**2).sum())
    filled = (np.zeros(items + 1, np.int64), np.zeros(room, np.int32), *np.zeros((2, room)), *np.zeros((2, items)))
    arguments = share, 0, *given, 0, *filled, np.zeros(len(some))
    assert both(count_squares, *arguments) == count_squares.compiled(*arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newton_cold, "QUERIES", 1)
        assert both(count_squares, *arguments) is NotImplemented
