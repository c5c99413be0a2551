"""Pair counts: squares and rows against plain loops."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Query, build_chunk, chunks

from distagg.errors import UsageError
from distagg.models import model_named
from distagg.models.lists import BINARY, DIFFERENCE, PAIR_FUNCTIONS
from distagg.models.pairwise import counts as counts_module
from distagg.models.pairwise.counts import Counting, merged

FUNCTIONS = ("binary", "difference", "normalised", "log")


def naive_counts(query, function, last, share):
    """Effective wins (size, size) and the weight of ties."""
    wins, ties = np.zeros((query.size, query.size)), 0.0
    for ranks in query.lists.values():
        full, top = dict(ranks), max(ranks.values())
        if last and len(ranks) < query.size:
            top += 1
            full |= {i: top for i in range(query.size) if i not in ranks}
        for i, j in itertools.permutations(full, 2):
            if i not in ranks and j not in ranks:
                continue
            if full[i] < full[j]:
                gap = full[j] - full[i]
                logs = (math.log(full[j]) - math.log(full[i])) / math.log(top) if top > 1 else 0.0
                wins[i, j] += {"binary": 1.0, "difference": gap, "normalised": gap / top, "log": logs}[function]
            elif full[i] == full[j] and function == "binary" and i in ranks and j in ranks:
                wins[i, j] += share
                ties += 0.5
    for winner, loser, weight, tie in query.pairs:
        if winner == loser:
            continue
        wins[winner, loser] += share * weight if tie else weight
        wins[loser, winner] += share * weight if tie else 0.0
        ties += weight * tie
    return wins, ties


def as_matrix(counts, q):
    first, last = counts.item_offsets[q], counts.item_offsets[q + 1]
    wins = np.zeros((last - first, last - first))
    for i in range(first, last):
        for e in range(counts.offsets[i], counts.offsets[i + 1]):
            assert counts.other[e] > i - first
            assert wins[i - first, counts.other[e]] == 0
            wins[i - first, counts.other[e]] = counts.ahead[e]
            wins[counts.other[e], i - first] = counts.behind[e]
    return wins


def with_pairs(made):
    draw = np.random.default_rng(len(made))
    return [
        Query(
            q.size,
            q.lists,
            pairs=[
                (int(draw.integers(q.size)), int(draw.integers(q.size)), float(draw.integers(0, 3)), bool(n % 3 == 0))
                for n in range(6)
            ],
        )
        for q in made
    ]


@pytest.mark.parametrize("small", [1 << 16, -1000], ids=["squares", "rows"])
@settings(max_examples=40)
@given(drawn=chunks(), function=st.sampled_from(FUNCTIONS), last=st.booleans(), share=st.sampled_from([0.0, 0.5, 1.0]))
def test_counts_are_the_naive_ones(small, drawn, function, last, share):
    queries = with_pairs(drawn[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts_module, "SMALL_SQUARE", small)
        found = Counting(PAIR_FUNCTIONS[function], last, share).count(build_chunk(queries, n_experts=5))
    for q, query in enumerate(queries):
        wins, ties = naive_counts(query, function, last, share)
        np.testing.assert_allclose(as_matrix(found, q), wins, atol=1e-12)
        assert found.ties[q] == pytest.approx(ties)


def test_statistics_of_chunks_add_up():
    one = build_chunk([Query(4, pairs=[(0, 1, 2.0, False), (1, 2, 1.0, True)])])
    two = build_chunk([Query(4, pairs=[(1, 0, 0.5, False), (3, 2, 1.0, False), (0, 1, 1.0, False)])])
    counting = Counting(BINARY, True, 0.5)
    found = merged(4, [counting.count(one).directed(), counting.count(two).directed()])
    wins = as_matrix(found, 0)
    assert (wins[0, 1], wins[1, 0], wins[1, 2], wins[2, 1], wins[3, 2]) == (3.0, 0.5, 0.5, 0.5, 1.0)
    assert found.ties.tolist() == [1.0]


def test_weights_of_a_resample_multiply():
    chunk = build_chunk([Query(3, {0: {0: 1, 1: 2}, 1: {2: 1, 0: 2}}, pairs=[(0, 1, 3.0, False)])])
    found = Counting(BINARY, False, 0.5).count(chunk, np.array([2.0, 0.0]), np.array([6.0]))
    assert as_matrix(found, 0)[0].tolist() == [0.0, 8.0, 0.0]


def test_what_cannot_be_held_is_refused(monkeypatch):
    monkeypatch.setattr(counts_module, "PAIRS_BYTES", 100)
    with pytest.raises(UsageError, match="unlisted=ignore"):
        Counting(BINARY, True, 0.5).count(build_chunk([Query(9, {0: {0: 1.0}})]))


def test_ratings_have_differences_but_no_logarithms():
    chunk = build_chunk([Query(2, {0: {0: -5.0, 1: -3.0}})])
    assert Counting(DIFFERENCE, True, 0.5).count(chunk).ahead.tolist() == [2.0]
    with pytest.raises(UsageError, match="pairs=log needs ranks above 0"):
        model_named("bradley_terry", {"pairs": "log"}).score(chunk, {})
