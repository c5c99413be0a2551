"""bradley_terry and thurstone: against scipy, choix and evalica; ties, weights, errors, and what has no maximum."""

import math

import choix
import evalica
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from battles import TIED, WON, big_chunk, big_pairs, chunk_of, minus_likelihood, pairs_of, plain, solved
from rounds_by_hand import run
from strategies import Query, build_chunk

from distagg.errors import InputError, UsageError
from distagg.models import NotConvergedWarning, model_named
from distagg.models.outcome import ISOLATED, OK, UNBEATEN, WINLESS


def by_scipy(name, ties, won, tied, penalty):
    """Centred scores and tie parameter."""
    size, learned = len(won), ties in ("davidson", "rao_kupper")

    def objective(x):
        return minus_likelihood(x, name, ties, won, tied) + penalty(x[:size])

    x = scipy.optimize.minimize(objective, np.zeros(size + learned), tol=1e-12).x
    extra = math.exp(x[size]) + (ties == "rao_kupper") if learned else None
    return x[:size] - x[:size].mean(), extra


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(
            (name, {"ties": ties, "prior": prior})
            for name in ("bradley_terry", "thurstone")
            for ties in ("ignore", "half")
            for prior in ("none", "gaussian")
        ),
        *(
            ("bradley_terry", {"ties": ties, "prior": prior})
            for ties in ("davidson", "rao_kupper")
            for prior in ("none", "gaussian", "gamma")
        ),
        ("bradley_terry", {"prior": "gamma", "shape": 3.0}),
    ],
)
def test_the_fit_is_scipys(name, settings):
    model = model_named(name, {"weight": 0.7} | settings)

    def penalty(s):
        if model.prior == "gamma":
            return np.sum(np.exp(s) - (model.shape - 1) * s)
        return 0.35 * np.sum(s**2) if model.prior == "gaussian" else 0.0

    found = model.solve(chunk_of(WON, TIED), {})
    expected, tie = by_scipy(name, model.ties, WON, TIED, penalty)
    np.testing.assert_allclose(plain(found.score), expected, atol=2e-5)
    assert found.queries["converged"].all()
    shares = {"ignore": 0, "rao_kupper": 2}
    met = np.array(WON) + shares.get(model.ties, 1) * np.array(TIED)
    compared = met.sum(axis=0) + met.sum(axis=1)
    assert compared @ found.score == pytest.approx(0.0, abs=1e-6)
    if tie is not None:
        assert found.queries["tie"][0] == pytest.approx(tie, rel=1e-4)


@pytest.mark.parametrize("name", ["bradley_terry", "thurstone"])
def test_weights_are_repetitions(name):
    weighted = chunk_of(WON)
    repeated = build_chunk(
        [Query(4, pairs=[(i, j, 1.0, False) for i, j, w, _ in pairs_of(WON) for _ in range(int(w))])]
    )
    np.testing.assert_allclose(solved(name, weighted).score, solved(name, repeated).score, atol=1e-12)


def test_weights_of_zero_say_nothing():
    with_zero = build_chunk([Query(5, pairs=[*pairs_of(WON), (0, 4, 0.0, False), (4, 1, 0.0, True)])])
    found = solved("bradley_terry", with_zero)
    np.testing.assert_allclose(found.score[:4], solved("bradley_terry", chunk_of(WON)).score, atol=1e-12)
    assert found.score[4] == 0.0
    assert found.items["status"].tolist() == [OK, OK, OK, OK, ISOLATED]


def test_choix_agrees():
    _, winner, loser = big_pairs()
    data = list(zip(winner.tolist(), loser.tolist(), strict=True))
    chunk = big_chunk(30, winner, loser)
    found = solved("bradley_terry", chunk, prior="none").score
    np.testing.assert_allclose(plain(found), choix.ilsr_pairwise(30, data, tol=1e-12), atol=1e-6)
    found = solved("bradley_terry", chunk, prior="gaussian", weight=1.0).score
    np.testing.assert_allclose(plain(found), choix.opt_pairwise(30, data, alpha=0.5, tol=1e-12), atol=1e-6)


def test_evalica_agrees():
    _, winner, loser = big_pairs()
    wins = [evalica.Winner.X] * len(winner)
    strength = evalica.bradley_terry(winner.tolist(), loser.tolist(), wins, tolerance=1e-14, limit=10_000).scores
    expected = np.log(strength.sort_index().to_numpy())
    found = solved("bradley_terry", big_chunk(30, winner, loser), prior="none").score
    np.testing.assert_allclose(plain(found), expected - expected.mean(), atol=1e-6)


