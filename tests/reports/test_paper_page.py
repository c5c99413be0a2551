"""Pages that hold a paper against ours: what falls short is said, claims are what their tests say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distagg.metrics import paired_tests
from distagg.reports.paper_page import Claim, Figures, Finding, Row, above, fact, level, paper_page, summary
from jobs.reproduce.column_chart import columns
from tests.reports.reading import Report

RISE = np.random.default_rng(1).normal(0.02, 0.05, 200)
BASE = np.full(200, 0.4)


def test_a_row_is_judged_both_ways_by_the_papers_procedure() -> None:
    paper = (40.0, 40.0)
    assert Row("met", (39.5, 40.5), paper).reproduced
    assert not Row("below", (39.49, 40.0), paper).reproduced
    above = Row("above", (40.0, 40.51), paper)
    assert not above.reproduced
    assert above.worst == pytest.approx(0.51)
    assert Row("two columns", (50.0, 50.0), paper, again=(40.1, 39.9)).reproduced
    assert not Row("ours is not what is judged", paper, paper, again=(41.0, 40.0)).reproduced
    assert not Row("ours alone", (1.0, 2.0)).reproduced


def test_a_row_improves_on_the_paper_if_it_is_higher_and_nowhere_lower() -> None:
    paper = (40.0, 40.0)
    assert Row("higher", (41.5, 39.6), paper).improved
    assert not Row("near", (40.4, 40.6), paper).improved
    assert not Row("lower somewhere", (50.0, 39.4), paper).improved
    assert not Row("by the procedure only", paper, paper, again=(50.0, 50.0)).improved
    assert not Row("ours alone", (1.0, 2.0)).improved


def test_claims_are_what_their_tests_say() -> None:
    pairs = {"up": (BASE + RISE, BASE), "same": (BASE, BASE), "down": (BASE, BASE + RISE)}
    claim = above("it is above", pairs)
    assert (claim.held, claim.of, claim.verdict) == (1, 3, "holds in part")
    assert "significantly below: down" in claim.said
    assert claim.tests[0][1] == paired_tests(BASE + RISE, BASE)
    assert claim.tests[0][2] == pytest.approx(3 * claim.tests[0][1].t_test)  # Holm: the least of three
    assert level("it is not below", pairs).held == 2
    assert above("it is above", {"same": (BASE, BASE)}).verdict == "does not hold"
    assert fact("as said", {"a": True}).verdict == "holds"


def test_the_page_says_what_falls_short_and_why() -> None:
    rows = [Row("good", (50.0,), (49.0,), again=(49.1,)), Row("<bad>", (40.0,), (41.0,), (0.25,), "too few rounds")]
    found = Finding(
        "Table 1",
        "five folds",
        [Figures("MQ2008", ["map"], rows), Figures("apart", ["map"], rows, judged=False)],
        [Claim("it is best", 0, 2, "at none"), above("it is above", {"map": (BASE + RISE, BASE)})],
        seconds=12.3,
    )
    page = Report(paper_page(found))
    assert found.worst == pytest.approx(-1.0)
    assert summary(found) in page.text
    assert summary(found).startswith(
        "1 of 2 rows are reproduced within 0.5 by the paper's procedure; our defaults improve 1 by more than 0.5. Not "
        "reproduced: <bad> (MQ2008, −1.00)."
    )
    assert summary(found).endswith("Claims that hold: 1 of 2; not: it is best.")
    assert page.tables["Reasons, MQ2008"][1] == ["<bad>", "−1.00", "too few rounds"]
    assert "Reasons, apart" not in page.tables
    assert [line[2] for line in page.tables["MQ2008"][1:]] == [
        "49.00",
        "49.10",
        "+0.10",
        "50.00",
        "+1.00▴",
        "41.00",
        "40.00 (0.25)",
        "−1.00▾",
    ]
    assert page.tables["Tests: it is above"][1][0] == "map"
    assert "12.3 s" in page.text


def test_an_empty_finding_is_a_page() -> None:
    assert Report(paper_page(Finding("Nothing", ""))).names() >= {"h1"}


@given(st.lists(st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(math.nan)), min_size=2, max_size=2), max_size=4))
def test_columns_stand_inside_the_picture(values: list[list[float]]) -> None:
    (picture,) = Report(columns(["a", "<b>"], {f"s{n}": line for n, line in enumerate(values)}, title="t")).pictures
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    for shape in (one for one in picture.iter() if one.tag == "rect"):
        x, y, wide, high = (float(shape.attrib[key]) for key in ("x", "y", "width", "height"))
        assert 0 <= x <= x + wide <= width + 0.2
        assert 0 <= y <= y + high <= height + 0.2
