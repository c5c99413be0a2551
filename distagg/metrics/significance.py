"""Whether two rankers differ on the same queries: paired tests, intervals, correction for many comparisons.

The t-test is Student's on per-query differences. The randomisation test (Fisher; Smucker, Allan and Carterette,
CIKM 2007) flips the sign of each difference: all sign patterns up to 12 differences, 10,000 random ones beyond.
Holm's step-down method corrects over all pairs compared. Queries where either value is NaN are left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from distagg.errors import UsageError, unknown
from distagg.types import Floats

PERMUTATIONS = 10_000
EXACT_LIMIT = 12  # 2**12 sign patterns cost less than the random ones
CONFIDENCE = 0.95
_BATCH_CELLS = 1 << 21  # sign matrix of a batch: 16 MB


@dataclass(frozen=True, slots=True)
class PairedTest:
    """``a`` minus ``b`` over the queries that both have a value for."""

    queries: int
    difference: float  # mean of a - b; NaN without queries
    low: float  # confidence interval of the difference (95%); NaN below two queries
    high: float
    t_test: float  # p-values, two-sided
    randomisation: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A paired test of two named rankers, with p-values corrected over the family of comparisons (Holm)."""

    a: str
    b: str
    test: PairedTest
    t_test_holm: float = math.nan
    randomisation_holm: float = math.nan


def paired_tests(values_a: Floats, values_b: Floats, seed: int = 0) -> PairedTest:
    """Test whether the mean per-query difference of two rankers is zero.

    Parameters
    ----------
    values_a, values_b
        One value per query, shape (Q,), in the same order; NaN leaves the query out.
    seed
        Of the random sign flips: same seed, same p-value.

    Returns
    -------
    p-values are 1 when all differences are zero or there are fewer than two queries.

    Examples
    --------
    >>> import numpy as np
    >>> test = paired_tests(np.array([0.6, 0.5, 0.7, 0.9]), np.array([0.5, 0.4, 0.6, 0.7]))
    >>> round(test.difference, 3), round(test.t_test, 4), test.randomisation
    (0.125, 0.0154, 0.125)
    """
    a, b = np.asarray(values_a, dtype=np.float64), np.asarray(values_b, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise UsageError(f"found values of shapes {a.shape} and {b.shape}, expected one per query for both")
    differences = (a - b)[~(np.isnan(a) | np.isnan(b))]
    n = len(differences)
    if n < 2:
        mean = float(differences.mean()) if n else math.nan
        return PairedTest(n, mean, math.nan, math.nan, 1.0, 1.0)
    mean, p, reach = _t_test(differences)
    return PairedTest(n, mean, mean - reach, mean + reach, p, _randomisation_test(differences, seed))


def compare_all(values: Mapping[str, Floats], *, baseline: str | None = None, seed: int = 0) -> list[Comparison]:
    """Paired tests of every ranker against ``baseline``, or of all pairs, corrected over all of them.

    Parameters
    ----------
    values
        Name -> one value per query, shape (Q,), the same queries in the same order for all.

    Examples
    --------
    >>> import numpy as np
    >>> rows = compare_all({"rrf": np.array([0.5, 0.7, 0.9]), "borda": np.array([0.4, 0.5, 0.8])}, baseline="borda")
    >>> [(row.a, row.b, round(row.test.difference, 3)) for row in rows]
    [('rrf', 'borda', 0.133)]
    """
    if baseline is None:
        pairs = list(itertools.combinations(values, 2))
    elif baseline in values:
        pairs = [(name, baseline) for name in values if name != baseline]
    else:
        raise unknown("baseline", baseline, values)
    rows = [Comparison(a, b, paired_tests(values[a], values[b], seed)) for a, b in pairs]
    t_tests = holm(np.array([row.test.t_test for row in rows]))
    flips = holm(np.array([row.test.randomisation for row in rows]))
    return [
        replace(row, t_test_holm=float(t), randomisation_holm=float(r))
        for row, t, r in zip(rows, t_tests, flips, strict=True)
    ]


def holm(p_values: Floats) -> Floats:
    """Holm's step-down correction: adjusted p-values, in the order given.

    >>> import numpy as np
    >>> holm(np.array([0.04, 0.01, 0.03])).round(3).tolist()
    [0.06, 0.03, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = p_values[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(adjusted), 1.0)
    return corrected


def _t_test(differences: Floats) -> tuple[float, float, float]:
    """Mean, two-sided p-value and half-width of the confidence interval."""
    from scipy.special import stdtr, stdtrit

    freedom = len(differences) - 1
    mean = float(differences.mean())
    error = math.sqrt(float(differences.var(ddof=1)) / len(differences))
    reach = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
    if not differences.any():
        return 0.0, 1.0, 0.0
    p = 2.0 * float(stdtr(freedom, -abs(mean) / error)) if error else 0.0
    return mean, p, reach


def _randomisation_test(differences: Floats, seed: int) -> float:
    """Share of sign patterns whose sum is at least as far from zero as the observed one."""
    moving = differences[differences != 0.0]  # zeros stay zero under any sign
    n = len(moving)
    # Rounding must not turn the observed pattern, or its mirror, into a smaller sum than itself.
    observed = abs(float(moving.sum())) - 1e-12 * float(np.abs(moving).sum())
    if n <= EXACT_LIMIT:
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return float(np.mean(np.abs(signs @ moving) >= observed))
    generator = np.random.default_rng(seed)
    batch = max(1, _BATCH_CELLS // n)
    extreme = 0
    for start in range(0, PERMUTATIONS, batch):
        rows = min(batch, PERMUTATIONS - start)
        bits = np.unpackbits(np.frombuffer(generator.bytes(rows * ((n + 7) // 8)), dtype=np.uint8))
        flipped = bits.reshape(rows, -1)[:, :n].astype(np.float64) @ moving
        extreme += int(np.count_nonzero(np.abs(moving.sum() - 2.0 * flipped) >= observed))
    return (extreme + 1) / (PERMUTATIONS + 1)  # the observed pattern is one of the patterns
