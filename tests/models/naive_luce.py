"""Plackett-Luce written down plainly: every choice with all its items."""

from __future__ import annotations

import numpy as np
import scipy.optimize
from strategies import Query

Choice = tuple[int, list[int], float]  # winner, those passed over, weight


def naive_choices(query: Query, *, last: bool) -> list[Choice]:
    found = []
    for _, ranks in sorted(query.lists.items()):
        unlisted = [i for i in range(query.size) if i not in ranks] if last else []
        for i in sorted(ranks, key=lambda i: (ranks[i], i)):
            over = [j for j in ranks if ranks[j] > ranks[i]] + unlisted
            if over:
                found.append((i, over, 1.0))
    return found + [(w, [x], weight) for w, x, weight, tie in query.pairs if not tie and weight > 0]


def naive_likelihood(theta, choices: list[Choice]) -> float:
    return sum(w * (theta[i] - np.logaddexp.reduce(np.append(theta[over], theta[i]))) for i, over, w in choices)


def naive_objective(theta, choices: list[Choice], shape: float) -> float:
    """Log likelihood, and each item chosen ``shape`` times from among all."""
    return naive_likelihood(theta, choices) + shape * np.sum(theta - np.logaddexp.reduce(theta))


def naive_fit(query: Query, *, last: bool, shape: float):
    choices = naive_choices(query, last=last)
    best = scipy.optimize.minimize(
        lambda t: -naive_objective(t, choices, shape), np.zeros(query.size), method="BFGS", options={"gtol": 1e-9}
    )
    return best.x - best.x.mean()


def naive_beaten(query: Query, *, last: bool) -> np.ndarray:
    """(size, size): who beat whom, directly."""
    beats = np.zeros((query.size, query.size), dtype=bool)
    for i, over, _ in naive_choices(query, last=last):
        beats[i, over] = True
    return beats
