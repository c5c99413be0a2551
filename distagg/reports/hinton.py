"""Hinton diagrams: a square for each number, its area the size, its colour the sign. Paper 000, figures 9 and 11."""

from __future__ import annotations

import math
from collections.abc import Sequence

from distagg.reports.markup import Child, Markup, coordinate, element
from distagg.reports.svg import LETTER, WIDTH, picture
from distagg.reports.text import columns, printable, shorten, signed

MOST_SIDE, SPACE, LINE, LABEL_COLUMNS = 18.0, 8.0, 12.0, 16


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
    labels = [shorten(printable(row), LABEL_COLUMNS) for row in rows]
    tops = [shorten(printable(name), LABEL_COLUMNS) for name in names]
    left = SPACE + LETTER * max((columns(label) for label in labels), default=0)
    side = min(MOST_SIDE, (WIDTH - left) / max(len(names), 1))
    long = LETTER * max((columns(name) for name in tops), default=0)
    leaning = long > side
    if leaning:  # at 60 degrees: half as wide as long
        side = min(side, (WIDTH - left - 0.5 * long) / max(len(names), 1))
    high, top = max(side, LINE), SPACE + (0.87 * long if leaning else LINE)
    most = max((abs(v) for row in values for v in row if math.isfinite(v)), default=0.0) or 1.0
    size = element("rect", class_="ground", x=left, y=top, width=side * len(names), height=high * len(rows))
    drawn: list[Child] = [size]
    for along in range(0, len(tops), math.ceil(LINE / side)):
        x = left + side * (along + 0.5)
        how = {"transform": f"rotate(-60 {coordinate(x + 4)} {coordinate(top - 4)})"} if leaning else {}
        at = {"x": x + 4} if leaning else {"x": x, "text_anchor": "middle"}
        drawn.append(element("text", tops[along], class_="tick", y=top - 4, **at, **how))
    for down, (label, line) in enumerate(zip(labels, values, strict=True)):
        y = top + high * (down + 0.5)
        drawn.append(element("text", label, class_="tick", x=left - 5, y=y + 4, text_anchor="end"))
        for along, value in enumerate(line):
            if math.isfinite(value):
                tip = f"{rows[down]}, {names[along]}: {signed(value, digits)}"
                drawn.append(_square(left + side * (along + 0.5), y, side * math.sqrt(abs(value) / most), value, tip))
    return picture(top + high * len(rows) + 4, title, desc, drawn)


def _square(x: float, y: float, side: float, value: float, tip: str) -> Markup:
    # A little less than its cell, so that neighbours stay apart; never too small to be pointed at.
    side = max(0.92 * side, 0.4)
    kind = "better" if value >= 0.0 else "worse"
    shape = element("rect", class_=kind, x=x - side / 2, y=y - side / 2, width=side, height=side)
    return element("g", element("title", tip), shape)
