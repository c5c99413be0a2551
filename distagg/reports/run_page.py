"""The report of a run: steps, metrics, rankings, changes since the previous run, environment, events, scaling."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distagg.reports.curves import Axis, clouds, lines
from distagg.reports.dataset_page import rankings_section
from distagg.reports.html import (
    Child,
    Markup,
    element,
    facts,
    figure,
    figures,
    folded,
    page,
    preformatted,
    section,
    table,
)
from distagg.reports.text import NOTHING, count, number, percent, signed

_NAMES = 20


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
        section("Origin", *_origin(run)),
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
    kinds = {"The job with defaults": "job", "Environment": "environment"}
    told: list[Child] = [
        folded(title, preformatted(json.dumps(run[key], indent=1))) for title, key in kinds.items() if run.get(key)
    ]
    events = list(run.get("events") or ())
    if events:
        lines = "\n".join(json.dumps(event) for event in events[-_EVENTS:])
        told.append(folded(f"The last {min(len(events), _EVENTS)} of {len(events):,} events", preformatted(lines)))
    return told


_GOAL = 10.0  # milliseconds a round, 2 workers
_PARTS = ("compute", "read", "coordination")
_AXES = {
    "strong": "workers, same data", "weak": "workers, data grow with them", "experts": "experts, times",
    "items": "items, times", "chunk": "entries a chunk",
}  # fmt: skip
_SPLIT = ["s", "fastest to slowest", "compute, ms", "read, ms", "coordination, ms"]
_LAW = ["what", "rate of one, entries/s", "serial share", "talk", "most useful workers"]
Runs = Mapping[str, Sequence[Mapping[str, float]]]  # by the number that is varied
Table = tuple[str, list[str], list[list[str]]]  # title, headings, rows


def scaling_tables(found: Mapping[str, Any]) -> list[Table]:
    """The tables of a scale step: the cost of a round, then every axis, then the fitted laws."""
    cost = found["round"]
    verdict = "met" if statistics.median(cost["rounds"]) < _GOAL else "SHORT"
    ratio = statistics.median(cost["naive"]) / statistics.median(cost["rounds"])
    head = ["a round (train and validate)", "client.map over 8 chunks", "ratio", f"goal, under {_GOAL:g}"]
    made: list[Table] = [
        (
            "Coordination of a round, 2 workers: median (fastest; tenths) in milliseconds", head,
            [[_spread(cost["rounds"]), _spread(cost["naive"]), f"{ratio:.1f}", verdict]],
        )
    ]  # fmt: skip
    made += [
        (f"A pass of {found['model']}: {name}", [name, *_SPLIT], _split_rows(found[axis]))
        for axis, name in _AXES.items()
        if found[axis]
    ]
    for size, runs in found["simulated"].items():
        title = (
            f"A round over {found['simulated_entries']:,} entries, simulated: chunks of {int(size):,} entries; "
            f"coordination overtakes compute at {overtaken(runs) or 'none of these'}"
        )
        made.append((title, ["workers", *_SPLIT], _split_rows(runs)))
    laws = [_law_row(name, one) for name, one in found["laws"].items()]
    return [*made, ("Universal scalability law, 95% intervals", _LAW, laws)]


def overtaken(runs: Runs) -> int | None:
    """The smallest number of workers where a round spends more time on coordination than on computing.

    >>> overtaken({"10": [{"seconds": 3, "compute": 2, "coordination": 1}]}) is None
    True
    """
    at = [int(n) for n, some in runs.items() if middle(some)["coordination"] > middle(some)["compute"]]
    return min(at) if at else None


def middle(runs: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """The run with the median time."""
    return sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]


def scaling_sections(name: str, found: Mapping[str, Any]) -> list[Markup]:
    """Pictures and tables of a scale step."""
    workers, seconds = Axis("workers", log=True), Axis("seconds", log=True)
    few, plain = Axis("workers"), Axis("seconds", shown=(0.0,))
    drawn = [
        figure("strong and weak scaling", lines(
            {axis: _points(found[axis], "seconds") for axis in ("strong", "weak")}, x=few, y=plain,
            title="seconds a pass")),
        figure("where a pass's time goes", lines(
            {part: _points(found["strong"], part) for part in _PARTS}, x=few, y=plain, title="time by part")),
        figure("expanded data, 2 workers", lines(
            {axis: _points(found[axis], "seconds") for axis in ("experts", "items")},
            x=Axis("times", log=True), y=seconds, title="seconds against expansion")),
        figure("chunk size, 2 workers", lines(
            {part: _points(found["chunk"], part) for part in ("seconds", *_PARTS)},
            x=Axis("entries a chunk", log=True), y=seconds, title="seconds against chunk size")),
        *(figure(f"simulated round, chunks of {int(size):,}", lines(
            {part: _points(runs, part) for part in ("compute", "coordination")}, x=workers, y=seconds,
            title=f"a simulated round, chunks of {size}"))
          for size, runs in found["simulated"].items()),
    ]  # fmt: skip
    shown = [section(title, table(head, rows, label=title)) for title, head, rows in scaling_tables(found)]
    about = f"{found['model']} on {found['entries']:,} entries of {found['queries']:,} queries, expanded."
    return [section(f"Scaling, {name}", figures(drawn), note=about), *shown]


def _points(runs: Runs, part: str) -> list[tuple[float, float]]:
    return [(float(n), middle(some)[part]) for n, some in runs.items()]


def _split_rows(runs: Runs) -> list[list[str]]:
    rows = []
    for key, some in runs.items():
        one, each = middle(some), [run["seconds"] for run in some]
        shares = [f"{1e3 * one.get(part, 0.0):.1f}" for part in _PARTS]
        rows.append([f"{int(key):,}", f"{one['seconds']:.3f}", f"{min(each):.3f} to {max(each):.3f}", *shares])
    return rows


def _law_row(what: str, found: Mapping[str, Any]) -> list[str]:
    def span(name: str) -> str:
        low, high = found["intervals"][name]
        return f"{found[name]:.3g} ({low:.2g} to {high:.2g})"

    peak, low, high = ("no end" if end is None else f"{end:,.0f}" for end in (found["peak"], *found["peak_interval"]))
    return [what, span("rate"), span("serial"), span("talk"), f"{peak} ({low} to {high})"]


def _spread(milliseconds: Sequence[float]) -> str:
    low, high = np.quantile(milliseconds, [0.1, 0.9])
    return f"{statistics.median(milliseconds):.1f} ({min(milliseconds):.1f}; {low:.1f} to {high:.1f})"
