"""The subset pass against enumeration of all rankings and finite differences; sampling; potentials by definition."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_metric import HIGHEST, naive_metric
from naive_pairs import naive_pair_matrix
from strategies import Query, build_chunk, on_chunks

from distagg.models.crf.kernels import (
    ALONE,
    AS_IS,
    IDEAL,
    TOTAL,
    Potentials,
    Samples,
    climb,
    draw_items,
    index_by_item,
    normalise,
    score_lists,
)
from distagg.models.crf.model import FUNCTIONS, field_of, metric_terms, room_for, samples
from distagg.models.pairs import list_arrays, won_and_lost
from distagg.types import NO_LABEL

TOP_OF_LIST = 2
CASES = [(name, depth) for name in ("ndcg", "p", "map", "err", "rbp") for depth in (1, 3, 12)]
CASES.append(("likelihood", 12))


def naive_field(name: str, depth: int, scores: np.ndarray, grades: list[int]) -> tuple[float, float]:
    """Expected metric (or log likelihood of the labels' order) and log Z, ranking by ranking."""
    weights, values = [], []
    for ranking in permutations(range(len(grades))):
        weights.append(sum(scores[i] / math.log(p + 2) for p, i in enumerate(ranking)))
        values.append(naive_metric(name, depth, [grades[i] for i in ranking]))
    top = max(weights)
    likely = np.exp(np.array(weights) - top)
    mean = float(likely @ values / likely.sum())
    return math.log(mean) if name == "likelihood" else mean, top + math.log(likely.sum())


def field(
    name: str, depth: int, scores: np.ndarray, grades: list[int], most: int = 0
) -> tuple[float, float, np.ndarray]:
    """Expected metric, log Z and gradient by score, of a sample in room for ``most``.

    A list for each item, whose only weight is the item's score.
    """
    size, most = len(grades), max(len(grades), most)
    gain, discount, kind, how = metric_terms(f"{name}@{depth}", size, np.array(grades, dtype=np.int32), float(HIGHEST))
    gains, shares, picked = np.zeros((1, most)), np.zeros((1, most)), np.zeros((1, most), dtype=np.int64)
    gains[0, :size], picked[0, :size] = gain, np.arange(size)
    shares[:, :size] = normalise(how, discount, gains[:, :size])
    each, mean, slope, room = np.arange(size), np.zeros(1), np.zeros((size, 1)), room_for(most)
    climb(
        1.0, kind, Samples(np.array([size]), picked, gains, shares),
        Potentials(np.arange(size + 1), each, np.ones((size, 1)), each), field_of(most), room,
        scores[:, None], slope, mean,
    )  # fmt: skip
    return float(mean[0]), float(room.follow[0]), slope[:, 0]


@given(
    grades=st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=7), min_size=1, max_size=4),
    depth=st.integers(1, 7),
)
def test_normalisers_are_their_definitions(grades: list[list[int]], depth: int) -> None:
    discount = np.where(np.arange(7) < depth, 1.0 / np.log2(np.arange(2.0, 9.0)), 0.0)
    gains = np.array([[2.0**grade - 1.0 for grade in row] + [0.0] * (7 - len(row)) for row in grades])
    hits = np.where(gains > 0.0, 1.0, 0.0)
    np.testing.assert_array_equal(normalise(AS_IS, discount, gains), np.tile(discount, (len(grades), 1)))
    found = normalise(IDEAL, discount, gains), normalise(TOTAL, discount, hits)
    for n, row in enumerate(gains):
        for share, most in zip(found, (np.sort(row)[::-1] @ discount, hits[n].sum()), strict=True):
            np.testing.assert_allclose(share[n], discount / most if most else 0.0 * discount, rtol=1e-14)


@pytest.mark.parametrize("name", ["ndcg", "map", "err"])
def test_room_for_more_items_changes_no_bit(name: str) -> None:
    scores, grades = np.random.default_rng(1).normal(size=4), [2, 0, 1, 1]
    expected, found = (field(name, 12, scores, grades, most) for most in (4, 7))
    assert (*expected[:2], *expected[2]) == (*found[:2], *found[2])


@pytest.mark.parametrize(("name", "depth"), CASES)
@settings(max_examples=5)
@given(
    grades=st.lists(st.integers(0, HIGHEST), min_size=1, max_size=5),
    seed=st.integers(0, 100),
    scale=st.sampled_from([0.1, 3.0]),
)
def test_the_subset_pass_is_enumeration(name, depth, grades, seed, scale):
    scores = scale * np.random.default_rng(seed).normal(size=len(grades))
    mean, log_z, _ = field(name, depth, scores, grades)
    assert (mean, log_z) == pytest.approx(naive_field(name, depth, scores, grades), abs=1e-12)


