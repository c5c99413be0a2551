"""The report of one ranking from very many experts: both ends with their support, and how sure it is.

Its input is a dictionary of which everything may be absent: ``title``; ``ends`` {model: {"top": rows, "bottom": rows}}
with rows of rank, title (or item), experts, won, lost; ``variance`` {"support", "rank", "uncertainty"};
``constants`` {"values", "metrics", "means": {model: [[value of each metric] for each constant]}}; ``table2`` rows of
completion, model, ours, paper and others, in percent, by depth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distagg.reports.markup import Markup, element
from distagg.reports.page import figure, figures, page, section, table
from distagg.reports.plots import cloud, curves
from distagg.reports.text import count


def consensus_report(found: Mapping[str, Any]) -> str:
    """The HTML report.

    >>> row = {"rank": 1, "title": "Star Wars", "experts": 583, "won": 49290, "lost": 10112}
    >>> html = consensus_report({"title": "Movies", "ends": {"mpm": {"top": [row], "bottom": []}}})
    >>> "Star Wars" in html and "49,290" in html
    True
    """
    sections = [
        section("Both ends", *(_ends(name, both) for name, both in (found.get("ends") or {}).items())),
        section("How sure it is", _variance(found.get("variance") or {})),
        section("What unrated items are taken for", _constants(found.get("constants") or {})),
        section("Against completed ratings", *_completed(found.get("table2") or ())),
    ]
    return page(str(found.get("title") or "Ranking"), "One ranking from many experts", sections)


def _ends(name: str, both: Mapping[str, Sequence[Mapping[str, Any]]]) -> Markup:
    keys = [key for key in ("experts", "won", "lost") if any(key in row for row in [*both["top"], *both["bottom"]])]
    rows = [_row(row, keys) for row in both["top"]]
    if both["bottom"]:
        rows += [["…", "", *([""] * len(keys))], *(_row(row, keys) for row in both["bottom"])]
    body = table(["rank", "item", *keys], rows, label=name, left=(1,))
    return element("div", element("h3", name), body)


def _row(row: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    return [count(row["rank"]), str(row.get("title") or row.get("item") or ""), *(count(row[key]) for key in keys)]


def _variance(found: Mapping[str, Any]) -> Markup:
    if not found:
        return Markup("")
    pictures = []
    if found.get("support"):
        picture = cloud(found["support"], found["uncertainty"], title="Uncertainty against support", log=True)
        pictures.append(figure("Uncertainty against the number of experts", picture))
    picture = cloud(found["rank"], found["uncertainty"], title="Uncertainty against rank")
    return figures([*pictures, figure("Uncertainty against rank", picture)])


def _constants(found: Mapping[str, Any]) -> Markup:
    if not found:
        return Markup("")
    drawn = []
    for at, metric in enumerate(found["metrics"]):
        series = {name: [row[at] for row in rows] for name, rows in found["means"].items()}
        drawn.append(figure(f"Mean {metric}", curves(found["values"], series, title=f"{metric} by the rating imputed")))
    return figures(drawn)


def _completed(rows: Sequence[Mapping[str, Any]]) -> list[Markup]:
    made = []
    for completion in dict.fromkeys(row["completion"] for row in rows):
        mine = [row for row in rows if row["completion"] == completion]
        cells = []
        for row in mine:
            cells.append([str(row["model"]), "ours", *(f"{value:.2f}" for value in row["ours"])])
            others = [kind for kind in ("halved", "paper") if row.get("paper")]
            cells += [["", kind, *(f"{value:.2f}" for value in row[kind])] for kind in others]
        heads = ["model", "", *(f"@{depth}" for depth in range(1, len(mine[0]["ours"]) + 1))]
        body = table(heads, cells, label=completion, left=(0, 1))
        made.append(element("div", element("h3", f"Completed by {completion}: mean NDCG, percent"), body))
    return made
