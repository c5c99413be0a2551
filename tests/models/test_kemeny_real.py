"""kemeny on the real sets: nearly every order is proved."""

from pathlib import Path

import numpy as np
import pytest

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.models import model_named

pytestmark = pytest.mark.real


def test_most_orders_of_mq2008_are_proved(data_dir: Path, tmp_path: Path):
    files = [str(data_dir / "mq2008-agg" / f"A{part}.txt") for part in range(1, 6)]
    assert main(["import", "letor", *files, "-o", str(tmp_path / "data")]) == 0
    chunks = list(Dataset.open(tmp_path / "data").chunks())
    queries = [model_named("kemeny").solve(chunk, {}).queries for chunk in chunks]
    assert np.concatenate([q["exact"] for q in queries]).mean() > 0.95
    distance, bound = (np.concatenate([q[name] for q in queries]).mean() for name in ("kemeny", "bound"))
    assert 0 < distance - bound < 0.5
