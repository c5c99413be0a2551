"""What changed since the run before, as sections of a run's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distagg.reports.lines import Axis, clouds
from distagg.reports.markup import Child, Markup, element
from distagg.reports.page import facts, figure, folded, section, table
from distagg.reports.text import NOTHING, count, number, percent, signed

_NAMES = 20


def changes_sections(changes: Mapping[str, Any] | None) -> list[Markup]:
    """Rankings, figures and experts' weights beside those of the run before; nothing without one.

    >>> changes_sections(None)
    []
    """
    if not changes:
        return []
    since = f"since {changes['before']}"
    return [
        *(section(f"{name}, {since}", *_ranking(name, one)) for name, one in changes["rankings"].items()),
        section(f"Figures {since}, in percent", _metrics(changes["metrics"])),
        *(section(f"Experts of {name}, {since}", *_model(name, one)) for name, one in changes["models"].items()),
        section("Not compared", *(element("p", f"{k}: {v}") for k, v in (changes.get("unknown") or {}).items())),
    ]


def _ranking(name: str, one: Mapping[str, Any]) -> list[Child]:
    queries, items = one["queries"], one["items"]
    told = [(f"queries {word}", count(queries[word])) for word in ("same", "changed", "new", "vanished")]
    told += [(f"items {word}", count(items[word])) for word in ("moved", "new", "vanished")]
    told += [("another on top", count(one["another on top"]))]
    told += [
        (key, f"{number(one[key]):.3f}".replace("nan", NOTHING)) for key in one if key == "tau" or "overlap" in key
    ]
    parts: list[Child] = [facts(told)]
    if one["dots"]:
        drawn = clouds(
            {"moved": one["dots"]}, x=Axis("rank before"), y=Axis("rank now"), title=f"{name}: ranks of moved items"
        )
        parts.append(figure("Items that moved: below the diagonal they rose", drawn))
    rows = [
        [m["query"], m["item"], count(m["before"]), count(m["now"]), signed(m["before"] - m["now"], 0)]
        for m in one["movers"]
    ]
    if rows:
        head = ["query", "item", "rank before", "now", "places won"]
        parts.append(
            folded("Who moved furthest", table(head, rows, label="Who moved furthest", left=(0, 1)), unfolded=True)
        )
    rows = [[q["query"], f"{q['tau']:.3f}"] for q in one["least alike"]]
    if rows:
        parts.append(folded("Queries least alike", table(["query", "tau"], rows, label="Queries least alike")))
    return parts + _named(("queries new", one["new"]), ("queries vanished", one["vanished"]))


def _metrics(metrics: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Child:
    rows = [
        [
            step,
            model,
            metric,
            percent(v["before"]),
            percent(v["now"]),
            percent(number(v["now"]) - number(v["before"]), signed=True),
        ]
        for step, models in metrics.items()
        for model, values in models.items()
        for metric, v in values.items()
    ]
    head = ["step", "of", "metric", "before", "now", "difference"]
    return table(head, rows, label="Figures", left=(0, 1, 2)) if rows else ""


def _model(name: str, one: Mapping[str, Any]) -> list[Child]:
    parts: list[Child] = []
    for array, moved in one["arrays"].items():
        said = f"{array}: moved by {100 * moved['moved']:.2f}% of its length; cosine with before {moved['cosine']:.4f}"
        rows = [[e["expert"], _weights(e["before"]), _weights(e["now"]), f"{e['moved']:.3g}"] for e in moved["experts"]]
        parts.append(element("p", said))
        if rows:
            head = ["expert", "before", "now", "moved"]
            parts.append(folded("Experts that moved furthest", table(head, rows, label=f"{name} {array}")))
    if not one["same model"]:
        parts.append(element("p", "The model, or its settings, are others than before."))
    return parts + _named(("experts new", one["new"]), ("experts vanished", one["vanished"]))


def _weights(values: Sequence[float]) -> str:
    shown = ", ".join(f"{value:.3g}" for value in values[:4])
    return shown + (", …" if len(values) > 4 else "")


def _named(*kinds: tuple[str, Sequence[str]]) -> list[Child]:
    return [element("p", f"{what}: {', '.join(map(str, names[:_NAMES]))}") for what, names in kinds if names]
