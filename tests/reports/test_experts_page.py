"""Hinton diagrams and the pages about a model's experts: squares follow the numbers, hostile names stay text."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distagg.reports import charts as svg
from distagg.reports.charts import hinton
from distagg.reports.experts_page import (
    experts_report,
    explanation_report,
    explanation_text,
    learning_figure,
    quality_text,
)
from tests.reports.reading import Report

HOSTILE = "<script>alert(1)</script>"


def squares(drawn: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(drawn)
    return [rect for rect in root.iter("rect") if rect.get("class") != "ground"]


def test_areas_follow_the_numbers_and_colours_the_signs() -> None:
    small, large = squares(hinton([[1.0, -4.0]], ["a"], ["x", "y"], title="t"))
    assert float(large.get("width")) == pytest.approx(2 * float(small.get("width")), abs=0.2)
    assert (small.get("class"), large.get("class")) == ("better", "worse")
    assert [float(one.get("height")) for one in (small, large)] == [float(one.get("width")) for one in (small, large)]


@given(
    st.integers(1, 70).flatmap(
        lambda wide: st.lists(
            st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=wide, max_size=wide), min_size=1, max_size=5
        )
    )
)
def test_squares_stay_in_the_picture(values: list[list[float]]) -> None:
    drawn = hinton(values, ["a long name of an expert"] * len(values), ["column"] * len(values[0]), title="t")
    height = float(ElementTree.fromstring(drawn).get("viewBox").split()[3])
    found = squares(drawn)
    assert len(found) == sum(math.isfinite(v) for row in values for v in row)
    for rect in found:
        x, y, side = (float(rect.get(key)) for key in ("x", "y", "width"))
        assert x >= 0
        assert x + side <= svg.WIDTH + 0.1
        assert y + side <= height
    lines = sorted(
        float(text.get("y")) for text in ElementTree.fromstring(drawn).iter("text") if text.get("text-anchor")
    )
    assert all(b - a >= 11.9 for a, b in pairwise(lines))  # names do not overlap


def row(expert: str, verdict: str, order: float, loss: float | None = None) -> dict:
    error = None if loss is None else 0.01
    return {
        "expert": expert,
        "verdict": verdict,
        "order": order,
        "listed": -0.5,
        "queries": 3,
        "loss": loss,
        "error": error,
    }


def qualities(loss: float | None = None, data: str | None = "mq") -> dict:
    rows = [row(HOSTILE, "useful", 1.5, loss), row("e10", "inverted", -1.0, loss), row("e2", "unused", 0.0, loss)]
    weights = {"columns": ["missing", "won"], "rows": {HOSTILE: [1.0, 2.0], "e10": [0.5, -1.0], "e2": [0.0, 0.0]}}
    return {"model": "crf", "data": data, "goal": "map", "experts": rows, "weights": weights}


def test_the_page_of_experts() -> None:
    page = Report(experts_report(qualities(0.02)))
    assert page.tables["Experts"][0] == ["expert", "verdict", "order", "listed", "queries", "loss, %"]
    assert page.tables["Experts"][2] == ["e10", "inverted", "−1.00", "−0.50", "3", "+2.00 ± 1.00"]
    assert not any(tag == "script" for tag, _ in page.tags)
    (picture,) = page.pictures
    names = [text.text for text in picture.iter("text")]
    assert names.index("e2") < names.index("e10")
    assert "://" not in page.html
    without = Report(experts_report({**qualities(data=None), "weights": {}}))
    assert without.tables["Experts"][0] == ["expert", "verdict", "order", "listed"]
    assert not without.pictures


def test_experts_as_text() -> None:
    text = quality_text(qualities(0.02))
    assert "e10" in text
    assert "unused (1)" in text
    assert "what map would lose" in text
    assert "lose" not in quality_text(qualities())


def test_a_crowd_is_cut_short_and_said() -> None:
    many = {**qualities(), "experts": [row(f"e{n}", "useful", 1.0) for n in range(1200)], "weights": {}}
    assert "and 1,150 experts more" in quality_text(many)
    page = Report(experts_report(many))
    assert len(page.tables["Experts"]) == 1001
    assert "The first 1,000 of 1,200" in page.text


def explanation(exact: bool = True, scale: float = 1.0) -> dict:
    lifts = {f"e{n}": (-1) ** n * scale / (n + 1) for n in range(12)}
    first = {"item": HOSTILE, "rank": 1, "consensus": 2, "score": 2.0, "label": 1, "ranks": {"e0": 1.0, "e1": 4.0}}
    second = {"item": "b", "rank": 2, "consensus": 1, "score": -2.0, "label": None, "ranks": {"e0": 9.0}}
    items = [{**first, "lifts": lifts}, {**second, "lifts": dict.fromkeys(lifts, 0.0)}]
    return {"query": "q", "model": "crf", "consensus": "rrf", "experts": list(lifts), "exact": exact, "items": items}


def test_the_page_of_an_explanation() -> None:
    page = Report(explanation_report([explanation(), explanation(exact=False)]))
    assert len(page.pictures) == 4
    said, moved = page.pictures[:2]
    assert len(squares(ElementTree.tostring(said, "unicode"))) == 3
    assert len(squares(ElementTree.tostring(moved, "unicode"))) == 24
    first, second = page.tables["Items"][1:3]
    assert first == ["1", HOSTILE, "1", "2", "+2.00", "e0 +1.00, e2 +0.33, e4 +0.20, e6 +0.14, 2 more",
                     "e1 −0.50, e3 −0.25, e5 −0.17, e7 −0.12, 2 more"]  # fmt: skip
    assert second == ["2", "b", "–", "1", "−2.00", "", ""]
    assert not any(tag == "script" for tag, _ in page.tags)


def test_an_explanation_as_text_shows_small_numbers_too() -> None:
    text = explanation_text(explanation(scale=1e-4))
    assert "e0 +0.000100" in text
    assert "is the sum of the experts' lifts" in text
    assert "is not a sum over experts" in explanation_text(explanation(exact=False))


def test_nothing_to_draw() -> None:
    empty = {"query": "q", "model": "crf", "consensus": "rrf", "experts": [], "exact": True, "items": []}
    assert not Report(explanation_report([empty])).pictures
    assert "0 items" in explanation_text(empty)


def test_a_learning_curve_shows_every_round_and_the_one_that_is_kept() -> None:
    drawn = learning_figure({"values": [0.40, 0.45, 0.43], "kept": 2, "start": 0.35}, "map")
    root = ElementTree.fromstring(re.search(r"<svg.*</svg>", drawn, flags=re.DOTALL).group())
    (curve,) = root.iter("polyline")
    (dot,) = root.iter("circle")
    points = [tuple(map(float, point.split(","))) for point in curve.get("points").split()]
    assert len(points) == 4
    assert min(points, key=lambda point: point[1]) == (float(dot.get("cx")), float(dot.get("cy")))
    assert "Weights of round 2 of 3 are kept." in drawn
    assert learning_figure({}, "map") == ""