@pytest.mark.parametrize("settings", [{"prior": "none"}, {"prior": "gamma", "shape": 1.5}])
def test_mm_ends_where_newton_does(settings):
    size = 30
    winner, loser = big_pairs(size)[-2:]
    chunk = big_chunk(size, winner, loser)
    newton = solved("bradley_terry", chunk, **settings)
    mm = solved("bradley_terry", chunk, solver="mm", **settings)
    np.testing.assert_allclose(mm.score, newton.score, atol=1e-6)
    assert mm.queries["converged"].all()
    assert mm.queries["iterations"][0] > newton.queries["iterations"][0]
    assert mm.queries["likelihood"][0] == pytest.approx(newton.queries["likelihood"][0])


def test_mm_has_no_step_for_some_settings():
    for settings in ({}, {"prior": "none", "ties": "davidson"}):
        with pytest.raises(UsageError, match="solver=mm has no step"):
            model_named("bradley_terry", {"solver": "mm", **settings})


def test_gradient_steps_are_plain_ones():
    """Against steps written down with matrices; the pairs of items 4 and 5 have no maximum likelihood."""
    pairs = [*pairs_of(WON), (4, 5, 2.0, False)]
    won = np.zeros((6, 6))
    for i, j, weight, _ in pairs:
        won[i, j] += weight
    s = np.zeros(6)
    for _ in range(7):
        chance = 1 / (1 + np.exp(s[None, :] - s[:, None]))
        s += 0.05 * (won - (won + won.T) * chance).sum(axis=1)
    settings = {"solver": "gradient", "prior": "none", "steps": 7, "rate": 0.05}
    chunk = build_chunk([Query(6, pairs=pairs)])
    with pytest.warns(NotConvergedWarning, match="1 queries not converged after 7 steps"):
        found = solved("bradley_terry", chunk, **settings)
    np.testing.assert_allclose(plain(found.score[:4]), plain(s[:4]), atol=1e-9)
    np.testing.assert_allclose(plain(found.score[4:]), plain(s[4:]), atol=1e-9)
    with pytest.warns(NotConvergedWarning):
        traced = model_named("bradley_terry", settings).solve(chunk, {}, trace=True)
    assert traced.score.tobytes() == found.score.tobytes()
    assert (np.diff(traced.trace[0]) > 0).all()


@pytest.mark.parametrize("settings", [{"prior": "none"}, {"weight": 0.7}, {"prior": "gamma"}])
def test_many_gradient_steps_end_where_newton_does(settings):
    found = solved("bradley_terry", chunk_of(WON, TIED), solver="gradient", rate=0.1, **settings)
    np.testing.assert_allclose(found.score, solved("bradley_terry", chunk_of(WON, TIED), **settings).score, atol=1e-7)


@pytest.mark.parametrize("rate", [1e3, 1e150, 1e307])
def test_gradient_steps_that_are_too_long_are_not_called_converged(rate):
    """Where scores are far apart the curvature underflows to 0, and beyond that the scores overflow."""
    with pytest.warns(NotConvergedWarning, match="1 queries not converged after"):
        found = solved("bradley_terry", chunk_of(WON, TIED), solver="gradient", prior="none", rate=rate)
    assert np.isfinite(found.score).all()
    assert not found.queries["converged"][0]


def test_gradient_steps_learn_no_priors_and_no_ties():
    for settings in ({}, {"prior": "none", "ties": "davidson"}, {"prior": "none", "errors": "standard"}):
        with pytest.raises(UsageError, match="solver=gradient learns neither"):
            model_named("bradley_terry", {"solver": "gradient", **settings})


def test_items_with_the_same_record_tie():
    """Whatever the order of summation."""
    size = 30
    lists = {e: {int(i): p + 1.0 for p, i in enumerate(np.random.default_rng(e).permutation(9))} for e in range(12)}
    scores = solved("bradley_terry", build_chunk([Query(size, lists)])).score
    assert len(set(scores[9:].tolist())) == 1


def test_planted_strengths_are_recovered():
    off = []
    for seed in range(5):
        truth, winner, loser = big_pairs(size=40, count=4000, seed=seed)
        chunk = big_chunk(40, winner, loser)
        found = solved("bradley_terry", chunk, errors="standard", prior="none")
        off.append((found.score - truth) / found.items["uncertainty"])
        assert scipy.stats.spearmanr(truth, solved("thurstone", chunk).score).statistic > 0.95
    assert 0.85 < np.std(off) < 1.15
    assert 0.90 < np.mean(np.abs(off) < 1.96) < 0.99


