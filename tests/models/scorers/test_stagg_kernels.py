"""Expected metrics against all outcomes and the paper's recursion; gradients against finite differences."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_stagg import recursion
from strategies import Query, build_chunk

from distagg.models.positional.kernels import exponential_terms, size_class
from distagg.models.scorers.scorer import Stagg, discounts
from distagg.models.scorers.stagg_kernels import Metric, expected_metric, normal_chance
from distagg.models.trained import TrainingState
from distagg.types import NO_LABEL

OBJECTIVES = ("ndcg", "err", "rbp")
HIGHEST = 2


def chances(score: np.ndarray, j: int, sigma: float) -> np.ndarray:
    """Equation 14: the chance of each other item to beat item j."""
    return scipy.stats.norm.cdf(np.delete(score, j) - score[j], scale=np.sqrt(2.0) * sigma)


def gain_and_keep(objective: str, labels: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """What the metric gives for an item, divided where it is, and how likely the reader goes on behind it."""
    grade = np.array([max(label, 0) if label != NO_LABEL else 0 for label in labels], dtype=float)
    if objective == "rbp":
        return 0.05 * grade, np.ones(len(grade))
    gain = 2.0**grade - 1.0
    if objective == "err":
        return gain / 2.0**HIGHEST, 1.0 - gain / 2.0**HIGHEST
    best = (np.sort(gain)[::-1] / np.log2(np.arange(2.0, len(gain) + 2.0))).sum()
    return gain / (best or 1.0), np.ones(len(grade))


def by_outcomes(objective: str, labels: list[int], score: np.ndarray, sigma: float) -> float:
    """Every outcome of every contest of every item."""
    gain, keep = gain_and_keep(objective, labels)
    total = 0.0
    for j in range(len(score)):
        against, others = chances(score, j, sigma), np.delete(keep, j)
        for outcome in product((False, True), repeat=len(against)):
            beaten = np.array(outcome, dtype=bool)
            likely = np.where(beaten, against, 1.0 - against).prod()
            total += gain[j] * likely * discounts(objective, np.array(float(beaten.sum()))) * others[beaten].prod()
    return total


def by_normal(objective: str, labels: list[int], score: np.ndarray, sigma: float) -> float:
    """A normal rank, rounded; the cascade apart from it."""
    gain, keep = gain_and_keep(objective, labels)
    total, size = 0.0, len(score)
    for j in range(size):
        against = chances(score, j, sigma)
        law = scipy.stats.norm(against.sum(), np.sqrt(max((against * (1.0 - against)).sum(), 1e-12)))
        inner = law.cdf(np.arange(size - 1) + 0.5)
        mass = np.diff(np.concatenate([[0.0], inner, [1.0]]))
        cascade = (1.0 - against * (1.0 - np.delete(keep, j))).prod()
        total += gain[j] * cascade * (mass @ discounts(objective, np.arange(float(size))))
    return total


def found(
    objective: str,
    labels: list[int],
    score: np.ndarray,
    sigma: float,
    normal: bool = False,
    rival: np.ndarray | None = None,
) -> tuple[float, np.ndarray]:
    size, force = len(score), np.empty(len(score))
    gain, keep = gain_and_keep(objective, labels)
    ratio, weight = np.array([0.95]), np.ones(1)
    if objective != "rbp":
        ratio, weight = exponential_terms(lambda rank: discounts(objective, rank), size, 1.0)
    table = discounts(objective, np.arange(float(size)))
    starts = np.zeros(size_class(size) + 2, dtype=np.int64)  # terms for this size alone
    starts[-1] = len(ratio)
    rival = np.ones(size, np.bool_) if rival is None else rival
    metric = Metric(normal, sigma, gain, keep, rival, table, starts, ratio, weight)
    value = expected_metric(0, size, metric, score, force)
    return value, force


LABELS = st.lists(st.sampled_from([0, 0, 1, 2, NO_LABEL]), min_size=1, max_size=7)


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=25)
@given(labels=LABELS, seed=st.integers(0, 1000), sigma=st.sampled_from([0.05, 0.5, 2.0]))
def test_expected_metrics_are_those_of_all_outcomes(objective: str, labels: list[int], seed: int, sigma: float) -> None:
    score = np.random.default_rng(seed).integers(-3, 4, len(labels)) / 2.0  # with ties
    value, force = found(objective, labels, score, sigma)
    assert value == pytest.approx(by_outcomes(objective, labels, score, sigma), abs=1e-12)
    assert abs(force.sum()) < 1e-12  # moving all scores alike changes nothing
    approximated, _ = found(objective, labels, score, sigma, normal=True)
    assert approximated == pytest.approx(by_normal(objective, labels, score, sigma), abs=1e-12)


def test_tabulated_chances_are_those_of_the_normal_distribution() -> None:
    gaps = np.concatenate([np.linspace(-9.0, 9.0, 20_011), np.random.default_rng(3).normal(0.0, 2.0, 5_000)])
    chance, density = np.empty(len(gaps)), np.empty(len(gaps))
    normal_chance(0.5 + 2.0 * gaps, 0.5, 2.0, chance, density)
    np.testing.assert_allclose(chance, scipy.stats.norm.cdf(gaps), rtol=0.0, atol=1e-15)
    np.testing.assert_allclose(density, scipy.stats.norm.pdf(gaps) / 2.0, rtol=1e-11, atol=1e-16)
    far = np.array([-np.inf, -50.0, 50.0, np.inf, np.nan])
    normal_chance(far, 0.0, 1.0, chance[:5], density[:5])
    np.testing.assert_allclose(chance[:5], [0.0, 0.0, 1.0, 1.0, np.nan], atol=1e-15)
    np.testing.assert_allclose(density[:5], [0.0, 0.0, 0.0, 0.0, np.nan], atol=1e-15)


def test_items_that_are_no_rivals_are_as_good_as_absent() -> None:
    """Without gain, an item that nobody can lose to changes neither the metric nor any gradient."""
    labels, score = [2, 0, 1, 0], np.array([0.3, 0.5, -0.2, 0.1])
    value, force = found("rbp", labels, score, 0.5)
    more = [2, 0, 0, 1, 0, 0], np.array([0.3, 9.0, 0.5, -0.2, 0.1, -4.0])
    rival = np.array([True, False, True, True, True, False])
    again, forces = found("rbp", *more, 0.5, rival=rival)
    assert again == pytest.approx(value, abs=1e-12)
    np.testing.assert_allclose(forces[rival], force, atol=1e-12)
    assert not forces[~rival].any()


@pytest.mark.parametrize("objective", ["ndcg", "rbp"])
def test_long_queries_agree_with_the_recursion(objective: str) -> None:
    rng = np.random.default_rng(4)
    score, labels = rng.normal(size=150), rng.integers(0, 3, 150).tolist()
    gain, _ = gain_and_keep(objective, labels)
    table = discounts(objective, np.arange(150.0))
    wanted = sum(gain[j] * (recursion(chances(score, j, 0.7)) @ table) for j in range(150))
    value, _ = found(objective, labels, score, 0.7)
    assert value == pytest.approx(wanted, rel=1e-12)
    approximated, _ = found(objective, labels, score, 0.7, normal=True)
    assert approximated == pytest.approx(wanted, rel=2e-3)
    assert approximated != value


@pytest.mark.parametrize("normal", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("sigma", [0.2, 1.0])
def test_forces_are_the_gradient(objective: str, sigma: float, normal: bool) -> None:
    rng = np.random.default_rng(1)
    labels = [0, 2, 1, NO_LABEL, 1, 0, 2, 0]
    score, step = rng.normal(size=8), 1e-6
    score[4] = score[1]
    _, force = found(objective, labels, score, sigma, normal)
    for i in range(8):
        nudge = np.eye(8)[i] * step
        up, down = (found(objective, labels, score + d, sigma, normal)[0] for d in (nudge, -nudge))
        assert force[i] == pytest.approx((up - down) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("normal", [False, True])
def test_sure_scores_give_the_plain_metric(normal: bool) -> None:
    labels, score = [0, 1, 2, 0, 1], np.array([0.1, 3.0, 2.0, 5.0, -1.0])
    value, force = found("ndcg", labels, score, 1e-3, normal)
    gains = np.array([2.0 ** labels[i] - 1.0 for i in np.argsort(-score)])
    wide = np.log2(np.arange(2.0, 7.0))
    assert value == pytest.approx((gains / wide).sum() / (np.sort(gains)[::-1] / wide).sum(), rel=1e-9)
    assert np.isfinite(force).all()


@pytest.mark.parametrize(
    "settings", [{}, {"hidden": 2, "layers": 2}, {"ranks": "normal"}, {"objective": "err"}], ids=str
)
def test_the_gradient_by_weight_equals_finite_differences(settings: dict) -> None:
    """Of the whole model on a chunk: features, scores, objective summed over queries."""
    lists = {0: {0: 1.0, 1: 2.0, 2: 3.0, 4: 4.0}, 2: {3: 1.0, 0: 5.0, 1: 6.0}, 1: {4: 1.0, 3: 2.0}}
    taught = [Query(5, lists, [2, 0, 1, 0, 0]), Query(3, {0: {1: 1.0, 2: 2.0}, 2: {0: 3.0}}, [0, 1, 0])]
    chunk = build_chunk([*taught, Query(2, {0: {0: 1.0}}, [1, 1])], n_experts=3)
    model, rng = Stagg(sigma=0.5, **settings), np.random.default_rng(6)
    params = {name: rng.normal(size=value.shape) for name, value in model.start(3).items()}
    slope, count = model.slope(chunk, TrainingState(model, params, float(HIGHEST)))
    assert count == 2  # two items with different labels are needed

    def objective(moved: dict) -> float:
        score = model.score(chunk, moved)
        return sum(
            found(model.objective, list(query.labels), score[first : first + query.size], 0.5, model.ranks == "normal")[
                0
            ]
            for query, first in zip(taught, (0, 5), strict=True)
        )

    for name in model.weight_names:
        for at in np.ndindex(params[name].shape):
            ends = []
            for nudge in (1e-5, -1e-5):
                moved = params | {name: params[name].copy()}
                moved[name][at] += nudge
                ends.append(objective(moved))
            assert slope[name][at] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-7)
