"""Kernels of crowds beside plain Python, and their gradients beside finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from crowds import naive_chance, naive_posterior
from strategies import Query, build_chunk

from distagg.models import model_named
from distagg.models.crowd.kernels import (
    GAUSSIAN,
    PLACES,
    SUMS,
    VIRTUAL,
    Prior,
    Votes,
    add_prior,
    information,
    mixture_slopes,
)
from distagg.models.crowd.votes import votes_of

ITEMS, EXPERTS = 5, 3


def some_votes(seed: int = 0, count: int = 40) -> Votes:
    draw = np.random.default_rng(seed)
    winner = draw.integers(0, ITEMS, count)
    loser = (winner + draw.integers(1, ITEMS, count)) % ITEMS
    columns = (winner, loser, draw.integers(0, EXPERTS, count), draw.integers(0, PLACES, count))
    weight = draw.choice([0.5, 1.0, 2.0], count)
    return Votes(np.array([0, count]), *(column.astype(np.int32) for column in columns), weight, np.zeros(EXPERTS))


def theta_of(model, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=len(model.first(EXPERTS)))


def posterior(model, votes: Votes, x: np.ndarray, prior: Prior) -> tuple[float, np.ndarray]:
    """The same by the kernels, with its gradient."""
    score, theta = x[:ITEMS].copy(), x[ITEMS:].copy()
    slope, curve, sums = np.zeros(ITEMS), np.zeros(ITEMS), np.zeros((EXPERTS, PLACES, SUMS))
    value, _ = mixture_slopes(votes, 0, len(votes.winner), model.mixture(theta), score, slope, curve, sums)
    value += add_prior(prior, score, slope, curve)
    said, of_experts, bend = model.expert_slopes(theta, sums)
    assert (curve > 0).all()
    assert (bend > 0).all()
    return value + said, np.concatenate([slope, of_experts])


@pytest.mark.parametrize("kind", [GAUSSIAN, VIRTUAL])
@pytest.mark.parametrize("name", ["crowd_bt", "noisy_bt"])
def test_posterior_and_gradient(name, kind):
    model, votes, prior = model_named(name), some_votes(), Prior(kind, 0.7)
    x = np.concatenate([np.random.default_rng(2).normal(size=ITEMS), theta_of(model)])
    value, gradient = posterior(model, votes, x, prior)
    assert value == pytest.approx(naive_posterior(model, votes, x, prior), rel=1e-12)
    numeric = scipy.optimize.approx_fprime(x, lambda at: naive_posterior(model, votes, at, prior), 1e-6)
    np.testing.assert_allclose(gradient, numeric, atol=2e-5)


@pytest.mark.parametrize("name", ["crowd_bt", "noisy_bt"])
def test_expected_information(name):
    """Of every vote: the products of its chance's derivatives, over the variance of its outcome."""
    model, votes = model_named(name), some_votes()
    score, theta = np.random.default_rng(2).normal(size=ITEMS), theta_of(model)
    count = len(theta) // EXPERTS
    gaps, cross, own = information(votes, model.mixture(theta), model.chain(theta), score)
    wanted = np.zeros((EXPERTS, count, count))
    for v, (winner, loser, expert, place, weight) in enumerate(zip(*votes[1:6], strict=True)):

        def chance(at, expert=expert, place=place):
            return naive_chance(name, at[1:], expert, place, at[0])

        at = np.concatenate([[score[winner] - score[loser]], theta])
        slope = scipy.optimize.approx_fprime(at, chance, 1e-7)
        mine = slope[1 + count * expert : 1 + count * (expert + 1)]
        sure = weight / (chance(at) * (1 - chance(at)))
        assert gaps[v] == pytest.approx(sure * slope[0] ** 2, abs=1e-5)
        np.testing.assert_allclose(cross[v], sure * slope[0] * mine, atol=1e-5)
        wanted[expert] += sure * np.outer(mine, mine)
    np.testing.assert_allclose(own, wanted, atol=1e-5)


def test_votes_of_pairs():
    """Weights of 0 and items against themselves are no votes; a tie is half a vote for each side, and not decisive."""
    pairs = [(0, 1, 2.0, False), (1, 0, 1.0, True), (2, 1, 0.0, False), (2, 2, 1.0, False)]
    votes = votes_of(build_chunk([Query(3), Query(3, pairs=pairs)], n_experts=2), 0.5)
    assert votes.offsets.tolist() == [0, 0, 3]
    rows = zip(votes.winner, votes.loser, votes.weight, strict=True)
    assert list(rows) == [(3, 4, 2.0), (4, 3, 0.5), (3, 4, 0.5)]
    assert votes.decided.tolist() == [1.0, 0.0]
