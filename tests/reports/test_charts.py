"""The pictures: geometry that follows the numbers, inside the box."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distagg.reports import charts as svg

FIGURES = st.floats(-1, 1) | st.just(math.nan)


def _numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path)]


def test_bars_are_as_long_as_their_values() -> None:
    root = ElementTree.fromstring(svg.bars([svg.Bar("a", 0.2, "20"), svg.Bar("b", 0.4, "40")], title="t"))
    short, long = (float(rect.get("width")) for rect in root.iter("rect"))
    assert long == pytest.approx(2 * short, abs=0.2)


@given(st.lists(st.tuples(st.text(max_size=40), FIGURES, FIGURES, FIGURES), max_size=8))
def test_bars_stay_in_the_box(rows: list[tuple[str, float, float, float]]) -> None:
    drawn = [svg.Bar(name, value, f"{value:.2f}", min(a, b), max(a, b)) for name, value, a, b in rows]
    root = ElementTree.fromstring(svg.bars(drawn, title="t"))
    for rect in root.iter("rect"):
        assert float(rect.get("x")) >= 0
        assert float(rect.get("x")) + float(rect.get("width")) <= svg.WIDTH
    assert len(list(root.iter("rect"))) == sum(math.isfinite(value) for _, value, _, _ in rows)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=700))
def test_differences_are_counted_whole_and_drawn_thin(values: list[float]) -> None:
    root = ElementTree.fromstring(svg.differences(values, limit=1.0, title="t"))
    words = [text.text for text in root.iter("text")]
    better, worse = sum(v > svg.TIE for v in values), sum(v < -svg.TIE for v in values)
    assert words[-3:] == [f"{better} better", f"{len(values) - better - worse} equal", f"{worse} worse"]
    for path in root.iter("path"):
        assert all(0 <= number <= svg.WIDTH for number in _numbers(path.get("d")))
        assert len(path.get("d")) < 6000


def test_equal_differences_draw_no_area() -> None:
    assert "<path" not in svg.differences([0.0, 0.0], limit=1.0, title="t")


def test_histogram_columns() -> None:
    root = ElementTree.fromstring(svg.histogram([0, 10, 30], [2, 4], title="t"))
    low, high = (float(rect.get("height")) for rect in root.iter("rect"))
    assert high == pytest.approx(2 * low, abs=0.2)
    ElementTree.fromstring(svg.histogram([0, 1], [0], title="empty"))


def test_heat_is_opacity() -> None:
    root = ElementTree.fromstring(svg.heat_strip({"a": 0.0, "b": 1.0, "c": math.nan}, title="t"))
    cells = [g.find("rect").get("fill-opacity") for g in root.iter("g")]
    assert cells == ["0.10", "1.00", "0.00"]


def test_strips_have_a_cell_for_each_expert_and_model():
    """Volkovs & Zemel 2014, figure 7: one row above the other, and what a cell stands for under the pointer."""
    drawn = svg.strips({"learned": [0.0, 1.0], "measured": [0.5, 0.25]}, ["bing", "<b>"], title="Adherence")
    root = ElementTree.fromstring(drawn)
    assert drawn.count('class="cell"') == 4
    assert drawn.count('fill-opacity="1.00"') == 1
    tips = [tip.text for tip in root.iter("title")]
    assert "<b>: 1.00" in tips
    assert "bing: 0.50" in tips
    many = svg.strips({"learned": [0.5] * 9000}, [str(n) for n in range(9000)], title="t")
    assert many.count('class="cell"') <= 200
