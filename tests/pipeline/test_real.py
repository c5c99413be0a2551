"""A shipped job on real data gives what the papers give."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from distagg.cli.main import main

JOBS = Path(__file__).parents[2] / "jobs"


@pytest.mark.real
def test_the_papers_top_five_of_movielens(data_dir: Path, tmp_path: Path) -> None:
    files = json.dumps([str(data_dir / "ml-100k" / "u.data")])
    command = ["run", str(JOBS / "ratings.toml"), "-o", str(tmp_path / "run"), f"steps.ratings.files={files}"]
    assert main(command) == 0
    with (tmp_path / "run" / "output" / "top.csv").open() as file:
        top = [row["item"] for row in csv.DictReader(file)][:5]
    # Star Wars, Raiders of the Lost Ark, The Godfather, The Silence of the Lambs, The Shawshank Redemption
    assert top == ["50", "174", "127", "98", "64"]
