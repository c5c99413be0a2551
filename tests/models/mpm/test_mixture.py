"""mixture_mpm: planted groups, likelihoods and weighted counts written down plainly, and split queries."""

import itertools

import numpy as np
import pytest
import scipy.stats
from rounds_by_hand import run
from strategies import Query, build_chunk

from distagg.errors import UsageError
from distagg.models import NotConvergedWarning, model_named
from distagg.models.mpm.mixture import log_partitions

SIZE = 30


def planted(seed, experts=60, groups=2, long=12):
    """Ratings of experts whose groups have orders of their own; the truth of items by group, and the groups."""
    draw = np.random.default_rng(seed)
    truth, of = draw.normal(size=(groups, SIZE)), draw.integers(0, groups, experts)
    lists = {}
    for e in range(experts):
        shown = draw.permutation(SIZE)[:long]
        rating = np.clip(np.round(3 + 1.2 * truth[of[e], shown] + 0.5 * draw.normal(size=long)), 1, 5)
        lists[e] = {int(i): -float(r) for i, r in zip(shown, rating, strict=True)}
    return truth, of, Query(SIZE, lists)


def learned(model, chunks, n_experts):
    return run(model.learning(n_experts, {}), chunks)


@pytest.mark.parametrize("groups", [2, 3])
def test_planted_groups_are_recovered(groups):
    truth, of, query = planted(1, 90, groups)
    chunk = build_chunk([query])
    params = learned(model_named("mixture_mpm", {"mixture": groups}), [chunk], 90)
    chance = params["expert_group"]
    np.testing.assert_allclose(chance.sum(axis=1), 1.0)
    assert (np.diff(chance.sum(axis=0)) <= 0).all()
    names = {}  # of planted groups
    for group in range(groups):
        model = model_named("mixture_mpm", {"mixture": groups, "group": group + 1})
        score = model.score(chunk, params)
        near = [scipy.stats.kendalltau(score, planted_scores)[0] for planted_scores in truth]
        names[group] = int(np.argmax(near))
        assert max(near) > 0.6
    assert sorted(names.values()) == list(range(groups))
    guessed = np.array([names[int(group)] for group in chance.argmax(axis=1)])
    assert (guessed == of).mean() > 0.95


def test_likelihoods_are_those_of_all_pairs():
    """Of every list: its preferences' log chances among all ordered pairs, over the share that is independent."""
    queries = [
        Query(4, {0: {2: 1.0, 0: 2.0, 3: 2.0}, 2: {1: 1.0}}),
        Query(3, {1: {0: 1.0, 2: 4.0}}, (), [(2, 1, 2.0, False), (0, 1, 1.0, True)]),
    ]
    chunk = build_chunk(queries, n_experts=3)
    draw = np.random.default_rng(0)
    score = draw.normal(size=7)
    model = model_named("mixture_mpm", {"unlisted": "last", "pairs": "binary"})
    expected = np.zeros(3)
    for q, query in enumerate(queries):
        s = score[chunk.item_offsets[q] : chunk.item_offsets[q + 1]]
        norm = np.log(sum(np.exp(s[i] - s[j]) for i, j in itertools.permutations(range(query.size), 2)))
        assert log_partitions(chunk.item_offsets, score)[q] == pytest.approx(norm)
        for e, ranks in query.lists.items():
            place = [ranks.get(i, 99.0) for i in range(query.size)]
            told = [(i, j) for i, j in itertools.permutations(range(query.size), 2) if place[i] < place[j]]
            share = min((len(ranks) - 1) / len(told), 1.0)
            expected[e] += share * sum(s[i] - s[j] - norm for i, j in told)
        expected[0] += sum(w * (s[i] - s[j] - norm) for i, j, w, tie in query.pairs if not tie)
    np.testing.assert_allclose(model.likelihoods(chunk, score), expected, atol=1e-12)


def test_weights_are_repetitions():
    """An expert of weight 2 counts as two with the same lists; and plain mpm is a mixture of one group."""
    ranks = [{0: 1.0, 1: 2.0, 3: 3.0}, {1: 1.0, 2: 2.0}, {3: 1.0, 0: 2.0}]
    chunk = build_chunk([Query(4, dict(enumerate(ranks)))])
    twice = build_chunk([Query(4, dict(enumerate([*ranks, ranks[1]])))])
    model = model_named("mixture_mpm", {"mixture": 1})
    one = model.weighted(chunk, np.array([1.0, 2.0, 1.0]))
    other = model.weighted(twice, np.ones(4))
    for name in one:
        np.testing.assert_allclose(one[name], other[name])
    np.testing.assert_allclose(model.score(chunk, {}), model_named("mpm").score(chunk, {}), atol=1e-7)


@pytest.mark.parametrize("variance", [False, True])
def test_a_split_query_has_the_groups_and_scores_of_the_whole(variance):
    _, _, query = planted(3, 40)
    lists = sorted(query.lists.items())
    pieces = [build_chunk([Query(SIZE, dict(lists[n : n + 9]))], n_experts=40) for n in range(0, 40, 9)]
    whole, model = build_chunk([query]), model_named("mixture_mpm", {"variance": variance})
    params = learned(model, [whole], 40)
    parts = learned(model, pieces, 40)
    np.testing.assert_allclose(parts["expert_group"], params["expert_group"], atol=1e-6)
    gathered = run(model.gathering(params), pieces)
    np.testing.assert_allclose(model.score_split(pieces[0], gathered), model.score(whole, params), atol=1e-6)


def test_groups_that_still_move_are_told():
    _, _, query = planted(4, 30)
    with pytest.warns(NotConvergedWarning, match="groups still move"):
        learned(model_named("mixture_mpm", {"rounds": 1}), [build_chunk([query])], 30)


def test_a_group_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="one of the 2 groups"):
        model_named("mixture_mpm", {"group": 3})