UNBEATEN_WON = [[0, 2, 1], [0, 0, 2], [0, 1, 0]]
TWO_WON = [[0, 2, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 3, 0]]


@pytest.mark.parametrize("name", ["bradley_terry", "thurstone"])
def test_unbeaten_items_are_finite_with_a_prior_and_named_without(name):
    chunk = chunk_of(UNBEATEN_WON)
    found = solved(name, chunk)
    assert found.score.argmax() == 0
    assert np.isfinite(found.score).all()
    assert found.items["status"].tolist() == [UNBEATEN, OK, OK]
    with pytest.raises(InputError, match=r"query q0: found 1 unbeaten \(i0\).*2 strongly.*prior=gaussian$"):
        solved(name, chunk, prior="none")
    with pytest.raises(InputError, match="unbeaten"):
        solved(name, chunk, prior="none", components=True)


@pytest.mark.parametrize("name", ["bradley_terry", "thurstone"])
def test_components_are_centred_and_fitted_apart_when_asked(name):
    chunk = chunk_of(TWO_WON)
    with pytest.raises(InputError, match=r"2 connected and 2 strongly.*components=true"):
        solved(name, chunk, prior="none")
    for settings in ({"prior": "none", "components": True}, {}):
        found = solved(name, chunk, **settings)
        assert found.items["component"].tolist() == [0, 0, 1, 1]
        assert found.score[:2].sum() == pytest.approx(0.0, abs=1e-8)
        assert found.score[2:].sum() == pytest.approx(0.0, abs=1e-8)
    if name == "bradley_terry":
        found = solved(name, chunk, prior="none", components=True, errors="standard")
        np.testing.assert_allclose(found.score, np.log([2**0.5, 2**-0.5, 3**-0.5, 3**0.5]), atol=1e-8)
        np.testing.assert_allclose(
            found.items["uncertainty"][:2], math.sqrt(3 / 4)
        )  # two share the variance of their gap


def test_isolated_items_stand_at_the_prior_mean():
    chunk = build_chunk([Query(3, pairs=[(0, 1, 1.0, False), (1, 0, 1.0, False)])])
    found = solved("bradley_terry", chunk, errors="standard", weight=0.25)
    assert found.items["status"].tolist() == [OK, OK, ISOLATED]
    assert found.items["component"].tolist() == [0, 0, 1]
    assert found.score[2] == 0.0
    assert found.items["uncertainty"][2] == 2.0
    with pytest.raises(InputError, match=r"1 isolated \(i2\)"):
        solved("bradley_terry", chunk, prior="none")
    apart = solved("bradley_terry", chunk, prior="none", components=True, errors="standard")
    assert np.isinf(apart.items["uncertainty"][2])


def test_unlisted_items_are_last_or_unheard_of():
    chunk = build_chunk([Query(4, {0: {0: 1, 1: 2}, 1: {1: 1, 0: 2}})])
    last = solved("bradley_terry", chunk)
    assert last.items["status"].tolist() == [OK, OK, WINLESS, WINLESS]
    assert last.score[2] == last.score[3] < last.score[0]
    ignored = solved("bradley_terry", chunk, unlisted="ignore")
    assert ignored.items["status"].tolist() == [OK, OK, ISOLATED, ISOLATED]


@pytest.mark.parametrize(
    ("ties", "status", "tie"),
    [("ignore", ISOLATED, None), ("half", OK, None), ("davidson", OK, np.inf), ("rao_kupper", OK, np.inf)],
)
def test_nothing_but_ties_leaves_all_equal(ties, status, tie):
    chunk = build_chunk([Query(3, pairs=[(0, 1, 1.0, True), (1, 2, 2.0, True)])])
    found = solved("bradley_terry", chunk, ties=ties, errors="standard")
    np.testing.assert_allclose(found.score, 0.0, atol=1e-12)
    assert (found.items["status"] == status).all()
    assert tie is None or found.queries["tie"].tolist() == [tie]
    assert np.isfinite(found.queries["likelihood"]).all()


@pytest.mark.parametrize(("ties", "rest"), [("davidson", 0.0), ("rao_kupper", 1.0)])
def test_without_ties_their_parameter_is_at_its_end(ties, rest):
    found = solved("bradley_terry", chunk_of(WON), ties=ties, errors="standard")
    plain = solved("bradley_terry", chunk_of(WON), errors="standard")
    np.testing.assert_allclose(found.score, plain.score, atol=1e-8)
    np.testing.assert_allclose(found.items["uncertainty"], plain.items["uncertainty"], atol=1e-8)
    np.testing.assert_allclose(found.queries["likelihood"], plain.queries["likelihood"])
    assert found.queries["tie"].tolist() == [rest]


