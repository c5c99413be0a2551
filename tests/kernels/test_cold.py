"""What runs before anything is compiled gives the bits of the compiled kernels, and small jobs need no numba."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import chunks

from distagg.kernels import cold, jit
from distagg.kernels.crf import draw_samples
from distagg.kernels.lists import (
    BINARY,
    PAIR_FUNCTIONS,
    borda_points,
    mid_positions,
    pair_sums,
    pair_values,
    reciprocal_sums,
    sum_by_item,
)  # fmt: skip
from distagg.kernels.metric import precision_at_hits, stop_probability, sums_at_cutoffs
from distagg.kernels.ordering import read_only, sort_spans
from distagg.kernels.potentials import index_by_item, score_lists
from distagg.types import NO_LABEL


def same(kernel: jit.Kernel, *arguments: object) -> None:
    """The twin and the kernel fill, or give, the same bits."""
    given = [[a.copy() if isinstance(a, np.ndarray) and a.flags.writeable else a for a in arguments] for _ in range(2)]
    assert kernel.cold is not None
    found = kernel.cold(*given[0]), kernel.compiled(*given[1])
    for ours, theirs in [*zip(*given, strict=True), found]:
        np.testing.assert_array_equal(ours, theirs)


@given(drawn=chunks(), seed=st.integers(0, 99))
def test_walks_along_lists(drawn, seed: int) -> None:
    chunk, draw = drawn[1], np.random.default_rng(seed)
    shape = (chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.entry_item)
    same(sum_by_item, *shape, read_only(draw.normal(size=chunk.n_entries)))
    same(reciprocal_sums, draw.random(), *shape, chunk.entry_rank, draw.normal(size=chunk.n_items))
    same(mid_positions, chunk.entry_offsets, chunk.entry_rank)
    for average in (False, True):
        room = draw.normal(size=chunk.n_items), draw.normal(size=chunk.n_items), draw.normal(size=chunk.n_queries)
        same(borda_points, average, *shape, chunk.entry_rank, *room)


@given(drawn=chunks(), seed=st.integers(0, 99), scale=st.sampled_from([1.0, 0.37, 1e5]))
def test_pairs_of_lists(drawn, seed: int, scale: float) -> None:
    chunk, draw = drawn[1], np.random.default_rng(seed)
    shape = (chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.entry_item)
    rank, out = read_only(chunk.entry_rank * scale), draw.integers(0, 3, chunk.n_lists)
    for function in PAIR_FUNCTIONS.values():
        lists = (chunk.entry_offsets, rank)
        same(_each(pair_values), *lists, out, function)
        value, outside = pair_values.compiled(*lists, out, function)
        same(_each(pair_sums), *lists, value, outside, out, function == BINARY)
    indices = [np.zeros(n, dtype=np.int64) for n in (chunk.n_items + 1, chunk.n_entries, chunk.n_entries)]
    same(index_by_item, *shape, *indices)
    row, score = draw.integers(0, 4, chunk.n_lists), draw.normal(size=chunk.n_items)
    for functions in ([0], [3], [0, 1, 2, 3]):
        weights = draw.normal(size=(4, 2 + 2 * len(functions)))
        for reciprocal in (0.0, 10.0):
            same(_scores, np.array(functions), reciprocal, *shape, rank, row, weights, score)


@given(
    labels=st.lists(st.lists(st.sampled_from([NO_LABEL, -2, 0, 1, 2, 7]), max_size=30), max_size=6),
    most=st.integers(2, 8),
    seed=st.integers(0, 99),
)
def test_samples(labels: list[list[int]], most: int, seed: int) -> None:
    sizes = [len(one) for one in labels]
    offsets = read_only(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))
    flat = np.array([label for one in labels for label in one], dtype=np.int32)
    keys, room = np.random.default_rng(seed).random(len(flat)), np.zeros((len(sizes), most), dtype=np.int64)
    same(_samples, offsets, flat, keys, room, np.zeros(len(sizes), dtype=np.int64))


@given(sizes=st.lists(st.integers(0, 150), max_size=5), seed=st.integers(0, 99))
def test_sorting_and_walks_down_a_ranking(sizes: list[int], seed: int) -> None:
    draw, offsets = np.random.default_rng(seed), read_only(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))
    count, longest = int(offsets[-1]), max(sizes, default=0)
    key = draw.choice([-np.inf, -1.0, -0.0, 0.0, 0.5, np.inf, *draw.normal(size=4)], count)
    order, spare = np.zeros(count, dtype=np.int32), np.zeros(longest, dtype=np.int32)
    same(_without_buffers, offsets, key, order, np.zeros(longest), spare)
    cutoffs = np.array([1, 3, 10, 2**62])
    same(sums_at_cutoffs, offsets, draw.normal(size=count), draw.random(longest), cutoffs, np.zeros((len(sizes), 4)))
    same(precision_at_hits, offsets, draw.integers(0, 2, count).astype(float), np.zeros(count))
    same(stop_probability, offsets, draw.random(count), np.zeros(count))


class _Through:
    """A kernel called through a function: with room to work in, whose contents afterwards are nobody's business."""

    def __init__(self, kernel: jit.Kernel, call) -> None:
        self.kernel, self.call = kernel, call

    def cold(self, *arguments):
        return self.call(self.kernel.cold, *arguments)

    def compiled(self, *arguments):
        return self.call(self.kernel.compiled, *arguments)


