"""plackett_luce: maxima, refusals, errors, posteriors, on planted truth and on hard queries."""

import choix
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
from battles import naive_quasi_errors, plain
from naive_luce import naive_choices, naive_fit, naive_likelihood, naive_objective
from strategies import Query, build_chunk

from distagg.errors import InputError, UsageError
from distagg.models import NotConvergedWarning, model_named
from distagg.models.outcome import ISOLATED, OK, UNBEATEN, WINLESS

CYCLE = {0: {0: 1, 1: 2, 2: 3}, 1: {1: 1, 2: 2, 0: 3}, 2: {2: 1, 0: 2, 1: 3}, 3: {0: 1, 2: 2, 1: 3}}


def solve(query: Query | list[Query], *, trace: bool = False, **settings):
    chunk = build_chunk(query if isinstance(query, list) else [query])
    return model_named("plackett_luce", settings).solve(chunk, {}, trace=trace)


def planted_query(seed: int, *, size: int, lists: int, long: int, scale: float = 1.0) -> tuple[np.ndarray, Query]:
    """Lists of ``long`` items each, drawn from the model."""
    draw = np.random.default_rng(seed)
    truth = scale * draw.normal(size=size)
    made = {}
    for e in range(lists):
        shown = draw.permutation(size)[:long]
        order = shown[np.argsort(-(truth[shown] + draw.gumbel(size=long)))]
        made[e] = {int(i): rank + 1.0 for rank, i in enumerate(order)}
    return truth - truth.mean(), Query(size, made)


@pytest.mark.parametrize("unlisted", ["last", "ignore"])
@pytest.mark.parametrize("shape", [0.05, 1.0])
def test_the_maximum_is_scipys(unlisted, shape):
    _, query = planted_query(1, size=6, lists=7, long=4)
    ties = {**query.lists, 7: {0: 1, 1: 1, 2: 2, 3: 2, 4: 5}}
    query = Query(6, ties, (), [(0, 5, 2.5, False), (1, 2, 1.0, True), (5, 3, 0.0, False)])
    expected = naive_fit(query, last=unlisted == "last", shape=shape)
    np.testing.assert_allclose(plain(solve(query, unlisted=unlisted, shape=shape).score), expected, atol=1e-6)


@pytest.mark.parametrize("solver", ["lbfgs", "mm", "ilsr"])
def test_without_a_prior(solver):
    found = solve(Query(3, CYCLE), prior="none", solver=solver)
    np.testing.assert_allclose(found.score, naive_fit(Query(3, CYCLE), last=False, shape=0.0), atol=1e-6)
    naive = naive_likelihood(found.score, naive_choices(Query(3, CYCLE), last=False))
    assert found.queries["likelihood"][0] == pytest.approx(naive)
    assert found.queries["gradient"][0] <= 1e-11
    assert found.queries["converged"].all()


@pytest.mark.parametrize("unlisted", ["last", "ignore"])
def test_gradient_steps_are_plain_ones(unlisted):
    """Against steps by finite differences; item 5 is in no list."""
    query = Query(6, {**CYCLE, 4: {3: 1, 4: 2, 0: 3}}, (), [(3, 4, 2.0, False)])
    choices, theta = naive_choices(query, last=unlisted == "last"), np.zeros(6)
    for _ in range(5):
        theta = theta + 0.1 * scipy.optimize.approx_fprime(theta, lambda t: naive_likelihood(t, choices), 1e-7)
    settings = {"solver": "gradient", "prior": "none", "steps": 5, "rate": 0.1, "unlisted": unlisted}
    with pytest.warns(NotConvergedWarning, match="1 queries not converged after 5 steps"):
        found = solve(query, **settings)
    np.testing.assert_allclose(plain(found.score), plain(theta), atol=1e-6)
    assert found.queries["likelihood"][0] == pytest.approx(naive_likelihood(theta, choices))


@pytest.mark.parametrize("prior", ["gamma", "none"])
@pytest.mark.parametrize("rate", [1e3, 1e307])
def test_gradient_steps_that_are_too_long_end_before_numbers_do(rate, prior):
    with pytest.warns(NotConvergedWarning, match="1 queries not converged after"):
        found = solve(Query(3, CYCLE), solver="gradient", rate=rate, prior=prior)
    assert np.isfinite(found.score).all()
    assert not found.queries["converged"][0]


