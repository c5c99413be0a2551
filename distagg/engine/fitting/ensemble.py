"""Ensembles: every member is fitted by itself, and holds out another part of the labelled queries."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import ClassVar

from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.cross import teaching_queries
from distagg.engine.fitting.fit import Trial, fit_each
from distagg.engine.fitting.folds import hold_outs, in_turn
from distagg.engine.fitting.learner import Learner, Training
from distagg.engine.fitting.stack import HeldOut, choose_weights
from distagg.models import Params
from distagg.models.boosted.blend import PLAIN, Blend
from distagg.models.positional.semi import MOST_EXPERTS

log = logging.getLogger("distagg")

LEAST = 2  # queries with different labels that a part must have to be held out

Way = tuple[Dataset, Dataset | None]


class EnsembleLearner(Learner):
    """The learner of ``Blend``.

    Trained members hold out the parts in turn. Plain ones learn from all labelled queries; to weigh them they are
    fitted once more without each part that every kind of trained member holds out.
    """

    name: ClassVar[str] = "ensemble"
    stops_early: ClassVar[bool] = True

    def fit(self, model: Blend, data: Training) -> Params:
        if data.train.manifest.experts > MOST_EXPERTS:
            model = replace(model, ssra=False)
        items, asked = data.train.manifest.query_sizes["median"], model
        model = asked.for_size(items)
        if model != asked:
            log.info(
                f"{model.name}: half of the queries have {items:,} items or more; at most {model.large} members of "
                "each kind are trained (large=0: all)"
            )
        ways = self._ways(data)
        members = model.members
        covered = min([len(ways), *(model.count(kind) for kind in model.kinds if kind not in PLAIN)])
        judged = [(n, *way) for n, way in enumerate(ways[:covered]) if way[1] is not None and len(model.kinds) > 1]
        plain = [name for name in members if model.kind_of(name) in PLAIN]
        trials: dict[tuple[str, int], Trial] = {}
        for name, member in members.items():
            way = (data.train, data.valid) if name in plain else ways[model.turn(name) % len(ways)]
            trials[name, -1] = Trial(member, *way, data.goal)
            if name in plain:
                trials |= {(name, n): Trial(member, train, None, data.goal) for n, train, _ in judged}
        fitted = dict(zip(trials, fit_each(list(trials.values()), data.runner, data.progress), strict=True))

        def held_out(part: int) -> dict[str, Params]:
            """The members that did not learn from a part."""
            trained = {name: fitted[name, -1] for name in members if name not in plain}
            own = {name: params for name, params in trained.items() if model.turn(name) % len(ways) == part}
            return {name: fitted[name, part] for name in plain} | own

        parts = [HeldOut(valid, held_out(n)) for n, _, valid in judged if valid is not None]
        weights = choose_weights(model, parts, data.goal, data.runner)
        return model.joined({name: fitted[name, -1] for name in members}, weights)

    def _ways(self, data: Training) -> list[Way]:
        """Ways to divide the labelled queries; without validation queries, five parts of the training queries."""
        if data.valid is not None:
            return hold_outs(data.train, data.valid)
        parts = in_turn(data.train)
        if all(teaching_queries(part, data.runner) >= LEAST for _, part in parts):
            return list(parts)
        return [(data.train, None)]
