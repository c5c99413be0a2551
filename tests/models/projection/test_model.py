"""svp: exact where every pair is observed, planted truth where few are, documented answers on hard data."""

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from strategies import Query, build_chunk

from distagg.dataset import Dataset
from distagg.engine.compare import compare
from distagg.errors import UsageError
from distagg.models import NotConvergedWarning, model_named


def full_lists(seed: int, size: int = 8, experts: int = 4) -> Query:
    draw = np.random.default_rng(seed)
    return Query(size, {e: dict(enumerate(draw.permutation(size) + 1.0)) for e in range(experts)})


@pytest.mark.parametrize("unlisted", ["last", "ignore"])
@pytest.mark.parametrize("seed", range(3))
def test_full_lists_give_the_row_mean(unlisted, seed):
    query = full_lists(seed)
    ranks = np.array([[query.lists[e][i] for i in range(query.size)] for e in query.lists])
    found = model_named("svp", {"pairs": "difference", "unlisted": unlisted}).score(build_chunk([query]), {})
    np.testing.assert_allclose(found, ranks.mean() - ranks.mean(axis=0), atol=1e-9)


@pytest.mark.parametrize("pairs", ["binary", "difference", "normalised", "log"])
@pytest.mark.parametrize("joint", ["mean", "sum"])
def test_full_lists_leave_nothing_to_choose_about_unlisted_items(pairs, joint):
    chunk = build_chunk([full_lists(5)])
    last, ignore = (
        model_named("svp", {"pairs": pairs, "joint": joint, "unlisted": u, "tolerance": 1e-12}).solve(
            chunk, {}, trace=True
        )
        for u in ("last", "ignore")
    )
    np.testing.assert_allclose(last.score, ignore.score, atol=1e-6)
    assert last.queries["likelihood"] == pytest.approx(ignore.queries["likelihood"], rel=1e-6)
    assert last.trace[0, -1] == pytest.approx(last.queries["likelihood"][0])


def test_planted_scores_come_back_from_few_pairs():
    """Noiseless differences on a fifth of the pairs: the completion is exact."""
    draw = np.random.default_rng(0)
    truth = draw.normal(size=40) * 5
    lists = {e: {int(i): -float(truth[i]) for i in draw.choice(40, 4, replace=False)} for e in range(60)}
    settings = {"pairs": "difference", "unlisted": "ignore", "tolerance": 1e-9, "steps": 20_000}
    outcome = model_named("svp", settings).solve(build_chunk([Query(40, lists)]), {})
    np.testing.assert_allclose(outcome.score, truth - truth.mean(), atol=1e-3)
    assert outcome.queries["converged"].all()


def test_raw_pairs_are_lists_of_two():
    pairs = [(0, 1, 2.0, False), (1, 2, 1.0, False), (2, 1, 1.0, False), (3, 2, 5.0, True), (1, 3, 0.0, False)]
    lists = {0: {0: 1, 1: 2}, 1: {0: 1, 1: 2}, 2: {1: 1, 2: 2}, 3: {2: 1, 1: 2}, 4: {3: 1, 2: 1}}
    ignore = model_named("svp", {"unlisted": "ignore"})
    found = model_named("svp").score(build_chunk([Query(4, pairs=pairs)]), {})
    np.testing.assert_allclose(found, ignore.score(build_chunk([Query(4, lists)]), {}), atol=1e-12)
    both = build_chunk([Query(2), Query(4, {e: lists[e] for e in (0, 1)}, pairs=pairs[1:])])
    np.testing.assert_allclose(ignore.score(both, {})[2:], found, atol=1e-12)


def test_a_cycle_says_nothing():
    cycle = Query(3, {0: {0: 1, 1: 2}, 1: {1: 1, 2: 2}, 2: {2: 1, 0: 2}})
    for unlisted in ("last", "ignore"):
        outcome = model_named("svp", {"unlisted": unlisted}).solve(build_chunk([cycle]), {})
        np.testing.assert_array_equal(outcome.score, 0.0)
        assert outcome.queries["converged"].all()


def test_items_in_no_list_come_last_or_get_the_mean():
    chunk = build_chunk([Query(4, {0: {0: 1, 1: 2, 2: 3}, 1: {0: 2, 1: 1, 2: 3}})])
    assert model_named("svp").score(chunk, {}).argmin() == 3
    assert model_named("svp", {"unlisted": "ignore"}).score(chunk, {})[3] == 0.0


def test_too_few_steps_are_said():
    chunk = build_chunk([Query(4, {0: {0: 1, 1: 5, 2: 9, 3: 2}, 1: {1: 1, 3: 7, 2: 3}})])
    with pytest.warns(NotConvergedWarning, match="1 queries not converged after 1 steps"):
        model_named("svp", {"pairs": "binary", "steps": 1}).score(chunk, {})


def test_logarithms_of_ratings_are_refused():
    chunk = build_chunk([Query(2, {0: {0: -5.0, 1: -3.0}})])
    with pytest.raises(UsageError, match="ranks above 0"):
        model_named("svp", {"pairs": "log"}).score(chunk, {})


def test_a_large_query_needs_no_matrix():
    """200,000 items: a matrix would take 320 GB."""
    size, draw = 200_000, np.random.default_rng(2)
    lists = {e: {int(i): float(i + draw.normal()) + 10 for i in draw.choice(size, 300)} for e in range(8)}
    chunk = build_chunk([Query(size, lists)])
    for unlisted in ("last", "ignore"):
        scores = model_named("svp", {"unlisted": unlisted}).score(chunk, {})
        assert np.isfinite(scores).all()
        listed = np.array(sorted({i for ranks in lists.values() for i in ranks}))
        assert scipy.stats.spearmanr(scores[listed], -listed).statistic > 0.2


def test_it_finds_planted_truth(planted: Path):
    assert compare(Dataset.open(planted), ["svp"], metrics=["tau"])["means"]["svp"]["tau"] > 0.2
