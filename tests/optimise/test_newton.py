"""Newton's method one evaluation at a time: it ends where scipy's does, and halves steps that are too long."""

import numpy as np
import scipy.optimize

from distagg.optimise.newton import NewtonAscent


def climbed(evaluate, start, most=100):
    ascent = NewtonAscent.begin(start)
    while ascent.gain > 1e-15 and ascent.evaluations < most:
        ascent = ascent.after(*evaluate(ascent.trial))
    return ascent


def test_the_maximum_of_a_logistic_likelihood_is_scipys():
    data = np.random.default_rng(1).normal(size=(60, 7)) * np.geomspace(0.3, 3.0, 7)

    def evaluate(x):
        along = data @ x
        chance = 1.0 / (1.0 + np.exp(-along))
        value = -np.logaddexp(0.0, along).sum() - 0.05 * x @ x
        hessian = (data * (chance * (1.0 - chance))[:, None]).T @ data + 0.1 * np.eye(7)
        return value, -data.T @ chance - 0.1 * x, hessian

    ascent = climbed(evaluate, np.full(7, 0.5))
    best = scipy.optimize.minimize(lambda x: -evaluate(x)[0], np.zeros(7), jac=lambda x: -evaluate(x)[1])
    assert ascent.evaluations < 10
    assert ascent.value >= -best.fun
    np.testing.assert_allclose(ascent.x, best.x, atol=1e-5)


def test_a_step_that_is_too_long_is_halved_until_it_rises():
    """From 2 a full step on -log cosh overshoots by far: its curvature vanishes away from 0."""

    def evaluate(x):
        return float(-np.log(np.cosh(x[0]))), -np.tanh(x), np.array([[1.0 / np.cosh(x[0]) ** 2]])

    first = NewtonAscent.begin(np.array([2.0])).after(*evaluate(np.array([2.0])))
    halved = first.after(*evaluate(first.trial))
    assert halved.x == first.x == 2.0
    assert (halved.step, halved.gain) == (0.5 * first.step, 0.5 * first.gain)
    np.testing.assert_allclose(climbed(evaluate, np.array([2.0])).x, 0.0, atol=1e-7)


def test_a_trial_without_a_value_is_never_taken():
    first = NewtonAscent.begin(np.zeros(1)).after(0.0, np.ones(1), np.eye(1))
    assert first.after(np.nan, np.ones(1), np.eye(1)).x == 0.0
