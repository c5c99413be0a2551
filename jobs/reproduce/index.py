"""The first page: a line for every table and figure."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from distagg.reports.markup import Child, element
from distagg.reports.page import page, section, table
from distagg.reports.paper import SLACK, Finding, summary
from distagg.reports.text import NOTHING, plural, seconds
from jobs.reproduce.plan import Item

HEADS = ["", "table or figure", "state", f"worst figure below paper - {SLACK}", "claims that hold", "computing"]


@dataclass(frozen=True)
class Line:
    item: Item
    state: str
    found: Finding | None = None
    seconds: float = 0.0

    @property
    def cells(self) -> list[str]:
        """State, shortfall, claims and time."""
        if self.found is None:
            return [self.state, NOTHING, NOTHING, NOTHING]
        claims = self.found.claims
        short = f"{self.found.short:.2f}" if self.found.short else "none" if self.found.rows else NOTHING
        held = f"{sum(claim.verdict == 'holds' for claim in claims)} of {len(claims)}" if claims else NOTHING
        return [self.state, short, held, seconds(self.seconds)]


def text_rows(lines: Sequence[Line]) -> list[list[str]]:
    return [[line.item.name, *line.cells] for line in lines]


def index_page(lines: Sequence[Line], took: float, measured: int, wanted: int, given: argparse.Namespace) -> str:
    """What falls short first, then every line in the papers' order, those that are printed twice too."""
    rows: list[list[Child]] = []
    for line in lines:
        name: Child = line.item.name.replace("-", " ")
        if line.found is not None:
            name = element("a", name, href=f"{line.item.name}.html")
        rows.append([name, line.item.title, *line.cells])
        rows += [
            [again, f"the same as {line.item.name.replace('-', ' ')}", line.state, "", "", ""]
            for again in line.item.again
        ]
    known = [line for line in lines if line.found is not None]
    short = [line for line in known if line.found is not None and line.found.short]
    said = [[line.item.name.replace("-", " "), summary(line.found)] for line in known if line.found is not None]
    lead = f"{len(known)} of {plural(len(lines), 'page')} are there. "
    lead += f"Rows below the paper less {SLACK} are on {len(short)} of them." if known else ""
    how = f"{measured} of {plural(wanted, 'result')} measured in this run: {seconds(took)}, {given.workers} at a time"
    return page(
        "The papers again",
        f"{how}; {plural(given.seeds, 'seed')}.",
        [
            section("Tables and figures", table(HEADS, rows, label="Tables and figures", left=(0, 1, 2)), note=NOTE),
            section(
                "What holds and what does not",
                element("div", table(["", "finding"], said, label="Findings", left=(0, 1)), class_="prose")
                if said
                else "",
            ),
        ],
        lead=lead,
    )


NOTE = (
    "000: Volkovs and Zemel, JMLR 2014; 001: the same, CIKM 2013; 002: the same, WWW 2012; 004: Niu and others, "
    "UAI 2014. Left out is what measures nothing: 000 and 002 figures 1 and 2, 000 figures 5 and 6, 001 Table 1."
)
