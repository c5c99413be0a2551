"""The first page: a line for every table and figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distagg.reports.html import Child, element, page, section, table
from distagg.reports.paper_page import SLACK, Finding, counts, summary
from distagg.reports.text import NOTHING, plural, seconds, signed
from jobs.reproduce.plan import Item, spoken

HEADS = ["", "table or figure", "state", "reproduced", "improved", "farthest", "claims that hold", "computing"]


@dataclass(frozen=True)
class Line:
    item: Item
    state: str
    found: Finding | None = None
    seconds: float = 0.0
    page: bool = False  # whether it has one

    @property
    def cells(self) -> list[str]:
        """State; rows reproduced and improved, the farthest figure by the paper's procedure; claims; time."""
        if self.found is None:
            return [self.state, *[NOTHING] * 5]
        claims, rows = self.found.claims, [row for _, row in self.found.rows]
        judged = [NOTHING] * 3
        if rows:
            of = f" of {len(rows)}"
            judged = [f"{sum(row.reproduced for row in rows)}{of}", f"{sum(row.improved for row in rows)}{of}"]
            judged.append(signed(self.found.worst))
        held = f"{sum(claim.verdict == 'holds' for claim in claims)} of {len(claims)}" if claims else NOTHING
        return [self.state, *judged, held, seconds(self.seconds)]


def text_rows(lines: Sequence[Line]) -> list[list[str]]:
    return [[line.item.name, *line.cells] for line in lines]


def index_page(lines: Sequence[Line], how: str) -> str:
    """What is not reproduced first; then every line in the papers' order, those that are printed twice too."""
    lines_of_table: list[list[Child]] = []
    for line in lines:
        name: Child = spoken(line.item.name)
        if line.page:
            name = element("a", name, href=f"{line.item.name}.html")
        lines_of_table.append([name, line.item.title, *line.cells])
        same = f"the same as {spoken(line.item.name)}"
        lines_of_table += [[again, same, line.state, "", "", "", "", ""] for again in line.item.again]
    known = {spoken(line.item.name): line.found for line in lines if line.found is not None}
    missed = [
        [
            f"{name}, {title}",
            row.name,
            signed(row.worst),
            "improved" if row.improved else "",
            row.reason or "not found yet",
        ]
        for name, found in known.items()
        for title, row in found.rows
        if not row.reproduced
    ]
    rows_of_papers = [row for found in known.values() for _, row in found.rows]
    lead = f"{sum(line.page for line in lines)} of {plural(len(lines), 'page')} are there. "
    lead += counts(rows_of_papers) if rows_of_papers else ""
    said = [[name, summary(found)] for name, found in known.items()]
    return page(
        "The papers again",
        how,
        [
            section("Not reproduced", prose(["", "row", "farthest figure", "ours", "why"], missed, (0, 1, 3, 4))),
            section(
                "Tables and figures",
                table(HEADS, lines_of_table, label="Tables and figures", left=(0, 1, 2)),
                note=NOTE,
            ),
            section("What holds and what does not", prose(["", "finding"], said, (0, 1))),
        ],
        lead=lead,
    )


def prose(heads: list[str], rows: Sequence[Sequence[Child]], left: tuple[int, ...]) -> Child:
    return element("div", table(heads, rows, label=heads[-1], left=left), class_="prose") if rows else ""


NOTE = (
    f"Reproduced: by the paper's procedure and conventions every figure of a row is within {SLACK} of the paper's, "
    f"above or below. Improved: our defaults are more than {SLACK} above the paper on average, and no figure is more "
    "than that below. "
    "Volkovs & Zemel 2014 is in JMLR, 2013 in CIKM, 2012 in WWW; Niu et al. 2013 is in UAI. Left out is what measures "
    "nothing: figures 1 and 2 of Volkovs & Zemel 2014 and 2012, figures 5 and 6 of 2014, Table 1 of 2013. "
    "Computing is that of all results that a page needs; several pages share results, and the first of a kind compiles."
)
