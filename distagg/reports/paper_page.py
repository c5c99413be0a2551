"""Pages that compare a paper's table or figure with our results, and test the paper's claims.

Numbers are in percent, as in the papers. The text of a page is computed from its numbers. A row has two sets of them:
by the paper's procedure and by our defaults. The first reproduces the paper if each number is within ``SLACK`` of the
paper's, above or below. The second improves on the paper if it is more than ``SLACK`` above it on average and no number
is more than that below. A claim holds if all its tests do (paired t-tests over queries, with Holm's correction over the
tests of the claim).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distagg.metrics.significance import PairedTest, holm, paired_tests
from distagg.reports.comparison import LEVEL
from distagg.reports.html import Child, Markup, element, folded, join, page, section, table
from distagg.reports.text import p_value, percent, plural, seconds, signed
from distagg.types import Floats

SLACK = 0.5
_OFF = {True: "▴", False: "▾"}
_VERDICTS = ("does not hold", "holds in part", "holds")


@dataclass(frozen=True, slots=True)
class Row:
    """One model's numbers by our defaults, the paper's, and ours by the paper's procedure (``again``).

    Without ``again`` our defaults are the paper's procedure. ``spread`` is the deviation of ``ours`` over seeds;
    ``reason`` says why the paper is not reproduced.
    """

    name: str
    ours: Sequence[float]
    paper: Sequence[float] = ()
    spread: Sequence[float] = ()
    reason: str = ""
    again: Sequence[float] = ()

    def _from_paper(self, values: Sequence[float]) -> list[float]:
        # Compare numbers rounded to two decimals, as printed.
        return [round(round(a, 2) - b, 2) for a, b in zip(values, self.paper, strict=bool(self.paper))]

    @property
    def differences(self) -> list[float]:
        """Our defaults less the paper."""
        return self._from_paper(self.ours)

    @property
    def misses(self) -> list[float]:
        """By the paper's procedure, less the paper."""
        return self._from_paper(self.again or self.ours)

    @property
    def worst(self) -> float:
        """The largest of the misses, above or below."""
        return max(self.misses, key=abs, default=0.0)

    @property
    def reproduced(self) -> bool:
        return bool(self.paper) and abs(self.worst) <= SLACK

    @property
    def improved(self) -> bool:
        return bool(self.paper) and float(np.mean(self.differences)) > SLACK and min(self.differences) >= -SLACK


@dataclass(frozen=True, slots=True)
class Figures:
    """Rows under columns; those of a table that is not ``judged`` are not counted."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    note: str = ""
    judged: bool = True


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a paper, and the number of its points that we confirm."""

    text: str
    held: int
    of: int
    said: str
    tests: tuple[tuple[str, PairedTest, float], ...] = ()  # what, the test, its corrected p

    @property
    def verdict(self) -> str:
        return _VERDICTS[2 if self.held == self.of else 1 if self.held else 0]


@dataclass(frozen=True, slots=True)
class Finding:
    """The content of a page."""

    title: str
    about: str
    tables: Sequence[Figures] = ()
    claims: Sequence[Claim] = ()
    pictures: Sequence[Child] = ()  # sections
    seconds: float | None = None
    note: str = ""

    @property
    def rows(self) -> list[tuple[str, Row]]:
        """Rows that have a paper's figures, with the title of their table."""
        return [(one.title, row) for one in self.tables if one.judged for row in one.rows if row.paper]

    @property
    def worst(self) -> float:
        """The largest difference between a paper's figure and ours by its procedure, above or below."""
        return max((row.worst for _, row in self.rows), key=abs, default=0.0)


def above(text: str, pairs: Mapping[str, tuple[Floats, Floats]]) -> Claim:
    """The claim that, in each pair of arrays, the first has the higher mean; values are fractions, one for each query.

    >>> rise = np.array([0.1, 0.2, 0.3, 0.2])
    >>> above("a is above b", {"map": (rise + 0.1 * rise, rise), "p@1": (rise, rise)}).verdict
    'holds in part'
    """
    return _tested(text, pairs, lambda test, p: test.difference > 0.0 and p < LEVEL, "significantly above")


