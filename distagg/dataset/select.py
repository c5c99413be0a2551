"""Select experts: by conditions on the columns of experts.parquet, and by draws with replacement.

A condition such as ``age < 25 and gender = 'F'`` is parsed and evaluated in one pass. Conditions and draws are small,
and any worker computes the same experts from them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.dataset.manifest import EXPERTS_FILE, manifest_in
from distagg.errors import UsageError, unknown
from distagg.storage.paths import place
from distagg.storage.verified import read_whole
from distagg.types import Offsets

_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+\.?\d*)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<sign><=|>=|!=|==|[=<>(),])|(?P<word>\w+))"
)
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
DEEPEST = 100  # nested parentheses
EXAMPLE = "such as \"age < 25 and gender = 'F'\", with =, !=, <, <=, >, >=, in (...), and, or, not, parentheses"


def condition(text: str, table: pa.Table) -> pa.ChunkedArray:
    """Whether the condition holds for each row; null if that depends on an empty cell.

    >>> people = pa.table({"age": [20, 30, None], "gender": ["F", "M", "M"]})
    >>> condition("age < 25 and not gender in ('M')", people).to_pylist()
    [True, False, False]
    """
    reader = _Reader(text, table)
    holds = reader.either()
    if reader.at < len(reader.tokens):
        raise reader.wrong("'and' or 'or'")
    return holds


class _Reader:
    """A recursive descent parser that evaluates a condition."""

    def __init__(self, text: str, table: pa.Table) -> None:
        self.text, self.table, self.at, self.depth = text, table, 0, 0
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
        text = self.text if len(self.text) <= 200 else f"{self.text[:200]}..."
        return UsageError(f"condition {text!r}: found {found}, expected {expected}; write it {EXAMPLE}")

    def next_is(self, word: str) -> bool:
        """Consume the next word if it is this one; returns whether it was."""
        here = self.at < len(self.tokens) and self.tokens[self.at][1].lower() == word
        here = here and self.tokens[self.at][0] != "text"
        self.at += here
        return here

    def either(self) -> pa.ChunkedArray:
        holds = self.both()
        while self.next_is("or"):
            holds = pc.or_kleene(holds, self.both())
        return holds

    def both(self) -> pa.ChunkedArray:
        holds = self.term()
        while self.next_is("and"):
            holds = pc.and_kleene(holds, self.term())
        return holds

    def term(self) -> pa.ChunkedArray:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.wrong(f"at most {DEEPEST} nested 'not' or '('")
        holds = self.inner()
        self.depth -= 1
        return holds

    def inner(self) -> pa.ChunkedArray:
        if self.next_is("not"):
            return pc.invert(self.term())
        if self.next_is("("):
            holds = self.either()
            if not self.next_is(")"):
                raise self.wrong("')'")
            return holds
        if self.at >= len(self.tokens) or self.tokens[self.at][0] != "word":
            raise self.wrong("a column")
        name = self.tokens[self.at][1]
        if name not in self.table.column_names:
            raise unknown("column of the experts", name, self.table.column_names)
        self.at += 1
        return self.comparison(self.table[name])

    def comparison(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if self.next_is("not"):
            if not self.next_is("in"):
                raise self.wrong("'in'")
            return pc.invert(self.among(column))
        if self.next_is("in"):
            return self.among(column)
        if self.at >= len(self.tokens) or self.tokens[self.at][1] not in _SIGNS:
            raise self.wrong(f"one of {' '.join(_SIGNS)} or in")
        sign = _SIGNS[self.tokens[self.at][1]]
        self.at += 1
        return sign(column, self.value(column.type))

    def among(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if not self.next_is("("):
            raise self.wrong("'(' and values")
        holds = pc.equal(column, self.value(column.type))
        while self.next_is(","):
            holds = pc.or_kleene(holds, pc.equal(column, self.value(column.type)))
        if not self.next_is(")"):
            raise self.wrong("',' or ')'")
        return holds

    def value(self, column: pa.DataType) -> pa.Scalar:
        kind, word = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if kind == "number":
            self.at += 1
            whole = "." not in word and len(word) < 20 and abs(int(word)) < 2**63  # what Arrow's int64 holds
            return pa.scalar(int(word) if whole else float(word))
        if kind == "text":
            self.at += 1
            text = pa.scalar(word[1:-1])
            return text.cast(column) if pa.types.is_temporal(column) else text
        raise self.wrong("a number, or text in quotes")


def matches(text: str, experts: pa.Table) -> Offsets:
    """Whether each expert of a table matches the condition, as 1 or 0; values of another type are a UsageError."""
    try:
        holds = condition(text, experts)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        types = ", ".join(f"{field.name} ({field.type})" for field in experts.schema)
        raise UsageError(
            f"condition {text!r}: its values do not fit the columns {types}: {str(error).splitlines()[0]}"
        ) from error
    return pc.fill_null(holds, False).to_numpy().astype(np.int64)


@functools.lru_cache(maxsize=8)
def audience(path: str, text: str) -> Offsets:
    """Whether each expert of the dataset at ``path`` matches the condition, as 1 or 0."""
    folder = place(path)
    return matches(text, read_whole(folder / EXPERTS_FILE, manifest_in(folder).sha256(EXPERTS_FILE)))


@functools.lru_cache(maxsize=8)
def drawn(path: str, text: str, n_experts: int, seed: int, number: int) -> Offsets:
    """How often draw ``number`` contains each expert; it draws as many as are selected, with replacement."""
    heard = np.flatnonzero(audience(path, text)) if text else np.arange(n_experts)
    draw = np.random.default_rng(np.random.SeedSequence([seed, number]))
    picked = heard[draw.integers(0, len(heard), len(heard))] if len(heard) else heard
    return np.bincount(picked, minlength=n_experts)
