"""Intervals of ranks from all gaps at once, against brute force and tabulated quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from battles import big_chunk, big_pairs, chunk_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import studentized_range

from distagg.errors import UsageError
from distagg.models import model_named
from distagg.models.outcome import ISOLATED
from distagg.models.pairwise import standings as module
from distagg.models.pairwise.standings import (
    Fitted,
    Judged,
    counted_fits,
    inverse_errors,
    lowered,
    rank_bounds,
    reference,
    shown_intervals,
    standings,
    stepped_reach,
)
from distagg.models.pairwise.standings_kernels import largest_gaps


def fitted(score, spread, component=None, errors=None):
    zeros = np.zeros(len(score), dtype=np.int32)
    return Fitted(
        np.asarray(score, float), zeros if component is None else np.asarray(component), zeros, spread, errors
    )


def random_spread(draw, size):
    root = draw.normal(size=(size, size + 2)) * draw.uniform(0.2, 2.0, (size, 1))
    return root @ root.T / size


def bounds(fit, kept=None, level=0.95):
    kept = np.ones(len(fit.score), dtype=bool) if kept is None else kept
    return rank_bounds(fit, kept, level, np.random.SeedSequence(1))


def standing(chunk, anchor=-1, kept=None, **settings):
    model = model_named("bradley_terry", {"errors": "standard", **settings})
    counts = model.counting(chunk).count(chunk)
    kept = np.ones(chunk.n_items, dtype=bool) if kept is None else kept
    return standings(model, chunk, counted_fits(model, chunk, counts, split=False), Judged(kept, np.array([anchor])))[0]


def test_the_largest_gap_is_the_naive_one():
    draw = np.random.default_rng(0)
    errors, steady = draw.normal(size=(30, 6)), inverse_errors(random_spread(draw, 6), np.array([0, 0, 0, 1, 1, 1]))
    steady[draw.random(steady.shape) < 0.3] = 0.0  # ordered pairs that are left out
    wanted = [max((a[i] - a[j]) * steady[i, j] for i in range(6) for j in range(6)) for a in errors]
    np.testing.assert_allclose(largest_gaps(errors, steady, steady.T.copy()), wanted)


@pytest.mark.parametrize("size", [2, 5, 20])
def test_the_reach_of_equal_errors_is_the_studentized_range(size):
    reach = bounds(fitted(np.zeros(size), 0.3 * np.eye(size)))[2]
    assert reach == pytest.approx(studentized_range.ppf(0.95, size, np.inf) / np.sqrt(2), rel=0.03)


def test_the_reach_of_unequal_errors_is_that_of_many_plain_draws():
    draw = np.random.default_rng(2)
    spread = random_spread(draw, 7)
    errors = draw.multivariate_normal(np.zeros(7), spread, 40_000)
    low, high = np.triu_indices(7, 1)
    gap = np.sqrt(spread[low, low] + spread[high, high] - 2 * spread[low, high])
    wanted = np.quantile((np.abs(errors[:, low] - errors[:, high]) / gap).max(axis=1), 0.95)
    assert bounds(fitted(np.zeros(7), spread))[2] == pytest.approx(wanted, rel=0.03)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12))
def test_bounds_count_clear_gaps_and_no_two_of_a_group_are_told_apart(seed, size):
    draw = np.random.default_rng(seed)
    fit = fitted(draw.normal(size=size) * 8, random_spread(draw, size), draw.integers(0, 2, size).astype(np.int32))
    low, high, reach = bounds(fit)
    clear = np.zeros((size, size), dtype=bool)
    for i in range(size):
        for j in range(size):
            error = np.sqrt(max(fit.spread[i, i] + fit.spread[j, j] - 2 * fit.spread[i, j], 0.0))
            clear[i, j] = fit.component[i] == fit.component[j] and fit.score[i] - fit.score[j] > reach * error
    np.testing.assert_array_equal(low, 1 + clear.sum(axis=0))
    np.testing.assert_array_equal(high, size - clear.sum(axis=1))
    for i in range(size):
        for j in range(size):
            assert not (clear[i, j] and low[i] == low[j])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 9))
def test_the_reach_is_stepped_down_as_by_hand(seed, size):
    """By sets of ordered pairs: what is rejected leaves the set, until nothing more is rejected."""
    draw = np.random.default_rng(seed)
    spread, score = random_spread(draw, size), draw.normal(size=size) * 3
    errors, steady = draw.normal(size=(200, size)), inverse_errors(spread, np.zeros(size, int))
    gaps = (score[:, None] - score) * steady
    guarded, reaches = {(i, j) for i in range(size) for j in range(size) if i != j}, []
    while True:
        largest = [max([0.0, *((e[i] - e[j]) * steady[i, j] for i, j in guarded)]) for e in errors]
        reaches.append(np.quantile(largest, 0.9))
        rejected = {(i, j) for i, j in guarded if gaps[i, j] > reaches[-1]}
        if not rejected:
            break
        guarded -= rejected
    assert stepped_reach(gaps, errors, steady, 0.9) == pytest.approx(reaches[-1])
    assert reaches == sorted(reaches, reverse=True)


def test_only_the_draws_that_decide_are_computed_again():
    draw = np.random.default_rng(9)
    errors, steady = draw.normal(size=(300, 5)), inverse_errors(random_spread(draw, 5), np.zeros(5, int))
    bounds_of = largest_gaps(errors, steady, steady.T.copy())
    steady[draw.random(steady.shape) < 0.4] = 0.0
    exact, found = largest_gaps(errors, steady, steady.T.copy()), lowered(bounds_of, errors, steady, 16)
    np.testing.assert_array_equal(np.sort(found)[-16:], np.sort(exact)[-16:])
    assert (found >= exact).all()
    assert (found == bounds_of).sum() > (exact == bounds_of).sum()


def test_equal_items_are_called_different_on_one_board_in_twenty():
    """Two groups of equal strengths, known to a normal error: the promise is met and not exceeded."""
    draw, boards, false = np.random.default_rng(8), 600, 0
    truth, spread = np.repeat([0.0, 9.0], 4), 0.3 * np.eye(8)
    steady, higher = inverse_errors(spread, np.zeros(8, int)), truth[:, None] > truth
    errors = draw.multivariate_normal(np.zeros(8), spread, 2000)
    for estimate in draw.multivariate_normal(truth, spread, boards):
        gaps = (estimate[:, None] - estimate) * steady
        false += bool(((gaps > stepped_reach(gaps, errors, steady, 0.95)) & ~higher).any())
    assert 0.02 < false / boards < 0.07


def test_items_that_are_not_kept_neither_count_nor_widen():
    draw = np.random.default_rng(3)
    spread, score = random_spread(draw, 6), np.arange(6.0) * 5
    kept = np.array([True, False, True, True, True, False])
    low, high, reach = bounds(fitted(score, spread), kept)
    rows = np.flatnonzero(kept)
    alone = bounds(fitted(score[rows], spread[np.ix_(rows, rows)]))
    np.testing.assert_array_equal(low[rows], alone[0])
    np.testing.assert_array_equal(high[rows], alone[1])
    assert reach == alone[2]


def test_an_interval_is_that_of_the_number_shown():
    """The deviation of a gap to the mean over comparisons, or to an anchor, by plain draws."""
    draw = np.random.default_rng(4)
    spread, compared = random_spread(draw, 5), np.array([50.0, 10.0, 5.0, 2.0, 30.0])
    errors = draw.multivariate_normal(np.zeros(5), spread, 60_000)
    for anchor in (-1, 2):
        share = reference(np.zeros(5, int), compared, anchor)
        assert share.sum() == pytest.approx(1.0)
        deviation, low, high = shown_intervals(fitted(np.arange(5.0), spread), share, 9.0, 0.95)
        np.testing.assert_allclose(deviation, (errors - (errors @ share)[:, None]).std(axis=0), rtol=0.02)
        np.testing.assert_allclose((high - low) / 2, 1.959964 * deviation, rtol=1e-6)
    assert deviation[2] == 0.0
    drawn = shown_intervals(fitted(np.arange(5.0), spread, errors=errors), share, 9.0, 0.95)
    np.testing.assert_allclose(drawn[1], low, atol=0.15)
    np.testing.assert_allclose(drawn[2], high, atol=0.15)


def test_a_baseline_that_everybody_meets_has_an_error_of_its_own():
    """Its quasi-variance is 0, which is no interval of its score."""
    won = np.zeros((5, 5), int)
    won[0, 1:] = [20, 15, 25, 18]
    won[1:, 0] = [10, 15, 8, 12]
    found = standing(chunk_of(won.tolist()))
    assert found.deviation[0] > 0.3 * found.deviation[1:].min()


def test_components_and_lonely_items_may_have_any_rank_among_the_others():
    won = np.zeros((5, 5), int)
    won[0, 1], won[1, 0], won[2, 3], won[3, 2] = 900, 100, 900, 100
    found = standing(chunk_of(won.tolist()))
    assert found.status[4] == ISOLATED
    assert found.deviation[4] == pytest.approx(found.fit["weight"] ** -0.5)
    assert list(zip(found.rank_low.tolist(), found.rank_high.tolist(), strict=True)) == [
        (1, 4), (2, 5), (1, 4), (2, 5), (1, 5),
    ]  # fmt: skip
    assert np.isnan(found.chance[0, 2:]).all()
    known = ~np.isnan(found.chance)
    np.testing.assert_allclose((found.chance + found.chance.T)[known], 1.0)


@pytest.mark.parametrize("errors", ["standard", "bootstrap"])
def test_planted_strengths_lie_in_their_intervals(errors):
    truth, winner, loser = big_pairs(size=12, count=6000, seed=5)
    found = standing(big_chunk(12, winner, loser), errors=errors)
    rank = 1 + (truth[None, :] > truth[:, None]).sum(axis=1)
    assert ((found.rank_low <= rank) & (rank <= found.rank_high)).all()
    assert (found.rank_high - found.rank_low).mean() < 5
    assert ((found.low < found.score) & (found.score < found.high)).all()
    assert found.fit["converged"]


def test_the_bootstrap_and_the_curvature_agree():
    _, winner, loser = big_pairs(size=8, count=1500, seed=6)
    chunk = big_chunk(8, winner, loser)
    drawn, standard = standing(chunk, errors="bootstrap", resamples=300), standing(chunk)
    np.testing.assert_allclose(drawn.deviation, standard.deviation, rtol=0.2)
    assert drawn.reach == pytest.approx(standard.reach, rel=0.1)


def test_too_many_items_are_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(module, "MOST_ITEMS", 3)
    with pytest.raises(UsageError, match=r"found 4 items, expected at most 3.*--min-battles"):
        bounds(fitted(np.zeros(4), np.eye(4)))
