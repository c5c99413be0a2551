"""Rows that contradict one another, and the error that names their lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from distagg.errors import InputError

_SAID = {
    "entry": ("item '{item}' again in the list of '{expert}' for query '{query}'", "each item once in a list"),
    "label": ("another label for item '{item}' of query '{query}'", "one label for each item of a query"),
    "self": ("item '{item}' of query '{query}' paired with itself by '{expert}'", "two different items"),
}


@dataclass(eq=False)
class Clash(Exception):  # noqa: N818  # never leaves the package: it becomes an InputError
    """Rows that exclude one another: found among codes, before anybody knows their lines."""

    kind: Literal["entry", "label", "self"]
    query: int  # code
    expert: int | None  # code
    item: str


class Locator(Protocol):
    @property
    def files(self) -> tuple[Path, ...]: ...

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]: ...


def clash_error(clash: Clash, source: Locator, query: str, expert: str | None) -> InputError:
    """The error with file and line of the second mention, and where the first one stands."""
    said, expected = _SAID[clash.kind]
    found = said.format(item=clash.item, query=query, expert=expert)
    places = source.locate(query, expert, clash.item)
    if not places:
        return InputError(str(source.files[0]) if source.files else "<table>", found=found, expected=expected)
    file, line = places[-1] if clash.kind == "label" else places[min(1, len(places) - 1)]
    if places[0] != (file, line):
        found += f" (first at {Path(places[0][0]).name}:{places[0][1]})"
    return InputError(file, line=line, found=found, expected=expected, remedy="remove one of the two rows")
