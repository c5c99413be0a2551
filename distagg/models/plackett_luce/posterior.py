"""Plackett-Luce posteriors: scores are posterior means of centred log strengths, uncertainty their deviations.

They are centred on the mean over comparisons, see ``intervals``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.plackett_luce.errors import compared, one_query
from distagg.models.plackett_luce.kernels import Choices, expect
from distagg.models.plackett_luce.posterior_kernels import Contests, digamma, propagate, sample, trigamma
from distagg.optimise.convergence import not_begun
from distagg.types import INDEX, OFFSET, Floats

if TYPE_CHECKING:
    from distagg.models.plackett_luce.model import PlackettLuce

MOST_MESSAGES = 50_000_000  # of one query: 16 bytes each, and one each for their items
BLOCK = 1 << 20  # random numbers drawn at a time
WARMING = 0.25  # of the draws, before those that are kept

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
