"""Metrics by the names that people write: ``ndcg@5``, ``map``, ``recall@100``, ``rbp(0.95)``, ``ndcg(exp)@10``.

A name is ``family``, ``family@k``, ``family(arguments)`` or ``family(arguments)@k``, in any case. Names of trec_eval
(``ndcg_cut_10``, ``recip_rank``), of ir-measures (``nDCG@10``, ``RR``, ``P(rel=2)@5``), of BEIR and MTEB
(``ndcg_at_10``) and of ranx (``hit_rate@5``, ``ndcg_burges@10``) are read too; ``str(metric)`` is always our own name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from distagg.errors import UsageError, unknown

Protocol = Literal["letor", "trec"]
Gain = Literal["linear", "exp"]

FORM = re.compile(r"(?P<name>[^(@]+)(?:\((?P<arguments>[^()]*)\))?(?:@(?P<cutoff>.*))?")
CUTOFF_IN_NAME = re.compile(r"(?P<name>.+?)(?:_at_|_|\.)(?P<cutoff>\d[\d,]*)")  # ndcg_cut_10, ndcg_at_10, P.5


@dataclass(frozen=True, slots=True)
class Family:
    """What may stand behind a metric's name."""

    description: str
    cutoff: Literal["none", "optional", "required"] = "optional"
    parameter: str = ""  # what the number in parentheses means; "" when there is none
    whole: bool = False  # the parameter is a whole number >= 1; otherwise strictly between 0 and 1
    gains: bool = False  # takes linear or exp
    levels: bool = False  # takes rel=, the lowest label of a relevant item
    fractions: bool = False  # defined on labels that are no whole numbers


FAMILIES: dict[str, Family] = {
    "ndcg": Family("normalised discounted cumulative gain", gains=True, fractions=True),
    "dcg": Family("discounted cumulative gain", gains=True, fractions=True),
    "p": Family("precision: share of relevant items among the first k", cutoff="required", levels=True),
    "recall": Family("share of the relevant items that are among the first k", levels=True),
    "f1": Family("harmonic mean of precision and recall", levels=True),
    "success": Family("hit rate: 1 if a relevant item is among the first k", cutoff="required", levels=True),
    "map": Family("average precision", levels=True),
    "mrr": Family("reciprocal rank of the first relevant item", levels=True),
    "rprec": Family("precision at the number of relevant items", cutoff="none", levels=True),
    "bpref": Family("relevant items placed before judged irrelevant ones", cutoff="none", levels=True),
    "infap": Family("average precision inferred from a judged sample", cutoff="none", levels=True),
    "err": Family("expected reciprocal rank", parameter="the highest grade", whole=True),
    "rbp": Family("rank-biased precision", parameter="the persistence", levels=True),
    "judged": Family("share of judged items among the first k", fractions=True),
    "tau": Family("Kendall's tau-b between scores and labels", cutoff="none", fractions=True),
}

ALIASES: dict[str, str] = {  # other names, in lower case and with _ for -, and what they stand for
    "ndcg_cut": "ndcg",
    "ndcg_burges": "ndcg(exp)",
    "dcg_burges": "dcg(exp)",
    "precision": "p",
    "r": "recall",
    "set_recall": "recall",
    "setr": "recall",
    "set_f": "f1",
    "setf": "f1",
    "hit": "success",
    "hit_rate": "success",
    "ap": "map",
    "map_cut": "map",
    "average_precision": "map",
    "rr": "mrr",
    "recip_rank": "mrr",
    "reciprocal_rank": "mrr",
    "r_precision": "rprec",
    "kendall_tau": "tau",
}

