"""jobs/reproduce/table1.py: what falls short stands first, and on the real data nothing does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def table1(load_job: Callable[[str], ModuleType]) -> ModuleType:
    return load_job("reproduce/table1.py")


def test_rows_that_fall_short_stand_first(table1: ModuleType) -> None:
    paper = (40.0,) * 11
    rows = [
        table1.Row("mq2008", "fine", paper, (39.5,) * 11),
        table1.Row("mq2008", "absent", paper, ()),
        table1.Row("mq2008", "short", paper, (50.0,) * 10 + (39.49,)),
    ]
    assert [row.verdict for row in rows] == ["met", "MISSING", "SHORT"]
    text = table1.table(rows)
    assert text.index("short") < text.index("absent") < text.index("fine")
    assert "-0.51" in text


def test_wrong_use_is_refused(table1: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--mq2008", "x", "--models", "borda"], []):
        with pytest.raises(SystemExit, match="2"):
            table1.main(arguments)
    assert table1.main(["--mq2008", "x", "-p", "cps"]) == 2
    assert "expected MODEL.key=value" in capsys.readouterr().err


@pytest.mark.real
def test_every_row_reaches_the_papers(
    imported: tuple[str, Path], table1: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NDCG@5 and MAP at or above the paper's, less half a point."""
    name, target = imported
    data = name.removesuffix("-agg")
    found = tmp_path / "rows.json"
    assert table1.main([f"--{data}", str(target), "--json", str(found)]) == 0
    assert "MISSING" not in capsys.readouterr().out
    for row in json.loads(found.read_text()):
        for metric in (4, 10):
            assert row["ours"][metric] >= row["paper"][metric] - 0.5
