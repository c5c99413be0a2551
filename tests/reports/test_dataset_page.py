"""The dataset report, and writing one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distagg.errors import UsageError
from distagg.reports import dataset_report, write_report
from tests.reports.made_up import dataset_info
from tests.reports.reading import Report


def test_facts_and_numbers() -> None:
    report = Report(dataset_report(dataset_info()))
    for shown in ("784", "15,211", "65.0%", "1 to 98", "A1.txt, A2.txt"):
        assert shown in report.text
    assert [row[:2] for row in report.tables["Items per label"][1:]] == [["0", "12,279"], ["2", "931"], ["10", "5"]]
    assert report.tables["List lengths"][1] == ["0 to 10", "5"]
    assert report.tables["Coverage per expert"][2] == ["engine-b", "50.0%"]
    assert len(report.pictures) == 4


def test_little_is_known() -> None:
    assert Report(dataset_report({})).pictures == []
    assert "3" in Report(dataset_report({"queries": 3, "labels": {}, "histograms": None})).text


@pytest.mark.parametrize("amount", [1, 40, 41, 943, 5000])
def test_any_number_of_experts(amount: int) -> None:
    info: dict[str, Any] = {"coverage": {f"u{i}": i / amount for i in range(amount)}}
    report = Report(dataset_report(info))
    assert len(report.pictures) == 1
    assert len(report.html) < 600_000
    assert ("of them are drawn" in report.text) == (amount == 5000)


def test_histogram_that_does_not_fit_is_left_out() -> None:
    histograms = {"list_length": {"edges": [0, 1], "counts": [1, 2]}, "query_size": {"edges": [3, 3], "counts": [7]}}
    assert len(Report(dataset_report({"histograms": histograms})).pictures) == 1


def test_hostile_names_stay_text() -> None:
    bad = "<script>'\"&</script>"
    info = {"name": bad, "kind": bad, "partition": bad, "labels": {bad: 1}, "coverage": {bad: 0.1}, "parts": [bad]}
    report = Report(dataset_report(info))
    assert "script" not in report.names()
    assert bad in report.text


def test_rankings_show_their_top() -> None:
    items = [{"item": f"item-{i}", "rank": i + 1, "score": 9.5 - i, "label": 1} for i in range(12)]
    report = Report(dataset_report({"rankings": [{"query": "q7", "model": "rrf", "items": items}]}))
    table = report.tables["Query q7, rrf"]
    assert table[0] == ["rank", "item", "score", "label"]
    assert table[1] == ["1", "item-0", "9.5", "1"]
    assert len(table) == 11
    assert "2 more items" in report.text


def test_a_report_is_kept_unless_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report.html"
    assert write_report("one – 1\n", target) == target
    with pytest.raises(UsageError, match="exists already"):
        write_report("two", target)
    assert target.read_bytes() == "one – 1\n".encode()
    write_report("two", str(target), overwrite=True)
    assert target.read_text(encoding="utf-8") == "two"
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_a_directory_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        write_report("x", tmp_path, overwrite=True)
