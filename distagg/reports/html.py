"""HTML and SVG: tags that are escaped by construction, and the page of every report.

``element`` is the only way to make a tag. It escapes every plain string, child or attribute, and lets only ``Markup``
(what it made itself) through, so a hostile name can never become a tag.

A page is one file without network or script, for light and dark, phone and desktop. Its content security policy forbids
everything but the inline style sheet: even if a browser disagreed with our escaping, it would load and run nothing. The
contrast of text is at least 4.5 to 1 in both colour schemes.
"""

from __future__ import annotations

import html
import math
import os
from collections.abc import Collection, Iterable, Sequence

from distagg.errors import UsageError
from distagg.reports.text import printable
from distagg.storage.atomic import staged_file
from distagg.storage.owners import staging_name
from distagg.storage.paths import Place, Store, place

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
    """The text with HTML's special characters replaced; markup stays as it is.

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


STYLE = """
:root{--ground:#fbfbf9;--panel:#fff;--text:#1c2227;--quiet:#57626b;--line:#dde1e3;--main:#2f6690;--soft:#a9c3d6;
--worse:#a84b16;--mark:#eef3f6;--shade:#0003;
--c0:#2f6690;--c1:#a84b16;--c2:#3d7a3d;--c3:#8a3f86;--c4:#77660f;--c5:#b0324f;--c6:#1d7874;--c7:#57626b}
@media (prefers-color-scheme:dark){:root{--ground:#14181b;--panel:#1a1f23;--text:#e6e9eb;--quiet:#a0abb4;
--line:#30373d;--main:#82b7de;--soft:#40627c;--worse:#e69d6e;--mark:#20282e;--shade:#000a;
--c0:#82b7de;--c1:#e69d6e;--c2:#8fcf8f;--c3:#d59ad2;--c4:#d3c069;--c5:#f28fa6;--c6:#6fcfc9;--c7:#a0abb4}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0 auto;max-width:78rem;padding:clamp(1.25rem,4vw,3.5rem) clamp(1rem,4vw,3rem) 5rem;background:var(--ground);
color:var(--text);
font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Noto Sans",Arial,sans-serif;
overflow-wrap:anywhere}
h1,h2,h3{line-height:1.2;font-weight:650;letter-spacing:-.01em;text-wrap:balance}
h1{font-size:clamp(1.6rem,1.2rem + 1.8vw,2.4rem);margin:0}
h2{font-size:1.3rem;margin:0 0 .35rem}
h3{font-size:1rem;margin:1.75rem 0 .5rem}
p{margin:.4rem 0;max-width:44rem}
.subtitle,.note{color:var(--quiet)}
.note{font-size:.9rem}
.lead{font-size:1.1rem;margin-top:1.1rem}
section{margin-top:3.25rem}
.scroll{overflow-x:auto;margin:1rem 0;border:1px solid var(--line);border-radius:.5rem;
background:linear-gradient(to left,var(--panel) 40%,transparent) right/3rem 100% no-repeat local,
linear-gradient(to left,var(--shade),transparent) right/1rem 100% no-repeat scroll,var(--panel);
width:fit-content;max-width:100%;overflow-wrap:normal}
.scroll:focus-visible,summary:focus-visible{outline:2px solid var(--main);outline-offset:2px}
table{border-collapse:separate;border-spacing:0;font-size:.9rem;font-variant-numeric:tabular-nums lining-nums}
th,td{padding:.4rem .75rem;white-space:nowrap;text-align:left;border-top:1px solid var(--line)}
thead th{border-top:0;color:var(--quiet);font-weight:600;font-size:.82rem}
tbody th{font-weight:500}
th:first-child{position:sticky;left:0;z-index:1;background:var(--panel);max-width:min(16rem,42vw);white-space:normal;
overflow-wrap:anywhere}
.number{text-align:right}
.prose th,.prose td{white-space:normal;min-width:8rem;vertical-align:top}
.prose th:first-child{max-width:min(24rem,42vw)}
tbody tr:hover>*{background:var(--mark)}
strong{font-weight:700}
a{color:var(--main)}
td strong,th strong{color:var(--main)}
sup{font-size:.85em;line-height:0;display:inline-block;width:.7em;text-align:left;color:var(--quiet)}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr));gap:2rem 2.5rem;
margin:1.25rem 0}
.lead-figure{display:grid;grid-template-columns:minmax(0,30rem) minmax(0,auto);justify-content:start;gap:1rem 3rem;
align-items:start;margin:1.25rem 0}
@media (max-width:56rem){.lead-figure{grid-template-columns:minmax(0,1fr)}}
figure{margin:0;min-width:0;max-width:30rem}
figcaption{font-weight:600;margin-bottom:.4rem}
svg{display:block;width:100%;height:auto;font-size:12px;font-variant-numeric:tabular-nums}
svg text{fill:var(--text)}
svg .tick{fill:var(--quiet);font-size:11px}
svg .bar{fill:var(--soft)}
svg .chosen .bar{fill:var(--main)}
svg .chosen text{font-weight:650}
svg .whisker{stroke:var(--text);stroke-width:1.2;fill:none}
svg .halo{stroke:var(--ground);stroke-width:3.2;fill:none}
svg .axis{stroke:var(--quiet);stroke-width:1}
svg .better{fill:var(--main)}
svg .worse{fill:var(--worse)}
svg .ground{fill:var(--mark)}
svg .grid{stroke:var(--line);stroke-width:1}
svg .line-0{stroke:var(--c0);fill:var(--c0)}
svg .line-1{stroke:var(--c1);fill:var(--c1)}
svg .line-2{stroke:var(--c2);fill:var(--c2)}
svg .line-3{stroke:var(--c3);fill:var(--c3)}
svg .line-4{stroke:var(--c4);fill:var(--c4)}
svg .line-5{stroke:var(--c5);fill:var(--c5)}
svg .line-6{stroke:var(--c6);fill:var(--c6)}
svg .line-7{stroke:var(--c7);fill:var(--c7)}
svg text[class^=line]{stroke:none}
svg polyline[class^=line]{fill:none;stroke-width:1.8}
svg .heat{fill:var(--main)}
svg .dots{fill:none;stroke:var(--main);stroke-width:2.6;stroke-linecap:round;opacity:.45}
svg .unknown{stroke:var(--line)}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(8.5rem,1fr));gap:1.1rem 1.5rem;margin:1.25rem 0}
dt{color:var(--quiet);font-size:.82rem}
dd{margin:0;font-size:1.15rem;font-weight:600;font-variant-numeric:tabular-nums}
details{margin:.4rem 0}
summary{cursor:pointer;color:var(--main);font-weight:550;padding:.3rem 0}
pre{overflow-x:auto;padding:.9rem 1rem;border:1px solid var(--line);border-radius:.5rem;background:var(--panel);
font:.9rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre-wrap}
@media (max-width:40rem){th,td{padding:.4rem .5rem}}
@media print{body{max-width:none;padding:0}section,figure{break-inside:avoid}}
""".strip()


_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, subtitle: str, sections: Iterable[Child], *, lead: Child = "") -> str:
    """A whole HTML document. The same arguments give the same bytes.

    >>> page("mq2008", "5 folds", []).startswith("<!DOCTYPE html>")
    True
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", f"{title} – distagg"),
        element("style", Markup(STYLE)),
    )
    header = element(
        "header",
        element("h1", title),
        element("p", subtitle, class_="subtitle"),
        *([element("p", lead, class_="lead")] if lead else []),
    )
    body = element("body", header, element("main", *(part for part in sections if part)))
    return "<!DOCTYPE html>\n" + element("html", head, Markup("\n"), body, lang="en") + "\n"


