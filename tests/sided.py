"""Battles with two sides and covariates, for tests of adjusted strengths."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import scipy.optimize
from scipy.special import expit

from distagg.engine.data import as_dataset

LENGTH, POSITION = 0.004, 0.4  # planted


@dataclass(frozen=True)
class Sided:
    """P battles: who was on which side, the difference of lengths, and whether the first side won (or tied)."""

    first: np.ndarray
    second: np.ndarray
    length: np.ndarray
    first_won: np.ndarray
    tie: np.ndarray
    strength: np.ndarray

    def table(self) -> pa.Table:
        winner = np.where(self.tie, "tie", np.where(self.first_won, "model_a", "model_b"))
        sides = {"model_a": [f"m{i}" for i in self.first], "model_b": [f"m{i}" for i in self.second]}
        lengths = {"length_a": 100 + self.length, "length_b": np.full(len(self.length), 100)}
        return pa.table({**sides, "winner": winner, **lengths})

    def dataset(self, covariates="length,position"):
        return as_dataset(self.table(), covariates=covariates)


def simulated(battles=2000, items=6, seed=0, ties=0.0):
    draw = np.random.default_rng(seed)
    strength = draw.normal(size=items)
    first = draw.integers(0, items, battles)
    second = (first + draw.integers(1, items, battles)) % items
    length = draw.integers(-300, 300, battles)
    gap = strength[first] - strength[second] + LENGTH * length + POSITION
    won = draw.random(battles) < expit(gap)
    return Sided(first, second, length, won, draw.random(battles) < ties, strength - strength.mean())


def most_likely(battles, weight=0.0, tie=0.5):
    """Strengths about 0, and the coefficients of length / 100 and position, by a general minimiser."""
    items = len(battles.strength)
    y = np.where(battles.tie, 0.5, battles.first_won)
    w = np.where(battles.tie, 2 * tie, 1.0)
    x = np.stack([battles.length / 100, np.ones(len(y))])

    def minus_likelihood(point):
        score, by = point[:items], point[items:]
        gap = score[battles.first] - score[battles.second] + by @ x
        along = w * (expit(gap) - y)
        slope = np.bincount(battles.first, along, items) - np.bincount(battles.second, along, items)
        value = float((w * (np.logaddexp(0.0, gap) - y * gap)).sum() + 0.5 * weight * score @ score)
        return value, np.concatenate([slope + weight * score, x @ along])

    start = np.zeros(items + 2)
    found = scipy.optimize.minimize(
        minus_likelihood, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9}
    )
    return found.x[:items] - found.x[:items].mean(), found.x[items:] / [100, 1]