@pytest.mark.parametrize("size", [6, 7])
def test_the_subset_pass_is_enumeration_of_more_items(size):
    random = np.random.default_rng(size)
    scores, grades = random.normal(size=size), random.integers(0, 3, size).tolist()
    for name in ("ndcg", "err", "likelihood"):
        assert field(name, 5, scores, grades)[:2] == pytest.approx(naive_field(name, 5, scores, grades), abs=1e-12)


@pytest.mark.parametrize(("name", "depth"), CASES)
@pytest.mark.parametrize("size", [2, 6, 10])
def test_slopes_are_finite_differences(name, depth, size):
    random = np.random.default_rng(size)
    scores, grades = random.normal(size=size), random.integers(0, 3, size).tolist()
    slope, step = field(name, depth, scores, grades)[2], 1e-5
    for i in range(size):
        nudge = step * np.eye(size)[i]
        ends = [field(name, depth, scores + sign * nudge, grades)[0] for sign in (1, -1)]
        assert slope[i] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-8)
    assert slope.sum() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e300])
def test_extreme_scores_stay_finite(scale):
    scores = scale * np.array([0.0, -1.0, 1.0, 0.5])
    mean, log_z, slope = field("ndcg", 12, scores, [1, 2, 0, 0])
    assert np.isfinite([mean, log_z, *slope]).all()
    assert mean == pytest.approx(naive_metric("ndcg", 12, [0, 0, 1, 2]))
    if scale < 1e300:  # the difference of the log weights of orders then has no more digits
        mean, log_z, slope = field("likelihood", 12, scores, [1, 2, 0, 0])
        assert np.isfinite([mean, log_z, *slope]).all()
        assert mean < -scale


@settings(max_examples=60)
@given(
    labels=st.lists(st.sampled_from([NO_LABEL, 0, 1, 2, 3, 4]), min_size=1, max_size=20),
    most=st.integers(2, 6),
    seed=st.integers(0, 50),
)
def test_a_sample_has_every_label(labels, most, seed):
    keys = np.random.default_rng(seed).random(len(labels) + 3)
    array = np.array([9, 9, *labels, 9], dtype=np.int32)
    picked = np.zeros(most, dtype=np.int64)
    size = draw_items(2, 2 + len(labels), most, array, keys, np.zeros(len(labels), dtype=np.int64), picked)
    known = [i + 2 for i, label in enumerate(labels) if label != NO_LABEL]
    kinds = set(array[known].tolist())
    if len(kinds) < 2:
        assert size == 0
        return
    chosen = picked[:size].tolist()
    assert size == min(most, len(known))
    assert len(set(chosen)) == size
    assert set(chosen) <= set(known)
    found = set(array[chosen].tolist())
    assert found == kinds if len(kinds) <= most else len(found) == most


def test_samples_are_fair():
    """Among items of one label, each is as likely as another."""
    random, labels = np.random.default_rng(1), np.array([1, 0, 0, 0, 0, 0, 0, 0], dtype=np.int32)
    seen, picked = np.zeros(8), np.zeros(3, dtype=np.int64)
    for _ in range(7000):
        draw_items(0, 8, 3, labels, random.random(8), np.zeros(8, dtype=np.int64), picked)
        seen[picked] += 1
    assert seen[0] == 7000
    np.testing.assert_allclose(seen[1:] / 2000, 1.0, atol=0.1)


def naive_potentials(query: Query, function: str) -> np.ndarray:
    """(item, expert, 3) of Volkovs & Zemel 2014, equation 4: missing, won, minus lost, over the number of items."""
    found = np.zeros((query.size, 5, 3))
    found[:, :, 0] = 1.0
    for expert, ranks in query.lists.items():
        items = list(ranks)
        matrix = naive_pair_matrix([ranks[i] for i in items], function)
        found[items, expert, 0] = 0.0
        found[items, expert, 1] = matrix.sum(axis=1) / query.size
        found[items, expert, 2] = -matrix.sum(axis=0) / query.size
    return found


def scored(chunk, functions: list[str], reciprocal: float, weights: np.ndarray) -> np.ndarray:
    numbers = np.array([FUNCTIONS[name] for name in functions])
    return score_lists(
        numbers, reciprocal, TOP_OF_LIST, list_arrays(chunk), chunk.list_expert.astype(np.int64), weights
    )


