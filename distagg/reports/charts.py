"""The charts of the reports as inline SVG: bars, histograms, strips and Hinton diagrams, without library or script.

Every chart is ``WIDTH`` units wide, about the width of a phone, where a unit is a pixel and text is readable; on a wide
screen charts stand side by side instead of growing. Colours are classes of the page's style sheet, so that a chart
works in light and dark mode. The cost is linear in the number of drawn elements, which is bounded: long series are
thinned. A Hinton diagram has a square for each number, with the size as its area and the sign as its colour, as in
Volkovs & Zemel 2014, figures 9 and 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from distagg.reports.html import Child, Markup, coordinate, element
from distagg.reports.labels import LINE, advance, label, widest, wrapped
from distagg.reports.text import count, percent, printable, share, signed

T = TypeVar("T")

WIDTH = 360
LABEL = 140.0  # the most units that labels take beside a chart; longer ones are broken into lines
_ROW = 20
_STEPS = 300  # points of a thinned curve
CELLS = 1920  # cells of a thinned strip
TIE = 1e-12  # a smaller difference between two metrics is rounding
MOST_SIDE, SPACE, TICK_LINE = 18.0, 8.0, 12.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of a bar chart; ``low`` and ``high`` are its confidence interval, ``kind`` is a style class."""

    label: str
    value: float
    text: str
    low: float = math.nan
    high: float = math.nan
    kind: str = ""

    @property
    def bold(self) -> bool:
        """Whether the style sheet writes the row in bold letters."""
        return "chosen" in self.kind.split()


