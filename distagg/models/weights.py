"""Weights and other numbers of experts: how they are written, and the models that take weights.

A weight multiplies what an expert's lists add to the scores: an expert of weight 2 counts as two experts with the same
lists, one of weight 0 as none. The model holds them as text in one form, names sorted: ``bm25:1,dense:2``.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import InputError, UsageError, unknown
from distagg.models.base import Model, param
from distagg.models.rounds import Params
from distagg.storage.paths import place
from distagg.types import Floats

AUTO = "auto"  # learned on labels, by what they do for a metric
AGREEMENT = "agreement"  # learned on labels: how well each expert's own lists agree with them
NO_WEIGHTS: Floats = np.zeros(0)  # as kernels take it: each list counts 1
NO_WEIGHTS.setflags(write=False)
_NAME = r'\s*(?:"((?:[^"\\]|\\.)*)"|([^",][^,]*?))'
_PLAIN = re.compile(r'[^\s",][^",]*')


@dataclass(frozen=True, kw_only=True)
class Weighted(Model):
    """Base of models whose score is a sum over lists, which weights of experts multiply."""

    unseen: ClassVar[float] = 1.0

    weights: str = param(
        "",
        "weights of experts, 1 where none is given: name:weight,..., @FILE (JSON, or CSV with the columns expert and "
        "weight), auto (searched on labels by what they do for the metric) or agreement (how much more often than by "
        "chance the expert orders labelled items rightly, 1 for the best); 2 counts as two experts with the same "
        "lists, 0 as none",
        choices=(AUTO, AGREEMENT),
        text=True,
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", WEIGHTS.text(self.name, self.weights))
        super().__post_init__()

    @property
    def needs_labels(self) -> bool:
        return self.weights in (AUTO, AGREEMENT) or super().needs_labels

    @property
    def ignored(self) -> float:
        return 0.0

    def resolved(self, experts: tuple[str, ...]) -> Params:
        if self.weights in WEIGHTS.words:
            return {}
        weight = WEIGHTS.by_expert(self.weights, experts, self.unseen)[:, 0]
        return {"expert_weight": weight, "shared_weight": np.ones(1)}  # experts without a name here have weight 1


def expert_number(name: str, experts: tuple[str, ...], parameter: str = "weights") -> int:
    """The number of the expert that is meant: the one of that name, or the only one whose name adds an ending to it.

    >>> expert_number("dense", ("bm25.run", "dense.run"))
    1
    """
    if name in experts:
        return experts.index(name)
    longer = [number for number, expert in enumerate(experts) if expert.startswith(f"{name}.")]
    if len(longer) != 1:
        raise unknown(f"expert in {parameter}", name, experts)
    return longer[0]


def list_weight(chunk: Chunk, params: Params) -> Floats:
    """The weight of each list (L,); an empty array where all weights are 1."""
    of_expert = params.get("expert_weight")
    return NO_WEIGHTS if of_expert is None else _read_only(of_expert[chunk.list_expert])


def pair_weight(chunk: Chunk, params: Params) -> Floats:
    """The weight of each raw pair (P,), times that of its expert."""
    of_expert = params.get("expert_weight")
    return chunk.pair_weight if of_expert is None else _read_only(chunk.pair_weight * of_expert[chunk.pair_expert])


def _read_only(weight: Floats) -> Floats:
    weight.setflags(write=False)  # as a chunk's arrays, so that kernels see one type
    return weight


def entry_weight(chunk: Chunk, params: Params) -> Floats | None:
    """The weight of each entry (E,): that of its list; None where all weights are 1."""
    weight = list_weight(chunk, params)
    return np.repeat(weight, np.diff(chunk.entry_offsets)) if len(weight) else None


def weighed(values: Floats, weight: Floats | None) -> Floats:
    """Values of entries times their weights."""
    return values if weight is None else values * weight


@dataclass(frozen=True, slots=True)
class Named:
    """A parameter that gives experts numbers by name: ``name:number,...``, in one form with the names sorted.

    A name that holds a comma or a quote stands in JSON's quotes.

    >>> WEIGHTS.text("rrf", {"dense": 2, "bm25": 0.5}), WEIGHTS.text("rrf", "dense:2.0, bm25:.5")
    ('bm25:0.5,dense:2', 'bm25:0.5,dense:2')
    """

    parameter: str
    columns: tuple[str, ...]  # what each number is
    example: str
    least: float = -math.inf
    words: tuple[str, ...] = ("",)  # given in place of numbers

    def text(self, model: str, given: Any) -> str:
        """The one form, from text, a mapping, or the name of a file after @; the words stay."""
        if isinstance(given, str) and given.strip() in self.words:
            return given.strip()
        if isinstance(given, str):
            named: Mapping[str, Any] = self._from_file(given[1:]) if given.startswith("@") else self.numbers(given)
        elif isinstance(given, Mapping):
            named = given
        else:
            raise UsageError(
                f"parameter {self.parameter} of {model}: found {given!r}, expected a mapping or {self._form}"
            )
        parts = {str(name): self._checked(model, str(name), value) for name, value in named.items()}
        return ",".join(f"{_quoted(name)}:{':'.join(map(_short, parts[name]))}" for name in sorted(parts))

    def numbers(self, text: str) -> dict[str, tuple[float, ...]]:
        """The numbers of each name in a text."""
        pattern = re.compile(_NAME + r"\s*:\s*([^:,\s]*)" * len(self.columns) + r"\s*(?:,|$)")
        named: dict[str, tuple[float, ...]] = {}
        at = 0
        while at < len(text):
            match = pattern.match(text, at)
            try:
                if match is None:
                    raise ValueError
                name = json.loads(f'"{match[1]}"') if match[1] is not None else match[2]
                values = tuple(float(word) for word in match.groups()[2:])
            except ValueError:
                found = text[at:].strip()
                raise UsageError(f"parameter {self.parameter}: found {found!r}, expected {self._form}") from None
            if name in named:
                raise UsageError(f"parameter {self.parameter}: expert {name!r} is named twice; name each expert once")
            named[name], at = values, match.end()
        return named

    def by_expert(self, text: str, experts: tuple[str, ...], other: float) -> Floats:  # (experts, columns)
        """The numbers of each expert, ``other`` for those without; a name that is not among them is refused."""
        rows = np.full((len(experts), len(self.columns)), other)
        given: dict[int, str] = {}
        for name, values in self.numbers(text).items():
            number = expert_number(name, experts, self.parameter)
            if number in given:
                twice = f"'{given[number]}' and '{name}' are both '{experts[number]}'"
                raise UsageError(f"{self.parameter}: {twice}; give it once")
            given[number], rows[number] = name, values
        return rows

    @property
    def _form(self) -> str:
        part = ":".join(("name", *self.columns))
        return f"{part},{part}, such as {self.example}"

    def _checked(self, model: str, name: str, given: Any) -> tuple[float, ...]:
        values = tuple(given) if isinstance(given, list | tuple) else (given,)
        numbers = all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in values)
        sound = numbers and all(math.isfinite(v) and v >= self.least for v in values)
        if len(values) != len(self.columns) or not sound:
            wanted = "a number" if len(self.columns) == 1 else f"{len(self.columns)} numbers"
            least = f" of at least {self.least:g}" if self.least > -math.inf else ""
            raise UsageError(
                f"parameter {self.parameter} of {model}: found {given!r} for expert {name!r}, expected {wanted}{least}"
            )
        return tuple(float(v) for v in values)

    def _from_file(self, name: str) -> dict[str, Any]:
        """From a JSON object, or from a CSV file with a column expert and one for each number."""
        file = place(name)
        if not file.is_file():
            raise UsageError(f"parameter {self.parameter}: no file {name}; name a JSON or CSV file after @")
        text, columns = file.read_text(encoding="utf-8"), ("expert", *self.columns)
        expected = f"a JSON object by expert, or CSV with the columns {', '.join(columns)}"
        if text.lstrip().startswith("{"):
            try:
                named: dict[str, Any] = json.loads(text)
            except ValueError as error:
                raise InputError(name, found=f"broken JSON ({error})", expected=expected) from None
            return named
        rows = csv.DictReader(text.splitlines())
        if not set(columns) <= set(rows.fieldnames or ()):
            found = ", ".join(rows.fieldnames or ()) or "of an empty file"
            raise InputError(name, found=f"the columns {found}", expected=expected)
        named = {}
        for row in rows:
            line, cells = rows.line_num, [row[column] for column in self.columns]
            if row["expert"] in named:
                raise InputError(name, line=line, found=f"expert {row['expert']!r} again", expected="it once")
            try:
                named[row["expert"]] = tuple(map(float, cells))
            except (TypeError, ValueError):
                raise InputError(
                    name, line=line, found=f"the {self.columns[0]} {cells[0]!r}", expected="a number"
                ) from None
        return named


WEIGHTS = Named("weights", ("weight",), "dense:2,bm25:0.5", least=0.0, words=("", AUTO, AGREEMENT))


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) and name == name.strip() else json.dumps(name, ensure_ascii=False)


def _short(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
