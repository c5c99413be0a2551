"""win_rate and newman: against evalica, scipy and bradley_terry; planted strengths; what has no maximum."""

import evalica
import numpy as np
import pytest
import scipy.optimize
from battles import (
    TIED,
    WON,
    big_chunk,
    big_pairs,
    by_evalica,
    chunk_of,
    drawn_battles,
    minus_likelihood,
    pairs_of,
    plain,
    solved,
)
from strategies import Query, build_chunk

from distagg.errors import InputError
from distagg.models import model_named
from distagg.models.outcome import ISOLATED


def test_win_rates_are_evalicas():
    for seed in range(3):
        pairs = drawn_battles(seed, count=40)
        found = solved("win_rate", build_chunk([Query(12, pairs=pairs)]), over="opponents").score
        expected, _ = by_evalica(evalica.average_win_rate, pairs, 12)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_win_rates_are_counted_by_hand():
    won, tied = np.array(WON, dtype=float), np.array(TIED, dtype=float)
    half = won + 0.5 * (tied + tied.T)
    for ties, wins in (("half", half), ("ignore", won)):
        found = solved("win_rate", chunk_of(WON, TIED), ties=ties).score
        np.testing.assert_allclose(found, wins.sum(axis=1) / (wins + wins.T).sum(axis=1), atol=1e-11)


def test_an_item_that_was_never_compared_has_half():
    assert solved("win_rate", build_chunk([Query(3, pairs=[(0, 1, 1.0, False)])])).score.tolist() == [1.0, 0.0, 0.5]


def test_newman_is_evalicas():
    """evalica leaves the scale of strengths to the path of its iteration; their ratios are the same."""
    for seed in range(3):
        pairs = drawn_battles(seed)
        found = solved("newman", build_chunk([Query(12, pairs=pairs)]), weight=0)
        strength, peer = by_evalica(evalica.newman, pairs, 12, tolerance=1e-12, limit=100_000)
        np.testing.assert_allclose(plain(found.score), plain(np.log(strength)), atol=1e-6)
        assert found.queries["tie"][0] == pytest.approx(peer.v, abs=1e-6)


@pytest.mark.parametrize(("ties", "named"), [("learn", "davidson"), ("half", "half"), ("ignore", "ignore")])
def test_newman_ends_where_bradley_terry_does(ties, named):
    found = solved("newman", chunk_of(WON, TIED), weight=0, ties=ties)
    same = solved("bradley_terry", chunk_of(WON, TIED), prior="none", ties=named)
    np.testing.assert_allclose(found.score, same.score, atol=1e-8)
    np.testing.assert_allclose(found.queries["likelihood"], same.queries["likelihood"], rtol=1e-9)
    if ties == "learn":
        assert 2 * found.queries["tie"][0] == pytest.approx(same.queries["tie"][0], rel=1e-7)


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_the_prior_is_a_win_and_a_loss_against_strength_one(weight):
    def objective(x):
        prior = weight * np.sum(2 * np.log1p(np.exp(x[:4])) - x[:4])
        return minus_likelihood(x, "newman", "davidson", WON, TIED) + prior

    x = scipy.optimize.minimize(objective, np.zeros(5), tol=1e-12).x
    found = solved("newman", chunk_of(WON, TIED), weight=weight)
    np.testing.assert_allclose(plain(found.score), plain(x[:4]), atol=2e-5)
    assert 2 * found.queries["tie"][0] == pytest.approx(np.exp(x[4]), rel=1e-4)


def test_planted_strengths_are_recovered():
    truth, winner, loser = big_pairs()
    for name in ("newman", "rank_centrality"):
        score = solved(name, big_chunk(30, winner, loser)).score
        assert np.corrcoef(score, truth)[0, 1] > 0.95
        assert np.std(score - score.mean() - truth) < 0.35


def test_ties_alone_leave_all_equal():
    found = solved("newman", build_chunk([Query(3, pairs=[(0, 1, 1.0, True), (1, 2, 2.0, True)])]))
    assert found.score.tolist() == [0.0, 0.0, 0.0]
    assert found.queries["tie"][0] == np.inf
    assert solved("newman", chunk_of(WON)).queries["tie"][0] == 0.0


def test_maximum_likelihood_that_does_not_exist_is_refused():
    unbeaten = build_chunk([Query(3, pairs=[(0, 1, 1.0, False), (1, 2, 1.0, False)])])
    with pytest.raises(InputError, match=r"1 unbeaten.*choose weight=1"):
        solved("newman", unbeaten, weight=0)
    tied = build_chunk([Query(3, pairs=[(0, 1, 1.0, False), (0, 1, 3.0, True), (1, 2, 1.0, True), (0, 2, 1.0, True)])])
    with pytest.raises(InputError, match=r"wins that form no cycle.*choose weight=1"):
        solved("newman", tied, weight=0)
    assert np.isfinite(solved("newman", tied).score).all()


def test_components_are_centred_apart():
    lonely = [(i + 4, j + 4, w, t) for i, j, w, t in pairs_of(WON)]
    found = solved("newman", build_chunk([Query(9, pairs=[*pairs_of(WON), *lonely])]), weight=0)
    np.testing.assert_allclose(found.score[:4], found.score[4:8], atol=1e-9)
    assert found.items["status"][8] == ISOLATED
    assert found.items["component"].tolist() == [0] * 4 + [1] * 4 + [2]


def test_too_few_sweeps_are_said():
    with pytest.warns(UserWarning, match="newman: 1 queries not converged after 2 steps"):
        model_named("newman", {"steps": 2}).solve(chunk_of(WON, TIED), {})


def test_the_level_that_only_the_prior_decides_takes_no_more_sweeps():
    """Comparisons say nothing about the mean log strength of a component; sweeps alone would take hundreds."""
    _, winner, loser = big_pairs(30, 3000)
    lonely = [(30, 31, 40.0, False), (31, 30, 10.0, False)]
    pairs = [(int(i), int(j), 1.0, False) for i, j in zip(winner, loser, strict=True)]
    found = solved("newman", build_chunk([Query(32, pairs=[*pairs, *lonely])]))
    assert found.queries["converged"].all()
    assert found.queries["iterations"][0] < 40
