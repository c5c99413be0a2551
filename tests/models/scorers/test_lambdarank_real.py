"""lambdarank on the real data: a fold of MQ2008-agg, well above the consensus."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distagg.dataset import Dataset, write_dataset
from distagg.engine.compare import evaluate_model
from distagg.engine.fitting.fit import fit
from distagg.engine.fitting.folds import make_folds
from distagg.models import model_named
from distagg.models.scorers.scorer import LambdaRank


@pytest.mark.real
def test_first_fold_of_mq2008(data_dir: Path, tmp_path: Path) -> None:
    from distagg.sources.letor import LetorSource

    write_dataset(LetorSource(sorted((data_dir / "mq2008-agg").glob("*.txt"))), tmp_path / "mq")
    fold = make_folds(Dataset.open(tmp_path / "mq"), "letor5")[0]
    model = LambdaRank(rounds=40, rate=0.002)
    params = fit(model, fold.train, valid=fold.valid)
    means = [
        np.nanmean(evaluate_model(*which, fold.test, ["ndcg@5", "map"])[1], axis=0)
        for which in ((model, params), (model_named("rrf"), {}))
    ]
    assert (means[0] > means[1] + 0.015).all()
