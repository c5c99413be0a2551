"""Kemeny's order by integer programming: against all orders, against all triangles, and where the search gives up."""

import itertools
import time

import numpy as np
import pytest
from strategies import Query, build_chunk

from distagg.models import model_named
from distagg.models.distances.integer import Program, Proving
from distagg.models.distances.kemeny_kernels import Solution, worth


def drawn_margins(draw, size):
    """Margins of random lists with ties and with weights; whole numbers every other time."""
    places = draw.integers(0, size, (draw.integers(2, 6), size))
    weight = draw.integers(1, 4, len(places)) if draw.random() < 0.5 else draw.random(len(places))
    over = np.sign(places[:, None, :] - places[:, :, None])  # (lists, i, j): 1 where i stands before j
    return np.tensordot(weight.astype(float), over, axes=1)


def unsolved(matrix, draw):
    """A random order with no bound but the sum of all margins."""
    order = draw.permutation(len(matrix))
    total = 0.5 * np.abs(matrix).sum()
    return Solution(order, worth(matrix, order), total, 1.0 if (matrix == np.rint(matrix)).all() else 1e-9 * total)


@pytest.mark.parametrize("size", [2, 4, 6, 8])
def test_no_order_is_better(size):
    draw = np.random.default_rng(size)
    orders = np.array(list(itertools.permutations(range(size))))
    place = np.argsort(orders, axis=1)
    before = place[:, :, None] < place[:, None, :]
    for _ in range(6):
        matrix = drawn_margins(draw, size)
        solution = unsolved(matrix, draw)
        Proving(60.0).prove(matrix, solution)
        best = np.tensordot(before, matrix, axes=2).max()
        assert not solution.open
        assert worth(matrix, solution.order) == pytest.approx(best, abs=1e-9)
        assert solution.worth == solution.bound == pytest.approx(best, abs=1e-9)


def test_cuts_are_the_cycles_of_all_triangles():
    draw = np.random.default_rng(1)
    directions = draw.choice([0.0, 0.25, 0.5, 0.75, 1.0], (7, 7))
    directions = np.triu(directions, 1) + np.tril(1.0 - directions.T, -1)
    program = Program(np.zeros((7, 7)), np.inf)
    assert program.cut(directions)
    expected = {
        (i, j, k)
        for i, j, k in itertools.combinations(range(7), 3)
        if not 0.0 <= directions[i, j] + directions[j, k] - directions[i, k] <= 1.0
    }
    assert len(program.triangles) == len(expected)
    assert {tuple(row) for row in program.triangles.tolist()} == expected
    assert not program.cut(np.triu(np.ones((7, 7)), 1))


def planted(size, lists, noise, seed):
    draw = np.random.default_rng(seed)
    orders = [np.argsort(np.arange(size) / size + draw.normal(0, noise, size)) for _ in range(lists)]
    return Query(size, {e: {int(item): place + 1.0 for place, item in enumerate(o)} for e, o in enumerate(orders)})


def test_what_the_search_leaves_open_is_proved():
    chunk = build_chunk([planted(40, 7, 0.6, seed) for seed in range(2)])
    searched, proved = (
        model_named("kemeny", {"exact": how, "seconds": 60}).solve(chunk, {}) for how in ("search", "milp")
    )
    assert not searched.queries["exact"].any()
    assert proved.queries["exact"].all()
    np.testing.assert_array_equal(proved.queries["gradient"], 0.0)
    assert (proved.queries["kemeny"] <= searched.queries["kemeny"]).all()
    assert (proved.queries["bound"] >= searched.queries["bound"]).all()
    equal = np.repeat(proved.queries["kemeny"] == searched.queries["kemeny"], 40)
    np.testing.assert_array_equal(proved.score[equal], searched.score[equal])  # a proof alone moves nothing


def test_without_time_the_order_is_that_of_the_search():
    chunk = build_chunk([planted(40, 7, 0.6, 0)])
    searched = model_named("kemeny").solve(chunk, {})
    begun = time.monotonic()
    hurried = model_named("kemeny", {"exact": "milp", "seconds": 1e-9}).solve(chunk, {})
    assert time.monotonic() - begun < 30
    assert hurried.score.tobytes() == searched.score.tobytes()
    assert not hurried.queries["exact"].any()
    assert hurried.queries["converged"].all()
