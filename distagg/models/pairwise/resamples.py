"""The bootstrap of bradley_terry and thurstone: fits of lists and pairs that are drawn again with replacement.

With a fixed prior, the resamples of a thin item would agree with each other and not with the truth: an item that won
its only two battles wins them in every resample, and the prior pulls its score to the same place. A gaussian prior is
therefore drawn again, too. Each draw moves the centre of every score by a normal deviate of the prior's variance, and
draws a learned weight from a chi-square with as many degrees of freedom as there are known scores. To first order this
equals the formula in ``covariance``. So the draws of an item without battles have the spread of the prior.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.intervals import centred
from distagg.models.outcome import Outcome
from distagg.models.pairwise.counted import Graph
from distagg.models.pairwise.counts import Counts
from distagg.models.pairwise.covariance import curvature
from distagg.types import Bools, Floats

if TYPE_CHECKING:
    from distagg.models.pairwise.solver import Pairwise


def resample(
    model: Pairwise, chunk: Chunk, counts: Counts, graph: Graph, outcome: Outcome, eta: Floats
) -> tuple[Floats, Bools]:  # (resamples, I) each
    """Scores of every resample, centred as the fit's, and whether it holds the item; notes fits that did not converge.

    Each query has its own seed, so that no result depends on the cut into chunks.
    """
    draws = [np.random.default_rng(np.random.SeedSequence([model.seed, int(at)])) for at in chunk.positions]
    scores = np.empty((model.resamples, chunk.n_items))
    held = np.empty(scores.shape, dtype=np.bool_)
    place, compared = graph.place(chunk.item_offsets), counts.won + counts.lost
    known = _known(model, counts, graph, outcome, eta)
    for n in range(model.resamples):
        lists, pairs = np.zeros(chunk.n_lists), np.zeros(chunk.n_pairs)
        for q, draw in enumerate(draws):
            for offsets, times in ((chunk.list_offsets, lists), (chunk.pair_offsets, pairs)):
                first, size = offsets[q], offsets[q + 1] - offsets[q]
                if size:
                    times[first : first + size] = np.bincount(draw.integers(0, size, size), minlength=size)
        weight, centre = _prior(model, chunk, outcome, known, draws)
        again = model.counting(chunk).count(chunk, lists, pairs * chunk.pair_weight)
        refit, _ = model.fitted(again, graph, outcome.score, weight, centre)
        scores[n] = centred(refit.score, place, compared)
        held[n] = again.won + again.lost > 0.0
        outcome.queries["converged"] &= refit.queries["converged"]
    return scores, held


def _known(model: Pairwise, counts: Counts, graph: Graph, outcome: Outcome, eta: Floats) -> Floats:  # (Q,)
    """The number of scores that the data of each query determine, where a learned weight depends on it."""
    known = np.full(len(eta), np.inf)
    for q in range(len(eta) if model.seeks else 0):
        items = slice(counts.item_offsets[q], counts.item_offsets[q + 1])
        if items.stop > items.start and not np.isposinf(eta[q]):
            terms = model.terms(outcome)
            known[q] = curvature(counts, q, graph.component[items], outcome.score[items], float(eta[q]), terms).known
    return known


def _prior(
    model: Pairwise, chunk: Chunk, outcome: Outcome, known: Floats, draws: list[np.random.Generator]
) -> tuple[Floats | None, Floats | None]:  # (Q,), (I,)
    """Weights and centres of a gaussian prior for one resample, None for another prior or none."""
    if model.prior != "gaussian":
        return None, None
    weight, centre = outcome.queries["weight"].copy(), np.empty(chunk.n_items)
    for q, draw in enumerate(draws):
        if np.isfinite(known[q]):
            weight[q] *= draw.chisquare(known[q]) / known[q]
        first, end = chunk.item_offsets[q], chunk.item_offsets[q + 1]
        centre[first:end] = draw.normal(size=end - first) / np.sqrt(weight[q])
    return weight, centre
