"""L-BFGS one gradient at a time: it ends where scipy's does, by either rule."""

import numpy as np
import pytest
import scipy.optimize

from distagg.optimise.lbfgs import BY_SLOPE, BY_VALUE, MEMORY, SEARCHES, aim, begin, first_search, is_lost, judge

SIZE = 2 * MEMORY + 3


def logistic(x, data):
    """A convex function that is no quadratic, and its gradient."""
    along = data @ x
    value = np.logaddexp(0.0, along).sum() + 0.05 * x @ x
    return value, data.T @ (1.0 / (1.0 + np.exp(-along))) + 0.1 * x


def minimised(function, start, rule, scale=None, steps=500, tolerance=1e-9):
    path, search, values = begin(start.copy()), first_search(rule), []
    if scale is not None:
        path.scale[:] = scale
    while not is_lost(search):
        value, gradient = function(path.trial.copy())
        search = judge(path, search, value, gradient.copy())
        if search.tried == 0:
            values.append(value)
            if search.steps == steps or np.abs(path.gradient).max() <= tolerance:
                break
            search = aim(path, search)
    return path, search, values


@pytest.mark.parametrize(("rule", "scaled"), [(BY_VALUE, False), (BY_SLOPE, False), (BY_SLOPE, True)])
def test_the_minimum_is_scipys(rule, scaled):
    draw = np.random.default_rng(rule)
    data = draw.normal(size=(60, SIZE)) * np.geomspace(0.3, 3.0, SIZE)
    scale = 1.0 / np.sqrt(0.25 * (data**2).sum(axis=0) + 0.1) if scaled else None
    path, search, values = minimised(lambda x: logistic(x, data), np.zeros(SIZE), rule, scale)
    best = scipy.optimize.minimize(logistic, np.zeros(SIZE), (data,), jac=True, options={"gtol": 1e-7})
    np.testing.assert_allclose(path.x, best.x, atol=1e-6)
    assert search.steps + 1 == len(values) < 200
    if rule == BY_VALUE:
        assert (np.diff(values) <= 1e-12).all()
        assert search.value == values[-1]


@pytest.mark.parametrize("rule", [BY_VALUE, BY_SLOPE])
def test_steps_that_are_too_long_are_shortened(rule):
    """The first step is the whole gradient, a thousand times too long here."""
    path, search, _ = minimised(lambda x: (500.0 * x @ x, 1000.0 * x), np.arange(1.0, 4.0), rule)
    np.testing.assert_allclose(path.x, 0.0, atol=1e-9)
    assert search.steps < 10


def test_a_slope_that_never_turns_is_given_up():
    path, search, _ = minimised(lambda x: (x[0], np.ones(1)), np.zeros(1), BY_SLOPE)
    assert is_lost(search)
    assert search.tried == SEARCHES
    assert path.x[0] == 0.0


def test_the_first_trial_is_the_start():
    path, search = begin(np.arange(3.0)), first_search(BY_SLOPE)
    assert path.trial.tolist() == [0, 1, 2]
    search = judge(path, search, 7.0, np.ones(3))
    assert (search.steps, search.tried, search.pairs, search.value) == (0, 0, 0, 7.0)
    aim(path, search)
    assert path.trial.tolist() == [-1, 0, 1]
