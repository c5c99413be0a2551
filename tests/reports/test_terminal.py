"""Text tables: aligned by columns, plain unless asked, nothing a name can do to the terminal."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distagg.errors import UsageError
from distagg.reports import comparison_table, render_table
from distagg.reports.text import columns


def test_unicode_names_line_up() -> None:
    shown = render_table(["model", "map"], [["順位", "1.00"], ["naïve", "22.50"], ["e\u0301", "3"]])
    assert shown.splitlines() == [
        "model    map",
        "-----  -----",
        "順位    1.00",
        "naïve  22.50",
        "e\u0301          3",
    ]


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=8)), max_size=6))
def test_right_edges_meet(rows: list[tuple[str, str]]) -> None:
    lines = render_table(["name", "value"], [(name, value + "|") for name, value in rows]).split("\n")
    assert len(lines) == len(rows) + 2
    assert {columns(line) for line in lines} == {columns(lines[0])}


def test_sides_can_be_chosen() -> None:
    assert render_table(["a", "b"], [["x", "long"], ["yy", "s"]], "rl").splitlines()[2:] == [" x  long", "yy  s"]


def test_nothing_is_a_dash() -> None:
    assert render_table(["a", "b"], [[None, math.nan]]).splitlines()[2] == "–  –"


def test_bold_only_in_colour_and_same_width() -> None:
    result = {"means": {"rrf": {"map": 0.4771}, "borda": {"map": 0.41}}}
    plain, coloured = comparison_table(result), comparison_table(result, colour=True)
    assert "\x1b" not in plain
    assert "\x1b[1m47.71\x1b[0m" in coloured
    assert "\x1b[1m41.00" not in coloured
    assert coloured.replace("\x1b[1m", "").replace("\x1b[0m", "") == plain


def test_names_cannot_drive_the_terminal() -> None:
    shown = render_table(["a"], [["x\x1b[2J\r\n\u202ey"]])
    assert len(shown.splitlines()) == 3
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(UsageError, match="expected 2"):
        render_table(["a", "b"], [["only one"]])
    with pytest.raises(UsageError, match="align"):
        render_table(["a", "b"], [], "lx")
