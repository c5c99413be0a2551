"""The pictures of a board as inline SVG: scores with intervals, a heat map of chances, the comparison graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from distagg.reports.charts import LABEL, WIDTH, picture
from distagg.reports.curves import Scale, round_ticks, tick_text
from distagg.reports.html import Child, Markup, coordinate, element
from distagg.reports.labels import LINE, advance, label, widest, wrapped
from distagg.reports.text import count, share

ROW = 18.0
WRITTEN = 30.0  # width of a cell from which on its number is written in it
TICK = 12.0  # room of a number above a column
RADIUS = 128.0


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of a chart of intervals."""

    label: str
    value: float
    low: float
    high: float
    text: str


def intervals(rows: Sequence[Measured], *, title: str, desc: str = "") -> Markup:
    """A dot with its interval for each row, over a common axis that need not begin at 0.

    >>> intervals([Measured("ada", 1200, 1150, 1250, "1200")], title="Scores").count("<circle")
    1
    """
    labels = [wrapped(row.label, LABEL) for row in rows]
    left = 10 + widest(labels)
    right = WIDTH - 14 - max((advance(row.text) for row in rows), default=0.0)
    ends = [end for row in rows for end in (row.low, row.value, row.high) if math.isfinite(end)]
    ticks = round_ticks(ends, False)
    across = Scale(ticks, False, left, right)
    highs = [ROW + LINE * (len(lines) - 1) for lines in labels]
    bottom = 6 + sum(highs)
    drawn: list[Child] = []
    shown = ticks[:: max(1, math.ceil(len(ticks) * 44 / (right - left)))]
    for tick in shown:
        drawn.append(element("line", class_="grid", x1=across(tick), x2=across(tick), y1=2, y2=bottom))
        drawn.append(
            element("text", tick_text(tick), class_="tick", x=across(tick), y=bottom + 14, text_anchor="middle")
        )
    top = 4.0
    for row, lines, high in zip(rows, labels, highs, strict=True):
        y, top = top + high / 2, top + high
        parts: list[Child] = [
            element("title", f"{row.label}: {row.text}"),
            *label(lines, left - 8, y),
            element("text", row.text, class_="tick", x=WIDTH - 2, y=y + 4, text_anchor="end"),
        ]
        if math.isfinite(row.low) and math.isfinite(row.high):
            a, b, at = coordinate(across(row.low)), coordinate(across(row.high)), coordinate(y)
            parts.append(element("path", class_="whisker", d=f"M{a} {at}H{b}"))
        parts.append(element("circle", class_="better", cx=across(row.value), cy=y, r=3.4))
        drawn.append(element("g", *parts))
    return picture(bottom + 20, title, desc, drawn)


def chances(matrix: Sequence[Sequence[float | None]], names: Sequence[str], *, title: str, desc: str = "") -> Markup:
    """A square of chances of rows to beat columns: blue above one half, brown below, empty where nothing is known.

    >>> chances([[0.5, 0.8], [0.2, 0.5]], ["ada", "bert"], title="Chances").count("<rect")
    2
    """
    labels = [wrapped(f"{n} {name}", LABEL) for n, name in enumerate(names, 1)]
    left = 8 + widest(labels)
    side = min(48.0, (WIDTH - left - 2) / max(len(names), 1))
    top = 16.0
    every = max(1, math.ceil((TICK if len(names) < 10 else 1.4 * TICK) / side))
    drawn: list[Child] = [
        element("text", str(n + 1), class_="tick", x=left + side * (n + 0.5), y=top - 4, text_anchor="middle")
        for n in range(0, len(names), every)
    ]
    high = max(side, LINE * max((len(lines) for lines in labels), default=1))
    for down, (lines, line) in enumerate(zip(labels, matrix, strict=True)):
        y = top + high * down
        drawn += label(lines, left - 5, y + high / 2, kind="tick")
        for along, value in enumerate(line):
            if along != down:
                x = left + side * along
                drawn.append(_chance(x, y, side, high, value, f"{names[down]} against {names[along]}"))
    return picture(top + high * len(names) + 4, title, desc, drawn)


def _chance(x: float, y: float, side: float, high: float, value: float | None, pair: str) -> Markup:
    """A cell; a small gap keeps neighbours apart."""
    box = {"x": x + 0.5, "y": y + 0.5, "width": max(side - 1, 0.6), "height": high - 1}
    if value is None or not math.isfinite(value):
        return element(
            "g",
            element("title", f"{pair}: nothing known"),
            element("rect", class_="heat unknown", fill_opacity="0", **box),
        )
    opacity = f"{0.04 + 0.52 * min(abs(2 * value - 1), 1.0):.2f}"  # pale enough for a number on it
    parts = [element("title", f"{pair}: {share(value)}")]
    parts.append(element("rect", class_="better" if value >= 0.5 else "worse", fill_opacity=opacity, **box))
    if side >= WRITTEN:
        at = {"x": x + side / 2, "y": y + high / 2 + 4}
        parts.append(element("text", f"{100 * value:.0f}", text_anchor="middle", **at))
    return element("g", *parts)


def ring(
    size: int, edges: Sequence[tuple[int, int, float]], thin: frozenset[int], *, title: str, desc: str = ""
) -> Markup:
    """Items on a ring by their places on the board, a line for each pair that met, stronger for more battles.

    Lines that join the items of ``thin`` to the others are in the colour of warnings.

    >>> ring(3, [(0, 1, 5.0), (1, 2, 1.0)], frozenset({2}), title="Graph").count("<line")
    2
    """
    middle_x, middle_y = WIDTH / 2, RADIUS + 26
    angle = [2 * math.pi * n / max(size, 1) - math.pi / 2 for n in range(size)]
    at = [(middle_x + RADIUS * math.cos(a), middle_y + RADIUS * math.sin(a)) for a in angle]
    most = max((number for _, _, number in edges), default=1.0)
    drawn: list[Child] = []
    for a, b, number in sorted(edges, key=lambda edge: ((edge[0] in thin) != (edge[1] in thin), edge[2])):
        strength = math.log1p(number) / math.log1p(most)
        bridge = (a in thin) != (b in thin)
        tip = element("title", f"{a + 1} and {b + 1}: {count(number)} battles")
        line = element(
            "line",
            class_="line-1" if bridge else "line-0",
            x1=at[a][0],
            y1=at[a][1],
            x2=at[b][0],
            y2=at[b][1],
            stroke_width=f"{0.6 + 2.0 * strength:.1f}",
            stroke_opacity=f"{0.12 + 0.5 * strength + 0.2 * bridge:.2f}",
        )
        drawn.append(element("g", tip, line))
    for n, (x, y) in enumerate(at):
        drawn.append(element("circle", class_="worse" if n in thin else "better", cx=x, cy=y, r=4))
        far = 1 + 13 / RADIUS
        drawn.append(
            element(
                "text",
                str(n + 1),
                class_="tick",
                x=middle_x + (x - middle_x) * far,
                y=middle_y + (y - middle_y) * far + 4,
                text_anchor="middle",
            )
        )
    return picture(2 * middle_y, title, desc, drawn)
