"""crf on the real data: the paper's accuracy on one fold, in seconds (skipped where the data are absent)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine.compare import evaluate_model
from distagg.engine.fitting.fit import fit
from distagg.engine.fitting.folds import make_folds
from distagg.models import Model, model_named

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def imported(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    target = tmp_path_factory.mktemp("real") / "mq2008"
    files = [str(data_dir / "mq2008-agg" / f"A{part}.txt") for part in range(1, 6)]
    assert main(["import", "letor", *files, "-o", str(target)]) == 0
    return Dataset.open(target)


def five_folds(model: Model, dataset: Dataset) -> np.ndarray:
    """Mean N@5 and MAP, percent, letor protocol."""
    found = []
    for fold in make_folds(dataset, "letor5"):
        params = fit(model, fold.train, valid=fold.valid)
        found.append(evaluate_model(model, params, fold.test, ["ndcg@5", "map"])[1].mean(axis=0))
    return 100.0 * np.mean(found, axis=0)


def test_the_papers_accuracy_and_the_worth_of_knowing_experts(imported: Dataset) -> None:
    """Volkovs & Zemel 2014, Table 5: 51.03 and 50.41, less half a point for luck; section 3.7.2: consensus is worse."""
    individual = five_folds(model_named("crf", {"rounds": 40}), imported)
    consensus = five_folds(model_named("crf", {"rounds": 10, "sharing": "consensus"}), imported)
    assert individual[0] >= 50.5
    assert individual[1] >= 50.0
    assert (consensus < individual - 1.5).all()
