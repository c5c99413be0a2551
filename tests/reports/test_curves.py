"""Curves and clouds: where points stand, what is left out, that names do not overlap."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distagg.reports.charts import WIDTH
from distagg.reports.curves import HEIGHT, Axis, clouds, lines


def drawn(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(markup)


def places(markup: str) -> list[list[tuple[float, float]]]:
    found = re.findall(r'<polyline[^>]*points="([^"]*)"', markup)
    return [[tuple(map(float, pair.split(","))) for pair in points.split()] for points in found]  # type: ignore[misc]


def test_equal_steps_are_equally_far_apart() -> None:
    (plain,) = places(lines({"a": [(0, 0), (5, 5), (10, 10)]}, x=Axis("x"), y=Axis("y"), title="t"))
    assert plain[1] == pytest.approx([(plain[0][0] + plain[2][0]) / 2, (plain[0][1] + plain[2][1]) / 2], abs=0.2)
    (ratio,) = places(
        lines({"a": [(1, 1), (10, 10), (100, 100)]}, x=Axis("x", log=True), y=Axis("y", log=True), title="t")
    )
    assert ratio[1] == pytest.approx([(ratio[0][0] + ratio[2][0]) / 2, (ratio[0][1] + ratio[2][1]) / 2], abs=0.2)
    assert ratio[0][1] > ratio[2][1]  # up is more


numbers = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, 0.0])
clusters = st.dictionaries(
    st.text(min_size=1, max_size=5), st.lists(st.tuples(numbers, numbers), max_size=5), max_size=5
)


@given(series=clusters, log=st.booleans(), many=st.booleans())
@example(series={"0": [(0.0, 5e-324)]}, log=False, many=False)
def test_everything_stays_inside_and_is_well_formed(series, log, many) -> None:
    draw = clouds if many else lines
    root = drawn(draw(series, x=Axis("x", log=log), y=Axis("y", log=log), title="t"))
    top = float(root.attrib["viewBox"].split()[3])
    assert top >= HEIGHT
    for dot in root.iter():
        if dot.tag.endswith("circle"):
            assert -0.1 <= float(dot.attrib["cx"]) <= WIDTH + 0.1
            assert -0.1 <= float(dot.attrib["cy"]) <= top + 0.1


def test_names_at_the_ends_do_not_overlap() -> None:
    series = {f"model {n}": [(0, 1.0), (1, 1.0 + n / 1000)] for n in range(6)}
    root = drawn(lines(series, x=Axis("x"), y=Axis("y", shown=(0.0, 100.0)), title="t"))
    at = sorted(float(e.attrib["y"]) for e in root.iter() if (e.text or "").startswith("model"))
    assert len(at) == 6
    assert min(b - a for a, b in pairwise(at)) >= 12.0


def test_what_is_not_a_number_is_left_out() -> None:
    found = places(
        lines({"a": [(1, 1), (2, math.nan), (3, 3)], "b": [(1, math.inf)]}, x=Axis("x"), y=Axis("y"), title="t")
    )
    assert [len(points) for points in found] == [2]
