"""stagg on the real data (a fold of MQ2008-agg): above the consensus and above theta_sup_mpm, as in Niu et al. 2013."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distagg.dataset import Dataset, write_dataset
from distagg.engine.compare import evaluate_model
from distagg.engine.fitting.fit import fit
from distagg.engine.fitting.folds import make_folds
from distagg.models import model_named


@pytest.mark.real
def test_first_fold_of_mq2008(data_dir: Path, tmp_path: Path) -> None:
    from distagg.sources.letor import LetorSource

    write_dataset(LetorSource(sorted((data_dir / "mq2008-agg").glob("*.txt"))), tmp_path / "mq")
    fold = make_folds(Dataset.open(tmp_path / "mq"), "letor5")[0]
    means = {}
    for name, settings in (
        ("stagg", {"rounds": 60}),
        ("rrf", {}),
        ("theta_sup_mpm", {"unlisted": "ignore", "pairs": "difference"}),
    ):
        model = model_named(name, settings)
        params = fit(model, fold.train, valid=fold.valid) if model.learns else {}
        means[name] = np.nanmean(evaluate_model(model, params, fold.test, ["ndcg@10", "map"])[1], axis=0)
    assert (means["stagg"] > means["rrf"] + 0.01).all()
    assert means["stagg"][0] > 1.0673 * means["theta_sup_mpm"][0]  # the paper's, on MQ2007-agg
