"""Grouped column charts: a few models over several metrics, as in the papers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from distagg.reports.charts import WIDTH, picture
from distagg.reports.curves import COLOURS, Scale, round_ticks
from distagg.reports.html import Child, Markup, element
from distagg.reports.text import printable

_TOP, _BOTTOM, _LEFT, _RIGHT, _LINE = 12.0, 170.0, 34.0, WIDTH - 4.0, 16.0


def columns(groups: Sequence[str], series: Mapping[str, Sequence[float]], *, title: str, desc: str = "") -> Markup:
    """A column of each series for every group, side by side; the axis starts near the lowest value, not at 0.

    >>> columns(["N@1", "N@2"], {"combined": [38.0, 41.0], "individual": [42.0, 45.0]}, title="t").count("<rect")
    6
    """
    values = [value for line in series.values() for value in line if math.isfinite(value)]
    span = (max(values) - min(values)) if values else 1.0
    ticks = round_ticks([*values, min(values) - 0.15 * span] if values else [0.0, 1.0], False)
    up = Scale(ticks, False, _BOTTOM, _TOP)
    drawn: list[Child] = []
    for tick in ticks:
        drawn.append(element("line", class_="grid", x1=_LEFT, x2=_RIGHT, y1=up(tick), y2=up(tick)))
        drawn.append(element("text", f"{tick:g}", class_="tick", x=_LEFT - 5, y=up(tick) + 4, text_anchor="end"))
    wide = (_RIGHT - _LEFT) / max(len(groups), 1)
    each = 0.84 * wide / max(len(series), 1)
    for at, group in enumerate(groups):
        start = _LEFT + wide * (at + 0.08)
        drawn.append(
            element(
                "text", printable(group), class_="tick", x=start + 0.42 * wide, y=_BOTTOM + 15, text_anchor="middle"
            )
        )
        for n, (name, line) in enumerate(series.items()):
            if math.isfinite(line[at]):
                top, tip = up(line[at]), element("title", f"{name}, {group}: {line[at]:.2f}")
                shape = element(
                    "rect",
                    class_=f"line-{n % COLOURS}",
                    x=start + each * n,
                    y=top,
                    width=0.9 * each,
                    height=_BOTTOM - top,
                )
                drawn.append(element("g", tip, shape))
    for n, name in enumerate(series):
        y = _BOTTOM + 36 + _LINE * n
        drawn.append(element("rect", class_=f"line-{n % COLOURS}", x=_LEFT, y=y - 9, width=10, height=10))
        drawn.append(element("text", printable(name), class_="name", x=_LEFT + 16, y=y))
    return picture(_BOTTOM + 30 + _LINE * len(series), title, desc, drawn)