def test_many_gradient_steps_end_at_the_maximum():
    _, query = planted_query(1, size=6, lists=7, long=4)
    found = solve(query, solver="gradient", rate=0.1, steps=5000, trace=True)
    np.testing.assert_allclose(found.score, solve(query).score, atol=1e-8)
    assert (np.diff(found.trace[0]) > -1e-12).all()


def test_ties_broken_in_the_order_of_items():
    tied = Query(4, {0: {3: 1, 0: 1, 2: 1, 1: 2}, 1: {1: 1, 3: 2, 2: 2}}, (), [(0, 1, 1.0, True)])
    told = Query(4, {0: {0: 1, 2: 2, 3: 3, 1: 4}, 1: {1: 1, 2: 2, 3: 3}})
    np.testing.assert_array_equal(solve(tied, ties="order").score, solve(told).score)
    assert not np.allclose(solve(tied).score, solve(told).score)


@pytest.mark.parametrize(
    ("algorithm", "near"),
    [("ilsr_rankings", 1e-8), ("mm_rankings", 1e-8), ("opt_rankings", 5e-6)],  # the last stops early by itself
)
def test_answers_of_choix(algorithm, near):
    _, query = planted_query(2, size=12, lists=60, long=5)
    lists = [sorted(ranks, key=ranks.get) for ranks in query.lists.values()]
    expected = getattr(choix, algorithm)(12, lists, tol=1e-10)
    found = solve(query, prior="none", unlisted="ignore").score
    np.testing.assert_allclose(plain(found), plain(expected), atol=near)


def test_planted_strengths_are_found_and_errors_are_of_the_right_size():
    truth, query = planted_query(3, size=30, lists=600, long=8)
    found = solve(query, unlisted="ignore", errors="standard", prior="none")
    assert scipy.stats.spearmanr(found.score, truth).statistic > 0.97
    z = (found.score - truth) / found.items["uncertainty"]
    assert 0.6 < z.std() < 1.4
    assert (found.items["status"] == OK).all()


def test_top_k_lists_are_not_lists_of_k():
    """Item 3 is always left out: that is last place in top-K lists, and nothing said otherwise."""
    lists = {e: {0: 1, 1: 2, 2: 3} if e % 2 else {2: 1, 1: 2, 0: 3} for e in range(6)}
    last, ignored = solve(Query(4, lists)), solve(Query(4, lists), unlisted="ignore")
    assert last.score.argmin() == 3
    assert last.items["status"].tolist() == [OK, OK, OK, WINLESS]
    assert ignored.items["status"].tolist() == [OK, OK, OK, ISOLATED]
    assert last.items["component"].tolist() == [0, 0, 0, 0]
    assert ignored.items["component"].tolist() == [0, 0, 0, 1]


def test_all_ties_say_nothing():
    found = solve(Query(3, {0: {0: 7, 1: 7, 2: 7}}, (), [(0, 1, 1.0, True)]))
    assert found.score.tolist() == [0, 0, 0]
    assert (found.items["status"] == ISOLATED).all()
    assert found.queries["converged"].all()
    mixed = solve(Query(3, {0: {0: 7, 1: 7, 2: 7}, 1: {0: 1, 1: 2, 2: 2}}))
    np.testing.assert_allclose(mixed.score, solve(Query(3, {0: {0: 1, 1: 2, 2: 2}})).score)
    assert mixed.score[1] == pytest.approx(mixed.score[2], abs=1e-9)


def test_pairs_are_lists_of_two_with_weights():
    as_pairs = solve(Query(2, {}, (), [(0, 1, 3.0, False), (1, 0, 1.0, False)]), prior="none")
    np.testing.assert_allclose(as_pairs.score, np.array([0.5, -0.5]) * np.log(3.0), atol=1e-9)
    as_lists = solve(Query(2, {0: {0: 1, 1: 2}, 1: {0: 1, 1: 2}, 2: {0: 1, 1: 2}, 3: {1: 1, 0: 2}}), prior="none")
    np.testing.assert_allclose(as_lists.score, as_pairs.score, atol=1e-9)


