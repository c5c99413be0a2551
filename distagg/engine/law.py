"""The universal scalability law: throughput of n workers, one worker's rate times n / (1 + a (n - 1) + b n (n - 1)).

``a`` is the share of work that is serial (contention), ``b`` the cost of communication between all pairs; with
both at 0, n workers do n times as much. Gunther, "A general theory of computational scalability", 2008.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

DRAWS = 300


def throughput(n: np.ndarray, rate: float, serial: float, talk: float) -> np.ndarray:
    return rate * n / (1.0 + serial * (n - 1.0) + talk * n * (n - 1.0))


def fit(measured: Mapping[int, Sequence[float]], seed: int = 0) -> dict[str, Any]:
    """Fit the law to rates by number of workers; 95% intervals by bootstrap over the repeats.

    ``peak`` is the number of workers with the highest throughput; infinite if only serial work limits it.
    """
    draws = np.random.default_rng(seed)
    best = _fitted(measured)
    samples = [
        _fitted({n: draws.choice(np.asarray(rates), len(rates)).tolist() for n, rates in measured.items()})
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(samples, [0.025, 0.975], axis=0)
    peaks = [_peak(*sample[1:]) for sample in samples]
    return {
        **{name: float(value) for name, value in zip(("rate", "serial", "talk"), best, strict=True)},
        "intervals": {
            name: [float(low[k]), float(high[k])] for k, name in enumerate(("rate", "serial", "talk"))
        },
        "peak": _peak(*best[1:]),
        "peak_interval": [float(np.quantile(peaks, q, method="nearest")) for q in (0.025, 0.975)],
        "points": len(measured),
    }  # fmt: skip


def _fitted(measured: Mapping[int, Sequence[float]]) -> np.ndarray:
    """Least squares on logarithms, so that a relative error has the same weight at 1 and at 1,000 workers."""
    from scipy.optimize import least_squares

    n = np.repeat([float(k) for k in measured], [len(rates) for rates in measured.values()])
    rates = np.concatenate([np.asarray(r, dtype=float) for r in measured.values()])
    start = np.log([np.median(rates / n), 1e-3, 1e-6])

    def off(x: np.ndarray) -> np.ndarray:
        return np.log(throughput(n, *np.exp(x))) - np.log(rates)

    best = np.exp(least_squares(off, start, bounds=(np.log([1e-12, 1e-9, 1e-12]), np.log([1e15, 1.0, 1.0]))).x)
    return np.asarray(best)


def _peak(serial: float, talk: float) -> float:
    return float(np.sqrt(max(1.0 - serial, 0.0) / talk)) if talk > 1e-11 else float("inf")