GAINS: dict[str, Gain] = {"linear": "linear", "exp": "exp", "exponential": "exp", "log2": "linear", "exp-log2": "exp"}


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; ``str`` gives the name that ``parse_metric`` reads.

    ``parameter`` is the persistence of ``rbp`` (0.8 when None) or the highest grade of ``err`` (the highest
    label of the dataset when None). ``gain`` of ``ndcg`` and ``dcg`` is the protocol's when None. An item whose label
    is ``level`` or more is relevant.
    """

    name: str
    cutoff: int | None = None
    parameter: float | None = None
    gain: Gain | None = None
    level: int = 1

    def __str__(self) -> str:
        inside = [] if self.parameter is None else [_number(self.parameter)]
        inside += [self.gain] if self.gain else []
        inside += [f"rel={self.level}"] if self.level != 1 else []
        arguments = f"({','.join(inside)})" if inside else ""
        return f"{self.name}{arguments}" + ("" if self.cutoff is None else f"@{self.cutoff}")


def parse_metric(text: str) -> Metric:
    """Read a metric's name.

    Parameters
    ----------
    text
        ``name``, ``name@k``, ``name(x)`` or ``name(x)@k``, in any case; also the names of trec_eval, ir-measures,
        BEIR, MTEB and ranx. ``rbp(x)`` sets the persistence (0.8), ``err(x)`` the highest grade (the dataset's
        highest label), ``ndcg(linear)`` and ``ndcg(exp)`` the gain, ``p(rel=2)@5`` the lowest label that is relevant.

    Examples
    --------
    >>> parse_metric("NDCG@5")
    Metric(name='ndcg', cutoff=5, parameter=None, gain=None, level=1)
    >>> [str(parse_metric(name)) for name in ("rbp(0.95)", "recip_rank", "ndcg_cut_10", "nDCG(dcg='exp-log2')@10")]
    ['rbp(0.95)', 'mrr', 'ndcg@10', 'ndcg(exp)@10']
    """
    match = FORM.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"cannot read the metric '{text}'; write it like ndcg@5, map or rbp(0.95)")
    name, arguments, cutoff = match["name"].strip().replace("-", "_"), match["arguments"], match["cutoff"]
    if name.startswith("rbp.") and name[4:].isdigit() and arguments is None:  # ranx writes rbp.95
        name, arguments = "rbp", f"0.{name[4:]}"
    inside = CUTOFF_IN_NAME.fullmatch(name)
    if inside and cutoff is None and inside["name"] in FAMILIES.keys() | ALIASES.keys():
        name, cutoff = inside["name"], inside["cutoff"]
    meant = FORM.fullmatch(ALIASES.get(name, name))
    if name == "rbo":
        raise UsageError(
            "rbo compares two rankings, without labels; use distagg.rbo(a, b), or 'distagg evaluate A B -m rbo'"
        )
    if meant is None or meant["name"] not in FAMILIES:
        raise unknown("metric", name, FAMILIES, aliases=ALIASES)
    family = FAMILIES[meant["name"]]
    own = ",".join(part for part in (meant["arguments"], arguments) if part is not None)
    settings = _settings(text, family, own) if arguments is not None or own else {}
    return Metric(meant["name"], _cutoff(text, family, cutoff), **settings)


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


def _settings(text: str, family: Family, written: str) -> dict[str, Any]:
    """The arguments in parentheses: ours (``0.95``, ``exp``, ``rel=2``) and those of ir-measures (``p=0.8``)."""
    if not (family.parameter or family.gains or family.levels):
        raise UsageError(f"the metric '{text}' takes nothing in parentheses")
    settings: dict[str, Any] = {}
    for argument in written.split(","):
        key, equals, value = (part.strip().strip("'\"") for part in argument.partition("="))
        if not equals:
            key, value = ("gain", key) if family.gains else ("", key)
        if key == "judged_only" and value == "false":
            continue
        if key == "rel" and family.levels:
            settings["level"] = int(_in_range(text, "the lowest relevant label", value, whole=True))
        elif key in ("gain", "dcg") and family.gains:
            if value not in GAINS:
                raise UsageError(f"found '{value}' as the gain of the metric '{text}', expected linear or exp")
            settings["gain"] = GAINS[value]
        elif family.parameter and (key == "" or (key == "p" and not family.whole)):
            settings["parameter"] = _in_range(text, family.parameter, value, whole=family.whole)
        else:
            raise UsageError(f"found '{argument.strip()}' in the metric '{text}', expected {_expected(family)}")
    return settings


def _expected(family: Family) -> str:
    """What a family takes in parentheses."""
    takes = [f"{family.parameter} as a number"] if family.parameter else []
    takes += ["linear or exp"] if family.gains else []
    takes += ["rel=LABEL"] if family.levels else []
    return " or ".join(takes)


def _in_range(text: str, what: str, written: str, *, whole: bool) -> float:
    try:
        value = float(written)
    except ValueError:
        value = float("nan")
    if not (value >= 1 and value.is_integer() if whole else 0 < value < 1):
        expected = "a whole number from 1 on" if whole else "a number between 0 and 1, like 0.8"
        raise UsageError(f"found '{written}' as {what} in the metric '{text}', expected {expected}")
    return value


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
