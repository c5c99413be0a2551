"""The top of rankings as a section of a report; and the report of one ranking from very many experts.

A report's ``rankings`` is a list of {"model", "query", "items": [{"item", "rank", "score", "label"}]}; ``model``,
``score`` and ``label`` are optional.

The report of one ranking shows both ends with their support, and the uncertainty. Its input is a dictionary with
optional keys: ``title``; ``ends`` {model: {"top": rows, "bottom": rows}} with rows of rank, title (or item), experts or
comparisons, won, lost; ``variance`` {"support", "unit", "rank", "uncertainty"}, where unit names what support counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distagg.reports.curves import cloud
from distagg.reports.html import figure, figures, page, section, table
from distagg.reports.markup import Markup, element
from distagg.reports.text import count, number

_ITEMS = 10
_QUERIES = 12


def rankings_section(rankings: Sequence[Mapping[str, Any]]) -> Markup:
    """Top items of the first queries; nothing when there are no rankings.

    >>> "Star Wars" in rankings_section([{"query": "q1", "items": [{"item": "Star Wars", "rank": 1}]}])
    True
    """
    shown = [_one_ranking(ranking) for ranking in rankings[:_QUERIES]]
    note = f"The first {_QUERIES} of {len(rankings):,} rankings." if len(rankings) > _QUERIES else ""
    return section("Top of the rankings", element("div", *shown, class_="figures") if shown else "", note=note)


def _one_ranking(ranking: Mapping[str, Any]) -> Markup:
    items = list(ranking.get("items") or ())
    extra = [key for key in ("score", "label") if any(item.get(key) is not None for item in items)]
    rows = [
        [
            count(item.get("rank", place)),
            str(item.get("item", "")),
            *(f"{number(item.get(key)):.4g}".replace("nan", "–") for key in extra),
        ]
        for place, item in enumerate(items[:_ITEMS], start=1)
    ]
    title = f"Query {ranking.get('query', '')}" + (f", {ranking['model']}" if ranking.get("model") else "")
    body = table(["rank", "item", *extra], rows, label=title, left=(1,))
    more = f"{len(items) - _ITEMS:,} more items" if len(items) > _ITEMS else ""
    return element("div", element("h3", title), body, *([element("p", more, class_="note")] if more else []))


def consensus_report(contents: Mapping[str, Any]) -> str:
    """The HTML report.

    >>> row = {"rank": 1, "title": "Star Wars", "experts": 583, "won": 49290, "lost": 10112}
    >>> html = consensus_report({"title": "Movies", "ends": {"mpm": {"top": [row], "bottom": []}}})
    >>> "Star Wars" in html and "49,290" in html
    True
    """
    sections = [
        section("Both ends", *(ends_table(name, both) for name, both in (contents.get("ends") or {}).items())),
        section("How sure it is", variance_pictures(contents.get("variance") or {})),
    ]
    return page(str(contents.get("title") or "Ranking"), "One ranking from many experts", sections)


def ends_table(name: str, both: Mapping[str, Sequence[Mapping[str, Any]]]) -> Markup:
    shown = [*both["top"], *both["bottom"]]
    keys = [key for key in ("experts", "comparisons", "won", "lost") if any(key in row for row in shown)]
    rows = [_row(row, keys) for row in both["top"]]
    if both["bottom"]:
        rows += [["…", "", *([""] * len(keys))], *(_row(row, keys) for row in both["bottom"])]
    body = table(["rank", "item", *keys], rows, label=name, left=(1,))
    return element("div", element("h3", name), body)


def _row(row: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    return [count(row["rank"]), str(row.get("title") or row.get("item") or ""), *(count(row[key]) for key in keys)]


def variance_pictures(variance: Mapping[str, Any]) -> Markup:
    if not variance:
        return Markup("")
    pictures = []
    if variance.get("support"):
        picture = cloud(variance["support"], variance["uncertainty"], title="Uncertainty against support", log=True)
        pictures.append(figure(f"Uncertainty against the number of {variance.get('unit', 'experts')}", picture))
    picture = cloud(variance["rank"], variance["uncertainty"], title="Uncertainty against rank")
    return figures([*pictures, figure("Uncertainty against rank", picture)])
