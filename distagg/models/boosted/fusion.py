"""A plain fusion rule whose settings and weights are learned from labels: a member of blend.

An expert's weight is a power of its own metric on the labelled queries. Only the power, the rule's constant or norm,
and the depth of lists are learned, so few labels are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import Model, Params, param
from distagg.models.registry import model_named
from distagg.types import Floats

NORMS = ("rank", "minmax", "sum", "zmuv")  # saved models hold the number of one: append only
CONSTANTS = (1.0, 5.0, 20.0, 60.0, 150.0)
DEPTHS = (10, 20, 50, 100, 200, 500)
POWERS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


@dataclass(frozen=True, kw_only=True)
class Fusion(Model):
    """``rrf`` or ``combsum`` with learned settings. Experts unseen in training are ignored."""

    name: ClassVar[str] = "fusion"
    summary: ClassVar[str] = "a fusion rule with settings and weights from labels"
    paper: ClassVar[str] = "Cormack et al. 2009; Fox & Shaw 1994"
    supervised: ClassVar[bool] = True
    positive: ClassVar[bool] = True
    learner: ClassVar[str] = "fusion"
    unseen: ClassVar[float] = -np.inf  # marks unseen experts: the weights of known ones are finite

    rule: str = param("rrf", "the rule", choices=("rrf", "combsum"))

    @property
    def serial(self) -> bool:
        return True

    @property
    def plain(self) -> Model:
        """The rule with its defaults."""
        return model_named(self.rule)

    def axes(self, longest: int) -> dict[str, tuple[Any, ...]]:
        """The values to try of each setting, for lists of up to ``longest`` entries."""
        own: tuple[str, tuple[Any, ...]] = ("c", CONSTANTS) if self.rule == "rrf" else ("norm", NORMS)
        return {own[0]: own[1], "depth": (*(depth for depth in DEPTHS if depth < longest), 0)}

    def as_params(self, settled: Model, weights: tuple[float, ...]) -> Params:
        """A rule's settings and the weights of its experts as arrays."""
        numbers = {name: getattr(settled, name) for name in self.axes(0)}
        if "norm" in numbers:
            numbers["norm"] = NORMS.index(numbers["norm"]) if numbers["norm"] in NORMS else -1.0  # -1 is auto
        arrays = {name: np.array([float(number)]) for name, number in numbers.items()}
        return {**arrays, "expert_weight": np.array(weights)}

    def settled(self, params: Params) -> Model:
        """The rule with the settings that were learned."""
        settings: dict[str, Any] = {name: float(params[name][0]) for name in self.axes(0)}
        settings["depth"] = int(settings["depth"])
        if "norm" in settings:
            settings["norm"] = NORMS[int(settings["norm"])] if settings["norm"] >= 0 else "auto"
        return replace(self.plain, **settings)

    def score(self, chunk: Chunk, params: Params) -> Floats:
        rule, weight = self.settled(params), params["expert_weight"]
        known = {"expert_weight": np.where(np.isfinite(weight), weight, 0.0)}
        return rule.score(chunk.shallow(rule.depth), known)
