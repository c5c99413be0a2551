"""Draws results.svg, the README's picture, from the first table of results.md: ``python jobs/guides/picture.py``."""

from __future__ import annotations

import re
from pathlib import Path

from distagg.reports.charts import WIDTH, Bar, bars
from distagg.reports.html import Markup, element

SOURCE = Path(__file__).with_name("results.md")
TARGET = Path(__file__).with_name("results.svg")
GAP, TOP = 40, 26
STYLE = """
text{font:12px system-ui,sans-serif;fill:#1c2227;font-variant-numeric:tabular-nums}
.bar{fill:#a9c3d6}.chosen .bar{fill:#2f6690}.paper .bar{fill:#dde1e3}.chosen text,.head{font-weight:650}
.axis{stroke:#57626b}
@media (prefers-color-scheme:dark){text{fill:#e6e9eb}.bar{fill:#40627c}.chosen .bar{fill:#82b7de}
.paper .bar{fill:#4a545c}.axis{stroke:#a0abb4}}
"""


def results(text: str) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the table under "Summary", without marks."""
    table = re.findall(r"^\|(.*)\|$", text.partition("## Summary")[2].partition("\n## ")[0], re.MULTILINE)
    cells = [[cell.strip(" *") for cell in row.split("|")] for row in table]
    return cells[0], cells[2:]


def panel(name: str, heads: list[str], rows: list[list[str]]) -> tuple[Markup, int]:
    """Bars of one dataset, each model's above its paper's, and their height."""
    ours, theirs = heads.index(name), heads.index(f"paper, {name}")
    shown: list[Bar] = []
    for row in rows:
        found = re.match(r"`(\w+)`", row[0].replace("*", ""))
        assert found, row
        model = found.group(1)
        shown.append(
            Bar(model, float(row[ours].strip("*")), row[ours].strip("*"), kind="chosen" if model == "blend" else "")
        )
        if row[theirs]:
            shown.append(Bar(f"{model}, paper", float(row[theirs]), row[theirs], kind="paper"))
    return bars(shown, title=f"NDCG@5 on {name}"), 8 + 20 * len(shown)


def picture(text: str) -> str:
    """The whole picture: a panel for each dataset, side by side."""
    heads, rows = results(text)
    names = [head.removeprefix("paper, ") for head in heads if head.startswith("paper, ")]
    drawn = []
    for place, name in enumerate(names):
        inside, height = panel(name, heads, rows)
        left = place * (WIDTH + GAP)
        drawn.append(element("text", f"NDCG@5 on {name}, %", class_="head", x=left, y=14))
        drawn.append(element("svg", inside, x=left, y=TOP, width=WIDTH, height=height))
    wide = len(names) * (WIDTH + GAP) - GAP
    whole = element(
        "svg", element("title", "NDCG@5, ours beside the papers'"), element("style", Markup(STYLE)), *drawn,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {wide} {TOP + height}", width=wide, role="img",
    )  # fmt: skip
    return whole + "\n"


if __name__ == "__main__":
    TARGET.write_text(picture(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"drew {TARGET.name}")