def bars(rows: Sequence[Bar], *, title: str, desc: str = "") -> Markup:
    """Horizontal bars from zero, with intervals if they are known, and the number at the end of the row.

    >>> bars([Bar("rrf", 0.47, "47.18", 0.44, 0.50)], title="ndcg@5").count("<rect")
    1
    """
    labels = [wrapped(row.label, LABEL, bold=row.bold) for row in rows]
    left = 10 + max((widest([lines], bold=row.bold) for row, lines in zip(rows, labels, strict=True)), default=0)
    right = WIDTH - 10 - max((advance(row.text, bold=row.bold) for row in rows), default=0)
    ends = [end for row in rows for end in (row.value, row.low, row.high) if math.isfinite(end)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    span = (high - low) or 1.0

    def across(value: float) -> float:
        # Divide first: the inverse of a very small span may be infinite.
        return left + (value - low) / span * (right - left)

    drawn: list[Child] = []
    top = 4.0
    for row, lines in zip(rows, labels, strict=True):
        high = _ROW + LINE * (len(lines) - 1)
        drawn.append(_bar_row(row, lines, top + (high - _ROW) / 2, across, left))
        top += high
    height = top + 4
    zero = element("line", class_="axis", x1=across(0), x2=across(0), y1=2, y2=height - 2)
    return picture(height, title, desc, [*drawn, zero])


def _bar_row(row: Bar, lines: list[str], top: float, across: Callable[[float], float], left: float) -> Markup:
    middle = top + _ROW / 2
    parts: list[Child] = [
        element("title", f"{row.label}: {row.text}"),
        *label(lines, left - 6, middle),
        element("text", row.text, class_="figure", x=WIDTH - 2, y=middle + 4, text_anchor="end"),
    ]
    if math.isfinite(row.value):
        start, end = sorted((across(0), across(row.value)))
        parts.append(element("rect", class_="bar", x=start, y=top + 4, width=end - start, height=_ROW - 8, rx=1.5))
    if math.isfinite(row.low) and math.isfinite(row.high):
        a, b = coordinate(across(row.low)), coordinate(across(row.high))
        y, up, down = coordinate(middle), coordinate(middle - 3), coordinate(middle + 3)
        outline = f"M{a} {y}H{b}M{a} {up}V{down}M{b} {up}V{down}"
        # The halo keeps the whisker visible on a dark bar.
        parts.append(element("path", class_="halo", d=outline))
        parts.append(element("path", class_="whisker", d=outline))
    return element("g", *parts, class_=f"row {row.kind}".strip())


def histogram(edges: Sequence[float], counts: Sequence[float], *, title: str, desc: str = "") -> Markup:
    """Columns of ``counts`` between ``edges`` (one edge more than counts).

    >>> histogram([0, 10, 20], [3, 5], title="List lengths").count("<rect")
    2
    """
    top, bottom, left, right = 20.0, 130.0, 6.0, WIDTH - 6.0
    first, last = float(edges[0]), float(edges[-1])
    scale = (right - left) / ((last - first) or 1.0)
    highest = max([1e-12, *counts])
    drawn: list[Child] = []
    for start, end, height in zip(edges[:-1], edges[1:], counts, strict=True):
        x, width = left + (start - first) * scale, max((end - start) * scale - 1, 0.8)
        y = bottom - (bottom - top) * height / highest
        tip = element("title", f"{count(start)} to {count(end)}: {count(height)}")
        drawn.append(element("g", tip, element("rect", class_="bar", x=x, y=y, width=width, height=bottom - y)))
    drawn.append(element("line", class_="axis", x1=left, x2=right, y1=bottom, y2=bottom))
    drawn.append(element("text", f"highest column {count(highest)}", class_="tick", x=right, y=12, text_anchor="end"))
    for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        value = first + part * (last - first)
        x = left + part * (right - left)
        drawn.append(element("text", count(round(value, 1)), class_="tick", x=x, y=bottom + 16, text_anchor=anchor))
    return picture(154, title, desc, drawn)


def differences(values: Sequence[float], *, limit: float, title: str, desc: str = "") -> Markup:
    """Per-query differences, largest first, as an area above and below zero; ``limit`` is the end of the scale.

    >>> "<path" in differences([0.2, 0.0, -0.1], limit=0.5, title="rrf against borda")
    True
    """
    better, worse = sum(v > TIE for v in values), sum(v < -TIE for v in values)
    equal = len(values) - better - worse
    top, zero, left, right = 14.0, 64.0, 40.0, WIDTH - 4.0
    ordered = thinned(sorted(values, reverse=True), _STEPS)
    step = (right - left) / max(len(ordered), 1)
    drawn: list[Child] = []
    for kind, part in (("better", [max(v, 0.0) for v in ordered]), ("worse", [min(v, 0.0) for v in ordered])):
        outline = _steps(part, left, step, zero, (zero - top) / (limit or 1.0))
        if outline:
            drawn.append(element("path", class_=kind, d=outline))
    drawn.append(element("line", class_="axis", x1=left, x2=right, y1=zero, y2=zero))
    for value, y in ((limit, top), (0.0, zero), (-limit, 2 * zero - top)):
        written = percent(value, signed=True).removesuffix(".00") if value else "0"
        drawn.append(element("text", written, class_="tick", x=left - 6, y=y + 4, text_anchor="end"))
    for text, kind, x, anchor in (
        (f"{count(better)} better", "better", left, "start"),
        (f"{count(equal)} equal", "", (left + right) / 2, "middle"),
        (f"{count(worse)} worse", "worse", right, "end"),
    ):
        drawn.append(element("text", text, class_=f"tally {kind}".strip(), x=x, y=140, text_anchor=anchor))
    return picture(148, title, desc, drawn)


def heat_strip(shares: Mapping[str, float], *, title: str, desc: str = "") -> Markup:
    """One cell per name in the given order, darker for a larger share (0 to 1), with a legend.

    >>> heat_strip({"a": 0.2, "b": 0.9}, title="Coverage").count('class="cell"')
    2
    """
    cells = thinned(list(shares.items()), CELLS)
    per_row = next((wide for wide in (12, 24, 36) if len(cells) <= wide * 6), 48)
    side = WIDTH / per_row
    drawn: list[Child] = []
    for position, (name, value) in enumerate(cells):
        down, along = divmod(position, per_row)
        tip = element("title", f"{name}: {share(value)}")
        x, y = along * side + 0.5, down * side + 0.5
        drawn.append(element("g", tip, _cell(x, y, side - 1, value), class_="cell"))
    height = side * math.ceil(len(cells) / per_row)
    drawn.extend(_cell(40 + 24 * step, height + 10, 24, step / 4) for step in range(5))
    drawn.append(element("text", "0%", class_="tick", x=34, y=height + 26, text_anchor="end"))
    drawn.append(element("text", "100% of items listed", class_="tick", x=168, y=height + 26))
    return picture(height + 38, title, desc, drawn)


def strips(rows: Mapping[str, Sequence[float]], names: Sequence[str], *, title: str, desc: str = "") -> Markup:
    """A strip of cells for each row, one above the other: dark for 1, pale for 0.

    >>> strips({"learned": [0.0, 1.0], "measured": [0.5, 1.0]}, ["a", "b"], title="Adherence").count('class="cell"')
    4
    """
    drawn: list[Child] = []
    shown = thinned(range(len(names)), WIDTH // 3)
    side = WIDTH / max(len(shown), 1)
    for position, (name, values) in enumerate(rows.items()):
        top = 48.0 * position
        drawn.append(element("text", printable(name), class_="name", x=0, y=top + 14))
        for along, at in enumerate(shown):
            tip = element("title", f"{names[at]}: {values[at]:.2f}")
            cell = _cell(along * side + 0.5, top + 20, side - 1, values[at], height=20)
            drawn.append(element("g", tip, cell, class_="cell"))
    return picture(48.0 * len(rows), title, desc, drawn)


def _cell(x: float, y: float, side: float, value: float, *, height: float | None = None) -> Markup:
    known = math.isfinite(value)
    # The floor keeps an empty cell visible.
    opacity = 0.1 + 0.9 * min(max(value, 0.0), 1.0) if known else 0.0
    kind = "heat" if known else "heat unknown"
    return element("rect", class_=kind, x=x, y=y, width=side, height=height or side, fill_opacity=f"{opacity:.2f}")


def thinned(values: Sequence[T], limit: int) -> Sequence[T]:
    """At most ``limit`` of the values, evenly spaced, the first and the last among them."""
    if len(values) <= limit:
        return values
    return [values[round(position * (len(values) - 1) / (limit - 1))] for position in range(limit)]


def _steps(heights: Sequence[float], left: float, step: float, zero: float, scale: float) -> str:
    """The outline of adjacent columns of ``heights`` on the zero line; empty if all are zero."""
    standing = [position for position, height in enumerate(heights) if abs(height) > TIE]
    if not standing:
        return ""
    first, last = standing[0], standing[-1]
    path, before = [f"M{coordinate(left + first * step)} {coordinate(zero)}"], ""
    for position in range(first, last + 1):
        y = coordinate(zero - heights[position] * scale)
        if y != before:
            # Columns of equal height share one line, because ties are long runs.
            path.append(f"H{coordinate(left + position * step)}V{y}")
            before = y
    return "".join(path) + f"H{coordinate(left + (last + 1) * step)}V{coordinate(zero)}Z"


def picture(height: float, title: str, desc: str, drawn: Sequence[Child]) -> Markup:
    about = [element("title", title), *([element("desc", desc)] if desc else [])]
    box = f"0 0 {WIDTH} {coordinate(height)}"
    return element("svg", *about, *drawn, viewBox=box, role="img", aria_label=title)


def hinton(
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    names: Sequence[str],
    *,
    title: str,
    desc: str = "",
    digits: int = 2,
) -> Markup:
    """Squares of ``values[row][name]``; the largest fills its cell, NaN leaves it empty.

    >>> drawn = hinton([[1.0, -4.0], [math.nan, 2.0]], ["bing", "duck"], ["won", "lost"], title="Weights")
    >>> drawn.count('class="better"'), drawn.count('class="worse"')
    (2, 1)
    """
    labels = [wrapped(row, LABEL) for row in rows]
    tops = [printable(name) for name in names]
    left = SPACE + widest(labels)
    side = min(MOST_SIDE, (WIDTH - left) / max(len(names), 1))
    long = widest([tops])
    leaning = long > side
    if leaning:  # at 60 degrees: half as wide as long
        side = min(side, (WIDTH - left - 0.5 * long) / max(len(names), 1))
    high = max(side, TICK_LINE, LINE * max((len(lines) for lines in labels), default=1))
    top = SPACE + (0.87 * long if leaning else TICK_LINE)
    most = max((abs(v) for row in values for v in row if math.isfinite(v)), default=0.0) or 1.0
    size = element("rect", class_="ground", x=left, y=top, width=side * len(names), height=high * len(rows))
    drawn: list[Child] = [size]
    for along in range(0, len(tops), math.ceil(TICK_LINE / side)):
        x = left + side * (along + 0.5)
        how = {"transform": f"rotate(-60 {coordinate(x + 4)} {coordinate(top - 4)})"} if leaning else {}
        at = {"x": x + 4} if leaning else {"x": x, "text_anchor": "middle"}
        drawn.append(element("text", tops[along], class_="tick", y=top - 4, **at, **how))
    for down, (lines, line) in enumerate(zip(labels, values, strict=True)):
        y = top + high * (down + 0.5)
        drawn += label(lines, left - 5, y, kind="tick")
        for along, value in enumerate(line):
            if math.isfinite(value):
                tip = f"{rows[down]}, {names[along]}: {signed(value, digits)}"
                drawn.append(_square(left + side * (along + 0.5), y, side * math.sqrt(abs(value) / most), value, tip))
    return picture(top + high * len(rows) + 4, title, desc, drawn)


def _square(x: float, y: float, side: float, value: float, tip: str) -> Markup:
    # A little smaller than its cell, so that neighbours do not touch; never too small for a mouse pointer.
    side = max(0.92 * side, 0.4)
    kind = "better" if value >= 0.0 else "worse"
    shape = element("rect", class_=kind, x=x - side / 2, y=y - side / 2, width=side, height=side)
    return element("g", element("title", tip), shape)
