"""cps: answers known beforehand, learning from labels, hard data."""

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from rounds_by_hand import run
from strategies import Query, build_chunk

from distagg.dataset import Dataset, write_dataset
from distagg.engine.compare import compare
from distagg.engine.fitting.fit import align_experts, fit
from distagg.errors import UsageError
from distagg.models import NotConvergedWarning, model_named
from distagg.models.distances.cps import Likelihood
from distagg.sources.synthetic import SyntheticSource

DISTANCES = ["kendall", "footrule", "spearman"]


@pytest.mark.parametrize("distance", DISTANCES)
def test_two_against_one_are_followed_and_unlisted_items_are_last(distance):
    query = Query(4, {0: {0: 1, 1: 2, 2: 3}, 1: {0: 1, 1: 2, 2: 3}, 2: {1: 1, 0: 2, 2: 3}})
    scores = model_named("cps", {"distance": distance}).score(build_chunk([query]), {})
    assert np.argsort(-scores).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("distance", DISTANCES)
def test_a_cycle_is_a_tie(distance):
    cycle = Query(3, {0: {0: 1, 1: 2, 2: 3}, 1: {1: 1, 2: 2, 0: 3}, 2: {2: 1, 0: 2, 1: 3}})
    assert len(set(model_named("cps", {"distance": distance}).score(build_chunk([cycle]), {}))) == 1


def test_the_weight_of_all_experts_alike_changes_nothing():
    draw = np.random.default_rng(0)
    chunk = build_chunk([Query(9, {e: dict(enumerate(draw.permutation(9) + 1.0)) for e in range(4)})])
    for distance in DISTANCES:
        one, other = (model_named("cps", {"distance": distance, "theta": t}).score(chunk, {}) for t in (1.0, 0.1))
        np.testing.assert_array_equal(np.argsort(-one, kind="stable"), np.argsort(-other, kind="stable"))


@pytest.mark.parametrize("distance", DISTANCES)
def test_learning_tells_good_experts_from_adversarial_ones(distance, tmp_path: Path):
    source = SyntheticSource(queries=400, shape="mq2008", seed=3)
    write_dataset(source, tmp_path / "data")
    dataset = Dataset.open(tmp_path / "data")
    theta = fit(model_named("cps", {"theta": "learn", "distance": distance}), dataset)["expert_theta"]
    kind = np.array([name.split("-")[0] for name in dataset.experts])
    assert theta[kind == "good"].mean() > 3 * abs(theta[kind == "random"].mean())
    assert theta[kind == "adversarial"].max() < 0
    quality = dict(zip(source.expert_names, source.qualities, strict=True))
    assert scipy.stats.spearmanr([quality[name] for name in dataset.experts], theta).statistic > 0.8


def test_learning_helps(planted: Path):
    dataset = Dataset.open(planted)
    plain = compare(dataset, ["cps"], folds="letor5", metrics=["tau"])["means"]["cps"]["tau"]
    learned = compare(dataset, [model_named("cps", {"theta": "learn"})], folds="letor5", metrics=["tau"])
    assert learned["means"]["cps"]["tau"] > plain > 0.2


def test_the_learned_weights_are_a_maximum(planted: Path):
    """The gradient at the end is the prior's."""
    model, dataset = model_named("cps", {"theta": "learn", "tolerance": 1e-12}), Dataset.open(planted)
    params = fit(model, dataset)
    last = Likelihood(model, params["expert_theta"])
    total = sum((last.map(chunk)["gradient"] for chunk in dataset.chunks()), np.zeros(len(dataset.experts)))
    np.testing.assert_allclose(total, model.prior * params["expert_theta"], atol=1e-3)


def test_unseen_experts_count_nothing():
    model = model_named("cps", {"theta": "learn"})
    params = align_experts(model, {"expert_theta": np.array([1.0, 2.0])}, ("a", "b"), ("b", "new"))
    chunk = build_chunk([Query(2, {0: {0: 1, 1: 2}, 1: {1: 1, 0: 2}})])
    assert model.score(chunk, params).argmax() == 0


def test_too_few_rounds_are_said(planted: Path):
    with pytest.warns(NotConvergedWarning, match="cps: not converged after 1 rounds"):
        fit(model_named("cps", {"theta": "learn", "rounds": 1}), Dataset.open(planted))


def test_labels_that_are_all_equal_teach_nothing():
    model = model_named("cps", {"theta": "learn"})
    chunk = build_chunk([Query(2, {0: {0: 1, 1: 2}}, labels=[1, 1])])
    with pytest.raises(UsageError, match="different labels"):
        run(model.learning(1, {}), [chunk])
