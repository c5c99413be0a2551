"""CPS: closed forms against the enumeration of cosets, likelihood and its derivatives, greedy inference."""

import itertools

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Query, build_chunk, chunks

from distagg.models.distances.cps_kernels import DISTANCES, infer_queries, likelihood, stage_distance
from distagg.models.lists import Lists, mid_positions
from distagg.models.pairs import list_arrays

EVERY = sorted(DISTANCES)


def full_distance(distance: str, order, sigma) -> float:
    """Distance between a ranking, given as items from the first to the last, and positions sigma; ties are half."""
    if distance == "kendall":
        pairs = itertools.combinations(order, 2)
        return sum((sigma[a] > sigma[b]) + 0.5 * (sigma[a] == sigma[b]) for a, b in pairs)
    gaps = np.array([sigma[item] - place for place, item in enumerate(order, start=1)])
    return float(np.sum(gaps**2) if distance == "spearman" else np.abs(gaps).sum())


def coset_distance(distance: str, head, sigma) -> float:
    """Mean distance of all permutations that begin with ``head``: the paper's definition."""
    rest = [i for i in range(len(sigma)) if i not in head]
    tails = list(itertools.permutations(rest))
    return sum(full_distance(distance, [*head, *tail], sigma) for tail in tails) / len(tails)


def closed(distance: str, head, item, sigma) -> float:
    left = [i for i in range(len(sigma)) if i not in head]
    ahead = sum((sigma[i] < sigma[item]) + 0.5 * (sigma[i] == sigma[item]) for i in left if i != item)
    return stage_distance(DISTANCES[distance], float(sigma[item]), float(ahead), len(head) + 1, len(sigma))


@pytest.mark.parametrize("distance", EVERY)
@pytest.mark.parametrize("size", [2, 3, 5, 6, 7])
def test_closed_forms_are_the_mean_over_the_coset(distance, size):
    """Up to a constant of the stage, which probabilities do not see; positions of ties and of unlisted items too."""
    draw = np.random.default_rng(size)
    for sigma in (draw.permutation(size) + 1.0, draw.integers(2, 2 * size + 1, size) / 2.0):
        order = draw.permutation(size).tolist()
        for stage in range(max(0, size - 5), size):
            head, left = order[:stage], order[stage:]
            expected = np.array([coset_distance(distance, [*head, item], sigma) for item in left])
            found = np.array([closed(distance, head, item, sigma) for item in left])
            np.testing.assert_allclose(found - found[0], expected - expected[0], atol=1e-9)


@pytest.mark.parametrize("distance", EVERY)
def test_stage_probabilities_make_a_distribution_over_rankings(distance):
    sigma, theta, total = np.array([2.0, 4.0, 1.0, 3.0]), 0.3, 0.0
    for order in itertools.permutations(range(4)):
        chance = 1.0
        for stage in range(4):
            energy = [theta * closed(distance, order[:stage], item, sigma) for item in order[stage:]]
            chance *= np.exp(-energy[0]) / np.exp(-np.array(energy)).sum()
        total += chance
    assert total == pytest.approx(1.0)


def naive_positions(query: Query, *, last: bool):
    """Position of every item in every list, in the order of experts."""
    rows = []
    for _, ranks in sorted(query.lists.items()):
        rest = query.size if last else (len(ranks) + 1 + query.size) / 2
        rows.append(
            [
                1 + sum((r < ranks[i]) + 0.5 * (r == ranks[i]) for j, r in ranks.items() if j != i)
                if i in ranks
                else rest
                for i in range(query.size)
            ]
        )
    return rows


def naive_energy(distance: str, query: Query, theta, head, item, *, last: bool) -> float:
    weights = [theta[e] for e in sorted(query.lists)]
    positions = naive_positions(query, last=last)
    return sum(t * closed(distance, head, item, sigma) for t, sigma in zip(weights, positions, strict=True))


