"""Calls go down the folders of the package: none is left and entered again between a command and its last function."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import distagg
from distagg.cli.main import main
from distagg.dataset.build.writer import write_dataset
from distagg.sources.synthetic import SyntheticSource

PACKAGE = Path(distagg.__file__).parent


def folders_to(function: str, command: list[str]) -> list[str]:
    """The folders of the chain of calls from a command to the first call of a function, neighbours joined."""
    chains: list[list[str]] = []

    def note(frame: FrameType | None, event: str, _: Any) -> None:
        if event != "call" or chains or frame is None or frame.f_code.co_qualname != function:
            return
        chain = []
        while frame is not None:
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(PACKAGE):
                chain.append(file.relative_to(PACKAGE).parts[0])
            frame = frame.f_back
        chains.append([folder for folder, _ in itertools.groupby(reversed(chain))])

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        assert main(command) == 0
    finally:
        sys.setprofile(before)
    (found,) = chains
    return found


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_dataset(SyntheticSource(6, 10, 4, seed=1), tmp_path / "runs")
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("function", "folders"),
    [
        ("read_groups", ["cli", "engine", "dataset", "storage"]),
        ("sum_by_item", ["cli", "engine", "models"]),
        ("order_items", ["cli", "engine", "rankings"]),
        ("write_part", ["cli", "engine", "rankings"]),
    ],
)
def test_ranking(runs: Path, tmp_path: Path, function: str, folders: list[str]) -> None:
    assert folders_to(function, ["rank", "rrf", str(runs), "-o", str(tmp_path / "fused.run")]) == folders


@pytest.mark.parametrize(
    ("function", "folders"),
    [
        ("TrainingState.finish", ["cli", "engine", "models"]),
        ("score_chunk", ["cli", "engine", "metrics"]),
        ("save_model", ["cli", "engine"]),
    ],
)
def test_fitting(runs: Path, tmp_path: Path, function: str, folders: list[str]) -> None:
    settings = ["-p", "mode=average", "-p", "rounds=2"]
    assert folders_to(function, ["fit", "crf", str(runs), "-o", str(tmp_path / "model"), *settings]) == folders


@pytest.mark.parametrize(
    ("function", "folders"),
    [
        ("read_tables", ["cli", "engine", "dataset", "sources"]),
        ("QueryRegroup.add", ["cli", "engine", "dataset"]),
        ("DatasetWriter.write", ["cli", "engine", "dataset"]),
    ],
)
def test_importing(tmp_path: Path, function: str, folders: list[str]) -> None:
    run = tmp_path / "a.run"
    run.write_text("".join(f"q{query} Q0 d{item} {item} {9 - item} a\n" for query in range(3) for item in range(1, 8)))
    assert folders_to(function, ["import", "trec", str(run), "-o", str(tmp_path / "runs")]) == folders
