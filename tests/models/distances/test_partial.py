"""partial_mallows: draws against enumeration, planted centres, what experts contradict themselves about."""

import itertools
from collections import Counter

import numpy as np
import pytest
import scipy.stats
from strategies import Query, build_chunk

from distagg.errors import UsageError
from distagg.models import model_named
from distagg.models.distances.mallows_kernels import stream
from distagg.models.distances.partial_kernels import close, complete, insert_all


def discordant(order, centre):
    place = {item: at for at, item in enumerate(centre)}
    return sum(place[i] > place[j] for i, j in itertools.combinations(order, 2))


def relation(size, pairs):
    before = np.zeros((size, size), dtype=bool)
    for i, j in pairs:
        before[i, j] = True
    close(before)
    return before


@pytest.mark.parametrize("pairs", [[], [(3, 0)], [(4, 1), (1, 0), (3, 2)], [(4, 0), (4, 1), (2, 1)]])
def test_chains_draw_from_the_distribution_given_the_pairs(pairs):
    """Against all orders that agree with the pairs, each with exp(-theta distance)."""
    before, centre, theta = relation(5, pairs), np.array([0, 1, 2, 3, 4]), 0.6
    expected, total = np.zeros((5, 5)), 0.0
    for order in itertools.permutations(range(5)):
        if all(order.index(i) < order.index(j) for i, j in pairs):
            odds = np.exp(-theta * discordant(order, centre))
            total += odds
            for i, j in itertools.combinations(order, 2):
                expected[i, j] += odds
    found = np.empty((5, 5))
    complete(before[None], centre, theta, 20_000, np.uint64(stream(1, 0)), found)
    np.testing.assert_allclose(found, expected / total, atol=0.02)


def test_proposals_know_their_probability():
    """Normalisers times the proposal's chance is exp(-theta distance), order by order."""
    before, centre, theta, state = relation(4, [(3, 1), (2, 0)]), np.array([0, 1, 2, 3]), 0.8, stream(2, 0)
    drawn, level, order = Counter(), {}, np.empty(4, dtype=np.int64)
    for _ in range(40_000):
        state, value = insert_all(before, centre, theta, np.uint64(state), order)
        drawn[tuple(order.tolist())] += 1
        level[tuple(order.tolist())] = value
    assert len(drawn) == 6
    for made, times in drawn.items():
        chance = np.exp(-theta * discordant(made, centre) - level[made])
        assert times / 40_000 == pytest.approx(chance, abs=0.01)


def test_closing_follows_paths_and_drops_contradictions():
    before = np.zeros((5, 5), dtype=bool)
    for i, j in [(0, 1), (1, 2), (2, 3), (3, 2), (3, 4)]:
        before[i, j] = True
    assert close(before) == 1
    told = {(int(i), int(j)) for i, j in np.argwhere(before)}
    assert told == {(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 4), (3, 4)}


def planted(seed, size, experts, phi, long):
    """Lists of some items of orders that repeated insertion draws around 0, 1, 2, ..."""
    draw, lists = np.random.default_rng(seed), {}
    for e in range(experts):
        order = []
        for m in range(size):
            odds = phi ** np.arange(m, -1, -1.0)
            order.insert(int(draw.choice(m + 1, p=odds / odds.sum())), m)
        shown = set(draw.permutation(size)[:long].tolist())
        lists[e] = {item: place + 1.0 for place, item in enumerate(item for item in order if item in shown)}
    return Query(size, lists)


@pytest.mark.parametrize("phi", [0.5, 0.8])
def test_planted_centres_and_dispersions_are_recovered(phi):
    """Lists hold a third of the items; mallows takes them for draws of these alone, and finds too small a phi."""
    size, found, theirs = 12, [], []
    for seed in range(4):
        chunk = build_chunk([planted(seed, size, 200, phi, 4)])
        outcome = model_named("partial_mallows").solve(chunk, {})
        assert scipy.stats.kendalltau(-outcome.score, np.arange(size))[0] > (0.9 if phi == 0.5 else 0.65)
        found.append(outcome.queries["phi"][0])
        theirs.append(model_named("mallows", {"unlisted": "ignore"}).solve(chunk, {}).queries["phi"][0])
    assert np.mean(found) == pytest.approx(phi, abs=0.06)
    assert np.mean(theirs) < phi - 0.1


def test_raw_pairs_of_an_expert_are_one_order():
    """Pairs along a path say as much as the list of the path; circles say nothing, and are told."""
    path = Query(4, pairs=[(2, 0, 1.0, False), (0, 3, 5.0, False), (3, 1, 1.0, False), (1, 0, 1.0, True)])
    listed = Query(4, {0: {2: 1.0, 0: 2.0, 3: 3.0, 1: 4.0}})
    by_pairs, by_list = (model_named("partial_mallows").solve(build_chunk([query]), {}) for query in (path, listed))
    np.testing.assert_array_equal(by_pairs.score, by_list.score)
    assert by_pairs.queries["phi"][0] == 0.0
    circle = Query(3, pairs=[(0, 1, 1.0, False), (1, 2, 1.0, False), (2, 0, 1.0, False)])
    told = model_named("partial_mallows").solve(build_chunk([circle]), {})
    assert told.score.tolist() == [0.0, 0.0, 0.0]
    assert told.queries["contradicted"][0] == 3


def test_too_many_experts_are_refused(monkeypatch):
    monkeypatch.setattr("distagg.models.distances.partial.VOTERS_BYTES", 10)
    with pytest.raises(UsageError, match="too many to complete"):
        model_named("partial_mallows").solve(build_chunk([Query(4, {0: {0: 1.0, 1: 2.0}})]), {})
