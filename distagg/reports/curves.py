"""Curves and clouds of points over two axes, linear or logarithmic, as inline SVG."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from distagg.reports.charts import WIDTH, picture, thinned
from distagg.reports.html import Child, Markup, coordinate, element
from distagg.reports.labels import LINE, advance, widest, wrapped

COLOURS = 8  # classes line-0 .. line-7 of the style sheet
HEIGHT, TOP, BOTTOM = 240.0, 24.0, 40.0
_NAMES = 120.0  # the most units that names take beside curves
_MOST = 2_000  # points of a cloud
Points = Sequence[tuple[float, float]]
_TOP, _BOTTOM, _LEFT, _RIGHT = 10.0, 190.0, 44.0, WIDTH - 8.0
MOST_POINTS = 3000


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its name, whether it is logarithmic, values that it must include, and names of the values 0, 1, ..."""

    name: str
    log: bool = False
    shown: tuple[float, ...] = ()
    names: tuple[str, ...] = ()

    def text(self, tick: float) -> str:
        """What stands at a tick."""
        return self.names[round(tick)] if self.names else tick_text(tick)

    def ticks(self, values: Sequence[float]) -> list[float]:
        """Round numbers around the values or, of an axis with names, some of the places that have one."""
        if not self.names:
            return round_ticks([*values, *self.shown], self.log)
        room = 3 if max(map(len, self.names)) < 8 else 2
        return [float(place) for place in thinned(range(len(self.names)), room)]


def lines(series: Mapping[str, Points], *, x: Axis, y: Axis, title: str, desc: str = "") -> Markup:
    """A curve for every series; points that are not finite are omitted.

    >>> lines({"a": [(1, 2), (2, 4)], "b": [(1, 3), (2, 9)]}, x=Axis("x"), y=Axis("y"), title="t").count("<polyline")
    2
    """
    return _drawn(series, x, y, title, desc, clouds=False)


def clouds(series: Mapping[str, Points], *, x: Axis, y: Axis, title: str, desc: str = "") -> Markup:
    """A dot for every point, thinned if there are very many; names are above."""
    return _drawn(series, x, y, title, desc, clouds=True)


def training_curve(points: Points, kept: Points, *, x: Axis, y: Axis, title: str, desc: str = "") -> Markup:
    """One thin curve without dots, but for large ones at the points ``kept``.

    >>> training_curve([(1, 2), (2, 4)], [(2, 4)], x=Axis("round"), y=Axis("map"), title="t").count("<circle")
    1
    """
    shown = [p for p in points if _fits(p[0], x) and _fits(p[1], y)]
    ticks_x, ticks_y = x.ticks([p[0] for p in shown]), y.ticks([p[1] for p in shown])
    left = 12.0 + max((advance(tick_text(tick)) for tick in ticks_y), default=0.0)
    right, bottom = WIDTH - 14.0, HEIGHT - BOTTOM
    across, up = Scale(ticks_x, x.log, left, right), Scale(ticks_y, y.log, bottom, TOP)
    path = " ".join(f"{coordinate(across(a))},{coordinate(up(b))}" for a, b in thinned(shown, _MOST))
    parts: list[Child] = [element("text", y.name, class_="tick", x=4, y=12)]
    parts += _axes(ticks_x, ticks_y, across, up, left, right, bottom, x)
    parts.append(element("polyline", class_="line-0", points=path))
    parts += [element("circle", class_="line-1", cx=across(a), cy=up(b), r=4) for a, b in kept]
    return picture(HEIGHT, title, desc, parts)


def _drawn(series: Mapping[str, Points], x: Axis, y: Axis, title: str, desc: str, *, clouds: bool) -> Markup:
    kept = {name: [p for p in points if _fits(p[0], x) and _fits(p[1], y)] for name, points in series.items()}
    kept = {name: points for name, points in kept.items() if points}
    labels = {name: wrapped(name, _NAMES) for name in kept}
    ticks_x = x.ticks([p[0] for points in kept.values() for p in points])
    ticks_y = y.ticks([p[1] for points in kept.values() for p in points])
    left = 12.0 + max((advance(tick_text(tick)) for tick in ticks_y), default=0.0)
    names = 0.0 if clouds else widest(list(labels.values()))
    right, bottom = WIDTH - 12.0 - names, HEIGHT - BOTTOM
    across, up = Scale(ticks_x, x.log, left, right), Scale(ticks_y, y.log, bottom, TOP)
    parts: list[Child] = [element("text", y.name, class_="tick", x=4, y=12)]
    parts += _axes(ticks_x, ticks_y, across, up, left, right, bottom, x)
    place = {name: n for n, name in enumerate(kept)}
    for name, points in kept.items():
        colour = f"line-{place[name] % COLOURS}"
        dots = [(across(a), up(b)) for a, b in (thinned(points, _MOST) if clouds else points)]
        if clouds:
            parts += [element("circle", class_=colour, cx=a, cy=b, r=1.6) for a, b in dots]
        else:
            path = " ".join(f"{coordinate(a)},{coordinate(b)}" for a, b in dots)
            parts.append(element("polyline", class_=colour, points=path))
            parts += [element("circle", class_=colour, cx=a, cy=b, r=2.2) for a, b in dots]
    above = TOP - LINE
    for name in sorted(kept, key=lambda n: up(kept[n][-1][1])):
        colour = f"line-{place[name] % COLOURS}"
        above = max(above + LINE, 0.0 if clouds else up(kept[name][-1][1]) + 4.0)
        if clouds and len(kept) == 1:
            continue
        place_of = {"x": right, "text_anchor": "end"} if clouds else {"x": right + 8}
        for line, written in enumerate(labels[name]):
            above += LINE if line else 0.0
            parts.append(element("text", written, class_=colour, y=above + (4 if clouds else 0), **place_of))
    return picture(max(HEIGHT, above + 8), title, desc, parts)


