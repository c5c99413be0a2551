"""ssra against its objective written out pair by pair; planted experts, few labels, unlabelled queries."""

import itertools

import numpy as np
import pytest
from rounds_by_hand import run
from strategies import Query, build_chunk, drawn_chunks

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.positional.semi import Moments, SemiSupervised, _by_agreement, points


def dense(chunk: Chunk, q: int) -> np.ndarray:
    """The points of every item by every expert."""
    table, first = np.zeros((chunk.item_offsets[q + 1] - chunk.item_offsets[q], chunk.n_experts)), points(chunk)
    for a in range(chunk.list_offsets[q], chunk.list_offsets[q + 1]):
        for e in range(chunk.entry_offsets[a], chunk.entry_offsets[a + 1]):
            table[chunk.entry_item[e], chunk.list_expert[a]] = first[e]
    return table


def naive_weights(chunks: list[Chunk], model: SemiSupervised) -> np.ndarray:
    """Least squares over rows: labelled pairs, pairs of items by similarity, distances from the prior."""
    labelled, alike, together, told, queries = [], [], [], 0, 0
    for chunk in chunks:
        for q in range(chunk.n_queries):
            table, grades = dense(chunk, q), chunk.grades()[chunk.item_offsets[q] : chunk.item_offsets[q + 1]]
            pairs = [(i, j) for i, j in itertools.permutations(range(len(table)), 2) if grades[i] > grades[j] >= 0]
            labelled.append([(table[i] - table[j]) / np.sqrt(len(pairs)) for i, j in pairs])
            told, queries = told + bool(pairs), queries + 1
            distance = ((table[:, None] - table[None]) ** 2).sum(axis=2)
            similarity = np.exp(-0.5 * distance / max(distance.mean(), 1e-300))
            both = itertools.product(range(len(table)), repeat=2)
            alike += [np.sqrt(similarity[i, j]) * (table[i] - table[j]) / len(table) for i, j in both]
            together.append((table - table.mean(axis=0)).T @ (table - table.mean(axis=0)) / len(table))
    rows = np.array([row for many in labelled for row in many]) / np.sqrt(told)
    target = np.array([1 / np.sqrt(len(many) * told) for many in labelled for _ in many])
    prior = _by_agreement(np.sum(together, axis=0) / queries)
    gap = rows.T @ target
    prior = prior / (prior @ gap) if prior @ gap > 0 else 0 * prior
    pull = np.sqrt(model.shrink * (rows**2).sum() / len(gap)) * np.eye(len(gap))
    system = np.vstack([rows, np.sqrt(model.smooth / queries) * np.array(alike), pull])
    return np.linalg.lstsq(system, np.concatenate([target, np.zeros(len(alike)), pull @ prior]), rcond=None)[0]


def test_weights_are_those_of_the_objective_written_out():
    draw, compared = np.random.default_rng(7), 0
    for made, _ in drawn_chunks(40):
        queries = [Query(q.size, q.lists, draw.integers(-1, 3, q.size).tolist()) for q in made]
        chunks = [build_chunk([query], n_experts=5) for query in queries]
        model = SemiSupervised(smooth=float(draw.random()), shrink=0.05 + float(draw.random()))
        try:
            learned = run(Moments(model), chunks)["expert_weight"]
        except UsageError:
            continue
        np.testing.assert_allclose(learned, naive_weights(chunks, model), atol=1e-7)
        compared += 1
    assert compared > 15


def planted(queries: int, labelled: int, seed: int) -> Chunk:
    """Experts 0 to 2 see the truth, 3 reverses it, 4 orders at random; labels in the first queries only."""
    draw, made = np.random.default_rng(seed), []
    for q in range(queries):
        truth = draw.integers(0, 3, 12)
        seen = [truth + 0.8 * draw.normal(size=12) for _ in range(3)]
        orders = [np.argsort(-values) for values in (*seen, -truth + 0.5 * draw.normal(size=12), draw.normal(size=12))]
        lists = {e: {int(item): place + 1.0 for place, item in enumerate(order)} for e, order in enumerate(orders)}
        made.append(Query(12, lists, truth.tolist() if q < labelled else []))
    return build_chunk(made, n_experts=5)


def test_few_labels_among_many_queries_find_good_bad_and_random_experts():
    learned = run(Moments(SemiSupervised()), [planted(60, 6, seed=1)])["expert_weight"]
    assert learned[3] < -0.2
    assert abs(learned[4]) < 0.2 < learned[:3].min()


def test_without_any_label_pair_it_refuses():
    with pytest.raises(UsageError, match="no query has two items with different labels"):
        run(Moments(SemiSupervised()), [planted(3, 0, seed=1)])


def test_agreement_is_the_correlation_with_the_sum_of_the_others():
    table = np.random.default_rng(2).normal(size=(50, 4)) + np.arange(50)[:, None] * [0.1, 0.1, 0.1, -0.1]
    centred = table - table.mean(axis=0)
    others = table.sum(axis=1, keepdims=True) - table
    expected = [max(np.corrcoef(table[:, e], others[:, e])[0, 1], 0.0) for e in range(4)]
    np.testing.assert_allclose(_by_agreement(centred.T @ centred / 50), expected, atol=1e-12)
