"""Weights of experts: how they are written, and the models that take them.

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
from distagg.models.base import Model, Params, param
from distagg.storage.paths import place
from distagg.types import Floats

AUTO = "auto"  # learned on labels
NO_WEIGHTS: Floats = np.zeros(0)  # as kernels take it: each list counts 1
NO_WEIGHTS.setflags(write=False)
EXAMPLE = "name:weight,name:weight, such as dense:2,bm25:0.5"
_NAMED = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^",][^,]*?))\s*:\s*([^:,\s]*)\s*(?:,|$)')
_PLAIN = re.compile(r'[^\s",][^",]*')


@dataclass(frozen=True, kw_only=True)
class Weighted(Model):
    """Base of models whose score is a sum over lists, which weights of experts multiply."""

    unseen: ClassVar[float] = 1.0

    weights: str = param(
        "",
        "weights of experts, 1 where none is given: name:weight,..., @FILE (JSON, or CSV with the columns expert and "
        "weight), or auto, which learns them on labels; 2 counts as two experts with the same lists, 0 as none",
        choices=(AUTO,),
        text=True,
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", as_text(self.name, self.weights))
        super().__post_init__()

    @property
    def needs_labels(self) -> bool:
        return self.weights == AUTO or super().needs_labels

    @property
    def ignored(self) -> float:
        return 0.0

    def resolved(self, experts: tuple[str, ...]) -> Params:
        if self.weights in ("", AUTO):
            return {}
        weight = np.ones(len(experts))
        given: dict[int, str] = {}
        for name, value in by_name(self.weights).items():
            number = expert_number(name, experts)
            if number in given:
                raise UsageError(f"weights: '{given[number]}' and '{name}' are both '{experts[number]}'; give it once")
            given[number], weight[number] = name, value
        return {"expert_weight": weight, "shared_weight": np.ones(1)}  # experts without a name here have weight 1


def expert_number(name: str, experts: tuple[str, ...]) -> int:
    """The number of the expert that is meant: the one of that name, or the only one whose name adds an ending to it.

    >>> expert_number("dense", ("bm25.run", "dense.run"))
    1
    """
    if name in experts:
        return experts.index(name)
    longer = [number for number, expert in enumerate(experts) if expert.startswith(f"{name}.")]
    if len(longer) != 1:
        raise unknown("expert in weights", name, experts)
    return longer[0]


def list_weight(chunk: Chunk, params: Params) -> Floats:
    """The weight of each list (L,); an empty array where all weights are 1."""
    if "expert_weight" not in params:
        return NO_WEIGHTS
    weight: Floats = params["expert_weight"][chunk.list_expert]
    weight.setflags(write=False)
    return weight


def entry_weight(chunk: Chunk, params: Params) -> Floats | None:
    """The weight of each entry (E,): that of its list; None where all weights are 1."""
    if "expert_weight" not in params:
        return None
    return np.repeat(list_weight(chunk, params), np.diff(chunk.entry_offsets))


def weighed(values: Floats, weight: Floats | None) -> Floats:
    """Values of entries times their weights."""
    return values if weight is None else values * weight


def as_text(model: str, weights: Any) -> str:
    """Weights in their one form, from text, a mapping, or the name of a file after @.

    >>> as_text("rrf", {"dense": 2, "bm25": 0.5}), as_text("rrf", "dense:2.0, bm25:.5")
    ('bm25:0.5,dense:2', 'bm25:0.5,dense:2')
    """
    if isinstance(weights, str) and weights.strip() in ("", AUTO):
        return weights.strip()
    if isinstance(weights, str):
        named = _from_file(weights[1:]) if weights.startswith("@") else by_name(weights)
    elif isinstance(weights, Mapping):
        named = {str(name): value for name, value in weights.items()}
    else:
        raise UsageError(f"parameter weights of {model}: found {weights!r}, expected a mapping, {EXAMPLE} or {AUTO}")
    for name, value in named.items():
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise UsageError(
                f"parameter weights of {model}: found {value!r} for expert {name!r}, expected a number of at least 0"
            )
    return ",".join(f"{_quoted(name)}:{_short(float(named[name]))}" for name in sorted(named))


def by_name(text: str) -> dict[str, float]:
    """The weights in a text; names that hold a comma or a quote stand in JSON's quotes."""
    named: dict[str, float] = {}
    at = 0
    while at < len(text):
        match = _NAMED.match(text, at)
        try:
            if match is None:
                raise ValueError
            name = json.loads(f'"{match[1]}"') if match[1] is not None else match[2]
            value = float(match[3])
        except ValueError:
            raise UsageError(f"parameter weights: found {text[at:].strip()!r}, expected {EXAMPLE}") from None
        if name in named:
            raise UsageError(f"parameter weights: expert {name!r} is named twice; name each expert once")
        named[name], at = value, match.end()
    return named


def _from_file(name: str) -> dict[str, Any]:
    """Weights from a JSON object, or from a CSV file with the columns expert and weight."""
    file = place(name)
    if not file.is_file():
        raise UsageError(f"parameter weights: no file {name}; give the name of a JSON or CSV file after @")
    text = file.read_text(encoding="utf-8")
    expected = 'a JSON object {"expert": weight} or CSV with the columns expert and weight'
    if text.lstrip().startswith("{"):
        try:
            named: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise InputError(name, found=f"broken JSON ({error})", expected=expected) from None
        return named
    rows = csv.DictReader(text.splitlines())
    if not {"expert", "weight"} <= set(rows.fieldnames or ()):
        columns = ", ".join(rows.fieldnames or ()) or "of an empty file"
        raise InputError(name, found=f"the columns {columns}", expected=expected)
    named = {}
    for row in rows:
        if row["expert"] in named:
            raise InputError(name, line=rows.line_num, found=f"expert {row['expert']!r} again", expected="it once")
        try:
            named[row["expert"]] = float(row["weight"])
        except (TypeError, ValueError):
            raise InputError(
                name, line=rows.line_num, found=f"the weight {row['weight']!r}", expected="a number"
            ) from None
    return named


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) and name == name.strip() else json.dumps(name, ensure_ascii=False)


def _short(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
