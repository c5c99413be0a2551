"""Covariates: numbers and categories of a battle, or of each of its two sides, as seen from the winner.

A battle has a side a (left, first) and a side b. A column such as ``turns`` belongs to the battle and counts for side
a: from the winner's point of view it changes its sign if side b has won. Two columns such as ``length_a`` and
``length_b`` belong to the sides: they become the winner's and the loser's value. ``position`` is 1 if the winner was on
side a, otherwise -1. Swapping winner and loser therefore changes the sign of every covariate and of every difference.
In a tie, side a takes the winner's place. In tables of winner and loser, columns are given from the winner's point of
view.

A category is stored by the number of its level, from 0; that of a whole battle as plus or minus (number + 1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from distagg.arrow import as_arrow, as_numpy, one_array
from distagg.errors import UsageError, unknown
from distagg.types import PAIR_ORDER, PAIR_TIME, PAIRS, Bools, Floats

POSITION = "position"
SIDES = (("a", "b"), ("left", "right"), ("winner", "loser"))
_RESERVED = {*PAIRS.names, PAIR_TIME.name, PAIR_ORDER.name}
_CALL = re.compile(r"(?P<form>\w+)\((?P<column>.*)\)")
_FORMS = ("category", "relative")
_TOKEN = re.compile(r"[A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class Term:
    """One covariate as users write it: ``turns``, ``length_a-length_b``, ``category(turns)``, ``relative(length)``."""

    text: str
    column: str  # a column, the difference of two columns, or what two columns have in common
    form: str = ""

    @classmethod
    def of(cls, text: str) -> Term:
        call = _CALL.fullmatch(text)
        if call is None:
            return cls(text, text)
        if call["form"] not in _FORMS:
            raise UsageError(f"covariates: {unknown('form', call['form'], _FORMS)}; write {_FORMS[0]}(COLUMN)")
        return cls(text, call["column"].strip(), call["form"])


def terms_of(text: str | Sequence[str]) -> tuple[Term, ...]:
    """The covariates in a text, separated by commas, or in a list.

    >>> [(term.column, term.form) for term in terms_of("length_a-length_b, category(turns)")]
    [('length_a-length_b', ''), ('turns', 'category')]
    """
    words = [word.strip() for word in (text.split(",") if isinstance(text, str) else text)]
    terms = tuple(Term.of(word) for word in words if word)
    for term in terms:
        if [other.text for other in terms].count(term.text) > 1:
            raise UsageError(f"covariates: found '{term.text}' twice, expected each covariate once")
    return terms


@dataclass(frozen=True, slots=True)
class Covariate:
    """A covariate of a dataset."""

    name: str
    source: tuple[
        str, ...
    ]  # its columns in the source: one of the battle, or those of side a and side b; position: none
    levels: tuple[str, ...] = ()  # of a category, in order of first appearance
    category: bool = False

    @property
    def sides(self) -> bool:
        return len(self.source) == 2

    @property
    def columns(self) -> tuple[str, ...]:
        """Its columns in a dataset."""
        return (f"{self.name}_winner", f"{self.name}_loser") if self.sides else (self.name,)

    def is_meant_by(self, column: str) -> bool:
        """Whether users mean this covariate by the text of a term."""
        return column in (self.name, "-".join(self.source))


def stem(first: str, second: str) -> str:
    """What the names of two sides' columns have in common; "" if they do not differ in the word for the side.

    >>> stem("length_a", "length_b"), stem("sum_assistant_a_tokens", "sum_assistant_b_tokens"), stem("x", "y")
    ('length', 'sum_assistant_tokens', '')
    """
    for match in _TOKEN.finditer(first):
        for a, b in SIDES:
            if match[0].lower() != a or second != first[: match.start()] + b + first[match.end() :]:
                continue
            before, after = first[: match.start()], first[match.end() :]
            return before + after[1:] if after else before[:-1]
    return ""


def find(term: Term, header: Sequence[str], *, battles: bool, where: str) -> Covariate:
    """The columns of a table that a term means.

    >>> find(Term.of("length"), ["length_a", "length_b"], battles=True, where="the table").source
    ('length_a', 'length_b')
    """
    category = term.form == "category"
    if term.column in header:
        _refuse_side(term.column, header, where)
        return _named(term.column, (term.column,), category, where)
    for dash in re.finditer("-", term.column):
        first, second = term.column[: dash.start()].strip(), term.column[dash.end() :].strip()
        if first in header and second in header:
            if stem(second, first):
                raise UsageError(f"{where}: covariate '{term.text}' has its sides reversed; write {second}-{first}")
            return _named(stem(first, second) or f"{first}-{second}", (first, second), category, where)
    pairs = [(first, second) for first in header for second in header if stem(first, second) == term.column]
    if len(pairs) == 1:
        return _named(term.column, pairs[0], category, where)
    if len(pairs) > 1:
        written = " or ".join("-".join(pair) for pair in pairs)
        raise UsageError(f"{where}: covariate '{term.text}' may be {written}; write one of them")
    if battles and term.column == POSITION:
        return Covariate(POSITION, ())
    raise UsageError(f"{where}: {unknown('column for a covariate', term.column, header)}")


def find_all(terms: Sequence[Term], header: Sequence[str], *, battles: bool, where: str) -> tuple[Covariate, ...]:
    """The covariates that terms mean, each once."""
    found = dict.fromkeys(find(term, header, battles=battles, where=where) for term in terms)
    names = [name for covariate in found for name in covariate.columns]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{where}: found '{name}' as a number and as a category, or twice; expected it once")
    return tuple(found)


def _named(name: str, source: tuple[str, ...], category: bool, where: str) -> Covariate:
    if name in _RESERVED:
        raise UsageError(f"{where}: column '{name}' has another meaning in pairs; rename it to use it as a covariate")
    return Covariate(name, source, category=category)


def _refuse_side(column: str, header: Sequence[str], where: str) -> None:
    """Refuse the column of one side, whose partner has to be subtracted."""
    for other in header:
        if stem(column, other) or stem(other, column):
            first, second = (column, other) if stem(column, other) else (other, column)
            raise UsageError(
                f"{where}: covariate '{column}' is a column of one side; write {first}-{second}, the difference"
            )


@dataclass(frozen=True, slots=True)
class DesignColumn:
    """A column that models fit, made of the stored columns of a covariate."""

    name: str
    columns: tuple[str, ...]  # of the dataset: one, or the winner's and the loser's
    form: str = ""
    level: int = -1  # of a category, which the column indicates

    def values(self, stored: Mapping[str, Floats]) -> Floats:
        """The column as seen from the winner, shape (P,)."""
        parts = [stored[name] for name in self.columns]
        if self.level >= 0 and len(parts) == 2:
            return (parts[0] == self.level).astype(np.float64) - (parts[1] == self.level)
        if self.level >= 0:
            return np.where(np.abs(parts[0]) == self.level + 1, np.sign(parts[0]), 0.0)
        if len(parts) == 1:
            return parts[0]
        if self.form == "relative":
            total = np.abs(parts[0]) + np.abs(parts[1])
            return np.divide(parts[0] - parts[1], total, out=np.zeros(len(total)), where=total > 0)
        return parts[0] - parts[1]


def design(terms: Sequence[Term], covariates: Sequence[Covariate]) -> tuple[DesignColumn, ...]:
    """The columns that terms ask for; a category has one for each level but the first in alphabetical order.

    >>> language = Covariate("language", ("language",), ("en", "de", "fr"), category=True)
    >>> [column.name for column in design(terms_of("language"), [language])]
    ['language=en', 'language=fr']
    """
    columns: list[DesignColumn] = []
    for term in terms:
        covariate = next((each for each in covariates if each.is_meant_by(term.column)), None)
        if covariate is None:
            known = ", ".join(each.name for each in covariates) or "none"
            raise UsageError(
                f"covariates: found '{term.text}', but the dataset keeps {known}; import the pairs again with "
                f"--covariates {','.join(term.column for term in terms)}"
            )
        if term.form == "relative" and (covariate.category or not covariate.sides):
            raise UsageError(f"covariates: {term.text} needs a number of each side; write {covariate.name}")
        if term.form == "category" and not covariate.category:
            raise UsageError(f"covariates: the dataset keeps {covariate.name} as a number; import it as {term.text}")
        if covariate.category:
            number = {level: at for at, level in enumerate(covariate.levels)}
            columns += [
                DesignColumn(f"{covariate.name}={level}", covariate.columns, level=number[level])
                for level in sorted(covariate.levels)[1:]
            ]
        else:
            name = term.text if term.form else covariate.name
            columns.append(DesignColumn(name, covariate.columns, term.form))
    return tuple(columns)


class Levels:
    """The covariates of a source while it is read: each new value of a category gets the next level number."""

    def __init__(self, covariates: Sequence[Covariate]) -> None:
        self._covariates = tuple(covariates)
        self._number: list[dict[str, int]] = [{} for _ in covariates]

    @property
    def covariates(self) -> tuple[Covariate, ...]:
        """The covariates with the levels read so far."""
        return tuple(
            replace(covariate, levels=tuple(number))
            for covariate, number in zip(self._covariates, self._number, strict=True)
        )

    def seen_from_winner(self, rows: Mapping[str, pa.Array | pa.ChunkedArray], a_won: Bools) -> dict[str, pa.Array]:
        """The columns of a dataset from those of the source (numbers, truth values, or text for categories)."""
        columns: dict[str, pa.Array] = {}
        for covariate, number in zip(self._covariates, self._number, strict=True):
            values = _numbers([rows[name] for name in covariate.source], covariate, number)
            if covariate.sides:
                seen = [np.where(a_won, *values), np.where(a_won, *values[::-1])]
            else:
                value = values[0] + covariate.category if values else np.ones(len(a_won))
                seen = [np.where(a_won, value, -value) + 0.0]  # no negative zeros
            columns |= dict(zip(covariate.columns, map(as_arrow, seen), strict=True))
        return columns


def _numbers(
    columns: Sequence[pa.Array | pa.ChunkedArray], covariate: Covariate, number: dict[str, int]
) -> list[Floats]:
    """The columns as numbers; the levels of a category are numbered row by row, in order of first appearance."""
    if not covariate.category:
        return [as_numpy(one_array(column.cast(pa.float64()))) for column in columns]
    words = pa.concat_arrays([one_array(column.cast(pa.string())) for column in columns])
    by_row = np.arange(len(words)).reshape(len(columns), -1).T.ravel()
    coded = words.take(as_arrow(by_row)).dictionary_encode()
    levels = [number.setdefault(word, len(number)) for word in coded.dictionary.to_pylist()]
    return list(np.array(levels, dtype=np.float64)[as_numpy(coded.indices)].reshape(-1, len(columns)).T)


def is_category(values: pa.DataType) -> bool:
    """Whether a column of this type holds a category: text, not numbers or truth values.

    >>> is_category(pa.string()), is_category(pa.int64())
    (True, False)
    """
    if pa.types.is_dictionary(values):
        return is_category(values.value_type)
    return bool(pa.types.is_string(values) or pa.types.is_large_string(values) or pa.types.is_string_view(values))
