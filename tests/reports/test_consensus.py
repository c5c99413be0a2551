"""The report of one ranking from many experts, and its clouds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from distagg.cli.main import main
from distagg.reports import consensus_report
from distagg.reports.curves import MOST_POINTS, cloud


def test_clouds_leave_out_what_has_no_place_and_are_thinned() -> None:
    assert cloud([0, 1, 10], [1, 2, math.nan], title="t", log=True).count("h0") == 1
    many = list(range(1, 3 * MOST_POINTS))
    assert cloud(many, many, title="t").count("h0") <= MOST_POINTS
    assert "<svg" in cloud([], [], title="empty")


def test_an_empty_report_is_a_page() -> None:
    assert consensus_report({}).startswith("<!DOCTYPE html>")


def test_variances_are_drawn_against_support_and_rank() -> None:
    found = {"variance": {"support": [1, 5, 9], "rank": [3, 1, 2], "uncertainty": [0.9, 0.2, 0.1]}}
    assert consensus_report(found).count('class="dots"') == 2


def test_rank_draws_its_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"u{u}\ti{i}\t{1 + (u * 7 + i * 3) % 5}\n" for u in range(9) for i in range(25) if (u + i) % 2]
    (tmp_path / "r.tsv").write_text("".join(rows))
    (tmp_path / "i.csv").write_text("id,title\n" + "".join(f"i{i},<Title {i}>\n" for i in range(25)))
    data = str(tmp_path / "d")
    assert main(["import", "ratings", str(tmp_path / "r.tsv"), "--items", str(tmp_path / "i.csv"), "-o", data]) == 0
    command = ["rank", "mean", data, "--support", "--titles"]
    assert main([*command, "-o", str(tmp_path / "r"), "--report", str(tmp_path / "r.html")]) == 0
    assert "&lt;Title 3&gt;" in (tmp_path / "r.html").read_text()
    assert main([*command, "-o", str(tmp_path / "r.run"), "--report", str(tmp_path / "x.html")]) == 2
