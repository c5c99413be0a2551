"""The uncertainty of Plackett-Luce scores: standard errors, the bootstrap over lists, and posteriors.

Posterior scores are means of log strengths, centred on the mean over comparisons (see ``intervals``), and their
uncertainty is the posterior deviation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.intervals import centred, over_resamples, quasi_variances
from distagg.models.plackett_luce.kernels import Choices, count_choices, curvature, expect
from distagg.models.plackett_luce.posterior_kernels import Contests, digamma, propagate, sample, trigamma
from distagg.optimise.convergence import not_begun
from distagg.optimise.linear import invert
from distagg.types import INDEX, OFFSET, Floats, Indices, Offsets

if TYPE_CHECKING:
    from distagg.models.plackett_luce.model import PlackettLuce

MOST_ITEMS = 10_000  # items x items numbers are needed, and their inverse
SMALL = 300  # items up to which our own inverse is the faster one
LEVEL = 0.95
MOST_MESSAGES = 50_000_000  # of one query: 16 bytes each, and one each for their items
BLOCK = 1 << 20  # random numbers drawn at a time
WARMING = 0.25  # of the draws, before those that are kept


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
                f"errors=standard inverts a matrix of items x items: found {size:,} items, expected at most "
                f"{MOST_ITEMS:,}; use errors=bootstrap"
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
    """Deviations by the inverse; a constant is added first along the direction that no gap depends on."""
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


Fitted = tuple[Floats, Floats, Floats]  # scores (size,), uncertainty (size,), (steps, criterion)


def power_ep(model: PlackettLuce, own: Choices, wins: Floats, position: int) -> Fitted:
    """Power EP: gamma approximations of every strength."""
    size = len(wins)
    shape, rate = np.empty(size), np.empty(size)
    contests = written_out(own, size)
    taken, moved = propagate(contests, float(model.shape), model.tolerance, model.steps, shape, rate)
    score = np.array([digamma(a) for a in shape]) - np.log(rate)
    variance = np.array([trigamma(a) for a in shape])
    share = _shares(own, size)
    spread = np.sqrt(np.maximum(variance * (1.0 - 2.0 * share) + (share**2 * variance).sum(), 0.0))
    return score - (share * score).sum(), spread, np.array([taken, moved])


def gibbs(model: PlackettLuce, own: Choices, wins: Floats, position: int) -> Fitted:
    """The Gibbs sampler. It always draws the same number of samples, so it always counts as converged."""
    size = len(wins)
    draw = np.random.default_rng(np.random.SeedSequence([model.seed, position]))
    sizes = np.diff(own.start)
    counts = np.repeat(own.opened, sizes) | (own.behind < np.repeat(sizes, sizes))
    weight = np.repeat(own.weight, sizes)[counts]
    x, moments, share = np.ones(size), np.zeros((2, size)), _shares(own, size)
    warming = int(model.draws * WARMING)
    many = max(BLOCK // (len(weight) + size), 1)
    for first in range(-warming, model.draws, many):
        count = min(many, model.draws - first)
        times = draw.standard_gamma(weight, (count, len(weight)))
        gammas = draw.standard_gamma(model.shape + wins, (count, size))
        cold = min(max(-first, 0), count)
        sample(own, times[:cold], gammas[:cold], float(model.shape), share, x, np.zeros((2, size)))
        sample(own, times[cold:], gammas[cold:], float(model.shape), share, x, moments)
    score = moments[0] / model.draws
    spread = np.sqrt(np.maximum(moments[1] / model.draws - score**2, 0.0))
    return score, spread, np.array([model.draws + warming, 0.0])


def _shares(own: Choices, size: int) -> Floats:
    """How much each item counts in the centre of scores."""
    total = compared(own, np.array([0, size]))
    return total / total.sum() if total.sum() > 0.0 else np.full(size, 1.0 / size)


POSTERIORS: dict[str, Callable[..., Fitted]] = {"bayes": power_ep, "gibbs": gibbs}


def written_out(own: Choices, size: int) -> Contests:
    """Every choice of one query with all its items, the winner first."""
    sizes = np.diff(own.start)
    long = np.where(own.opened, size, sizes)  # of a list with those behind it that it leaves out
    held = np.repeat(long, sizes) - own.behind + 1
    total = int(held[held > 1].sum())
    if total > MOST_MESSAGES:
        raise UsageError(
            f"solver=bayes needs {total:,} messages for one query; at most {MOST_MESSAGES:,} are held: use gibbs, or "
            "lbfgs with errors=standard"
        )
    pieces = [np.zeros(0, dtype=INDEX)]
    for a in range(len(sizes)):
        first, last = int(own.start[a]), int(own.start[a + 1])
        line = own.item[first:last]
        if own.opened[a]:
            unlisted = np.ones(size, dtype=bool)
            unlisted[line] = False
            line = np.concatenate([line, np.flatnonzero(unlisted).astype(INDEX)])
        for e in range(first, last):
            if held[e] > 1:
                pieces += [own.item[e : e + 1], line[own.behind[e] :]]
    start = np.zeros(int((held > 1).sum()) + 1, dtype=OFFSET)
    np.cumsum(held[held > 1], out=start[1:])
    return Contests(start, np.concatenate(pieces), np.repeat(own.weight, sizes)[held > 1])


def posterior(
    model: PlackettLuce, chunk: Chunk, choices: Choices, wins: Floats
) -> tuple[Floats, Floats, dict[str, np.ndarray]]:
    """Scores (I,), uncertainty (I,) and how each query ended."""
    score, uncertainty = np.zeros(chunk.n_items), np.zeros(chunk.n_items)
    ended = not_begun(chunk.n_queries)
    for q in range(chunk.n_queries):
        first, last = chunk.item_offsets[q], chunk.item_offsets[q + 1]
        if first == last:
            continue
        own, span = one_query(choices, q), slice(int(first), int(last))
        solver = POSTERIORS[model.solver] if len(own.weight) else power_ep  # of the prior alone it is exact
        solved = solver(model, own, wins[span], int(chunk.positions[q]))
        score[span], uncertainty[span], (ended.iterations[q], ended.gradient[q]) = solved
        ended.objective[q] = expect(own, 0, 0.0, score[span], np.empty(last - first), np.empty(last - first))
    return score, uncertainty, ended.columns(model.tolerance)