@pytest.mark.parametrize("ties", ["davidson", "rao_kupper"])
def test_ties_alone_do_not_bound_scores(ties):
    """One win, one tie: the wider the gap and the likelier ties, the better."""
    chunk = build_chunk([Query(2, pairs=[(0, 1, 1.0, False), (0, 1, 1.0, True)])])
    with pytest.raises(InputError, match=r"wins that form no cycle.*prior=gaussian"):
        solved("bradley_terry", chunk, ties=ties, prior="none")
    assert solved("bradley_terry", chunk, ties=ties).score[0] > 0


def test_a_chain_wider_than_exp_can_hold():
    """1000 items, each 10 times as strong as the next: log strengths span 2300."""
    size, ratio = 1000, 10.0
    chunk = build_chunk(
        [Query(size, pairs=[p for i in range(size - 1) for p in ((i, i + 1, ratio, False), (i + 1, i, 1.0, False))])]
    )
    found = solved("bradley_terry", chunk, prior="none")
    np.testing.assert_allclose(np.diff(found.score), -math.log(ratio), atol=1e-6)
    assert found.queries["converged"].all()


def test_the_trace_rises_to_the_likelihood():
    model = model_named("bradley_terry", {"prior": "none"})
    found = model.solve(chunk_of(WON), {}, trace=True)
    assert found.trace.shape == (1, found.queries["iterations"][0])
    assert (np.diff(found.trace[0]) >= -1e-12).all()
    assert found.trace[0, -1] == found.queries["likelihood"][0]
    np.testing.assert_array_equal(found.score, model.solve(chunk_of(WON), {}).score)
    expected = -minus_likelihood(found.score, "bradley_terry", "ignore", WON, np.zeros((4, 4)))
    assert found.queries["likelihood"][0] == pytest.approx(expected)


def test_too_few_steps_are_said():
    with pytest.warns(NotConvergedWarning, match="1 queries not converged after 1 steps"):
        solved("bradley_terry", chunk_of(UNBEATEN_WON), steps=1)


def test_what_cannot_be_asked_together_is_refused():
    with pytest.raises(UsageError, match="needs a prior"):
        model_named("thurstone", {"errors": "bootstrap", "prior": "none"})
    with pytest.raises(UsageError, match="level"):
        model_named("thurstone", {"level": 1.0})
    model = model_named("bradley_terry", {"errors": "bootstrap"})
    chunk = chunk_of(WON)
    gathered = run(model.gathering({}), [chunk])
    with pytest.raises(UsageError, match="whole queries"):
        model.solve_split(chunk, gathered)


def test_columns_are_known_beforehand():
    for settings in ({}, {"errors": "standard"}, {"ties": "davidson"}):
        model = model_named("bradley_terry", settings)
        found = model.solve(chunk_of(WON), {})
        assert set(found.items) == set(model.item_columns)
        assert set(found.queries) == set(model.query_columns)


def planted(deviation, size=60, count=6000):
    """Pairs of items whose scores have this deviation; numbers of comparisons have a heavy tail."""
    draw = np.random.default_rng(7)
    truth, shares = deviation * draw.normal(size=size), draw.pareto(1.0, size) + 0.05
    i, j = (draw.choice(size, count, p=shares / shares.sum()) for _ in range(2))
    i, j = i[i != j], j[i != j]
    first = draw.random(len(i)) < 1 / (1 + np.exp(truth[j] - truth[i]))
    return np.where(first, i, j), np.where(first, j, i)


@pytest.mark.parametrize("deviation", [0.3, 1.0, 2.0])
def test_the_weight_of_the_prior_is_found_in_the_data(deviation):
    winner, loser = planted(deviation)
    found = solved("bradley_terry", big_chunk(60, winner, loser))
    weight = float(found.queries["weight"][0])
    assert weight == pytest.approx(deviation**-2, rel=0.4)
    score = plain(found.score)
    chance = 1 / (1 + np.exp(score[loser] - score[winner]))
    curve = sum(np.bincount(side, chance * (1 - chance), 60) for side in (winner, loser))
    known = 1 + (curve / (curve + weight)).sum()  # where the marginal likelihood is highest
    assert weight == pytest.approx(known / (1 + (score**2).sum()), rel=0.02)
    again = solved("bradley_terry", big_chunk(60, winner, loser), weight=weight)
    np.testing.assert_allclose(found.score, again.score, atol=1e-7)


