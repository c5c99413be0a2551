"""bradley_terry and thurstone on the real data, against paper 000, Table 1 (skipped where the data are absent)."""

from __future__ import annotations

from pathlib import Path

import pytest

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine.compare import compare

pytestmark = pytest.mark.real

PAPER = {"mq2008-agg": (0.4262, 0.4435), "mq2007-agg": (0.4091, 0.4398)}  # Bradley-Terry: NDCG@5, MAP
SLACK = 0.005


@pytest.fixture(scope="module", params=sorted(PAPER))
def imported(
    request: pytest.FixtureRequest, data_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Dataset]:
    target = tmp_path_factory.mktemp("real") / request.param
    files = [str(data_dir / request.param / f"A{part}.txt") for part in range(1, 6)]
    assert main(["import", "letor", *files, "-o", str(target)]) == 0
    return request.param, Dataset.open(target)


def test_the_defaults_reach_the_paper(imported: tuple[str, Dataset]) -> None:
    name, dataset = imported
    means = compare(dataset, ["bradley_terry", "thurstone"], folds="letor5", metrics=["ndcg@5", "map"])["means"]
    ndcg, average = PAPER[name]
    for model in ("bradley_terry", "thurstone"):
        assert means[model]["ndcg@5"] >= ndcg - SLACK
        assert means[model]["map"] >= average - SLACK


def test_unlisted_items_are_better_last(imported: tuple[str, Dataset]) -> None:
    settings = {"bradley_terry": {"unlisted": "ignore"}}
    last = compare(imported[1], ["bradley_terry"], metrics=["map"])["means"]["bradley_terry"]["map"]
    ignored = compare(imported[1], ["bradley_terry"], metrics=["map"], settings=settings)["means"]
    assert last > ignored["bradley_terry"]["map"] + 0.05