@pytest.mark.parametrize(
    ("query", "found", "remedy"),
    [
        (Query(3, {0: {0: 1, 1: 2, 2: 3}}), "unbeaten: i0 and winless: i2", "use prior=gamma$"),
        (Query(4, CYCLE), "2 connected components and isolated: i3", "components=true"),
        (Query(5, {0: {0: 1, 1: 2}, 1: {2: 1, 3: 2}}), "3 connected components", "use prior=gamma$"),
        (
            Query(5, {**CYCLE, 4: {3: 1, 4: 2}, 5: {4: 1, 3: 2}, 6: {0: 1, 3: 2}}),
            "only ever ahead of, or behind, the rest: i3, i4",
            "use prior=gamma$",
        ),
    ],
    ids=["a line", "an isolated item", "two lines", "one group over another"],
)
def test_what_has_no_maximum_is_refused(query, found, remedy):
    with pytest.raises(InputError, match="query q1") as error:
        solve([Query(3, CYCLE), query], prior="none", unlisted="ignore")
    assert found in str(error.value)
    assert error.match(remedy)
    assert np.isfinite(solve(query, unlisted="ignore").score).all()


def test_top_k_lists_can_have_no_maximum_either():
    with pytest.raises(InputError, match="winless: i3"):
        solve(Query(4, CYCLE), prior="none")
    lists = {**CYCLE, 4: {3: 1}, 5: {0: 1, 1: 2, 2: 3, 3: 4}}
    assert solve(Query(4, lists), prior="none").queries["converged"].all()


def test_components_by_themselves():
    lists = {**CYCLE, 4: {3: 1, 4: 2}, 5: {4: 1, 3: 2}, 6: {3: 1, 4: 2}}
    settings = {"prior": "none", "unlisted": "ignore"}
    with pytest.raises(InputError, match="3 connected components"):
        solve(Query(6, lists), **settings)
    found = solve(Query(6, lists), **settings, components=True, errors="standard")
    alone = solve(Query(3, CYCLE), **settings, errors="standard")
    np.testing.assert_allclose(found.score[:3], alone.score, atol=1e-8)
    np.testing.assert_allclose(found.score[3:], np.array([0.5, -0.5, 0.0]) * np.log([2.0, 2.0, 1.0]), atol=1e-8)
    np.testing.assert_allclose(found.items["uncertainty"][:3], alone.items["uncertainty"], atol=1e-8)
    assert found.items["uncertainty"][5] == np.inf
    assert found.items["component"].tolist() == [0, 0, 0, 1, 1, 2]
    with pytest.raises(InputError, match="unbeaten: i0"):
        solve(Query(4, {0: {0: 1, 1: 2}, 1: {2: 1, 3: 2}, 2: {3: 1, 2: 2}}), **settings, components=True)


@pytest.mark.parametrize("unlisted", ["last", "ignore"])
def test_standard_errors_are_those_of_the_numeric_hessian(unlisted):
    _, query = planted_query(4, size=5, lists=12, long=4)
    found = solve(query, errors="standard", unlisted=unlisted, shape=0.2)
    choices = naive_choices(query, last=unlisted == "last")

    def gradient(t):
        return scipy.optimize.approx_fprime(t, lambda s: naive_objective(s, choices, 0.2), 1e-5)

    hessian = -scipy.optimize.approx_fprime(found.score, gradient, 1e-4).reshape(5, 5)
    expected = naive_quasi_errors(np.linalg.pinv((hessian + hessian.T) / 2, rcond=1e-3))
    np.testing.assert_allclose(found.items["uncertainty"], expected, rtol=2e-3)


def test_bootstrap_is_seeded_by_the_query_and_agrees_with_standard_errors():
    _, query = planted_query(5, size=5, lists=60, long=5)
    two = build_chunk([Query(3, CYCLE), query])
    model = model_named("plackett_luce", {"errors": "bootstrap", "resamples": 60})
    together = model.solve(two, {}).items
    alone = model.solve(two.select(np.array([False, True])), {}).items
    for name in ("uncertainty", "low", "high"):
        np.testing.assert_array_equal(together[name][3:], alone[name])
    other = model_named("plackett_luce", {"errors": "bootstrap", "resamples": 60, "seed": 1}).solve(two, {}).items
    assert (other["uncertainty"] != together["uncertainty"]).any()
    standard = solve(query, errors="standard")
    assert 0.6 < np.median(alone["uncertainty"] / standard.items["uncertainty"]) < 1.5
    assert (alone["low"] < standard.score).all()
    assert (standard.score < alone["high"]).all()