def section(title: str, *children: Child, note: Child = "") -> Markup:
    """A titled section; nothing at all when it has no children."""
    inside = [child for child in children if child]
    if not inside:
        return Markup("")
    said = [element("p", note, class_="note")] if note else []
    return element("section", element("h2", title), *said, *inside)


def table(
    headers: Sequence[Child], rows: Iterable[Sequence[Child]], *, label: str, left: Collection[int] = (0,)
) -> Markup:
    """A table in its own scrolling box; the first cell of a row is its heading, ``left`` columns are text."""

    def kind(position: int) -> str:
        return "text" if position in left else "number"

    head = [element("th", cell, scope="col", class_=kind(place)) for place, cell in enumerate(headers)]
    body = []
    for row in rows:
        first, *others = row
        cells = [element("td", cell, class_=kind(place)) for place, cell in enumerate(others, start=1)]
        body.append(element("tr", element("th", first, scope="row", class_=kind(0)), *cells))
    inner = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    # Focusable, so that the box can be scrolled from the keyboard.
    return element("div", inner, class_="scroll", role="region", aria_label=label, tabindex="0")


def figure(title: Child, picture: Markup, *, note: Child = "") -> Markup:
    """A picture under its title, with a line about it."""
    said = [element("p", note, class_="note")] if note else []
    return element("figure", element("figcaption", title), picture, *said)


def figures(pictures: Iterable[Child]) -> Markup:
    """Pictures side by side where there is room, below each other where there is not."""
    inside = [picture for picture in pictures if picture]
    return element("div", *inside, class_="figures") if inside else Markup("")


def folded(summary: str, *children: Child, unfolded: bool = False) -> Markup:
    """Details that open on a click."""
    return element("details", element("summary", summary), *children, open=unfolded)


def facts(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Short figures with their names."""
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", value)) for name, value in pairs),
        class_="facts",
    )


def write_report(html: str, path: str | Place, *, overwrite: bool = False) -> Place:
    """Write a report, all or nothing; an existing file is an error unless ``overwrite``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(page("t", "s", []), f"{folder}/report.html").name
    'report.html'
    """
    target = place(path)
    if isinstance(target, Store):
        with staged_file(target, overwrite=overwrite) as staged:
            staged.write_bytes(html.encode("utf-8"))
        return target
    if target.is_dir():
        raise UsageError(f"output {target} is a directory; give a file in it, such as {target / 'report.html'}")
    if not overwrite or not (target.exists() or target.is_symlink()):
        with staged_file(target) as staging:
            staging.write_bytes(html.encode("utf-8"))
        return target
    # Staged under another name first, then put in place in one step: a reader sees the old or the new report.
    fresh = target.with_name(staging_name(target.name, "new"))
    try:
        with staged_file(fresh) as staging:
            staging.write_bytes(html.encode("utf-8"))
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)
    return target
