"""kemeny by its definition, what it says of its own proof, and its order on planted truth."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import Query, build_chunk, chunks

from distagg.dataset import Dataset
from distagg.models import model_named

CYCLE = {0: {0: 1, 1: 2, 2: 3}, 1: {1: 1, 2: 2, 0: 3}, 2: {2: 1, 0: 2, 1: 3}}


def distance(query: Query, order, unlisted: str) -> float:
    """Discordant pairs of an order with all lists and raw pairs, counted one by one."""
    total = 0.0
    for i, j in itertools.combinations(order, 2):  # i stands before j
        for ranks in query.lists.values():
            if unlisted == "last" or (i in ranks and j in ranks):
                total += ranks.get(j, np.inf) < ranks.get(i, np.inf)
        total += sum(w for winner, loser, w, tie in query.pairs if (winner, loser) == (j, i) and not tie)
    return total


@pytest.mark.parametrize("unlisted", ["last", "ignore"])
@settings(max_examples=40)
@given(drawn=chunks(most_items=6, most_queries=2))
def test_no_order_is_nearer(unlisted, drawn):
    made, chunk = drawn
    outcome = model_named("kemeny", {"unlisted": unlisted}).solve(chunk, {})
    assert outcome.queries["exact"].all()
    assert outcome.queries["converged"].all()
    for q, query in enumerate(made):
        span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
        order = np.argsort(-outcome.score[span])
        best = min(distance(query, o, unlisted) for o in itertools.permutations(range(query.size)))
        assert outcome.queries["kemeny"][q] == outcome.queries["bound"][q] == best
        assert distance(query, order, unlisted) == best
        assert sorted(outcome.score[span]) == list(range(1, query.size + 1))


def test_raw_pairs_count_with_their_weights():
    pairs = [(0, 1, 2.5, False), (1, 2, 1.5, False), (2, 0, 0.75, False), (1, 0, 9.0, True), (2, 1, 0.0, False)]
    query = Query(3, pairs=pairs)
    outcome = model_named("kemeny").solve(build_chunk([query]), {})
    assert np.argsort(-outcome.score).tolist() == [0, 1, 2]
    assert outcome.queries["kemeny"].tolist() == [0.75]
    assert outcome.queries["exact"].all()


def test_columns_say_how_it_ended():
    model = model_named("kemeny")
    outcome = model.solve(build_chunk([Query(3, CYCLE), Query(4)], n_experts=3), {}, trace=True)
    assert tuple(outcome.queries) == model.query_columns
    assert outcome.queries["kemeny"].tolist() == [4, 0]
    assert outcome.queries["gradient"].tolist() == [0, 0]
    assert outcome.trace.tolist() == [[-4], [0]]


def test_what_no_majority_decides_follows_reciprocal_ranks():
    query = Query(3, {0: {0: 9, 1: 10, 2: 11}, 1: {2: 1, 1: 2, 0: 3}})
    assert model_named("kemeny").score(build_chunk([query]), {}).tolist() == [1, 2, 3]


def random_query(size: int, lists: int) -> Query:
    draw = np.random.default_rng(0)
    return Query(size, {e: dict(enumerate(draw.permutation(size) + 1.0)) for e in range(lists)})


def test_little_effort_is_honest():
    """Random lists of many items cannot be proved; more effort never gives a worse bound or order here."""
    chunk = build_chunk([random_query(40, 7)])
    none, some = (model_named("kemeny", {"effort": e}).solve(chunk, {}).queries for e in (0, 200))
    for queries in (none, some):
        assert not queries["exact"].any()
        assert queries["converged"].all()
        assert queries["bound"] < queries["kemeny"]
    assert some["kemeny"] < none["kemeny"]
    assert some["bound"] >= none["bound"]


def test_more_items_than_the_proof_takes_on():
    outcome = model_named("kemeny").solve(build_chunk([random_query(140, 3)]), {})
    assert not outcome.queries["exact"].any()
    assert outcome.queries["bound"] < outcome.queries["kemeny"]
    assert sorted(outcome.score) == list(range(1, 141))


def test_planted_orders_are_found(planted: Path):
    """Distances are at most those of every other model's order of the same queries."""
    kemeny, others = model_named("kemeny"), [model_named(name) for name in ("borda", "condorcet", "copeland", "rrf")]
    for chunk in Dataset.open(planted).chunks():
        queries = kemeny.solve(chunk, {}).queries
        assert queries["exact"].mean() > 0.8
        assert (queries["bound"] <= queries["kemeny"]).all()
        for other in others:
            assert (queries["kemeny"] <= distances_of(chunk, other.score(chunk, {})) + 1e-9).all()


def distances_of(chunk, scores) -> np.ndarray:
    found = np.zeros(chunk.n_queries)
    for q in range(chunk.n_queries):
        order = np.argsort(-scores[chunk.item_offsets[q] : chunk.item_offsets[q + 1]], kind="stable")
        ranks = chunk.rank_matrix(q).toarray()[order]
        ranks = np.where(ranks == 0, np.inf, ranks)
        for column in ranks.T:
            found[q] += np.triu(column[:, None] > column[None, :], 1).sum()
    return found