def level(text: str, pairs: Mapping[str, tuple[Floats, Floats]]) -> Claim:
    """The claim that the first of each pair is not lower."""
    return _tested(text, pairs, lambda test, p: test.difference >= 0.0 or p >= LEVEL, "not significantly below")


def fact(text: str, points: Mapping[str, bool]) -> Claim:
    """A claim checked point by point, without a significance test.

    >>> fact("both are 8", {"8 users": True, "9 items": False}).said
    'yes: 8 users; no: 9 items'
    """
    told = [
        f"{word}: {', '.join(what for what, held in points.items() if held is kind)}"
        for word, kind in (("yes", True), ("no", False))
        if kind in points.values()
    ]
    return Claim(text, sum(points.values()), len(points), "; ".join(told))


def _tested(
    text: str, pairs: Mapping[str, tuple[Floats, Floats]], holds: Callable[[PairedTest, float], bool], word: str
) -> Claim:
    tests = [paired_tests(a, b) for a, b in pairs.values()]
    corrected = [float(p) for p in holm(np.array([test.t_test for test in tests]))]
    found = tuple(zip(pairs, tests, corrected, strict=True))
    held = [holds(test, p) for _, test, p in found]
    higher = sum(test.difference > 0.0 for test in tests)
    lower = [what for what, test, p in found if test.difference < 0.0 and p < LEVEL]
    said = f"{word} in {sum(held)} of {plural(len(tests), 'test')}, higher in {higher}"
    said += f"; significantly below: {', '.join(lower)}" if lower else ""
    return Claim(text, sum(held), len(tests), said, found)


def summary(found: Finding) -> str:
    """Which rows and claims hold, in a sentence or two."""
    rows, said = found.rows, []
    if rows:
        off = [f"{row.name} ({title}, {signed(row.worst)})" for title, row in rows if not row.reproduced]
        said.append(counts([row for _, row in rows]) + (f" Not reproduced: {', '.join(off)}." if off else ""))
    if found.claims:
        said.append(_told(found.claims))
    return " ".join(said)


def counts(rows: Sequence[Row]) -> str:
    """How many rows are reproduced and how many improved.

    >>> counts([Row("rrf", (47.18,), (47.17,)), Row("borda", (47.6,), (37.1,), again=(37.2,))])
    "2 of 2 rows are reproduced within 0.5 by the paper's procedure; our defaults improve 1 by more than 0.5."
    """
    reproduced, improved = (sum(getattr(row, what) for row in rows) for what in ("reproduced", "improved"))
    return (
        f"{reproduced} of {plural(len(rows), 'row')} are reproduced within {SLACK} by the paper's procedure; our "
        f"defaults improve {improved} by more than {SLACK}."
    )


def _told(claims: Sequence[Claim]) -> str:
    """How many claims hold, and which do not."""
    held, part, failed = ([c.text for c in claims if c.verdict == verdict] for verdict in reversed(_VERDICTS))
    kinds = [f"{word}: {', '.join(texts)}" for word, texts in (("in part", part), ("not", failed)) if texts]
    return "; ".join([f"Claims that hold: {len(held)} of {len(claims)}", *kinds]) + "."


def comparison_finding(result: Mapping[str, Any], labelled: Collection[str]) -> Finding:
    """What a comparison gave, as the papers print it; ``labelled`` models learned from labels.

    >>> result = {"metrics": ["map"], "means": {"rrf": {"map": 0.47}, "crf": {"map": 0.5}}, "protocol": "letor"}
    >>> comparison_finding(result, ["crf"]).tables[0].rows[0].name
    'crf'
    """
    metrics, means = list(result["metrics"]), result["means"]
    ordered = sorted(means, key=lambda name: -means[name][metrics[0]])
    best = [next((name for name in ordered if (name in labelled) is kind), None) for kind in (True, False)]
    per_query, claims = result.get("per_query") or {}, []
    if best[0] and best[1] and per_query:
        pairs = {m: (np.array(per_query[best[0]][m]), np.array(per_query[best[1]][m])) for m in metrics}
        claims = [above(f"labels help: {best[0]} is above {best[1]}, the best of those that need none", pairs)]
    rows = [Row(name, [100.0 * means[name][metric] for metric in metrics]) for name in ordered]
    about = f"Means in percent, {result['protocol']} protocol."
    return Finding("Models side by side", about, [Figures("Models", metrics, rows)], claims)


