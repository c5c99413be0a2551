"""Labels of charts: how wide a text is at most, and long names broken into lines, so that no label is ever cut.

The reports embed no font, so a width is an upper estimate: that of DejaVu Sans, which is about the widest that systems
show. Units are those of the charts, in which text has a size of 12.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distagg.reports.html import Markup, element
from distagg.reports.text import columns, printable

LINE = 13.0  # between the lines of a label
_NARROW = frozenset(" !'(),-./:;IJ[\\]fijlrt|")
_WIDE = frozenset("#%+<=>@MW^mw~…")
_CAPITAL = frozenset("ABCDEFGHKLNOPQRSTUVXYZ&")
_BREAKS = re.compile(r"(?<=[\s_\-/,:;=(|])")  # a line may end after these


def advance(text: str, *, bold: bool = False) -> float:
    """The most units that a text takes across.

    >>> advance("mmm") > advance("aaa") > advance("iii")
    True
    """
    return sum(_letter(character) for character in text) * (1.2 if bold else 1.0)


def _letter(character: str) -> float:
    if character in _NARROW:
        return 5.0
    if character in _WIDE:
        return 12.0
    if character in _CAPITAL:
        return 9.5
    return 7.7 * columns(character) if character.isascii() else min(10.0 * columns(character), 13.0)


def wrapped(name: object, limit: float, *, bold: bool = False) -> list[str]:
    """A name in lines of at most ``limit`` units, broken after punctuation where that is possible.

    >>> wrapped("theta_sup_mpm", 140.0), wrapped("a_model_with_quite_a_long_name", 140.0)
    (['theta_sup_mpm'], ['a_model_with_', 'quite_a_long_name'])
    """
    lines = [""]
    for piece in _BREAKS.split(printable(name)):
        if lines[-1] and advance(lines[-1] + piece.rstrip(), bold=bold) > limit:
            lines.append("")
        for character in piece:
            if lines[-1] and advance(lines[-1] + character, bold=bold) > limit and not character.isspace():
                lines.append("")
            lines[-1] += character
    return [line.strip() for line in lines if line.strip()] or [""]


def widest(labels: Sequence[Sequence[str]], *, bold: bool = False) -> float:
    """The most units that any line of the labels takes."""
    return max((advance(line, bold=bold) for lines in labels for line in lines), default=0.0)


def label(lines: Sequence[str], x: float, middle: float, *, anchor: str = "end", kind: str = "name") -> list[Markup]:
    """The lines of a label, one under the other around the height ``middle``."""
    first = middle + 4 - LINE * (len(lines) - 1) / 2
    return [
        element("text", line, class_=kind, x=x, y=first + LINE * n, text_anchor=anchor) for n, line in enumerate(lines)
    ]
