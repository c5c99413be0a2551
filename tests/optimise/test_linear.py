"""Small dense linear algebra, against numpy's."""

import numpy as np

from distagg.optimise import linear
from distagg.optimise.linear import cholesky, inverse, invert, solve_factored, solved

ROOT = np.random.default_rng(0).normal(size=(7, 9))
MATRIX = ROOT @ ROOT.T


def test_cholesky_is_numpys_and_solves():
    lower, right = MATRIX.copy(), np.arange(7.0)
    cholesky(lower)
    np.testing.assert_allclose(np.tril(lower), np.linalg.cholesky(MATRIX), atol=1e-12)
    solve_factored(lower, right)
    np.testing.assert_allclose(MATRIX @ right, np.arange(7.0), atol=1e-10)


def test_invert():
    found = MATRIX.copy()
    invert(found)
    np.testing.assert_allclose(found @ MATRIX, np.eye(7), atol=1e-10)


def test_solutions_and_inverses_leave_their_arguments(monkeypatch):
    before, right = MATRIX.copy(), np.arange(7.0)
    for most in (linear.MOST_ROWS, 3):  # by kernels, and by LAPACK
        monkeypatch.setattr(linear, "MOST_ROWS", most)
        np.testing.assert_allclose(MATRIX @ solved(MATRIX, right), np.arange(7.0), atol=1e-10)
        np.testing.assert_allclose(MATRIX @ inverse(MATRIX), np.eye(7), atol=1e-10)
        np.testing.assert_array_equal(MATRIX, before)
