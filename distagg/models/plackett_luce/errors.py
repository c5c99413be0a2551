"""The uncertainty of Plackett-Luce scores: standard errors from the curvature, and the bootstrap over lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.intervals import centred, over_resamples, quasi_variances
from distagg.models.plackett_luce.kernels import Choices, count_choices, curvature
from distagg.optimise.convergence import not_begun
from distagg.optimise.linear import invert
from distagg.types import OFFSET, Floats, Indices, Offsets

if TYPE_CHECKING:
    from distagg.models.plackett_luce.model import PlackettLuce

MOST_ITEMS = 10_000  # items x items numbers are needed, and their inverse
SMALL = 300  # items up to which our own inverse is the faster one
LEVEL = 0.95


def standard_errors(
    choices: Choices, item_offsets: Offsets, shape: float, theta: Floats, component: Indices | None
) -> Floats:
    """Roots of quasi-variances (see ``intervals``) by the inverse information, in every component.

    Items with nothing to be compared with, and without a prior isolated ones, get inf.
    """
    errors = np.zeros(len(theta))
    for q in range(len(item_offsets) - 1):
        first, last = item_offsets[q], item_offsets[q + 1]
        size = int(last - first)
        if size == 0:
            continue
        if size > MOST_ITEMS:
            raise UsageError(
                f"errors=standard inverts a matrix of {size:,} x {size:,} items; at most {MOST_ITEMS:,} are taken: "
                "use errors=bootstrap"
            )
        information = np.empty((size, size))
        curvature(choices, q, shape, theta[first:last], information)
        within = np.zeros(size, dtype=int) if component is None else component[first:last]
        for part in range(int(within.max(initial=-1)) + 1):
            rows = np.flatnonzero(within == part)
            errors[first + rows] = _deviations(information[np.ix_(rows, rows)])
    return errors


def compared(choices: Choices, item_offsets: Offsets) -> Floats:  # (I,)
    """How many comparisons with others each item has, by the weights of lists."""
    listed, sizes = np.diff(choices.start), np.diff(item_offsets)
    query = np.repeat(np.arange(len(sizes)), np.diff(choices.query))
    row = np.repeat(item_offsets[query], listed) + choices.item
    opened = choices.weight * choices.opened
    others = choices.weight * (listed - 1) + opened * (sizes[query] - listed)
    left_out = opened * listed  # of an item that the list leaves behind
    total = np.bincount(row, np.repeat(others - left_out, listed), item_offsets[-1])
    return np.asarray(total + np.repeat(np.bincount(query, left_out, len(sizes)), sizes))


def _deviations(information: Floats) -> Floats:
    """The constant direction, which no gap depends on, is lifted so that there is an inverse."""
    size = len(information)
    scale = np.trace(information) / size
    if size == 1 or scale == 0.0:
        return np.full(size, np.inf)
    covariance = information + scale / size
    if size > SMALL:
        covariance = np.linalg.inv(covariance)
    else:
        invert(covariance)
    return np.sqrt(quasi_variances(covariance))


def bootstrap(model: PlackettLuce, chunk: Chunk, choices: Choices, score: Floats) -> dict[str, np.ndarray]:
    """Deviation and 95% interval of every score over lists drawn with replacement within the query.

    Infinite for queries with fewer than two informative lists: there is nothing to resample.
    """
    columns = over_resamples(np.zeros((0, chunk.n_items)), np.zeros((0, chunk.n_items), dtype=np.bool_), LEVEL)
    for q in range(chunk.n_queries):
        first, last = chunk.item_offsets[q], chunk.item_offsets[q + 1]
        own = one_query(choices, q)
        lists = len(own.weight)
        if lists < 2:
            continue
        offsets = np.array([0, last - first], dtype=OFFSET)
        offsets.setflags(write=False)  # as a chunk's: a kernel is compiled once for each kind of array
        seen = np.empty((model.resamples, int(last - first)))
        held = np.empty(seen.shape, dtype=np.bool_)
        draw = np.random.default_rng(np.random.SeedSequence([model.seed, int(chunk.positions[q])]))
        for n in range(model.resamples):
            times = np.bincount(draw.integers(0, lists, lists), minlength=lists)
            again = own._replace(weight=own.weight * times)
            wins, number = count_choices(again, offsets)
            theta = score[first:last].copy()
            model.fit(again, offsets, wins, number, theta, not_begun(1))
            seen[n] = centred(theta, np.zeros(len(theta), dtype=np.int64), compared(again, offsets))
            held[n] = (
                compared(again._replace(weight=(again.weight > 0.0).astype(np.float64)), offsets) > 0.5
            )  # whole numbers
        for name, values in over_resamples(seen, held, LEVEL).items():
            columns[name][first:last] = values
    return columns


def one_query(choices: Choices, q: int) -> Choices:
    """The choices of one query by itself."""
    first, last = choices.query[q], choices.query[q + 1]
    entries = slice(int(choices.start[first]), int(choices.start[last]))
    return Choices(
        np.array([0, last - first], dtype=OFFSET),
        choices.start[first : last + 1] - choices.start[first],
        choices.item[entries],
        choices.behind[entries],
        choices.weight[first:last],
        choices.opened[first:last],
    )
