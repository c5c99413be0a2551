"""plackett_luce on the real data against paper 000, Table 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distagg.cli.main import main

pytestmark = pytest.mark.real

PAPER = {"mq2008-agg": {"ndcg@5": 41.55, "map": 42.20}, "mq2007-agg": {"ndcg@5": 40.96, "map": 43.64}}


@pytest.mark.parametrize("name", sorted(PAPER))
def test_the_default_reaches_the_paper_and_is_the_better_rule(
    name: str, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(data_dir / name / f"A{part}.txt") for part in range(1, 6)]
    assert main(["import", "letor", *files, "-o", str(tmp_path / "data")]) == 0
    capsys.readouterr()
    command = ["compare", str(tmp_path / "data"), "--models", "plackett_luce", "--folds", "letor5", "--json"]
    found = []
    for settings in ([], ["-p", "plackett_luce.unlisted=ignore"]):
        assert main([*command, "--protocol", "letor", "-m", "ndcg@5", "-m", "map", *settings]) == 0
        found.append(json.loads(capsys.readouterr().out)["means"]["plackett_luce"])
    for metric, value in PAPER[name].items():
        assert 100 * found[0][metric] >= value
        assert found[0][metric] > found[1][metric]
