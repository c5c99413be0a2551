"""blend: an ensemble of supervised models and plain rules. The recommendation where there are labels.

Members are of several kinds: the best single expert, rrf and combsum with learned settings, a linear field over
rankings (crf), boosted trees (lambdamart), a linear scorer (lambdarank), and if asked for, points with weights by least
squares (ssra). Scores are standardised in every query and added up: within a kind with equal weights, so that the
errors of random starts average out; between kinds with weights chosen on held-out queries (Caruana et al. 2004), so
that a kind that fails on the data at hand has no say.

Where training and validation queries are parts of one dataset, as in folds, members hold out the parts in turn: the
ensemble learns from all labelled queries, and every member has held-out ones for early stopping and for the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Model, Params, param
from distagg.models.boosted.fusion import Fusion
from distagg.models.boosted.model import LARGE, standardised
from distagg.models.positional.semi import MOST_EXPERTS
from distagg.models.registry import model_named
from distagg.models.trained import SERIAL
from distagg.types import Floats

CRF: tuple[dict[str, Any], ...] = (
    {},
    {"pairs": "log+binary"},
    {"pairs": "log+binary", "metric": "err"},
)  # taken in turn
TRAINED = ("crf", "lambdamart", "lambdarank")
PLAIN = ("bestinput", "rrf", "combsum", "ssra")  # they do not stop early: they learn from all labelled queries
TOP = 10.0  # bestinput's ranks count as 1 / (TOP + rank): differences near the top are as large as in other members


@dataclass(frozen=True, kw_only=True)
class Blend(Model):
    """An ensemble: its parameters are the numbers of members of each kind, which differ in their seeds."""

    name: ClassVar[str] = "blend"
    summary: ClassVar[str] = "crf, lambdamart, lambdarank and tuned plain rules, weighted on held-out queries"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, sections 3.5 and 3.6; Caruana et al. 2004"
    cost: ClassVar[str] = "the sum of its members'"
    supervised: ClassVar[bool] = True
    positive: ClassVar[bool] = True
    package: ClassVar[str] = "lightgbm"
    learner: ClassVar[str] = "ensemble"
    unseen: ClassVar[float] = -np.inf  # marks unseen experts: the parameters of known ones are finite

    crf: int = param(
        12,
        "members that are crf: in turn with pairs=log, pairs=log+binary, and the latter with metric=err",
        least=0,
    )
    lambdamart: int = param(12, "members that are lambdamart; they need LightGBM", least=0)
    lambdarank: int = param(4, "members that are lambdarank", least=0)
    large: int = param(
        4,
        f"most members of each of these three kinds where most queries have over {LARGE:,} items (training "
        "takes minutes there); 0 sets no limit",
        least=0,
    )
    bestinput: bool = param(True, "whether the best single expert is a member")
    rrf: bool = param(True, "whether rrf is a member, its c, depth and weights chosen on labels")
    combsum: bool = param(True, "whether combsum is a member, its norm, depth and weights chosen on labels")
    # Validation queries do not clearly ask for it: NDCG@5 +0.39 (p = .06) on MQ2008-agg, -0.02 on MQ2007-agg.
    ssra: bool = param(False, f"whether ssra is a member; with more than {MOST_EXPERTS:,} experts it is none")
    seed: int = param(0, "seed of all random draws", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.kinds:
            raise UsageError("blend has no members; raise crf, lambdamart or lambdarank")

    def for_size(self, items: int) -> Blend:
        """The ensemble for queries of so many items."""
        if not self.large or items <= LARGE:
            return self
        fewer: dict[str, Any] = {kind: min(self.count(kind), int(self.large)) for kind in TRAINED}
        return replace(self, **fewer)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of members that there are, plain ones first."""
        return tuple(kind for kind in (*PLAIN, *TRAINED) if int(getattr(self, kind)))

    @property
    def usual(self) -> tuple[str, ...]:
        """The kinds that get equal weights unless held-out queries choose others: crf, lambdamart, ssra."""
        trained = [kind for kind in TRAINED if kind in self.kinds]
        some = [kind for kind in trained if kind != "lambdarank"] or trained
        return tuple(["ssra", *some] if self.ssra else some) or self.kinds

    @property
    def members(self) -> dict[str, Model]:
        """The models, by kind and number."""
        return {f"{kind} {n + 1}": self._member(kind, n) for kind in self.kinds for n in range(self.count(kind))}

    def count(self, kind: str) -> int:
        """How many members are of a kind."""
        return int(getattr(self, kind))

    def _member(self, kind: str, number: int) -> Model:
        if kind in PLAIN:
            return Fusion(rule=kind) if kind in ("rrf", "combsum") else model_named(kind)
        settings: dict[str, Any] = {"mode": SERIAL, **CRF[number % len(CRF)]} if kind == "crf" else {}
        settings["validation"] = "given"  # the parts held out also weigh the kinds
        return model_named(kind, settings, seed=int(self.seed) * 1000 + number)

    @staticmethod
    def turn(member: str) -> int:
        """The member's number within its kind, from 0; it decides which part of the labelled queries it holds out."""
        return int(member.rpartition(" ")[2]) - 1

    @staticmethod
    def kind_of(member: str) -> str:
        return member.rpartition(" ")[0]

    def joined(self, learned: Mapping[str, Params], weights: Mapping[str, float]) -> Params:
        """The members' parameters in one dictionary, named 'NAME of MEMBER', and 'weight of KIND'.

        Members of a kind that weighs nothing are left out.
        """
        arrays = {f"weight of {kind}": np.array([weight]) for kind, weight in weights.items()}
        for member, params in learned.items():
            if weights[self.kind_of(member)] > 0.0:
                arrays |= {f"{name} of {member}": value for name, value in params.items()}
        return arrays

    def kind_score(self, chunk: Chunk, kind: str, learned: Mapping[str, Params]) -> Floats:
        """The standardised sum of the members' standardised scores; members without parameters are skipped."""
        total = np.zeros(chunk.n_items)
        for member, model in self.members.items():
            if self.kind_of(member) == kind and member in learned:
                score = model.score(chunk, learned[member])
                total += standardised(chunk, 1.0 / (TOP - score) if kind == "bestinput" else score)
        return standardised(chunk, total)

    def score(self, chunk: Chunk, params: Params) -> Floats:
        learned = _by_member(params)
        weights = {kind: float(params.get(f"weight of {kind}", np.zeros(1))[0]) for kind in self.kinds}
        total = np.zeros(chunk.n_items)
        if not any(weights.values()):  # a model of an earlier version: all members count the same
            for member in learned:
                total += standardised(chunk, self.members[member].score(chunk, learned[member]))
            return total
        for kind, weight in weights.items():
            if weight > 0.0:
                total += weight * self.kind_score(chunk, kind, learned)
        return total


def _by_member(params: Params) -> dict[str, Params]:
    """The parameters of each member, from names 'NAME of MEMBER'."""
    learned: dict[str, Params] = {}
    for key, value in params.items():
        name, _, member = key.rpartition(" of ")
        if name != "weight" or " " in member:
            learned.setdefault(member, {})[name] = value
    return learned
