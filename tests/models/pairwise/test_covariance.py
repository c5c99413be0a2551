"""The covariance of a fit's error against its definition, written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from battles import TIED, WON, chunk_of

from distagg.models import model_named
from distagg.models.pairwise.covariance import covariance, expected
from distagg.models.pairwise.links import DAVIDSON, LOGIT, PROBIT, RAO_KUPPER
from distagg.models.pairwise.standings import inverse_errors


def fit_of(settings, won=WON, tied=TIED):
    model = model_named("bradley_terry", settings)
    chunk = chunk_of(won, tied)
    counts = model.counting(chunk).count(chunk)
    graph = model.examine(counts)
    outcome, eta = model.fitted(counts, graph)
    found = covariance(counts, 0, graph.component, outcome.score, float(eta[0]), model.terms(outcome))
    return outcome, found


def naive(score, weight, *, learned):
    """A^-1 (p H + f w I) A^-1 + 2 / g v v', with loops over pairs."""
    size = len(score)
    played = np.array(WON) + np.array(TIED)
    played = (played + played.T).astype(float)
    chance = np.array([[1 / (1 + math.exp(b - a)) for b in score] for a in score])
    bent = played * chance * (1 - chance)
    hessian = np.diag(bent.sum(axis=1)) - bent
    dispersion = 1 - np.sum(TIED) / (4 * np.triu(bent, 1).sum())
    known = 1 + sum(d / (d + weight) for d in np.diag(hessian))
    wider = known / (known - 2) if learned else 1.0
    inverse = np.linalg.inv(hessian + weight * np.eye(size))
    middle = dispersion * hessian + wider * weight * np.eye(size)
    moved = weight * inverse @ (score - score.mean())
    return inverse @ middle @ inverse + learned * 2 / known * np.outer(moved, moved)


def gap_errors(spread):
    with np.errstate(divide="ignore"):
        return 1 / inverse_errors(spread, np.zeros(len(spread), int))[np.triu_indices(len(spread), 1)]


@pytest.mark.parametrize("weight", ["auto", 0.7])
def test_the_covariance_is_its_definition(weight):
    outcome, found = fit_of({"weight": weight})
    wanted = naive(outcome.score, outcome.queries["weight"][0], learned=weight == "auto")
    np.testing.assert_allclose(gap_errors(found), gap_errors(wanted))


def test_errors_shrink_with_ties_that_count_as_half_wins():
    """Ten times as many ties as wins: outcomes hardly vary."""
    few, many = (fit_of({"prior": "none"}, tied=times * np.array(TIED))[1] for times in (1, 40))
    ratio = gap_errors(many)[1] / gap_errors(few)[1]
    assert 0.05 < ratio < 0.4


def test_only_ties_leave_a_positive_error():
    _, found = fit_of({}, won=np.zeros((4, 4), int), tied=np.triu(np.ones((4, 4), int), 1))
    assert (gap_errors(found) > 0).all()


@pytest.mark.parametrize("link", [LOGIT, PROBIT, DAVIDSON, RAO_KUPPER])
def test_expected_scores_of_two_sides_sum_to_one(link):
    gap = np.array([-800.0, -3.0, 0.0, 0.2, 5.0, 800.0])
    np.testing.assert_allclose(expected(link, gap, 0.4) + expected(link, -gap, 0.4), 1.0)
    assert (np.diff(expected(link, gap, 0.4)) >= 0).all()


def test_expected_scores_are_those_of_their_models():
    d, eta = 0.7, 0.3
    up, down, nu = math.exp(d / 2), math.exp(-d / 2), math.exp(eta)
    assert expected(DAVIDSON, np.array([d]), eta)[0] == pytest.approx((up + nu / 2) / (up + down + nu))
    win, lose = 1 / (1 + math.exp(eta - d)), 1 / (1 + math.exp(eta + d))
    assert expected(RAO_KUPPER, np.array([d]), eta)[0] == pytest.approx(win + (1 - win - lose) / 2)
    assert expected(PROBIT, np.array([d]), 0.0)[0] == pytest.approx(0.5 + 0.5 * math.erf(d / 2))
    assert expected(DAVIDSON, np.array([d]), np.inf).tolist() == [0.5]