@pytest.mark.parametrize("name", ["bradley_terry", "thurstone"])
def test_six_wins_of_six_do_not_beat_a_thousand(name):
    winner, loser = planted(1.0)
    champion, newcomer, others = 60, 61, np.arange(1120) % 60
    winner = np.concatenate([winner, np.full(1000, champion), others[1000:], np.full(6, newcomer)])
    loser = np.concatenate([loser, others[:1000], np.full(120, champion), others[:6]])
    score = solved(name, big_chunk(62, winner, loser)).score
    assert score[newcomer] < score[champion]
    score = solved(name, big_chunk(62, winner, loser), weight=0.1).score
    assert score[newcomer] > score[champion]


def sparse_lists(seed: int, size: int = 30, lists: int = 10, long: int = 8) -> tuple[np.ndarray, Query]:
    """Lists of a few items each, drawn by planted strengths."""
    draw = np.random.default_rng(seed)
    truth, made = draw.normal(size=size), {}
    for e in range(lists):
        shown = draw.permutation(size)[:long]
        order = shown[np.argsort(-(truth[shown] + draw.gumbel(size=long)))]
        made[e] = {int(i): place + 1.0 for place, i in enumerate(order)}
    return truth, Query(size, made)


@pytest.mark.parametrize("settings", [{}, {"unlisted": "ignore"}, {"unlisted": "ignore", "pairs": "difference"}])
def test_a_list_counts_as_comparisons_of_neighbours_where_the_prior_is_sought(settings):
    """The weight solves weight = known / sum of squares / evidence, written down with matrices."""
    _, query = sparse_lists(0)
    found = solved("bradley_terry", build_chunk([query]), **settings)
    met, independent = np.zeros((30, 30)), 0
    for ranks in query.lists.values():
        left_out = 9.0 if "unlisted" not in settings else 0.0  # the rank behind the eighth
        value = np.array([ranks.get(i, left_out) for i in range(30)])
        gap = np.abs(value[:, None] - value) * (value > 0) * (value > 0)[:, None]
        met += gap if "pairs" in settings else gap > 0
        independent += 8 * 7 // 2 + 8 * 22 if left_out else 7
    evidence = independent / (met.sum() / 2)
    chance = 1 / (1 + np.exp(found.score[None, :] - found.score[:, None]))
    curve, weight = (met * chance * (1 - chance)).sum(axis=1), float(found.queries["weight"][0])
    assert evidence == 1.0 if not settings else evidence < 0.3
    known = 1 + (curve / (curve + weight)).sum()
    assert weight == pytest.approx(known / (1 + (plain(found.score) ** 2).sum()) / evidence, rel=0.05)


def test_lists_of_two_are_pairs():
    lists = {e: {w: 1.0, x: 2.0} for e, (w, x) in enumerate([(0, 1), (1, 2), (0, 2), (2, 0), (3, 1), (0, 3)])}
    pairs = [(w, x, 1.0, False) for w, x in (sorted(ranks, key=ranks.get) for ranks in lists.values())]
    listed = solved("bradley_terry", build_chunk([Query(4, lists)]), unlisted="ignore")
    paired = solved("bradley_terry", build_chunk([Query(4, pairs=pairs)]))
    assert listed.queries["weight"][0] == pytest.approx(paired.queries["weight"][0], rel=1e-9)
    np.testing.assert_allclose(listed.score, paired.score, atol=1e-9)


def test_the_sought_prior_predicts_better_than_one_that_takes_pairs_of_lists_for_independent(monkeypatch):
    """The expected log likelihood of all pairs under the planted strengths."""

    def said() -> float:
        total = 0.0
        for seed in range(10):
            truth, query = sparse_lists(seed)
            score = solved("bradley_terry", build_chunk([query]), unlisted="ignore").score
            chance = 1 / (1 + np.exp(truth[None, :] - truth[:, None]))
            total += (chance * -np.logaddexp(0, score[None, :] - score[:, None])).mean()
        return total

    ours = said()
    monkeypatch.setattr("distagg.models.pairwise.counts.Counts.evidence", lambda self, _: np.ones(len(self.ties)))
    assert ours > said() + 0.1


def test_a_weight_is_a_number_or_auto():
    assert model_named("bradley_terry", {"weight": "0.5"}).weight == 0.5
    for wrong in ("much", "-1", "0"):
        with pytest.raises(UsageError, match="parameter weight of bradley_terry"):
            model_named("bradley_terry", {"weight": wrong})
