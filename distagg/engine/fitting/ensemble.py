"""Ensembles: every member is fitted by itself, and holds out another part of the labelled queries."""

from __future__ import annotations

from typing import ClassVar

from distagg.engine.fitting.fit import Trial, fit_each
from distagg.engine.fitting.folds import hold_outs
from distagg.engine.fitting.learner import Learner, Training
from distagg.models import Params
from distagg.models.boosted.blend import Blend


class EnsembleLearner(Learner):
    """The learner of models that have ``members``, ``turn`` and ``joined``, as ``Blend`` has them."""

    name: ClassVar[str] = "ensemble"
    stops_early: ClassVar[bool] = True

    def fit(self, model: Blend, data: Training) -> Params:
        ways = hold_outs(data.train, data.valid)
        trials = [
            Trial(member, *ways[model.turn(name) % len(ways)], data.goal) for name, member in model.members.items()
        ]
        return model.joined(dict(zip(model.members, fit_each(trials, data.runner, data.progress), strict=True)))
