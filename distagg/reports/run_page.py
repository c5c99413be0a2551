"""The report of a run: steps, metrics, rankings, changes since the previous run, environment and events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from distagg.reports.curves import Axis, clouds
from distagg.reports.dataset_page import rankings_section
from distagg.reports.experts_page import hinton_figure, learning_figure
from distagg.reports.html import (
    Child,
    Markup,
    element,
    facts,
    figure,
    folded,
    page,
    preformatted,
    section,
    table,
)
from distagg.reports.scaling_page import scaling_sections
from distagg.reports.text import NOTHING, count, number, percent, signed

_NAMES = 20
_EVENTS = 200


def changes_sections(changes: Mapping[str, Any] | None) -> list[Markup]:
    """Changes of rankings, metrics and experts' weights since the previous run; empty without one.

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
        parts.append(element("p", "The model or its settings changed."))
    return parts + _named(("experts new", one["new"]), ("experts vanished", one["vanished"]))


def _weights(values: Sequence[float]) -> str:
    shown = ", ".join(f"{value:.3g}" for value in values[:4])
    return shown + (", …" if len(values) > 4 else "")


def _named(*kinds: tuple[str, Sequence[str]]) -> list[Child]:
    return [element("p", f"{what}: {', '.join(map(str, names[:_NAMES]))}") for what, names in kinds if names]


def run_report(run: Mapping[str, Any]) -> str:
    """The HTML report of a run: ``name``, ``state``, ``steps``, ``figures`` (step -> model -> metric -> value), ...

    >>> html = run_report({"name": "nightly", "state": "finished", "steps": [{"step": "data", "do": "import"}]})
    >>> "nightly" in html and "<script" not in html
    True
    """
    sections = [
        section("Not converged", *(element("p", str(note)) for note in run.get("notes") or ())),
        section("Steps", _steps(run.get("steps") or ()), _anew(run.get("events") or ())),
        *changes_sections(run.get("changes")),
        *(_figures(name, models, run) for name, models in (run.get("figures") or {}).items()),
        *(_fitted(name, model) for name, model in (run.get("models") or {}).items()),
        *(part for name, found in (run.get("scaling") or {}).items() for part in scaling_sections(name, found)),
        section("Boards", *(_board(name, link) for name, link in (run.get("boards") or {}).items())),
        rankings_section(run.get("rankings") or ()),
        section("Origin", *_origin(run)),
    ]
    drivers = int(run.get("drivers") or 1)
    told = "in one go" if drivers == 1 else f"by {drivers} drivers, one after the other"
    return page(str(run.get("name", "Run")), f"Run · {told}", sections)


def _fitted(name: str, model: Mapping[str, Any]) -> Markup:
    """The learning curve and the weights of a fitted model; nothing for a model that has neither."""
    pictures = [
        learning_figure(model.get("curve") or {}, str(model["goal"])),
        hinton_figure(model.get("weights") or {}),
    ]
    return section(f"Model of {name}: {model['model']}", *pictures)


def _board(name: str, link: str) -> Markup:
    return element("p", element("a", f"The board of {name}", href=link))


def _steps(steps: Any) -> Child:
    rows = [
        [
            str(step["step"]),
            str(step.get("do", "")),
            str(step.get("state", "")),
            f"{step['seconds']:.1f}" if "seconds" in step else NOTHING,
            str(step.get("parts", NOTHING)),
            str(step.get("reused", "")),
            str(step.get("why", "")),
        ]
        for step in steps
    ]
    head = ["step", "does", "state", "seconds", "parts", "reused", "why done again"]
    return table(head, rows, label="Steps", left=(0, 1, 2, 5, 6)) if rows else ""


def _anew(events: Any) -> Child:
    """Why each part was ranked again."""
    rows = [[str(e["step"]), str(e["number"]), str(e["why"])] for e in events if e["event"] == "part anew"]
    if not rows:
        return ""
    shown = table(["step", "part", "why"], rows[:_EVENTS], label="Parts ranked again", left=(0, 2))
    return folded(f"Why {len(rows):,} parts were ranked again", shown)


def _figures(name: str, models: Mapping[str, Mapping[str, Any]], run: Mapping[str, Any]) -> Markup:
    metrics = list(next(iter(models.values()), {}))
    rows = [[model, *(percent(number(values.get(metric))) for metric in metrics)] for model, values in models.items()]
    link = (run.get("pages") or {}).get(name)
    more = element("p", element("a", "The whole comparison, with tests", href=str(link))) if link else ""
    counted = element("p", str(run["counted"][name])) if name in (run.get("counted") or {}) else ""
    return section(f"Figures of {name}", table(["", *metrics], rows, label=name), counted, more)


def _origin(run: Mapping[str, Any]) -> list[Child]:
    kinds = {"The job with defaults": "job", "Environment": "environment"}
    told: list[Child] = [
        folded(title, preformatted(json.dumps(run[key], indent=1))) for title, key in kinds.items() if run.get(key)
    ]
    events = list(run.get("events") or ())
    if events:
        lines = "\n".join(json.dumps(event) for event in events[-_EVENTS:])
        told.append(folded(f"The last {min(len(events), _EVENTS)} of {len(events):,} events", preformatted(lines)))
    return told
