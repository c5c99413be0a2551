"""The notebooks run, and show what they show."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

TUTORIALS = sorted((Path(__file__).parents[1] / "jobs" / "tutorials").glob("*.ipynb"))


@pytest.mark.parametrize("file", TUTORIALS, ids=lambda file: file.stem)
def test_a_notebook_shows_what_it_computes(file: Path, load_job: Callable[[str], ModuleType]) -> None:
    notebook = load_job("tutorials/notebook.py")
    kept = notebook.read(file)
    cells = notebook.code_cells(kept)
    again = f"run: python jobs/tutorials/notebook.py {file.name}"
    for cell, outputs in zip(cells, notebook.run(kept), strict=True):
        assert notebook.text(outputs) == notebook.text(cell["outputs"]), again
        assert cell["outputs"] or "import" in "".join(cell["source"])
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), again
    assert kept["nbformat"] == 4
    assert not re.search(r"(/home|/root|/tmp|/work|/Users)/", file.read_text(encoding="utf-8"))


def test_there_is_one_for_each_kind_of_user() -> None:
    assert [file.stem for file in TUTORIALS] == ["hybrid", "leaderboard", "ratings"]


def test_a_cell_gives_what_it_prints_and_its_last_value(load_job: Callable[[str], ModuleType]) -> None:
    notebook = load_job("tutorials/notebook.py")
    names: dict[str, object] = {}
    outputs = notebook.run_cell("print('a')\nb = 2\nb + 1", names)
    assert notebook.text(outputs) == "a\n\n3"
    assert names["b"] == 2
    assert notebook.run_cell("b = 4", names) == []