def naive_inference(distance: str, query: Query, theta, *, last: bool) -> list[float]:
    score, head = [0.0] * query.size, []
    while len(head) < query.size:
        left = [i for i in range(query.size) if i not in head]
        energy = {i: naive_energy(distance, query, theta, head, i, last=last) for i in left}
        best = [i for i in left if energy[i] <= min(energy.values()) + 1e-9]
        for i in best:
            score[i] = query.size + 1 - (len(head) + 1 + (len(best) - 1) / 2)
        head += best
    return score


def positions(chunk) -> Lists:
    position = mid_positions(chunk.entry_offsets, chunk.entry_rank)
    position.setflags(write=False)
    return list_arrays(chunk)._replace(entry_rank=position)


@pytest.mark.parametrize("distance", ["kendall", "footrule"])
@pytest.mark.parametrize("last", [True, False])
@settings(max_examples=30)
@given(drawn=chunks(most_queries=2, most_items=6))
def test_greedy_inference(distance, last, drawn):
    made, chunk = drawn
    theta = np.array([1.0, 0.5, 2.0, 0.25, 1.5])
    score = infer_queries(DISTANCES[distance], last, positions(chunk), theta[chunk.list_expert])
    expected = [s for query in made for s in naive_inference(distance, query, theta, last=last)]
    np.testing.assert_allclose(score, expected)


def found_likelihood(distance: str, chunk, theta):
    return likelihood(DISTANCES[distance], False, positions(chunk), chunk.list_expert, theta, chunk.labels)


def naive_likelihood(distance: str, made: list[Query], theta) -> float:
    """Labels from the highest down, each item of a label chosen from all that were left before it."""
    total = 0.0
    for query in made:
        head: list[int] = []
        for label in sorted(set(query.labels), reverse=True)[:-1] if query.lists else ():
            left = [i for i in range(query.size) if i not in head]
            energy = np.array([naive_energy(distance, query, theta, head, i, last=False) for i in left])
            group = [i for i in left if query.labels[i] == label]
            total -= sum(energy[left.index(i)] + np.log(np.exp(-energy).sum()) for i in group)
            head = head + group
    return total


@pytest.mark.parametrize("distance", EVERY)
@settings(max_examples=20)
@given(drawn=chunks(most_queries=2, most_items=6), seed=st.integers(0, 1000))
def test_the_likelihood_of_labels(distance, drawn, seed):
    made, chunk = drawn
    theta = np.random.default_rng(seed).normal(size=5) * 0.2
    value, taken, _, _ = found_likelihood(distance, chunk, theta)
    assert value == pytest.approx(naive_likelihood(distance, made, theta), abs=1e-9)
    assert taken == sum(sum(x > min(q.labels) for x in q.labels) for q in made if q.lists)


@pytest.mark.parametrize("distance", EVERY)
@pytest.mark.parametrize("seed", range(4))
def test_derivatives_by_finite_differences(distance, seed):
    draw = np.random.default_rng(seed)
    lists = {e: dict(enumerate(draw.permutation(6)[: draw.integers(2, 7)] + 1.0)) for e in range(4)}
    chunk = build_chunk([Query(6, lists, labels=[2, 1, 0, 0, 2, 1])])
    theta = draw.normal(size=4) * 0.2
    _, _, gradient, curvature = found_likelihood(distance, chunk, theta)
    slope = scipy.optimize.approx_fprime(theta, lambda t: found_likelihood(distance, chunk, t)[0], 1e-6)
    np.testing.assert_allclose(gradient, slope, atol=1e-3 * max(1.0, np.abs(slope).max()))
    bend = scipy.optimize.approx_fprime(theta, lambda t: found_likelihood(distance, chunk, t)[2], 1e-6)
    np.testing.assert_allclose(-curvature, bend, atol=1e-3 * max(1.0, np.abs(bend).max()))


def test_unlabelled_items_count_as_the_lowest():
    lists = {0: {0: 1, 1: 2, 2: 3}, 1: {2: 1, 0: 2, 1: 3}}
    some, none = (build_chunk([Query(3, lists, labels=labels)]) for labels in ([1, None, None], [1, 0, 0]))
    theta = np.array([0.2, 0.1])
    assert found_likelihood("kendall", some, theta)[0] == found_likelihood("kendall", none, theta)[0]
