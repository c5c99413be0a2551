"""The comparison report: well-formed, safe, right in its numbers, whatever the result looks like."""

from __future__ import annotations

import copy
import json
import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distagg.errors import InputError
from distagg.reports import compare_report
from tests.reports.made_up import comparison
from tests.reports.reading import Report

METRICS = ["ndcg@5", "p@1", "map"]
HOSTILE = [
    "<script>alert(1)</script>",
    "\"quoted\" 'x' & <b>",
    "</svg></style><img src=x onerror=y>",
    "a\x00b\x1b[1m\ud800",
]


def _result(**changes: Any) -> dict[str, Any]:
    return {**comparison(["borda", "rrf", "crf"], METRICS), **changes}


def _means(report: Report) -> dict[str, dict[str, str]]:
    head, *rows = report.tables["Models by metrics"]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def test_table_shows_the_means_in_percent() -> None:
    result = _result()
    shown = _means(Report(compare_report(result)))
    for model, row in result["means"].items():
        for metric, value in row.items():
            assert re.match(r"[\d.]+", shown[model][metric])[0] == f"{100 * value:.2f}"


def test_sections_come_in_order() -> None:
    html = compare_report(_result())
    titles = re.findall("<h2>(.*?)</h2>", html)
    assert [title.split(" against ")[0] for title in titles] == [
        "Results",
        "How sure the means are",
        "Query by query",
        "Fold by fold",
        "Significance",
        "Dataset",
        "Cost",
        "How to get it again",
    ]


def test_nothing_comes_from_outside_and_nothing_runs() -> None:
    report = Report(compare_report(_result()))
    assert "http:" not in report.html
    assert "https:" not in report.html
    assert "url(" not in report.html
    assert not report.names() & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not {name for name in report.attributes() if name.startswith("on") or name in ("src", "href", "srcdoc")}


def test_pictures_say_what_they_show() -> None:
    report = Report(compare_report(_result()))
    assert report.pictures
    for picture in report.pictures:
        assert picture.get("role") == "img"
        assert picture.get("aria-label") == picture.findtext("title")
        assert picture.get("viewBox").startswith("0 0 360 ")
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in report.tags


def test_same_result_gives_the_same_bytes() -> None:
    result = _result()
    before = copy.deepcopy(result)
    assert compare_report(result) == compare_report(json.loads(json.dumps(result)))
    assert result == before


def test_hostile_names_stay_text() -> None:
    result = comparison(HOSTILE, [*METRICS[:1], "<i>metric"])
    result["dataset"]["name"] = HOSTILE[0]
    result["dataset"]["coverage"] = dict.fromkeys(HOSTILE, 0.5)
    result["dataset"]["parts"] = HOSTILE
    result["command"] = HOSTILE[2]
    result["protocol"] = HOSTILE[1]
    result["rankings"] = [{"query": HOSTILE[0], "model": HOSTILE[1], "items": [{"item": HOSTILE[2], "rank": 1}]}]
    report = Report(compare_report(result))
    assert not report.names() & {"script", "img", "b", "i"}
    assert "<script>alert(1)</script>" in report.text
    assert "\x1b" not in report.html
    report.html.encode("utf-8")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=4, unique=True), st.text(max_size=20))
def test_any_names_are_well_formed(models: list[str], metric: str) -> None:
    report = Report(compare_report(comparison(models, [metric], queries=6, folds=2)))
    assert "script" not in report.names()


@pytest.mark.parametrize("nothing", [math.nan, math.inf, None])
def test_missing_figures_are_dashes(nothing: float | None) -> None:
    result = _result()
    result["means"]["rrf"]["map"] = nothing
    result["results"][0]["value"] = nothing
    result["per_query"]["crf"]["ndcg@5"][3] = nothing
    result["tests"][0]["p_randomisation_holm"] = nothing
    result["seconds"]["crf"] = nothing
    report = Report(compare_report(result))
    assert _means(report)["rrf"]["map"] == "–"
    assert not re.search(r"\b(nan|inf|None)\b", report.text, flags=re.IGNORECASE)
    assert not any("nan" in str(value) for tag, row in report.tags for key, value in row.items() if key in "dxy")