def paper_page(found: Finding, home: str = "") -> str:
    """The page: what holds, the paper's figures beside ours, the pictures, the claims with their tests.

    ``home`` is a page to go back to.

    >>> rows = [Row("rrf", (47.18,), (47.17,)), Row("crf", (50.0,), (51.03,), reason="too few rounds")]
    >>> html = paper_page(Finding("Table 5", "five folds", [Figures("MQ2008", ["ndcg@5"], rows)]))
    >>> "1 of 2 rows are reproduced within 0.5" in html and "too few rounds" in html
    True
    """
    took = [element("p", f"{seconds(found.seconds)} of computing.", class_="note")] if found.seconds else []
    return page(
        found.title,
        found.about,
        [
            *(section(one.title, figures_table(one), _reasons(one), note=one.note) for one in found.tables),
            *found.pictures,
            section("What the paper says, and what we find", claims_table(found.claims), *_test_tables(found.claims)),
            section("How long it took", *took, note=found.note),
            element("p", element("a", "All tables and figures", href=home)) if home else "",
        ],
        lead=summary(found),
    )


def figures_table(one: Figures) -> Markup:
    """Lines for a row that the paper has: paper, as the paper, ours, each with its difference; our best are bold."""
    best = [max((round(row.ours[at], 2) for row in one.rows), default=0.0) for at in range(len(one.columns))]
    lines: list[list[Child]] = []
    for row in one.rows:
        if row.paper:
            lines.append([row.name, "paper", *(f"{value:.2f}" for value in row.paper)])
        if row.paper and row.again:
            lines.append(["", "as the paper", *(f"{value:.2f}" for value in row.again)])
            lines.append(["", "difference", *map(_marked, row.misses)])
        cells: list[Child] = []
        for at, value in enumerate(row.ours):
            shown = element("strong", f"{value:.2f}") if round(value, 2) == best[at] else f"{value:.2f}"
            cells.append(join([shown, f" ({row.spread[at]:.2f})" if len(row.spread) else ""]))
        lines.append(["" if row.paper else row.name, "ours", *cells])
        if row.paper:
            lines.append(["", "difference", *map(_marked, row.differences)])
    return table(["model", "", *one.columns], lines, label=one.title, left=(0, 1))


def _marked(value: float) -> str:
    """A difference, with a mark where it is larger than ``SLACK``."""
    return signed(value) + (_OFF[value > 0] if abs(value) > SLACK else "")


def _reasons(one: Figures) -> Markup:
    missed = [row for row in one.rows if row.paper and not row.reproduced]
    if not missed or not one.judged:
        return Markup("")
    rows = [[row.name, signed(row.worst), row.reason or "not found yet"] for row in missed]
    return _prose(table(["not reproduced", "by", "why"], rows, label=f"Reasons, {one.title}", left=(0, 2)))


def claims_table(claims: Sequence[Claim]) -> Markup:
    if not claims:
        return Markup("")
    rows = [[claim.text, claim.verdict, claim.said] for claim in claims]
    return _prose(table(["the paper says", "verdict", "what we find"], rows, label="Claims", left=(0, 1, 2)))


def _prose(cells: Markup) -> Markup:
    return element("div", cells, class_="prose")


def _test_tables(claims: Sequence[Claim]) -> list[Markup]:
    heads = ["", "difference", "95% interval", "p (t)", "p (rand.)", "p (t), Holm", "queries"]
    made = []
    for claim in claims:
        rows = [
            [
                what,
                percent(test.difference, signed=True),
                f"{percent(test.low, signed=True)} to {percent(test.high, signed=True)}",
                p_value(test.t_test),
                p_value(test.randomisation),
                p_value(corrected),
                f"{test.queries:,}",
            ]
            for what, test, corrected in claim.tests
        ]
        if rows:
            made.append(folded(f"Tests: {claim.text}", table(heads, rows, label=f"Tests: {claim.text}")))
    return made
