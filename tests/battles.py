"""Pairs for tests of comparison models, and the plain likelihood of their fits."""

import math

import evalica
import numpy as np
import scipy.optimize
import scipy.stats
from strategies import Query, build_chunk

from distagg.models import model_named

WON = [[0, 4, 2, 5], [2, 0, 3, 4], [1, 2, 0, 2], [0, 1, 3, 0]]
TIED = [[0, 1, 0, 2], [0, 0, 3, 0], [0, 0, 0, 1], [0, 0, 0, 0]]


def pairs_of(won, tied=None):
    """Raw pairs, repeated or weighted."""
    size = len(won)
    pairs = [(i, j, float(won[i][j]), False) for i in range(size) for j in range(size) if won[i][j]]
    for i, j in [(i, j) for i in range(size) for j in range(size) if tied is not None and tied[i][j]]:
        pairs += [(i, j, 1.0, True)] * tied[i][j]
    return pairs


def plain(score):
    """Scores about their plain mean, as peers centre them."""
    return score - np.mean(score)


def naive_quasi_errors(covariance):
    """Roots of the numbers whose sums are relatively nearest to the variances of gaps, by a general solver."""
    size = len(covariance)
    low, high = np.triu_indices(size, 1)
    gap = np.diag(covariance)[low] + np.diag(covariance)[high] - 2 * covariance[low, high]
    start = np.full(size, gap.mean() / 2)
    found = scipy.optimize.least_squares(lambda q: (q[low] + q[high]) / gap - 1, start, xtol=1e-14, ftol=1e-14)
    return np.sqrt(np.maximum(found.x, 0.0))


def chunk_of(won, tied=None):
    return build_chunk([Query(len(won), pairs=pairs_of(won, tied))])


def solved(name, chunk, **settings):
    return model_named(name, settings).solve(chunk, {})


def minus_likelihood(x, name, ties, won, tied):
    """The plain negative log likelihood; x holds scores and, with learned ties, their parameter's logarithm."""
    size = len(won)
    total = 0.0
    for i in range(size):
        for j in range(size):
            if i == j:
                continue
            a, b = math.exp(x[i]), math.exp(x[j])
            if name == "thurstone":
                win = scipy.stats.norm.cdf((x[i] - x[j]) / math.sqrt(2))
            else:
                win = a / (a + b)
            tie = math.sqrt(win * (1 - win)) if ties == "half" else 1.0
            if ties == "davidson":
                z = a + b + math.exp(x[size]) * math.sqrt(a * b)
                win, tie = a / z, math.exp(x[size]) * math.sqrt(a * b) / z
            elif ties == "rao_kupper":
                theta = 1 + math.exp(x[size])  # free, where the model's own has to stay above 1
                win = a / (a + theta * b)
                tie = (theta**2 - 1) * a * b / ((a + theta * b) * (theta * a + b))
            total -= won[i][j] * math.log(win) + tied[i][j] * math.log(tie)
    return total


def big_pairs(size=30, count=2000, seed=0):
    draw = np.random.default_rng(seed)
    truth = draw.normal(size=size)
    i = draw.integers(0, size, count)
    j = (i + draw.integers(1, size, count)) % size
    first = draw.random(count) < 1 / (1 + np.exp(truth[j] - truth[i]))
    return truth - truth.mean(), np.where(first, i, j), np.where(first, j, i)


def big_chunk(size, winner, loser):
    return build_chunk([Query(size, pairs=[(int(i), int(j), 1.0, False) for i, j in zip(winner, loser, strict=True)])])


def by_evalica(function, pairs, size, **settings):
    """Scores of a peer's function by item, and the peer's whole result."""
    columns = [w for w, *_ in pairs], [x for _, x, *_ in pairs], [2 if tie else 0 for *_, tie in pairs]
    left, right = ([f"i{n}" for n in side] for side in columns[:2])
    winners = [evalica.Winner.Draw if how else evalica.Winner.X for how in columns[2]]
    found = function(left, right, winners, weights=[weight for _, _, weight, _ in pairs], **settings)
    return np.array([found.scores[f"i{n}"] for n in range(size)]), found


def drawn_battles(seed, size=12, count=300):
    """Weighted battles with ties, in which every item wins and loses somewhere."""
    draw = np.random.default_rng(seed)
    strength = draw.normal(size=size)
    pairs = [(i, (i + 1) % size, 1.0, False) for i in range(size)]
    for _ in range(count):
        i, j = draw.choice(size, 2, replace=False)
        ahead = draw.random() < 1 / (1 + np.exp(strength[j] - strength[i]))
        pairs.append((int(i if ahead else j), int(j if ahead else i), float(draw.integers(1, 4)), draw.random() < 0.2))
    return pairs
