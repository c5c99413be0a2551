"""schulze, ranked_pairs and kwiksort: against pref_voting, against twins that try everything, and on planted orders.

``pref_voting.json`` was made with pref_voting 1.18.2: random ballots (complete, with ties, truncated), read as
``ProfileWithTies(ballots, candidates=...)`` with ``use_extended_strict_preference()``; ``winners`` of ``beat_path``,
``beats`` of ``beat_path_defeat``, ``locked`` of ``ranked_pairs_defeat_tb(..., tie_breaker=by net margins)``.
"""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from rounds_by_hand import run
from strategies import Query, build_chunk

from distagg.errors import UsageError
from distagg.models import model_named
from distagg.models.majority.rule_kernels import lock_pairs, majority_quicksort, path_scores, widest_paths

PROFILES = json.loads((Path(__file__).parent / "pref_voting.json").read_text())["profiles"]


def as_lists(profile):
    ballots = dict(enumerate({int(item): rank for item, rank in ballot.items()} for ballot in profile["ballots"]))
    return build_chunk([Query(profile["size"], ballots)])


def as_pairs(margins):
    cells = [(i, j) for i in range(len(margins)) for j in range(len(margins))]
    return build_chunk(
        [Query(len(margins), pairs=[(i, j, float(margins[i][j]), False) for i, j in cells if margins[i][j] > 0])]
    )


def drawn_margins(seed, size=6, largest=4):
    """Antisymmetric whole margins with zeros and ties."""
    draw = np.random.default_rng(seed)
    upper = np.triu(draw.integers(-largest, largest + 1, (size, size)), 1).astype(float)
    return upper - upper.T


def test_schulze_is_pref_votings():
    for profile in PROFILES:
        score = model_named("schulze").score(as_lists(profile), {})
        assert np.flatnonzero(score >= 0).tolist() == profile["winners"]
        assert all(score[i] > score[j] for i, j in profile["beats"])
        beaten = np.bincount([j for _, j in profile["beats"]], minlength=profile["size"])
        np.testing.assert_array_equal(np.floor(score + 1e-9), -beaten)


def test_ranked_pairs_are_pref_votings():
    for profile in PROFILES:
        score = model_named("ranked_pairs").score(as_pairs(profile["margins"]), {})
        order = sorted(map(tuple, profile["locked"]))
        assert order == sorted((i, j) for i, j in itertools.permutations(range(len(score)), 2) if score[i] > score[j])


def naive_strength(margins, i, j):
    """The best smallest margin over all simple paths."""
    rest = [k for k in range(len(margins)) if k not in (i, j)]
    paths = ((i, *middle, j) for count in range(len(rest) + 1) for middle in itertools.permutations(rest, count))
    return max(max(min(margins[a][b] for a, b in itertools.pairwise(path)), 0.0) for path in paths)


def test_strongest_paths_are_those_of_all_paths():
    for seed in range(10):
        margins = drawn_margins(seed, size=5)
        strength = widest_paths(margins)
        for i, j in itertools.permutations(range(5), 2):
            assert strength[i, j] == naive_strength(margins, i, j)
        beats = strength > strength.T
        np.testing.assert_allclose(path_scores(strength), beats.sum(axis=1) / 5 - beats.sum(axis=0))


def naive_locks(pairs, size):
    """Lock pairs with a search for a path back, every time."""
    locked = set()

    def reaches(a, b):
        return a == b or any(reaches(j, b) for i, j in locked if i == a)

    for i, j in pairs:
        if not reaches(j, i):
            locked.add((i, j))
    return [sum(reaches(i, j) for i in range(size) if i != j) for j in range(size)]


def test_locked_pairs_are_those_of_a_search_for_cycles():
    draw = np.random.default_rng(3)
    for size in (2, 5, 8):
        for _ in range(5):
            pairs = [pair for pair in itertools.permutations(range(size), 2) if draw.random() < 0.6]
            draw.shuffle(pairs)
            winner, loser = (np.array([pair[end] for pair in pairs], dtype=np.int64) for end in (0, 1))
            assert lock_pairs(winner, loser, size).tolist() == naive_locks(pairs, size)


def naive_quicksort(margins, items, draws):
    """By recursion, the lower half last, as the stack of the kernel has it: draws are used up in the same order."""
    if len(items) < 2:
        return items
    at = int(next(draws) * len(items))
    pivot = items[at]
    left = [x for n, x in enumerate(items) if n != at and (margins[x, pivot], at - n) > (0.0, 0)]
    right = [x for n, x in enumerate(items) if n != at and (margins[x, pivot], at - n) < (0.0, 0)]
    below = naive_quicksort(margins, right, draws)
    return [*naive_quicksort(margins, left, draws), pivot, *below]


def test_quicksort_is_its_recursive_twin():
    for seed in range(20):
        margins, draws = drawn_margins(seed, size=9, largest=2), np.random.default_rng(seed).random(9)
        order = majority_quicksort(margins, np.arange(9), draws)
        assert order.tolist() == naive_quicksort(margins, list(range(9)), iter(draws))


def planted_lists(size=12, lists=9, seed=0):
    draw = np.random.default_rng(seed)
    noisy = [np.argsort(np.arange(size) + draw.normal(0, 1.5, size)) for _ in range(lists)]
    return Query(size, {e: {int(item): place + 1 for place, item in enumerate(order)} for e, order in enumerate(noisy)})


@pytest.mark.parametrize("name", ["schulze", "ranked_pairs", "kwiksort"])
def test_a_planted_order_is_found(name):
    score = model_named(name).score(build_chunk([planted_lists()]), {})
    places = np.argsort(np.argsort(-score, kind="stable"))
    assert np.abs(places - np.arange(12)).max() <= 2


def test_more_tries_are_never_worse_and_often_find_kemenys_order():
    chunk = build_chunk([Query(8, pairs=[(i, j, w, False) for i, j, w in cells(seed)]) for seed in range(12)])
    best = -model_named("kemeny").solve(chunk, {}).queries["kemeny"]

    def worths(tries):
        score = model_named("kwiksort", {"tries": tries}).score(chunk, {}).reshape(12, 8)
        return np.array([-sum(w for i, j, w in cells(q) if row[j] > row[i]) for q, row in enumerate(score)])

    assert (worths(1) <= worths(5)).all()
    assert (worths(5) <= worths(100)).all()
    assert (worths(100) <= best).all()
    assert (worths(100) == best).sum() > (worths(1) == best).sum()


def cells(seed):
    margins = drawn_margins(seed, size=8, largest=9)
    return [(i, j, margins[i, j]) for i in range(8) for j in range(8) if margins[i, j] > 0]


@pytest.mark.parametrize("name", ["schulze", "ranked_pairs", "kwiksort"])
def test_split_pairs_give_the_same_bits(name):
    pairs = [(i, j, w, False) for i, j, w in cells(1)]
    model, whole = model_named(name), build_chunk([Query(8, pairs=pairs)])
    pieces = [build_chunk([Query(8, pairs=pairs[n::3])]) for n in range(3)]
    gathered = run(model.gathering({}), pieces)
    assert model.score_split(pieces[0], gathered).tobytes() == model.score(whole, {}).tobytes()


def test_too_many_items_are_refused_before_the_start():
    chunk = build_chunk([Query(5001, pairs=[(0, 1, 1.0, False)])])
    for name in ("schulze", "ranked_pairs"):
        with pytest.raises(UsageError, match=r"has 5,001 items; it takes at most 5,000.*copeland"):
            model_named(name).score(chunk, {})
