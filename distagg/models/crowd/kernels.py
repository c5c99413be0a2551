"""Votes whose chances are mixtures: f = slope x sigma(gap) + base, with a slope and a base for each expert.

The gap is the winner's score less the loser's, sigma the logistic function. ``crowd_bt`` and ``noisy_bt`` are both of
this form. The base may depend on where the winner was shown: FIRST, SECOND, or UNKNOWN. Cost: O(votes) for each
gradient.

Scores alone, with experts given, are fitted here query by query. Scores together with experts are fitted in rounds
over chunks (``joint``), which take their gradients from ``mixture_slopes``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.optimise.convergence import Ended
from distagg.optimise.lbfgs import BY_VALUE, aim, begin, first_search, is_lost, judge
from distagg.types import Floats, Indices, Offsets

FIRST, SECOND, UNKNOWN = 0, 1, 2
PLACES = 3
GAUSSIAN, VIRTUAL = 0, 1
LEAST = 1e-150  # of a chance: its square can be divided by
SUMS = 5  # by expert and place: see ``mixture_slopes``


class Votes(NamedTuple):
    """The votes of a chunk, query by query: V votes of Q queries and I items."""

    offsets: Offsets  # (Q + 1,)
    winner: Indices  # (V,) item, counted through the whole chunk
    loser: Indices  # (V,)
    expert: Indices  # (V,)
    place: Indices  # (V,) where the winner was shown
    weight: Floats  # (V,)
    decided: Floats  # (experts,) how many votes of each expert are no ties


class Mixture(NamedTuple):
    """The mixture of every expert."""

    slope: Floats  # (experts,)
    base: Floats  # (experts, PLACES)


class Prior(NamedTuple):
    """The prior of scores: GAUSSIAN, weight / 2 s^2, or VIRTUAL, weight wins and losses against an item of score 0."""

    kind: int
    weight: float


@kernel
def sigma(gap: float) -> float:
    """The logistic function."""
    if gap >= 0.0:
        return 1.0 / (1.0 + math.exp(-gap))
    up = math.exp(gap)
    return up / (1.0 + up)


@kernel
def mixture_slopes(
    votes: Votes,
    first: int,  # vote
    last: int,
    mixture: Mixture,
    score: Floats,  # (I,)
    slope: Floats,  # (I,) added to: gradient of the log likelihood
    curve: Floats,  # (I,) added to: its expected curvature
    sums: Floats,  # (experts, PLACES, SUMS) added to: see below; or no rows
) -> tuple[float, float]:
    """The log likelihood of some votes, and by how much weight more of them agree with the scores than disagree.

    Where ``sums`` has rows, they get the sums over the votes of each expert and place of weight times sigma / f, 1 / f,
    (sigma / f)^2, sigma / f^2 and 1 / f^2.
    """
    total, agreed = 0.0, 0.0
    for v in range(first, last):
        i, j, expert, place, weight = votes.winner[v], votes.loser[v], votes.expert[v], votes.place[v], votes.weight[v]
        a, gap = mixture.slope[expert], score[i] - score[j]
        s = sigma(gap)
        f = max(a * s + mixture.base[expert, place], LEAST)
        total += weight * math.log(f)
        agreed += weight * np.sign(gap)
        steep = a * s * (1.0 - s)
        move = weight * steep / f
        bend = move * steep / max(1.0 - f, LEAST)
        slope[i] += move
        slope[j] -= move
        curve[i] += bend
        curve[j] += bend
        if len(sums) > 0:
            here, one, many = sums[expert, place], 1.0 / f, s / f
            here[0] += weight * many
            here[1] += weight * one
            here[2] += weight * many * many
            here[3] += weight * many * one
            here[4] += weight * one * one
    return total, agreed


@kernel
def add_prior(prior: Prior, score: Floats, slope: Floats, curve: Floats) -> float:
    """Add the prior's gradient and curvature to those of scores (size,); returns its log density but for a constant."""
    total = 0.0
    for i in range(len(score)):
        s = score[i]
        if prior.kind == GAUSSIAN:
            total -= 0.5 * prior.weight * s * s
            slope[i] -= prior.weight * s
            curve[i] += prior.weight
        else:
            up = sigma(s)
            total -= prior.weight * (abs(s) + 2.0 * math.log1p(math.exp(-abs(s))))
            slope[i] -= prior.weight * (2.0 * up - 1.0)
            curve[i] += prior.weight * 2.0 * up * (1.0 - up)
    return total


