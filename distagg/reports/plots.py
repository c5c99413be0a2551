"""Clouds of points, as inline SVG like the pictures of ``svg.py``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from distagg.reports.markup import Child, Markup, coordinate, element
from distagg.reports.svg import WIDTH, picture

_TOP, _BOTTOM, _LEFT, _RIGHT = 10.0, 190.0, 44.0, WIDTH - 8.0
MOST_POINTS = 3000


def cloud(x: Sequence[float], y: Sequence[float], *, title: str, desc: str = "", log: bool = False) -> Markup:
    """A dot for every (x, y); ``log`` spaces x by its logarithm. Evenly thinned where there are very many.

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
