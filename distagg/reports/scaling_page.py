"""Scaling experiments as tables, for terminals and pages, and as charts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distagg.reports.curves import Axis, lines
from distagg.reports.html import Markup, figure, figures, section, table

_GOAL = 10.0  # milliseconds a round, 2 workers
_PARTS = ("compute", "read", "coordination")
_AXES = {
    "strong": "workers, same data",
    "weak": "workers, data grow with them",
    "experts": "experts, times",
    "items": "items, times",
    "chunk": "entries a chunk",
}
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
            "Coordination of a round, 2 workers: median (fastest; tenths) in milliseconds",
            head,
            [[_spread(cost["rounds"]), _spread(cost["naive"]), f"{ratio:.1f}", verdict]],
        )
    ]
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
    parts, times = ("seconds", *_PARTS), {axis: _curves(found[axis], ("seconds",))["seconds"] for axis in _AXES}
    pictures = [
        ("strong and weak scaling", "seconds a pass", {axis: times[axis] for axis in ("strong", "weak")}, few, plain),
        ("where a pass's time goes", "time by part", _curves(found["strong"], _PARTS), few, plain),
        (
            "expanded data, 2 workers",
            "seconds against expansion",
            {axis: times[axis] for axis in ("experts", "items")},
            Axis("times", log=True),
            seconds,
        ),
        (
            "chunk size, 2 workers",
            "seconds against chunk size",
            _curves(found["chunk"], parts),
            Axis("entries a chunk", log=True),
            seconds,
        ),
    ]
    for size, runs in found["simulated"].items():
        curves = _curves(runs, ("compute", "coordination"))
        title = f"a simulated round, chunks of {size}"
        pictures.append((f"simulated round, chunks of {int(size):,}", title, curves, workers, seconds))
    drawn = [figure(name, lines(curves, x=x, y=y, title=title)) for name, title, curves, x, y in pictures]
    shown = [section(title, table(head, rows, label=title)) for title, head, rows in scaling_tables(found)]
    about = f"{found['model']} on {found['entries']:,} entries of {found['queries']:,} queries, expanded."
    return [section(f"Scaling, {name}", figures(drawn), note=about), *shown]


def _curves(runs: Runs, parts: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    return {part: [(float(n), middle(some)[part]) for n, some in runs.items()] for part in parts}


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
