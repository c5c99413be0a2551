"""Twins of kernels on majorities give the bits of the kernels, and small jobs need no numba."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import chunks
from test_cold import same
from test_kemeny import drawn_margins
from test_majority import arrays

from distagg.kernels import majority_cold as cold
from distagg.kernels.kemeny import components, descend, kicked, ordered_pairs, settle, worth
from distagg.kernels.majority import chunk_margins, copeland_chunk, sort_chunk
from distagg.kernels.markov import majority_walks
from distagg.kernels.ordering import order_items, read_only
from distagg.kernels.triangles import SMALL, mirror, search, sweep

WALK = (0.3, 1e-10, 2000)  # teleport, tolerance, steps


def walked(given) -> np.ndarray:
    scores, unfinished = given
    return np.append(scores, unfinished)


@pytest.mark.parametrize("last", [True, False])
@given(
    drawn=chunks(),
    seed=st.integers(0, 99),
    teleport=st.sampled_from([0.01, 0.3, 1.0]),
    steps=st.integers(1, cold.SWEEPS),
)
def test_whole_chunks(last: bool, drawn, seed: int, teleport: float, steps: int) -> None:
    chunk, draw = drawn[1], np.random.default_rng(seed)
    given = arrays(chunk, last)
    for q in range(chunk.n_queries):
        same(chunk_margins, q, *given)
    same(copeland_chunk, *given)
    for local in (False, True):
        same(sort_chunk, local, order_items(chunk.item_offsets, draw.normal(size=chunk.n_items)), *given)
    walk = (teleport, draw.choice([1e-10, 1e-3]), steps, *given)
    np.testing.assert_array_equal(walked(majority_walks.cold(*walk)), walked(majority_walks.compiled(*walk)))
    shape = (chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.entry_rank)
    same(ordered_pairs, last, *shape, np.zeros(chunk.n_queries))


@pytest.mark.parametrize("room", [4_000_000, 15_000])  # all together, or two and one at a time
@pytest.mark.parametrize("last", [True, False])
def test_wide_queries_of_many_sizes(last: bool, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Majorities with cycles, so that walks end after different numbers of sweeps and merges meet in all ways."""
    draw, sizes, lists, length = np.random.default_rng(0), [70, 0, 1, 33, 70, 8], 6, []
    items = []
    for size in sizes:
        for _ in range(lists):
            items.append(draw.permutation(size)[: draw.integers(size // 2, size + 1)])
            length.append(len(items[-1]))
    ranks = [np.sort(draw.integers(1, 90, n)).astype(float) for n in length]
    offsets = [np.concatenate([[0], np.cumsum(n)]) for n in (sizes, [lists] * len(sizes), length)]
    count = draw.integers(0, 40, len(sizes)) * (np.array(sizes) > 1)
    ends = [np.concatenate([draw.integers(0, max(s, 1), n) for s, n in zip(sizes, count, strict=True)]) for _ in "wl"]
    pairs = (*(one.astype(np.int32) for one in ends), draw.random(count.sum()), draw.random(count.sum()) < 0.2)
    entries = np.concatenate(items).astype(np.int32), np.concatenate(ranks)
    columns = (*offsets, *entries, np.concatenate([[0], np.cumsum(count)]), *pairs)
    given = (last, *map(read_only, columns))
    monkeypatch.setattr(cold, "ROOM", room)
    start = order_items(offsets[0], draw.normal(size=sum(sizes)))
    for local in (False, True):
        same(sort_chunk, local, start, *given)
    same(copeland_chunk, *given)
    for q in range(len(sizes)):
        same(chunk_margins, q, *given)
    for teleport in (0.1, 0.3):
        walk = (teleport, *WALK[1:], *given)
        np.testing.assert_array_equal(walked(majority_walks.cold(*walk)), walked(majority_walks.compiled(*walk)))


def test_too_much_is_left_to_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    given = (False, np.array([0, 3]), np.array([0, 3]), np.array([0, 3, 6, 9]))
    given += (np.array([0, 1, 2, 1, 2, 0, 2, 0, 1], dtype=np.int32), np.tile([1.0, 2.0, 3.0], 3), np.zeros(2, np.int64))
    given += (np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.bool_))  # a cycle of three
    assert cold.majority_walks(*WALK, *given) is not NotImplemented
    monkeypatch.setattr(cold, "SWEEPS", 3)
    assert cold.majority_walks(*WALK, *given) is NotImplemented
    monkeypatch.setattr(cold, "WORK", 27)
    assert cold.chunk_margins(0, *given) is not NotImplemented
    monkeypatch.setattr(cold, "ROOM", 8)
    assert cold.chunk_margins(0, *given) is NotImplemented
    assert cold.copeland_chunk(*given) is NotImplemented
    assert cold.sort_chunk(False, np.arange(3), *given) is NotImplemented
    assert cold.majority_walks(*WALK, *given) is NotImplemented
    large = np.zeros((SMALL + 1, SMALL + 1))
    assert settle.cold(large, np.arange(len(large))) is NotImplemented


@given(seed=st.integers(0, 10_000), size=st.integers(1, 30), whole=st.booleans())
def test_steps_towards_kemenys_order(seed: int, size: int, whole: bool) -> None:
    matrix, draw = drawn_margins(seed, size, whole=whole), np.random.default_rng(seed)
    order, step = draw.permutation(size), 1.0 if whole else 1e-9
    for walk in (worth, settle):
        same(walk, matrix, order)
    same(descend, matrix, order, 0.25 * step)
    same(kicked, matrix, np.inf, step, 20 * size**2, order, np.zeros(size, np.int64))
    room = np.zeros(size, np.int64), np.zeros(size + 1, np.int64), np.zeros((3, size), np.int64)
    same(components, matrix, *room, np.zeros(size, np.bool_))


@given(seed=st.integers(0, 10_000), size=st.integers(2, 12), whole=st.booleans())
def test_bounds_and_searches(seed: int, size: int, whole: bool) -> None:
    matrix = drawn_margins(seed, size, whole=whole)
    reduced, triangles = matrix.copy(), np.zeros((size, size, size))
    for eager in (0.0, 0.25, 0.25):
        same(sweep, reduced, triangles, eager)
        sweep(reduced, triangles, eager)
    same(mirror, reduced, triangles)
    mirror(reduced, triangles)
    memory = np.zeros((1 << 10, 3), np.uint64), np.zeros(1 << 10)
    room = np.zeros((size, size, size)), np.zeros((size, size)), *np.zeros((2, size, size), np.int64)
    room += np.zeros((3, size), np.int64), np.zeros((3, size)), np.zeros((size, 2), np.uint64)
    same(search, matrix, reduced, triangles, -1e9, 1.0, 20_000, *memory, 1, np.arange(size), *room)


def test_a_small_job_needs_no_numba(planted: Path) -> None:
    script = (
        "import sys, distagg; d = distagg.Dataset.open(sys.argv[1]);"
        "[distagg.rank(m, d) for m in ('condorcet', 'copeland', 'mc4')]; print('numba' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", script, str(planted)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
