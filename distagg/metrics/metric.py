"""Metrics by the names that people write: ``ndcg@5``, ``p@3``, ``map``, ``mrr``, ``err@20``, ``rbp(0.95)``, ``tau``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from distagg.errors import UsageError, unknown

Protocol = Literal["letor", "trec"]

FORM = re.compile(r"(?P<name>[^(@]+)(?:\((?P<parameter>[^()]*)\))?(?:@(?P<cutoff>.*))?")


@dataclass(frozen=True, slots=True)
class Family:
    """What may stand behind a metric's name."""

    description: str
    cutoff: Literal["none", "optional", "required"] = "optional"
    parameter: str = ""  # what the number in parentheses means; "" when there is none
    whole: bool = False  # the parameter is a whole number >= 1; otherwise strictly between 0 and 1


FAMILIES: dict[str, Family] = {
    "ndcg": Family("normalised discounted cumulative gain"),
    "p": Family("precision: share of relevant items among the first k", cutoff="required"),
    "map": Family("average precision"),
    "mrr": Family("reciprocal rank of the first relevant item"),
    "err": Family("expected reciprocal rank", parameter="the highest grade", whole=True),
    "rbp": Family("rank-biased precision", parameter="the persistence"),
    "tau": Family("Kendall's tau-b between scores and labels", cutoff="none"),
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; ``str`` gives the name that ``parse_metric`` reads.

    ``parameter`` is the persistence of ``rbp`` (0.8 when None) or the highest grade of ``err`` (the highest
    label of the dataset when None).
    """

    name: str
    cutoff: int | None = None
    parameter: float | None = None

    def __str__(self) -> str:
        inside = "" if self.parameter is None else f"({_number(self.parameter)})"
        return f"{self.name}{inside}" + ("" if self.cutoff is None else f"@{self.cutoff}")


def parse_metric(text: str) -> Metric:
    """Read a metric's name.

    Parameters
    ----------
    text
        ``name``, ``name@k``, ``name(x)`` or ``name(x)@k``, in any case. ``p`` needs a cutoff, ``tau`` takes none;
        ``rbp(x)`` sets the persistence (0.8), ``err(x)`` the highest grade (the dataset's highest label).

    Examples
    --------
    >>> parse_metric("NDCG@5")
    Metric(name='ndcg', cutoff=5, parameter=None)
    >>> str(parse_metric("rbp(0.95)"))
    'rbp(0.95)'
    """
    match = FORM.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"cannot read the metric '{text}'; write it like ndcg@5, map or rbp(0.95)")
    name = match["name"].strip()
    if name not in FAMILIES:
        raise unknown("metric", name, FAMILIES)
    family = FAMILIES[name]
    return Metric(name, _cutoff(text, family, match["cutoff"]), _parameter(text, family, match["parameter"]))


def parse_metrics(names: Sequence[str | Metric]) -> tuple[Metric, ...]:
    """Several metrics, each a name or a Metric already."""
    return tuple(name if isinstance(name, Metric) else parse_metric(name) for name in names)


def check_protocol(protocol: str) -> Protocol:
    """The protocol, or a UsageError with the known ones."""
    for known in get_args(Protocol):
        if protocol == known:
            return known
    raise unknown("protocol", protocol, get_args(Protocol))


def _cutoff(text: str, family: Family, written: str | None) -> int | None:
    if written is None:
        if family.cutoff == "required":
            raise UsageError(f"the metric '{text}' needs a cutoff, like {text}@10")
        return None
    if family.cutoff == "none":
        raise UsageError(f"the metric '{text}' takes no cutoff; write {text.split('@')[0]}")
    if not (written.isascii() and written.isdigit()) or int(written) < 1:
        raise UsageError(f"found the cutoff '{written}' in the metric '{text}', expected a whole number from 1 on")
    return int(written)


def _parameter(text: str, family: Family, written: str | None) -> float | None:
    if written is None:
        return None
    if not family.parameter:
        raise UsageError(f"the metric '{text}' takes nothing in parentheses")
    try:
        value = float(written)
    except ValueError:
        value = float("nan")
    good = value >= 1 and value.is_integer() if family.whole else 0 < value < 1
    if not good:
        expected = "a whole number from 1 on" if family.whole else "a number between 0 and 1, like 0.8"
        raise UsageError(f"found '{written}' as {family.parameter} in the metric '{text}', expected {expected}")
    return value


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
