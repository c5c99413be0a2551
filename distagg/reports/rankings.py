"""The top of a few rankings, as a section of any report.

A report's ``rankings`` is a list of {"model", "query", "items": [{"item", "rank", "score", "label"}]}; ``model``,
``score`` and ``label`` may be left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distagg.reports.markup import Markup, element
from distagg.reports.page import section, table
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
