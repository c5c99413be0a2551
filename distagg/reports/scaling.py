"""Scaling experiments as tables, for terminals and pages, and as charts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distagg.reports.curves import Axis, lines
from distagg.reports.html import figure, figures, section, table
from distagg.reports.markup import Markup

GOAL = 10.0  # milliseconds a round, 2 workers
PARTS = ("compute", "read", "coordination")
AXES = {
    "strong": "workers, same data", "weak": "workers, data grow with them", "experts": "experts, times",
    "items": "items, times", "chunk": "entries a chunk",
}  # fmt: skip
SPLIT = ["s", "fastest to slowest", "compute, ms", "read, ms", "coordination, ms"]
LAW = ["what", "rate of one, entries/s", "serial share", "talk", "most useful workers"]
Runs = Mapping[str, Sequence[Mapping[str, float]]]  # by the number that is varied
Table = tuple[str, list[str], list[list[str]]]  # title, headings, rows


def scaling_tables(found: Mapping[str, Any]) -> list[Table]:
    """The tables of a scale step: the cost of a round, then every axis, then the fitted laws."""
    cost = found["round"]
    verdict = "met" if statistics.median(cost["rounds"]) < GOAL else "SHORT"
    ratio = statistics.median(cost["naive"]) / statistics.median(cost["rounds"])
    head = ["a round (train and validate)", "client.map over 8 chunks", "ratio", f"goal, under {GOAL:g}"]
    made: list[Table] = [
        (
            "Coordination of a round, 2 workers: median (fastest; tenths) in milliseconds", head,
            [[_spread(cost["rounds"]), _spread(cost["naive"]), f"{ratio:.1f}", verdict]],
        )
    ]  # fmt: skip
    made += [
        (f"A pass of {found['model']}: {name}", [name, *SPLIT], _split_rows(found[axis]))
        for axis, name in AXES.items()
        if found[axis]
    ]
    for size, runs in found["simulated"].items():
        title = (
            f"A round over {found['simulated_entries']:,} entries, simulated: chunks of {int(size):,} entries; "
            f"coordination overtakes compute at {overtaken(runs) or 'none of these'}"
        )
        made.append((title, ["workers", *SPLIT], _split_rows(runs)))
    laws = [_law_row(name, one) for name, one in found["laws"].items()]
    return [*made, ("Universal scalability law, 95% intervals", LAW, laws)]


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
            {part: _points(found["strong"], part) for part in PARTS}, x=few, y=plain, title="time by part")),
        figure("expanded data, 2 workers", lines(
            {axis: _points(found[axis], "seconds") for axis in ("experts", "items")},
            x=Axis("times", log=True), y=seconds, title="seconds against expansion")),
        figure("chunk size, 2 workers", lines(
            {part: _points(found["chunk"], part) for part in ("seconds", *PARTS)},
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
        shares = [f"{1e3 * one.get(part, 0.0):.1f}" for part in PARTS]
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
