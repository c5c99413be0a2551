"""HTML and SVG that are escaped by construction.

``element`` is the only way to make a tag. It escapes every plain string, child or attribute, and lets only
``Markup`` (what it made itself) through, so a hostile name can never become a tag.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable

from distagg.reports.text import printable

_CHILDLESS = {"meta", "br", "rect", "line", "path", "circle"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Markup
Attribute = str | float | bool | None


def element(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """One tag. ``class_`` is ``class``, ``aria_label`` is ``aria-label``; an attribute of None is left out.

    >>> element("td", "<b>", class_="number")
    '<td class="number">&lt;b&gt;</td>'
    >>> element("rect", x=1.25, width=20.0)
    '<rect x="1.3" width="20"/>'
    """
    start = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _CHILDLESS:
        return Markup(f"<{start}/>")
    return Markup(f"<{start}>{join(children)}</{name}>")


def join(children: Iterable[Child], between: str = "") -> Markup:
    """The children side by side, each escaped unless it is markup."""
    return Markup(between.join(escape(child) for child in children))


def preformatted(text: str) -> Markup:
    """Text whose lines stay lines.

    >>> preformatted("a <b>\\n c")
    '<pre>a &lt;b&gt;\\n c</pre>'
    """
    return element("pre", join(text.split("\n"), between="\n"))


def escape(text: Child) -> Markup:
    """
    >>> escape('"a" & <b>')
    '&quot;a&quot; &amp; &lt;b&gt;'
    """
    return text if isinstance(text, Markup) else Markup(html.escape(printable(text), quote=True))


def coordinate(value: float) -> str:
    """A length to a tenth of a unit, as short as it can be written.

    >>> coordinate(12.04), coordinate(-0.01), coordinate(0.55)
    ('12', '0', '0.6')
    """
    # Half up, so that the same picture has the same bytes whatever the last bit of the arithmetic.
    tenths = math.floor(value * 10 + 0.5 + 1e-6)
    return str(tenths // 10) if tenths % 10 == 0 else f"{tenths / 10:.1f}"


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f' {name}=""'
    written = escape(value) if isinstance(value, str) else coordinate(value)
    return f' {name}="{written}"'
