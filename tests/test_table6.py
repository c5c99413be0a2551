"""jobs/reproduce/table6.py: unused experts are found and left out; on the real data nothing is lost by it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from distagg.dataset import Dataset
from distagg.engine import fit, import_dataset
from distagg.engine.folds import make_folds
from distagg.engine.quality import judge_experts

AS_THE_PAPER = ["-p", "reciprocal=0", "-p", "rate=1"]


@pytest.fixture(scope="module")
def table6(load_job: Callable[[str], ModuleType]) -> ModuleType:
    return load_job("reproduce/table6.py")


@pytest.fixture(scope="module")
def mq2008(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("real") / "mq2008"
    import_dataset("letor", [data_dir / "mq2008-agg" / f"A{part}.txt" for part in range(1, 6)], target)
    return target


def test_wrong_use_is_refused(table6: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert table6.main(["--mq2008", str(tmp_path / "none")]) == 3
    assert table6.main(["--mq2008", str(tmp_path / "none"), "-p", "rate"]) == 2
    assert "expected key=value" in capsys.readouterr().err


def test_rows_have_the_spread_over_seeds(table6: ModuleType) -> None:
    runs = [[0.40] * 6, [0.42] * 6]
    tests = {"b": {"difference": 0.01, "low": -0.01, "high": 0.03, "p": 0.4}}
    text = table6.table({"means": {"a": runs, "b": runs}, "tests": tests, "unused": {"13": 2}, "folds": 10})
    assert "41.00 (1.41)" in text
    assert "NDCG@5 +1.00 (95%: -1.00 to +3.00), p = 0.40" in text
    assert "unused, of 10 models: 13 in 2" in text


@pytest.mark.real
def test_the_papers_useful_and_unused_experts_are_found_again(mq2008: Path) -> None:
    """Figure 11: fold 1 of MQ2008."""
    fold = make_folds(Dataset.open(mq2008), "letor5")[0]
    fitted = fit("crf", fold.train, valid=fold.valid, reciprocal=0, rate=1.0)
    found = {one.expert: one for one in judge_experts(fitted, fold.train)}
    assert {name for name, one in found.items() if one.verdict == "unused"} >= {"13", "20", "24", "25"}
    listed = sorted(found, key=lambda name: -found[name].listed)
    assert {"15", "17", "18", "21"} == set(listed[:4])
    assert max(found, key=lambda name: found[name].order) == "14"
    assert max(found, key=lambda name: found[name].loss) == "18"


@pytest.mark.real
def test_nothing_is_lost_without_the_unused(table6: ModuleType, mq2008: Path, tmp_path: Path) -> None:
    """Table 6: comparable or better; here, no worse than half a point beyond chance."""
    assert table6.main(["--mq2008", str(mq2008), "--seeds", "1", *AS_THE_PAPER, "--json", str(tmp_path / "r")]) == 0
    result = json.loads((tmp_path / "r").read_text())
    assert set(result["unused"]) >= {"13", "20"}
    whole, *others = (100 * np.array(result["means"][name][0]) for name in result["means"])
    for means in others:
        assert means[4] >= whole[4] - 0.5
    assert all(test["high"] > 0.0 for test in result["tests"].values())
