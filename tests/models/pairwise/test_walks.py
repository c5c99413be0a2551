"""pagerank, eigen and rank_centrality: against evalica, choix and dense linear algebra."""

import choix
import evalica
import numpy as np
import pytest
from battles import WON, by_evalica, chunk_of, drawn_battles, pairs_of, plain, solved
from strategies import Query, build_chunk

from distagg.errors import InputError, UsageError
from distagg.models import model_named


def matrix_of(pairs, size):
    """Wins (row over column), a tie as half a win of each side."""
    wins = np.zeros((size, size))
    for i, j, weight, tie in pairs:
        wins[i, j] += weight * (0.5 if tie else 1.0)
        wins[j, i] += weight * (0.5 if tie else 0.0)
    return wins


def leading(matrix):
    """The leading eigenvector, with sum 1."""
    values, vectors = np.linalg.eig(matrix)
    vector = np.abs(np.real(vectors[:, np.argmax(np.real(values))]))
    return vector / vector.sum()


@pytest.mark.parametrize("damping", [0.5, 0.85])
def test_pagerank_is_evalicas_and_the_eigenvector(damping):
    for seed in range(3):
        pairs = [(0, 1, 2.0, False), *drawn_battles(seed, count=30)[13:]]  # without the cycle: some are unbeaten
        found = solved("pagerank", build_chunk([Query(12, pairs=pairs)]), damping=damping).score
        wins = matrix_of(pairs, 12)
        lost = wins.sum(axis=0)
        walk = np.where(lost > 0, wins / np.where(lost > 0, lost, 1), 1 / 12)
        np.testing.assert_allclose(found, leading(damping * walk + (1 - damping) / 12), atol=1e-9)
        met = sorted({item for i, j, *_ in pairs for item in (i, j)})
        if len(met) == 12:  # evalica knows only the items that it sees
            expected, _ = by_evalica(evalica.pagerank, pairs, 12, damping=damping, tolerance=1e-12, limit=10_000)
            np.testing.assert_allclose(found, expected, atol=1e-6)


def test_pagerank_on_all_items_is_evalicas():
    for seed in range(3):
        pairs = drawn_battles(seed)
        found = solved("pagerank", build_chunk([Query(12, pairs=pairs)])).score
        expected, _ = by_evalica(evalica.pagerank, pairs, 12, tolerance=1e-12, limit=10_000)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_eigenvector_is_evalicas_turned_round():
    """evalica sums over those who beat an item; ``transposed`` does so too."""
    for seed in range(3):
        pairs = drawn_battles(seed)
        found = solved("eigen", build_chunk([Query(12, pairs=pairs)]), smoothing=0, transposed=True).score
        expected, _ = by_evalica(evalica.eigen, pairs, 12, tolerance=1e-12, limit=10_000)
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.01, 0.5])
def test_the_eigenvector_is_numpys(smoothing):
    pairs = drawn_battles(1)
    wins = matrix_of(pairs, 12)
    added = smoothing * wins.sum() / 66 * (1 - np.eye(12))
    vector = leading(wins + added)
    found = solved("eigen", build_chunk([Query(12, pairs=pairs)]), smoothing=smoothing).score
    np.testing.assert_allclose(found, vector / np.linalg.norm(vector), atol=1e-8)


def test_two_items_that_beat_each_other_do_not_swing_for_ever():
    found = solved("eigen", build_chunk([Query(2, pairs=[(0, 1, 4.0, False), (1, 0, 1.0, False)])]), smoothing=0).score
    np.testing.assert_allclose(found, np.array([2.0, 1.0]) / 5**0.5, atol=1e-9)


@pytest.mark.parametrize(("alpha", "uncompared"), [(0.0, "none"), (0.7, "half")])
def test_rank_centrality_is_choix(alpha, uncompared):
    """With alpha above 0 choix lets items that never met exchange weight at the rate of a half."""
    for seed in range(3):
        pairs = [(i, j, 1.0, False) for i, j, *_ in drawn_battles(seed, count=30)]
        found = solved("rank_centrality", build_chunk([Query(12, pairs=pairs)]), alpha=alpha, uncompared=uncompared)
        expected = choix.rank_centrality(12, [(i, j) for i, j, *_ in pairs], alpha=alpha)
        np.testing.assert_allclose(plain(found.score), plain(expected), atol=1e-6)


def test_exact_shares_give_back_the_strengths():
    """Where shares of wins are what Bradley and Terry expect, the stationary walk is at the strengths."""
    strength = np.array([1.0, 2.0, 5.0, 0.5])
    won = strength[:, None] / (strength[:, None] + strength)
    chunk = build_chunk([Query(4, pairs=[(i, j, won[i, j], False) for i in range(4) for j in range(4) if i != j])])
    score = solved("rank_centrality", chunk, alpha=0).score
    np.testing.assert_allclose(plain(score), plain(np.log(strength)), atol=1e-8)


def test_components_are_centred_apart():
    lonely = [(i + 4, j + 4, w, t) for i, j, w, t in pairs_of(WON)]
    score = solved("rank_centrality", build_chunk([Query(9, pairs=[*pairs_of(WON), *lonely])]), alpha=0).score
    np.testing.assert_allclose(score[:4], score[4:8], atol=1e-9)
    assert score[8] == 0.0
    np.testing.assert_allclose(score[:4], solved("rank_centrality", chunk_of(WON), alpha=0).score, atol=1e-9)


def test_what_has_no_stationary_walk_is_refused():
    with pytest.raises(InputError, match=r"1 unbeaten.*choose alpha=1, or uncompared=half"):
        solved("rank_centrality", build_chunk([Query(2, pairs=[(0, 1, 1.0, False)])]), alpha=0)
    with pytest.raises(UsageError, match=r"damping of pagerank: found 1\.0, expected a number below 1"):
        model_named("pagerank", {"damping": 1.0})


def test_too_few_steps_are_said():
    with pytest.warns(UserWarning, match="eigen: 1 queries not converged after 3 steps"):
        solved("eigen", chunk_of(WON), steps=3)
