"""mpm and theta_sup_mpm on planted truth, and on what has no maximum."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from rounds_by_hand import run
from strategies import Query, build_chunk

from distagg.dataset import Dataset, write_dataset
from distagg.engine.compare import compare
from distagg.engine.fitting.fit import fit
from distagg.errors import UsageError
from distagg.models import NotConvergedWarning, model_named
from distagg.sources.synthetic import SyntheticSource


def test_an_unbeaten_item_gets_a_finite_score_above_all():
    chunk = build_chunk([Query(3, {0: {0: 1, 1: 2, 2: 3}, 1: {0: 1, 2: 2, 1: 3}})])
    scores = model_named("mpm").score(chunk, {})
    assert np.isfinite(scores).all()
    assert scores.argmax() == 0


def test_gradient_steps_that_are_too_long_end_before_numbers_do():
    """With variances, one list of three items, and steps of length 1, as on a query of MQ2007-agg."""
    chunk = build_chunk([Query(50, {0: {0: 1, 1: 2, 2: 3}})])
    settings = {"solver": "gradient", "steps": 100, "rate": 1.0, "variance": True}
    model = model_named("mpm", {**settings, "pairs": "difference", "unlisted": "ignore"})
    with pytest.warns(NotConvergedWarning, match="1 queries not converged after"):
        scores = model.solve(chunk, {}).score
    assert np.isfinite(scores).all()


def test_confidence_counts():
    """Volkovs & Zemel 2014, figure 1: ranks 30, 20, 1 say more than ranks 1, 2, 3, so the far-off item wins."""
    chunk = build_chunk([Query(3, {0: {0: 1, 1: 2, 2: 3}, 1: {0: 30, 1: 20, 2: 1}})])
    assert model_named("mpm", {"pairs": "difference"}).score(chunk, {}).argmax() == 2
    assert model_named("mpm", {"pairs": "binary"}).score(chunk, {}).tolist() == pytest.approx([0, 0, 0], abs=1e-6)


def test_adherence_tells_good_experts_from_random_and_adversarial_ones(tmp_path: Path):
    source = SyntheticSource(queries=2000, shape="mq2008", seed=3)
    write_dataset(source, tmp_path / "data")
    dataset = Dataset.open(tmp_path / "data")
    theta = fit(model_named("theta_sup_mpm"), dataset)["expert_theta"]
    kind = np.array([name.split("-")[0] for name in dataset.experts])
    assert theta[kind == "good"].mean() > 3 * theta[kind == "random"].mean()
    assert theta[kind == "random"].max() < 0.2
    assert theta[kind == "adversarial"].max() == 0.0
    quality = dict(zip(source.expert_names, source.qualities, strict=True))
    planted_order = [quality[name] for name in dataset.experts]
    assert scipy.stats.spearmanr(planted_order, theta).statistic > 0.8


def test_adherence_is_learned_without_labels(tmp_path: Path):
    """Good experts high, random and adversarial ones at the bottom, in the order of their planted quality."""
    source = SyntheticSource(queries=600, shape="mq2008", seed=5)
    write_dataset(source, tmp_path / "data")
    dataset = Dataset.open(tmp_path / "data")
    theta = fit(model_named("theta_mpm"), dataset)["expert_theta"]
    kind = np.array([name.split("-")[0] for name in dataset.experts])
    assert theta.max() == 1.0
    assert theta[kind == "good"].min() > theta[kind == "random"].max()
    assert theta[kind == "adversarial"].max() == 0.0
    quality = dict(zip(source.expert_names, source.qualities, strict=True))
    assert scipy.stats.spearmanr([quality[name] for name in dataset.experts], theta).statistic > 0.9


def test_learned_adherence_is_where_the_likelihood_has_no_slope(planted: Path):
    """At the end every expert inside (0, 1) has a step of almost nothing, and those at 0 would rather go below."""
    dataset = Dataset.open(planted)
    model = model_named("theta_mpm")
    params = fit(model, dataset)
    last = replace(model.learning(len(dataset.experts), {}), theta=params["expert_theta"], round=1)
    statistics = [last.map(ref.load()) for ref in dataset.plan()]
    slope, curve = (sum(s[key] for s in statistics) for key in ("slope", "curve"))
    theta = params["expert_theta"]
    inside = theta > 0
    best = (slope / curve)[theta == 1.0][0]  # the common scale is free: all inside move by the same factor
    np.testing.assert_allclose((slope / curve)[inside] / theta[inside], best, atol=5e-3)
    assert (slope[~inside] <= 0).all()


def test_nobody_agrees():
    """A cycle of three experts: no consensus, so all count the same and nothing breaks."""
    chunk = build_chunk([Query(3, {0: {0: 1, 1: 2, 2: 3}, 1: {1: 1, 2: 2, 0: 3}, 2: {2: 1, 0: 2, 1: 3}})])
    model = model_named("theta_mpm")
    params = run(model.learning(3, {}), [chunk])
    assert params["expert_theta"].tolist() == [1, 1, 1]
    np.testing.assert_allclose(model.score(chunk, params), 0.0, atol=1e-6)


def test_adherence_needs_rounds(planted: Path):
    with pytest.warns(NotConvergedWarning, match="adherence still moves by .* after 2 rounds; raise rounds"):
        fit(model_named("theta_mpm", {"rounds": 2}), Dataset.open(planted))


def observed_query(counts: np.ndarray, seed: int) -> Query:
    """Pairs drawn between items of known strength, ``counts[i]`` of them by item i."""
    draw = np.random.default_rng(seed)
    strength = np.linspace(2, -2, len(counts))
    pairs = []
    for i, count in enumerate(counts):
        for j in draw.integers(0, len(counts), count):
            if i != j:
                first = draw.random() < 1 / (1 + np.exp(strength[j] - strength[i]))
                pairs.append((i, int(j), 1.0, False) if first else (int(j), i, 1.0, False))
    return Query(len(counts), pairs=pairs)


def test_variance_falls_with_the_number_of_observations():
    counts = np.tile([400, 5, 60], 10)
    outcome = model_named("mpm", {"variance": True}).solve(build_chunk([observed_query(counts, 1)]), {})
    gamma = outcome.items["uncertainty"]
    assert (gamma > 0).all()
    assert gamma[counts == 400].mean() < gamma[counts == 60].mean() < gamma[counts == 5].mean()
    assert scipy.stats.spearmanr(gamma, counts).statistic < -0.6
    assert outcome.queries["uncertainty"] == pytest.approx(gamma.mean())


def test_scores_follow_planted_strength_from_raw_pairs():
    scores = model_named("mpm").score(build_chunk([observed_query(np.full(12, 300), 2)]), {})
    assert scipy.stats.kendalltau(scores, np.linspace(2, -2, 12)).statistic > 0.9


def test_weights_of_nothing_say_nothing():
    chunk = build_chunk([Query(3, pairs=[(0, 1, 0.0, False), (1, 2, 0.0, False), (2, 0, 5.0, True)])])
    for settings in ({}, {"variance": True}):
        assert model_named("mpm", settings).score(chunk, {}).tolist() == [0, 0, 0]


def test_ratings_leave_unrated_items_alone():
    """A list of ranks puts what it leaves out last; ratings say nothing about it."""
    lists = build_chunk([Query(3, {0: {0: 1, 1: 2}})])
    ratings = build_chunk([Query(3, {0: {0: -5, 1: -3}})])
    ranked, rated = (model_named("mpm").score(chunk, {}) for chunk in (lists, ratings))
    assert ranked[2] < ranked[1] < ranked[0]
    assert rated[1] < rated[2] < rated[0]
    assert model_named("mpm", {"unlisted": "ignore"}).score(lists, {})[2] == pytest.approx(0.0)


def test_the_fit_is_recorded():
    chunk = build_chunk([Query(4, {0: {0: 1, 1: 5, 2: 9, 3: 2}, 1: {1: 1, 3: 7, 2: 3}}), Query(2)])
    outcome = model_named("mpm").solve(chunk, {}, trace=True)
    assert outcome.queries["converged"].all()
    assert outcome.queries["iterations"][0] > 1
    assert outcome.queries["iterations"][1] == 0
    line = outcome.trace[0][np.isfinite(outcome.trace[0])]
    assert (np.diff(line) > 0).all()
    assert line[-1] == outcome.queries["likelihood"][0]


def test_the_papers_hundred_steps_are_flagged_where_they_do_not_converge():
    chunk = build_chunk([Query(4, {0: {0: 1, 1: 5, 2: 9, 3: 2}, 1: {1: 1, 3: 7, 2: 3}})])
    with pytest.warns(NotConvergedWarning, match="after 100 steps"):
        slow = model_named("mpm", {"solver": "gradient", "steps": 100, "rate": 0.1}).score(chunk, {})
    fast = model_named("mpm").score(chunk, {})
    assert np.argsort(slow).tolist() == np.argsort(fast).tolist()


def test_variances_refuse_a_matrix_that_does_not_fit(monkeypatch):
    monkeypatch.setattr("distagg.models.mpm.model.MATRIX_BYTES", 100)
    with pytest.raises(UsageError, match="4 x 4 items"):
        model_named("mpm", {"variance": True}).score(build_chunk([Query(4, {0: {0: 1, 1: 2}})]), {})


def test_adherence_helps(planted: Path):
    means = compare(Dataset.open(planted), ["mpm", "theta_sup_mpm"], folds="letor5", metrics=["tau"])["means"]
    assert means["theta_sup_mpm"]["tau"] > means["mpm"]["tau"] > 0.2


def test_too_few_steps_are_said():
    chunk = build_chunk([Query(4, {0: {0: 1, 1: 5, 2: 9, 3: 2}, 1: {1: 1, 3: 7, 2: 3}})])
    with pytest.warns(NotConvergedWarning, match="1 queries not converged after 1 steps"):
        model_named("mpm", {"steps": 1}).score(chunk, {})


def test_labels_are_needed():
    lists = pa.table({"expert": ["a", "a"], "item": ["x", "y"], "rank": [1, 2]})
    with pytest.raises(UsageError, match="learns from labels"):
        fit(model_named("theta_sup_mpm"), Dataset.from_arrow(lists))


def test_caution_takes_multiples_of_the_variance_off():
    """Item 0 won once, item 1 much and lost little: with caution the known one stands first."""
    pairs = [(0, 3, 3.0, False), (1, 2, 40.0, False), (2, 1, 10.0, False), (1, 3, 40.0, False), (2, 3, 30.0, False)]
    chunk = build_chunk([Query(4, pairs=pairs)])
    plain, careful = (model_named("mpm", {"variance": True, "caution": times}).solve(chunk, {}) for times in (0.0, 2.0))
    gamma = plain.items["uncertainty"]
    np.testing.assert_allclose(careful.score, plain.score - 2 * gamma, atol=2e-6)
    np.testing.assert_array_equal(careful.items["uncertainty"], gamma)
    assert gamma.argmax() == 0
    assert careful.score[1] - careful.score[0] > plain.score[1] - plain.score[0]


def test_caution_needs_variances():
    with pytest.raises(UsageError, match="add variance=true"):
        model_named("mpm", {"caution": 2.0})
