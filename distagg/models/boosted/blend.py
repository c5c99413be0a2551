"""blend: an ensemble of supervised models, trained separately. The recommendation where there are labels.

Each member's scores are standardised in every query and added up: the errors of different kinds of members (a linear
field over rankings, boosted trees) and of random starts average out. Where training and validation queries are parts of
one dataset, as in folds, members hold out the parts in turn, so that the ensemble learns from all labelled queries and
every member has held-out ones for early stopping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Model, param
from distagg.models.boosted.model import standardised
from distagg.models.registry import model_named
from distagg.models.rounds import Params
from distagg.types import Floats

CRF: tuple[dict[str, Any], ...] = (
    {},
    {"pairs": "log+binary"},
    {"pairs": "log+binary", "metric": "err"},
)  # taken in turn


@dataclass(frozen=True, kw_only=True)
class Blend(Model):
    """An ensemble: its parameters are the numbers of members of each kind, which differ in their seeds."""

    name: ClassVar[str] = "blend"
    summary: ClassVar[str] = "several crf and lambdamart (or lambdarank) together: the most accurate with labels"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, sections 3.5 and 3.6"
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
    lambdarank: int = param(0, "members that are lambdarank", least=0)
    seed: int = param(0, "seed of all random draws", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.crf + self.lambdamart + self.lambdarank:
            raise UsageError("blend has no members; raise crf, lambdamart or lambdarank")

    @property
    def members(self) -> dict[str, Model]:
        """The models, by name and number."""
        seeds = [int(self.seed) * 1000 + n for n in range(int(max(self.crf, self.lambdamart, self.lambdarank)))]
        return {
            **{f"crf {n + 1}": model_named("crf", CRF[n % len(CRF)], seed=seeds[n]) for n in range(int(self.crf))},
            **{f"lambdamart {n + 1}": model_named("lambdamart", seed=seeds[n]) for n in range(int(self.lambdamart))},
            **{f"lambdarank {n + 1}": model_named("lambdarank", seed=seeds[n]) for n in range(int(self.lambdarank))},
        }

    @staticmethod
    def turn(member: str) -> int:
        """The number of a member among its kind, from 0: which part of the labelled queries it holds out."""
        return int(member.rpartition(" ")[2]) - 1

    def joined(self, learned: dict[str, Params]) -> Params:
        """The members' parameters in one dictionary, named 'NAME of MEMBER'."""
        return {f"{name} of {member}": value for member, params in learned.items() for name, value in params.items()}

    def score(self, chunk: Chunk, params: Params) -> Floats:
        total = np.zeros(chunk.n_items)
        for member, model in self.members.items():
            tail = f" of {member}"
            own = {name.removesuffix(tail): value for name, value in params.items() if name.endswith(tail)}
            total += standardised(chunk, model.score(chunk, own))
        return total
