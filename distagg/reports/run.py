"""The report of a run: its steps, figures, rankings, what it ran with, and everything that happened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from distagg.reports.changes import changes_sections
from distagg.reports.markup import Child, Markup, element, preformatted
from distagg.reports.page import folded, page, section, table
from distagg.reports.rankings import rankings_section
from distagg.reports.scaling import scaling_sections
from distagg.reports.text import NOTHING, number, percent

_EVENTS = 200


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
        *(part for name, found in (run.get("scaling") or {}).items() for part in scaling_sections(name, found)),
        rankings_section(run.get("rankings") or ()),
        section("Where it came from", *_origin(run)),
    ]
    drivers = int(run.get("drivers") or 1)
    told = "in one go" if drivers == 1 else f"by {drivers} drivers, one after the other"
    return page(str(run.get("name", "Run")), f"Run · {told}", sections)


def _steps(steps: Any) -> Child:
    rows = [
        [
            str(step["step"]), str(step.get("do", "")), str(step.get("state", "")),
            f"{step['seconds']:.1f}" if "seconds" in step else NOTHING, str(step.get("parts", NOTHING)),
            str(step.get("reused", "")), str(step.get("why", "")),
        ]
        for step in steps
    ]  # fmt: skip
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
    kinds = {"The job, resolved": "job", "What it ran with": "environment"}
    told: list[Child] = [
        folded(title, preformatted(json.dumps(run[key], indent=1))) for title, key in kinds.items() if run.get(key)
    ]
    events = list(run.get("events") or ())
    if events:
        lines = "\n".join(json.dumps(event) for event in events[-_EVENTS:])
        told.append(folded(f"The last {min(len(events), _EVENTS)} of {len(events):,} events", preformatted(lines)))
    return told