@kernel
def fit_scores(
    votes: Votes,
    mixture: Mixture,
    prior: Prior,
    tolerance: float,
    steps: int,
    item_offsets: Offsets,  # (Q + 1,)
    score: Floats,  # (I,) where to start, filled
    ended: Ended,  # filled
) -> None:
    """The scores of every query, with its experts given. A query without votes keeps its scores."""
    slope, curve, nothing = np.zeros(len(score)), np.zeros(len(score)), np.zeros((0, PLACES, SUMS))
    for q in range(len(item_offsets) - 1):
        base, end = item_offsets[q], item_offsets[q + 1]
        first, last = votes.offsets[q], votes.offsets[q + 1]
        if first == last:
            continue
        here, down, bend = score[base:end], slope[base:end], curve[base:end]
        y, gradient, scale = np.empty(end - base), np.empty(end - base), np.ones(end - base)
        for i in range(len(y)):
            y[i] = here[i]
        path, search, left = begin(y), first_search(BY_VALUE), 0.0
        while not is_lost(search):
            for i in range(len(y)):
                here[i], down[i], bend[i] = scale[i] * path.trial[i], 0.0, 0.0
            value, _ = mixture_slopes(votes, first, last, mixture, score, slope, curve, nothing)
            value += add_prior(prior, here, down, bend)
            if search.steps < 0:  # from here on by scores over their deviations
                for i in range(len(y)):
                    scale[i] = 1.0 / math.sqrt(bend[i]) if bend[i] > 0.0 else 1.0
                    path.x[i] = path.trial[i] = here[i] / scale[i]
            for i in range(len(y)):
                gradient[i] = -down[i] * scale[i]
            search = judge(path, search, -value, gradient)
            if search.tried == 0:
                left = longest_step(down, bend)
                if search.steps < ended.trace.shape[1]:
                    ended.trace[q, search.steps] = value
                if left <= tolerance or search.steps == steps:
                    break
                search = aim(path, search)
        for i in range(len(y)):
            here[i] = scale[i] * path.x[i]
        ended.iterations[q], ended.gradient[q], ended.objective[q] = search.steps, left, -search.value


@kernel
def longest_step(slope: Floats, curve: Floats) -> float:
    """The longest Newton step that any score or parameter would take if all others were held fixed."""
    longest = 0.0
    for i in range(len(slope)):
        if curve[i] > 0.0:
            longest = max(longest, abs(slope[i]) / curve[i])
    return longest


class Chain(NamedTuple):
    """How chances change with the k parameters of experts: df = rise x sigma + shift."""

    rise: Floats  # (experts, PLACES, k)
    shift: Floats  # (experts, PLACES, k)


@kernel
def information(
    votes: Votes, mixture: Mixture, chain: Chain, score: Floats
) -> tuple[Floats, Floats, Floats]:  # (V,), (V, k), (experts, k, k)
    """Expected information of every vote about its gap, about gap and parameters, and of all about the parameters."""
    count = chain.rise.shape[2]
    gaps, cross = np.empty(len(votes.winner)), np.empty((len(votes.winner), count))
    own = np.zeros((len(mixture.slope), count, count))
    for v in range(len(votes.winner)):
        expert, place = votes.expert[v], votes.place[v]
        s = sigma(score[votes.winner[v]] - score[votes.loser[v]])
        f = max(mixture.slope[expert] * s + mixture.base[expert, place], LEAST)
        sure = votes.weight[v] / (f * max(1.0 - f, LEAST))
        steep = mixture.slope[expert] * s * (1.0 - s)
        gaps[v] = sure * steep * steep
        for k in range(count):
            by = chain.rise[expert, place, k] * s + chain.shift[expert, place, k]
            cross[v, k] = sure * steep * by
            for m in range(count):
                own[expert, k, m] += sure * by * (chain.rise[expert, place, m] * s + chain.shift[expert, place, m])
    return gaps, cross, own