@on_chunks(30)
def test_scores_without_potentials_have_the_bits_of_those_with(drawn):
    _, chunk = drawn
    functions = list(FUNCTIONS)
    weights = np.random.default_rng(1).normal(size=(5, 12))
    potentials = won_and_lost("crf", chunk, functions, 10.0, TOP_OF_LIST)
    expected, expert = np.zeros(chunk.n_items), np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
    for e, item in enumerate(chunk.entry_row()):
        total = 0.0
        for f in range(12):
            total += weights[expert[e], f] * potentials[e, f]
        expected[item] += total
    assert scored(chunk, functions, 10.0, weights).tobytes() == expected.tobytes()


@pytest.mark.parametrize("function", ["binary", "difference"])
@on_chunks(30)
def test_scores_are_the_definition_up_to_a_constant_of_the_query(function, drawn):
    made, chunk = drawn
    weights = np.random.default_rng(0).normal(size=(5, 3))
    score = scored(chunk, [function], 0.0, weights)
    for q, query in enumerate(made):
        naive = (naive_potentials(query, function) * weights).sum(axis=(1, 2))
        span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
        shift = weights[:, 0].sum()  # every expert's bias, for an item that nobody lists
        np.testing.assert_allclose(score[span] + shift, naive, atol=1e-9)


@on_chunks(60)
def test_scores_by_the_top_of_lists_are_the_definition_up_to_a_constant_of_the_query(drawn):
    """1 where i is in the top and j, listed or not, is not (Volkovs & Zemel 2013, section 4.1); ties stay together."""
    made, chunk = drawn
    weights = np.random.default_rng(0).normal(size=(5, 3))
    score = scored(chunk, ["top"], 0.0, weights)
    for q, query in enumerate(made):
        naive = np.zeros(query.size)
        for expert, ranks in query.lists.items():
            top = {i for i in ranks if sum(other < ranks[i] for other in ranks.values()) < TOP_OF_LIST}
            phi = np.array([[float(i in top and j not in top) for j in range(query.size)] for i in range(query.size)])
            missing = np.array([float(i not in ranks) for i in range(query.size)])
            values = missing, phi.sum(axis=1) / query.size, -phi.sum(axis=0) / query.size
            naive += np.stack(values, axis=1) @ weights[expert]
        span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
        gap = score[span] - naive
        np.testing.assert_allclose(gap, gap[:1].repeat(query.size), atol=1e-9)


def test_the_climb_follows_finite_differences_of_the_expected_metric():
    """By weight, on samples that hold all items, so that the objective is known."""
    made = [
        Query(4, {0: {0: 1, 1: 2, 2: 3, 3: 4}, 1: {1: 1, 0: 2, 3: 3}, 2: {3: 1, 2: 2, 0: 5}}, [2, 1, 0, 0]),
        Query(3, {0: {2: 1, 0: 2}, 1: {2: 1, 1: 4, 0: 6}}, [0, 0, 1]),
        Query(3, {0: {2: 1, 0: 2}}, [1, 1, 1]),
    ]
    chunk = build_chunk(made, n_experts=3)
    shape = (chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets)
    start, entry, holder = (np.zeros(n, dtype=np.int64) for n in (chunk.n_items + 1, chunk.n_entries, chunk.n_entries))
    index_by_item(*shape, chunk.entry_item, start, entry, holder)
    potentials = np.random.default_rng(3).normal(size=(chunk.n_entries, 3))[entry]
    gain = np.exp2(chunk.labels.astype(float)) - 1.0
    keys, discount = np.random.default_rng(4).random(chunk.n_items), 1.0 / np.log2(np.arange(2.0, 8.0))
    sizes, picked, gains = samples(chunk.item_offsets, chunk.grades(), np.arange(3), keys, gain, 6)
    assert sizes.tolist() == [4, 3]  # the third teaches nothing

    def objective(weights, into):
        means = np.full(2, np.nan)
        drawn = Samples(sizes, picked, gains, normalise(IDEAL, discount, gains))
        held = Potentials(start, holder, potentials, chunk.list_expert.astype(np.int64))
        climb(1.0, ALONE, drawn, held, field_of(6), room_for(6), weights, into, means)
        return means

    weights, slope, rest = np.random.default_rng(5).normal(size=(3, 3)), np.zeros((3, 3)), np.zeros((3, 3))
    assert np.isfinite(objective(weights, slope)).all()
    for at in np.ndindex(3, 3):
        nudge = np.zeros((3, 3))
        nudge[at] = 1e-5
        ends = [objective(weights + sign * nudge, rest).sum() for sign in (1, -1)]
        assert slope[at] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)
