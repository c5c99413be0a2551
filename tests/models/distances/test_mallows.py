"""mallows: dispersion on planted rankings, its two rules for partial lists, and queries with no maximum."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import Query, build_chunk, chunks

from distagg.models import NotConvergedWarning, model_named


def planted_query(phi: float, size: int, lists: int, top: int, seed: int = 0) -> Query:
    """Tops of rankings drawn around 0, 1, 2, ... by repeated choice (the definition by stages)."""
    draw = np.random.default_rng(seed)
    made = {}
    for expert in range(lists):
        left, ranks = list(range(size)), {}
        for place in range(top):
            odds = phi ** np.arange(len(left))
            ranks[left.pop(draw.choice(len(left), p=odds / odds.sum()))] = place + 1.0
        made[expert] = ranks
    return Query(size, made)


@pytest.mark.parametrize("phi", [0.3, 0.7, 0.95])
@pytest.mark.parametrize("top", [4, 15])
def test_planted_dispersion_is_found(phi, top):
    chunk = build_chunk([planted_query(phi, 15, 400, top)])
    outcome = model_named("mallows").solve(chunk, {})
    assert outcome.queries["phi"][0] == pytest.approx(phi, abs=0.03)
    assert outcome.queries["converged"].all()
    if phi < 0.9:
        assert np.argsort(-outcome.score)[:4].tolist() == [0, 1, 2, 3]


def test_lists_of_some_items_are_draws_over_them():
    """Unlisted ignored: two items apart are compared, so full lists of half of the items give their own phi."""
    halves = planted_query(0.5, 8, 300, 8)
    query = Query(16, {e: {2 * i: r for i, r in ranks.items()} for e, ranks in halves.lists.items()})
    ignoring = model_named("mallows", {"unlisted": "ignore"}).solve(build_chunk([query]), {})
    assert ignoring.queries["phi"][0] == pytest.approx(0.5, abs=0.04)
    assert ignoring.score[1::2] == pytest.approx(7.5)  # nobody speaks of them: the mean


@settings(max_examples=30)
@given(drawn=chunks(most_items=5, most_queries=2))
def test_no_order_and_no_phi_is_likelier(drawn):
    """Against the likelihood written out: every order, a grid of phi, tied pairs by half."""
    made, chunk = drawn
    queries = model_named("mallows").solve(chunk, {}).queries
    for q, query in enumerate(made):
        found = max(
            naive_likelihood(query, order, phi)
            for order in itertools.permutations(range(query.size))
            for phi in (*np.linspace(0.05, 1.0, 20), max(queries["phi"][q], 1e-15))
        )
        assert queries["likelihood"][q] >= found - 1e-6


def naive_likelihood(query: Query, order, phi: float) -> float:
    total = 0.0
    for ranks in query.lists.values():
        distance = sum(
            0.5 * (ranks.get(i) == ranks.get(j)) + (ranks.get(j, np.inf) < ranks.get(i, np.inf))
            for i, j in itertools.combinations(order, 2)
            if i in ranks or j in ranks
        )
        total += np.log(phi) * distance
        total -= sum(np.log((phi ** np.arange(query.size - place)).sum()) for place in range(len(ranks)))
    return total


def test_agreement_and_chance():
    same = Query(3, {0: {0: 1, 1: 2, 2: 3}, 1: {0: 4, 1: 5, 2: 6}})
    tied = Query(3, {0: {0: 1, 1: 1, 2: 1}})
    turned = Query(2, {0: {0: 1, 1: 2}, 1: {1: 1, 0: 2}})
    outcome = model_named("mallows").solve(build_chunk([same, tied, turned, Query(2), Query(1, {0: {0: 1}})]), {})
    assert outcome.queries["phi"].tolist() == [0, 1, 1, 1, 1]
    assert outcome.queries["likelihood"][:1] == pytest.approx([0.0])
    assert outcome.score.tolist() == pytest.approx([2, 1, 0, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0])


def test_raw_pairs_are_lists_of_two():
    pairs = [(0, 1, 3.0, False), (1, 0, 1.0, False), (1, 2, 5.0, False), (0, 2, 2.0, True), (1, 2, 0.0, False)]
    queries = model_named("mallows").solve(build_chunk([Query(3, pairs=pairs)]), {}).queries
    share = (1.0 + 0.5 * 2.0) / 11.0  # discordant, with half of the tie
    assert queries["phi"][0] == pytest.approx(share / (1 - share))


def test_places_are_those_of_the_centre():
    chunk = build_chunk([planted_query(0.6, 6, 9, 6)])
    places = model_named("mallows", {"scores": "places"}).score(chunk, {})
    assert places.tolist() == model_named("kemeny").score(chunk, {}).tolist()


def test_too_few_steps_are_said():
    chunk = build_chunk([planted_query(0.6, 6, 9, 6)])
    with pytest.warns(NotConvergedWarning, match="1 queries not converged after 1 steps"):
        model_named("mallows", {"steps": 1}).score(chunk, {})


def test_the_trace_rises_to_the_likelihood():
    model = model_named("mallows")
    outcome = model.solve(build_chunk([planted_query(0.6, 6, 9, 6)]), {}, trace=True)
    steps = outcome.queries["iterations"][0]
    assert (np.diff(outcome.trace[0, :steps]) > 0).all()
    assert outcome.trace[0, steps - 1] == pytest.approx(outcome.queries["likelihood"][0])
    assert set(outcome.queries) == set(model.query_columns)