def _axes(
    ticks_x: list[float],
    ticks_y: list[float],
    across: Scale,
    up: Scale,
    left: float,
    right: float,
    bottom: float,
    x: Axis,
) -> list[Child]:
    parts: list[Child] = [element("line", class_="axis", x1=left, x2=right, y1=bottom, y2=bottom)]
    for tick in ticks_y:
        parts.append(element("line", class_="grid", x1=left, x2=right, y1=up(tick), y2=up(tick)))
        parts.append(element("text", tick_text(tick), class_="tick", x=left - 5, y=up(tick) + 4, text_anchor="end"))
    parts += [
        element("text", x.text(tick), class_="tick", x=across(tick), y=bottom + 15, text_anchor="middle")
        for tick in ticks_x
    ]
    middle = (left + right) / 2
    parts.append(element("text", x.name, class_="tick", x=middle, y=bottom + 31, text_anchor="middle"))
    return parts


class Scale:
    """Maps values to coordinates: the first tick to ``start``, the last to ``end``."""

    def __init__(self, ticks: list[float], log: bool, start: float, end: float) -> None:
        self._log = log
        first, last = (self._at(ticks[0]), self._at(ticks[-1])) if ticks else (0.0, 1.0)
        self._first, self._span, self._start, self._end = first, (last - first) or 1.0, start, end

    def __call__(self, value: float) -> float:
        return self._start + (self._at(value) - self._first) / self._span * (self._end - self._start)

    def _at(self, value: float) -> float:
        return math.log10(value) if self._log else value


def _fits(value: float, axis: Axis) -> bool:
    return math.isfinite(value) and (value > 0.0 or not axis.log)


def round_ticks(values: Sequence[float], log: bool) -> list[float]:
    """Round numbers, the first at or below all values and the last at or above them.

    >>> round_ticks([1.0, 9.0], False), round_ticks([0.02, 300.0], True)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0])
    """
    values = [value for value in values if math.isfinite(value) and (value > 0.0 or not log)]
    if not values:
        return []
    low, high = min(values), max(values)
    if log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        decades = max(1, math.ceil((last - first) / 6))
        count = max(1, math.ceil((last - first) / decades))
        return [10.0 ** (first + decades * n) for n in range(count + 1)]
    rough = max(((high - low) or abs(high) or 1.0) / 5, sys.float_info.min)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * (1 - 1e-9))
    below, above = math.floor(low / step), math.ceil(high / step)
    return [step * n for n in range(below, max(above, below + 1) + 1)]


def tick_text(tick: float) -> str:
    return f"{tick:,.0f}" if abs(tick) >= 1000 and tick == round(tick) else f"{tick:.4g}"


def cloud(x: Sequence[float], y: Sequence[float], *, title: str, desc: str = "", log: bool = False) -> Markup:
    """A dot for every (x, y); ``log`` spaces x by its logarithm. Evenly thinned if there are very many.

    >>> cloud([1, 10, 100], [0.5, 0.2, 0.1], title="Variance", log=True).count("h0")
    3
    """
    step = max(1, math.ceil(len(x) / MOST_POINTS))
    pairs = [(float(a), float(b)) for a, b in zip(x[::step], y[::step], strict=True) if math.isfinite(a + b)]
    pairs = [(a, b) for a, b in pairs if a > 0 or not log]
    across = _axis([a for a, _ in pairs], _LEFT, _RIGHT, log=log)
    up = _axis([0.0, *(b for _, b in pairs)], _BOTTOM, _TOP)
    dots = "".join(f"M{coordinate(across(a))} {coordinate(up(b))}h0" for a, b in pairs)
    drawn = _frame([a for a, _ in pairs], [0.0, *(b for _, b in pairs)], across, up, log=log)
    return picture(_BOTTOM + 24, title, desc, [element("path", class_="dots", d=dots), *drawn])


def _axis(values: Sequence[float], start: float, end: float, *, log: bool = False) -> Callable[[float], float]:
    scale = math.log if log else float
    low, high = (scale(end(values, default=1.0)) for end in (min, max))
    span = (high - low) or 1.0
    return lambda value: start + (scale(value) - low) / span * (end - start)


def _frame(
    x: Sequence[float],
    y: Sequence[float],
    across: Callable[[float], float],
    up: Callable[[float], float],
    *,
    log: bool = False,
) -> list[Child]:
    """Axes with the ends and the middle written beside them."""
    corner = f"M{_LEFT} {_TOP}V{_BOTTOM}H{coordinate(_RIGHT)}"
    drawn: list[Child] = [element("path", class_="axis", fill="none", d=corner)]
    if not len(x) or not len(y):
        return drawn
    low, high = min(x), max(x)
    middle = math.sqrt(low * high) if log else (low + high) / 2
    for value, anchor in ((low, "start"), (middle, "middle"), (high, "end")):
        drawn.append(
            element("text", f"{value:.3g}", class_="tick", x=across(value), y=_BOTTOM + 16, text_anchor=anchor)
        )
    for value in (min(y), (min(y) + max(y)) / 2, max(y)):
        place = {"x": _LEFT - 6, "y": up(value) + 4}
        drawn.append(element("text", f"{value:.3g}", class_="tick", text_anchor="end", **place))
    return drawn
