"""The page that every report is: one file, no network, no script, light and dark, phone and desk.

The content security policy forbids everything but the inline style sheet: even a browser that
disagreed with our escaping would load and run nothing.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Iterable, Sequence

from distagg.dataset.commit import staged_file
from distagg.dataset.place import Place, Store, place
from distagg.errors import UsageError
from distagg.reports.markup import Child, Markup, element
from distagg.reports.style import STYLE

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
    """What few readers need, one click away."""
    return element("details", element("summary", summary), *children, open=unfolded)


def facts(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Short figures with their names."""
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", value)) for name, value in pairs),
        class_="facts",
    )


def write_report(html: str, path: str | Place, *, overwrite: bool = False) -> Place:
    """Write a report whole or not at all; a file that is there already is kept unless ``overwrite``.

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
        raise UsageError(f"output {target} is a directory; name a file in it, such as {target / 'report.html'}")
    if not overwrite or not (target.exists() or target.is_symlink()):
        with staged_file(target) as staging:
            staging.write_bytes(html.encode("utf-8"))
        return target
    # Staged under another name first, then put in place in one step: a reader sees the old or the new report.
    fresh = target.with_name(f".{target.name}.new-{uuid.uuid4().hex[:8]}")
    try:
        with staged_file(fresh) as staging:
            staging.write_bytes(html.encode("utf-8"))
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)
    return target