def test_best_of_a_column_is_bold_and_a_tie_makes_two() -> None:
    means = {"a": {"map": 0.50001}, "b": {"map": 0.50002}, "c": {"map": 0.4}}
    html = compare_report({"means": means})
    assert html.count("<strong>50.00</strong>") == 2
    assert "<strong>40.00</strong>" not in html


def test_marks_follow_the_corrected_test() -> None:
    test = {"metric": "map", "difference": 0.1, "low": 0.05, "high": 0.15, "p_t": 0.001, "p_t_holm": 0.001}
    tests = [
        {**test, "a": "a", "b": "b", "p_randomisation": 0.001, "p_randomisation_holm": 0.01},
        {**test, "a": "a", "b": "c", "p_randomisation": 0.02, "p_randomisation_holm": 0.06},
        {**test, "a": "b", "b": "c", "p_randomisation": 0.5, "p_randomisation_holm": 0.5},
    ]
    means = {"a": {"map": 0.5}, "b": {"map": 0.4}, "c": {"map": 0.4}}
    shown = _means(Report(compare_report({"means": means, "tests": tests})))
    # b lost to the best one after correction; c's own corrected p is above the level.
    assert {model: row["map"] for model, row in shown.items()} == {"a": "50.00", "b": "40.00▾", "c": "40.00"}


def test_marks_against_a_baseline_point_both_ways() -> None:
    result = _result(baseline="rrf")
    for test in result["tests"]:
        test["p_randomisation_holm"] = 0.01
    report = Report(compare_report(result))
    shown = _means(report)
    assert "rrf (reference)" in shown
    for model in ("borda", "crf"):
        above = result["means"][model]["map"] > result["means"]["rrf"]["map"]
        assert shown[model]["map"][-1] == ("▴" if above else "▾")


def test_differences_are_counted_against_the_best() -> None:
    per_query = {"a": {"map": [0.5, 0.5, 0.9, 0.1]}, "b": {"map": [0.5, 0.2, 0.3, 0.2]}}
    report = Report(compare_report({"means": {"a": {"map": 0.5}, "b": {"map": 0.3}}, "per_query": per_query}))
    assert report.tables["Queries won and lost"][1] == ["b", "1", "1", "2", "−20.00"]


def test_without_optional_parts() -> None:
    result = {"means": _result()["means"]}
    report = Report(compare_report(result))
    assert set(_means(report)) == {"borda", "rrf", "crf"}
    assert "Query by query" not in report.text


def test_no_tests() -> None:
    report = Report(compare_report(_result(tests=[])))
    assert "No significance tests were made" in report.text
    assert not any(label.startswith("Significance") for label in report.tables)


def test_unpaired_queries_are_not_drawn() -> None:
    result = _result()
    for model in ("borda", "rrf"):
        result["per_query"][model]["ndcg@5"] = [0.1]
    best = max(result["means"], key=lambda model: result["means"][model]["ndcg@5"])
    drawn = Report(compare_report(result)).tables.get("Queries won and lost", [])
    assert best not in [row[0] for row in drawn]
    Report(compare_report(_result(per_query={"rrf": {"ndcg@5": []}})))


@pytest.mark.parametrize(("models", "folds", "queries"), [(1, 5, 40), (3, 1, 40), (40, 5, 30), (2, 1, 1)])
def test_any_size(models: int, folds: int, queries: int) -> None:
    names = [f"model-{i}" for i in range(models)]
    result = comparison(names, METRICS, folds=folds, queries=queries)
    report = Report(compare_report(result))
    assert len(report.tables["Models by metrics"]) == models + 1
    head, *rows = report.tables["map by fold"]
    assert len(head) == folds + 2
    assert len(rows) == models


def test_many_tests_are_left_out_with_a_word() -> None:
    result = comparison([f"m{i}" for i in range(40)], METRICS, queries=10)
    report = Report(compare_report(result))
    assert "--json has all" in report.text
    assert len(report.tables["Significance tests, map"]) == 40
    assert "--json" not in Report(compare_report(_result())).text


def test_a_result_without_means_is_refused() -> None:
    with pytest.raises(InputError, match="distagg compare --json"):
        compare_report({"results": []})
