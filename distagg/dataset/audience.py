"""Which experts are heard: conditions on the columns of experts.parquet, and draws with replacement.

A condition such as ``age < 25 and gender = 'F'`` becomes an Arrow expression. Both are a few words, from which any
worker finds the same experts again.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.dataset.place import place
from distagg.errors import UsageError, unknown
from distagg.types import Offsets

_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+\.?\d*)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<sign><=|>=|!=|==|[=<>(),])|(?P<word>\w+))"
)
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
EXAMPLE = "such as \"age < 25 and gender = 'F'\", with =, !=, <, <=, >, >=, in (...), and, or, not, parentheses"


def condition(text: str, columns: list[str]) -> pc.Expression:
    """The Arrow expression of a condition on these columns.

    >>> str(condition("age < 25 and not gender in ('F')", ["age", "gender"])).count("age")
    1
    """
    reader = _Reader(text, columns)
    found = reader.either()
    if reader.at < len(reader.tokens):
        raise reader.wrong("'and' or 'or'")
    return found


class _Reader:
    """Recursive descent over the words of a condition."""

    def __init__(self, text: str, columns: list[str]) -> None:
        self.text, self.columns, self.at = text, columns, 0
        self.tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(text.rstrip()):
            match = _TOKEN.match(text, place)
            if match is None:
                raise UsageError(f"condition {text!r}: found {text[place:].strip()[:10]!r}, expected {EXAMPLE}")
            self.tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            place = match.end()

    def wrong(self, expected: str) -> UsageError:
        found = f"'{self.tokens[self.at][1]}'" if self.at < len(self.tokens) else "its end"
        return UsageError(f"condition {self.text!r}: found {found}, expected {expected}; write it {EXAMPLE}")

    def next_is(self, word: str) -> bool:
        """Whether the next word is this one, and then it is read."""
        here = self.at < len(self.tokens) and self.tokens[self.at][1].lower() == word
        here = here and self.tokens[self.at][0] != "text"
        self.at += here
        return here

    def either(self) -> pc.Expression:
        found = self.both()
        while self.next_is("or"):
            found = found | self.both()
        return found

    def both(self) -> pc.Expression:
        found = self.one()
        while self.next_is("and"):
            found = found & self.one()
        return found

    def one(self) -> pc.Expression:
        if self.next_is("not"):
            return ~self.one()
        if self.next_is("("):
            found = self.either()
            if not self.next_is(")"):
                raise self.wrong("')'")
            return found
        if self.at >= len(self.tokens) or self.tokens[self.at][0] != "word":
            raise self.wrong("a column")
        name = self.tokens[self.at][1]
        if name not in self.columns:
            raise unknown("column of the experts", name, self.columns)
        self.at += 1
        return self.comparison(pc.field(name))

    def comparison(self, column: pc.Expression) -> pc.Expression:
        if self.next_is("not"):
            if not self.next_is("in"):
                raise self.wrong("'in'")
            return ~self.among(column)
        if self.next_is("in"):
            return self.among(column)
        if self.at >= len(self.tokens) or self.tokens[self.at][1] not in _SIGNS:
            raise self.wrong(f"one of {' '.join(_SIGNS)} or in")
        sign = _SIGNS[self.tokens[self.at][1]]
        self.at += 1
        return sign(column, self.value())

    def among(self, column: pc.Expression) -> pc.Expression:
        if not self.next_is("("):
            raise self.wrong("'(' and values")
        found = column == self.value()
        while self.next_is(","):
            found = found | (column == self.value())
        if not self.next_is(")"):
            raise self.wrong("',' or ')'")
        return found

    def value(self) -> Any:
        kind, word = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if kind == "number":
            self.at += 1
            return float(word) if "." in word else int(word)
        if kind == "text":
            self.at += 1
            return word[1:-1]
        raise self.wrong("a number, or text in quotes")


@functools.lru_cache(maxsize=8)
def audience(path: str, text: str) -> Offsets:
    """How often each expert of the dataset at ``path`` is heard: 1 where the condition holds, else 0."""
    from distagg.dataset.reader import read_groups

    experts = read_groups(place(path) / "experts.parquet", None, None)
    kept = condition(text, experts.column_names)
    rows = experts.append_column("row of the expert", pa.array(np.arange(len(experts))))
    try:
        found = rows.filter(kept)["row of the expert"].to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        types = ", ".join(f"{field.name} ({field.type})" for field in experts.schema)
        raise UsageError(
            f"condition {text!r}: its values do not fit the columns {types}: {str(error).splitlines()[0]}"
        ) from error
    times = np.zeros(len(experts), dtype=np.int64)
    times[found] = 1
    return times


@functools.lru_cache(maxsize=8)
def drawn(path: str, text: str, n_experts: int, seed: int, number: int) -> Offsets:
    """How often draw ``number`` holds each expert: as many draws, with replacement, as experts are heard."""
    heard = np.flatnonzero(audience(path, text)) if text else np.arange(n_experts)
    draw = np.random.default_rng(np.random.SeedSequence([seed, number]))
    picked = heard[draw.integers(0, len(heard), len(heard))] if len(heard) else heard
    return np.bincount(picked, minlength=n_experts)
