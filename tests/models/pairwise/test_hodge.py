"""hodgerank: least squares by numpy, and cycles that are known."""

import itertools

import numpy as np
import pytest
from battles import WON, chunk_of
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Query, build_chunk

from distagg.models import model_named

CIRCLE = [(0, 1), (1, 2), (2, 0)]
SQUARE = [(0, 1), (1, 2), (2, 3), (3, 0)]


def solve(size, pairs, **given):
    return model_named("hodgerank", given).solve(build_chunk([Query(size, pairs=pairs)]), {})


def naive(size, pairs, flow):
    """Scores, and the shares that are cyclic and local, by dense least squares."""
    won = np.zeros((size, size))
    for i, j, weight, tie in pairs:
        won[i, j] += weight / 2 if tie else weight
        won[j, i] += weight / 2 if tie else 0.0
    edges = [(i, j) for i, j in itertools.combinations(range(size), 2) if won[i, j] + won[j, i] > 0]
    weight = np.array([won[i, j] + won[j, i] for i, j in edges])
    if flow == "logit":
        value = np.array([np.log((won[i, j] + 0.5) / (won[j, i] + 0.5)) for i, j in edges])
    else:
        value = np.array([(won[i, j] - won[j, i]) / (won[i, j] + won[j, i]) for i, j in edges])
    gradient = np.zeros((len(edges), size))
    for e, (i, j) in enumerate(edges):
        gradient[e, i], gradient[e, j] = 1.0, -1.0
    root = np.sqrt(weight)
    score = np.linalg.lstsq(root[:, None] * gradient, root * value, rcond=None)[0]
    rest = root * (value - gradient @ score)
    triangles = [t for t in itertools.combinations(range(size), 3) if set(itertools.combinations(t, 2)) <= set(edges)]
    around = np.zeros((len(edges), len(triangles)))
    for t, (i, j, k) in enumerate(triangles):
        around[edges.index((i, j)), t], around[edges.index((j, k)), t] = 1.0, 1.0
        around[edges.index((i, k)), t] = -1.0
    around /= root[:, None]
    local = around @ np.linalg.lstsq(around, rest, rcond=None)[0] if triangles else np.zeros(len(edges))
    total = np.sum((root * value) ** 2)
    return score, np.sum(rest**2) / total if total else 0.0, np.sum(local**2) / total if total else 0.0


pair = st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([1.0, 2.0, 0.5]), st.booleans())


@given(st.lists(pair, min_size=1, max_size=14), st.sampled_from(["margin", "logit"]))
@settings(max_examples=60, deadline=None)
def test_scores_and_shares_are_those_of_dense_least_squares(pairs, flow):
    pairs = [one for one in pairs if one[0] != one[1]]
    if not pairs:
        return
    found, (score, cyclic, local) = solve(6, pairs, flow=flow), naive(6, pairs, flow)
    for part in np.unique(found.items["component"]):
        rows = found.items["component"] == part
        np.testing.assert_allclose(found.score[rows], score[rows] - score[rows].mean(), atol=1e-7)
    assert found.queries["cyclic"][0] == pytest.approx(cyclic, abs=1e-7)
    assert found.queries["local"][0] == pytest.approx(local, abs=1e-6)
    assert found.queries["global"][0] == pytest.approx(cyclic - local, abs=1e-6)
    assert found.queries["converged"].all()


def test_circles_are_told_apart():
    """A triangle is local, a square without diagonals global, and what follows from scores is neither."""
    for size, cycle, kind, other in ((3, CIRCLE, "local", "global"), (4, SQUARE, "global", "local")):
        fit = solve(size, [(i, j, 1.0, False) for i, j in cycle]).queries
        assert (fit["cyclic"][0], fit[kind][0], fit[other][0]) == pytest.approx((1.0, 1.0, 0.0), abs=1e-8)
    draw = np.random.default_rng(0)
    truth = draw.uniform(-0.4, 0.4, 7)
    shares = {(i, j): 0.5 + 0.5 * (truth[i] - truth[j]) for i, j in itertools.permutations(range(7), 2)}
    found = solve(7, [(i, j, 100.0 * share, False) for (i, j), share in shares.items()])
    np.testing.assert_allclose(found.score, truth - truth.mean(), atol=1e-8)
    assert found.queries["cyclic"][0] == 0.0


def test_planted_scores_and_circles_are_recovered():
    """Half of the voters follow scores, half of them vote at random: the cyclic share is what the noise leaves."""
    draw = np.random.default_rng(1)
    truth, shares = np.linspace(1.0, -1.0, 20), []
    for votes in (4, 400):
        pairs = []
        for i, j in itertools.combinations(range(20), 2):
            won = draw.binomial(votes, 0.5 + 0.25 * (truth[i] - truth[j]))
            pairs += [(i, j, float(won), False), (j, i, float(votes - won), False)]
        found = solve(20, pairs)
        shares.append(found.queries["cyclic"][0])
        assert np.corrcoef(found.score, truth)[0, 1] > 0.95
    assert shares[0] > 0.2
    assert shares[1] < 0.02


def test_many_triangles_are_left_out_and_said():
    pairs = [(i, j, 1.0, False) for i, j in [*SQUARE, (0, 2)]]
    told = solve(4, pairs, triangles=1).queries
    assert np.isnan(told["local"][0])
    assert np.isnan(told["global"][0])
    assert told["cyclic"][0] == solve(4, pairs).queries["cyclic"][0]


def test_without_comparisons_nothing_is_cyclic():
    found = model_named("hodgerank").solve(build_chunk([Query(3), Query(0)]), {})
    assert found.score.tolist() == [0.0, 0.0, 0.0]
    assert found.queries["cyclic"].tolist() == [0.0, 0.0]


def test_what_a_query_says_does_not_depend_on_others():
    alone = model_named("hodgerank").solve(chunk_of(WON), {})
    assert 0.0 < alone.queries["cyclic"][0] < 1.0
    assert alone.score.argmax() == 0