def _each(kernel: jit.Kernel) -> _Through:
    """One array of all that a kernel gives."""
    return _Through(kernel, lambda function, *arguments: np.concatenate(function(*arguments)))


def _scoring(function, functions, *arguments) -> None:
    *before, score = arguments
    room = np.zeros((len(functions), max(len(arguments[5]), 1))), np.zeros((2, len(functions)))
    function(functions, *before, *room, score)


def _sampling(function, offsets, labels, keys, picked, sizes) -> None:
    found = np.full_like(picked, -1)
    function(offsets, labels, keys, np.zeros(max(len(labels), 1), dtype=np.int64), found, sizes)
    picked[:] = np.where(np.arange(picked.shape[1]) < sizes[:, None], found, 0)


_without_buffers = _Through(
    sort_spans,
    lambda function, offsets, key, order, key_buffer, order_buffer: function(
        offsets, key, order, key_buffer.copy(), order_buffer.copy(), np.zeros(0, dtype=np.int64)
    ),
)
_scores, _samples = _Through(score_lists, _scoring), _Through(draw_samples, _sampling)


def test_counts_of_exchanges_are_left_to_the_kernel() -> None:
    room = np.zeros(2), np.zeros(2, dtype=np.int32)
    assert cold.sort_spans(np.array([0, 2]), *room, *room, np.zeros(1, dtype=np.int64)) is NotImplemented


def test_tables_too_large_are_left_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold, "ROOM", 5)
    monkeypatch.setattr(cold, "STEPS", 2)
    offsets, values = read_only(np.array([0, 3, 4])), np.array([1.0, 0.5, 0.25, 1.0])
    assert cold.stop_probability(offsets, values, values) is NotImplemented
    assert cold.pair_sums(offsets, values, values, np.zeros(2), np.zeros(2, dtype=np.int64), False) is NotImplemented
    room, labels = np.zeros((2, 2), dtype=np.int64), np.array([0, 2, 0, 1], dtype=np.int32)
    assert cold.draw_samples(offsets, labels, values, room[0], room, room[0]) is NotImplemented
    sums = np.zeros((2, 1))
    assert cold.sums_at_cutoffs(offsets, values, np.ones(3), np.array([2]), sums) is NotImplemented
    sums_at_cutoffs(offsets, values, np.ones(3), np.array([2]), sums)  # compiled then
    np.testing.assert_array_equal(sums, [[1.5], [1.0]])


def test_a_kernel_is_compiled_once_its_twin_took_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, modules = [0.0], {}

    def loop(values: np.ndarray) -> float:
        return values[0] + values[0]

    def cold(values: np.ndarray) -> float:
        clock[0] += 0.4
        return loop(values)

    monkeypatch.setattr(jit, "WARM", 1.0)
    monkeypatch.setattr(jit, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(jit, "sys", SimpleNamespace(modules=modules))
    made = jit.Kernel(loop, cold)
    assert [made(np.ones(4)) for _ in range(4)] == [2.0] * 4
    assert clock == [0.8]  # a third time would be more than a second
    assert made.made is not None
    large = jit.Kernel(loop, cold)
    assert large(np.ones(30_000_000)) == 2.0
    assert clock == [0.8]  # too much to try
    modules["numba"] = jit
    late = jit.Kernel(loop, cold)
    assert [late(np.ones(4)) for _ in range(3)] == [2.0] * 3
    assert clock == [pytest.approx(1.2)]  # once, and then it is compiled


def test_kernels_travel_by_name() -> None:
    assert pickle.loads(pickle.dumps(sum_by_item)) is sum_by_item


def test_a_small_job_needs_no_numba(planted: Path) -> None:
    script = (
        "import sys, distagg; d = distagg.Dataset.open(sys.argv[1]); distagg.rank('rrf', d); distagg.rank('borda', d);"
        "distagg.compare(d, ['rrf', 'mean'], metrics=['ndcg@5', 'p@3', 'map', 'err']); print('numba' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", script, str(planted)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