def test_errors_of_hard_queries():
    hard = [Query(1, {0: {0: 1.0}}), Query(2), Query(3, {0: {0: 7, 1: 7, 2: 7}}), Query(2, {0: {1: 1}})]
    standard = solve(hard, errors="standard").items["uncertainty"]
    assert standard[0] == np.inf
    assert np.isfinite(standard[1:]).all()
    drawn = solve(hard, errors="bootstrap").items
    assert (drawn["uncertainty"] == np.inf).all()  # no query has two lists that say something
    assert (drawn["low"] == -np.inf).all()
    assert solve([], errors="standard").items["uncertainty"].shape == (0,)


@pytest.mark.parametrize("solver", ["bayes", "gibbs"])
@pytest.mark.parametrize("wins", [(3, 1), (9, 4), (2, 0)])
def test_the_posterior_of_two_items_is_a_beta(solver, wins):
    """The share of the first is Beta(shape + wins, shape + losses): its log odds are twice the centred score."""
    query = Query(2, {}, (), [(0, 1, float(wins[0]), False), (1, 0, float(wins[1]), False)])
    found = solve(query, solver=solver, shape=1.0, draws=20_000)
    a, b = 1.0 + wins[0], 1.0 + wins[1]
    mean = scipy.special.digamma(a) - scipy.special.digamma(b)
    deviation = np.sqrt(scipy.special.polygamma(1, a) + scipy.special.polygamma(1, b))
    assert 2 * found.score[0] == pytest.approx(mean, abs=0.05 if solver == "gibbs" else 0.12)
    wide = 2 * found.items["uncertainty"][0] / deviation  # power EP errs on the wide side, most with two items
    assert 0.97 < wide < (1.03 if solver == "gibbs" else 1.35)


@pytest.mark.parametrize("unlisted", ["last", "ignore"])
def test_power_ep_agrees_with_the_sampler(unlisted):
    _, query = planted_query(6, size=6, lists=8, long=5)
    query = Query(6, {**query.lists, 8: {0: 1, 1: 1, 2: 2, 3: 2}})
    sampled = solve(query, solver="gibbs", draws=30_000, unlisted=unlisted)
    found = solve(query, solver="bayes", unlisted=unlisted)
    np.testing.assert_allclose(found.score, sampled.score, atol=0.03)
    np.testing.assert_allclose(found.items["uncertainty"], sampled.items["uncertainty"], rtol=0.15)
    assert found.queries["converged"].all()


def test_a_posterior_without_data_is_the_prior():
    for solver in ("bayes", "gibbs"):
        found = solve(Query(3), solver=solver)
        assert found.score.tolist() == [0, 0, 0]
        np.testing.assert_allclose(found.items["uncertainty"], np.sqrt(np.pi**2 / 6 * 2 / 3))


def test_the_fit_is_told():
    _, query = planted_query(7, size=8, lists=9, long=4)
    for solver in ("lbfgs", "mm", "ilsr"):
        found = solve([query, Query(3)], trace=True, solver=solver)
        taken = found.queries["iterations"][0]
        assert found.trace.shape == (2, taken)
        assert found.trace[0, -1] == pytest.approx(found.queries["likelihood"][0])
        assert np.isnan(found.trace[1]).all()
    with pytest.warns(NotConvergedWarning, match="1 queries not converged after 2 steps"):
        solve(query, steps=2)


def test_unbeaten_and_winless_items_are_finite_and_ordered():
    found = solve(Query(4, {e: {2: 1, 0: 2, 1: 3, 3: 4} for e in range(5)}), shape=1e-3)
    assert np.argsort(-found.score).tolist() == [2, 0, 1, 3]
    assert found.items["status"].tolist() == [OK, OK, UNBEATEN, WINLESS]
    assert found.score.sum() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prior": "none", "solver": "bayes"}, "needs a prior"),
        ({"prior": "none", "errors": "bootstrap"}, "needs a prior"),
        ({"errors": "standard", "solver": "gibbs"}, "its own uncertainty"),
        ({"errors": "standard", "solver": "gradient"}, "errors mean nothing"),
        ({"components": True}, "prior=none"),
        ({"shape": 0.0}, "above 0.0"),
    ],
)
def test_settings_that_contradict(settings, message):
    with pytest.raises(UsageError, match=message):
        model_named("plackett_luce", settings)
