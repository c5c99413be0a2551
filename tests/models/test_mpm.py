"""mpm and theta_sup_mpm on planted truth, and on what has no maximum."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from strategies import Query, build_chunk

from distagg.dataset import Dataset, write_dataset
from distagg.engine.compare import compare
from distagg.engine.fit import fit
from distagg.errors import UsageError
from distagg.models import NotConvergedWarning, model_named
from distagg.sources.synthetic import SyntheticSource


def test_an_unbeaten_item_gets_a_finite_score_above_all():
    chunk = build_chunk([Query(3, {0: {0: 1, 1: 2, 2: 3}, 1: {0: 1, 2: 2, 1: 3}})])
    scores = model_named("mpm").score(chunk, {})
    assert np.isfinite(scores).all()
    assert scores.argmax() == 0


def test_confidence_counts():
    """Paper 000, figure 1: ranks 30, 20, 1 say more than ranks 1, 2, 3, so the far-off item wins."""
    chunk = build_chunk([Query(3, {0: {0: 1, 1: 2, 2: 3}, 1: {0: 30, 1: 20, 2: 1}})])
    assert model_named("mpm").score(chunk, {}).argmax() == 2
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
