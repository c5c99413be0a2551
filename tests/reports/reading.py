"""Reads a report the way a strict browser would: tags that nest, pictures that are XML, tables as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

_VOID = {"meta", "br"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.text: list[str] = []
        self._rows: list[list[str]] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)
        if dict(attrs).get("class") == "scroll":
            self._rows = self.tables.setdefault(str(dict(attrs)["aria-label"]), [])
        if tag == "tr" and self._rows is not None:
            self._rows.append([])
        if tag in ("td", "th") and self._rows is not None:
            self._rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        opened = self.open.pop()
        if opened != tag:
            raise AssertionError(f"</{tag}> closes <{opened}>")
        if tag == "table":
            self._rows = None

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)
        if self._rows and self._rows[-1] and {"td", "th"} & set(self.open):
            self._rows[-1][-1] += data


class Report:
    """A parsed report; parsing fails where a tag does not nest or a picture is not XML."""

    def __init__(self, html: str) -> None:
        self.html = html
        reader = _Reader()
        reader.feed(html)
        reader.close()
        if reader.open:
            raise AssertionError(f"never closed: {reader.open}")
        self.tags, self.tables, self.text = reader.tags, reader.tables, "".join(reader.text)
        self.pictures = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)]

    def names(self) -> set[str]:
        return {tag for tag, _ in self.tags}

    def attributes(self) -> set[str]:
        return {name for _, attributes in self.tags for name in attributes}
