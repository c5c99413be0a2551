"""Learn a plain fusion rule: settings, and weights that are a power of each expert's own metric.

A coordinate search over the power and each setting, from the rule as it is; every sweep keeps what scores best on all
labelled queries, and sweeps end when none gains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from distagg.engine.fitting.learner import Learner, Training, check_whole
from distagg.engine.fitting.tune.climb import GAIN, SWEEPS
from distagg.engine.fitting.tune.judge import Ask, longest_list
from distagg.engine.fitting.weigh import judged_together
from distagg.errors import UsageError
from distagg.models import Model, Params
from distagg.models.boosted.fusion import POWERS, Fusion
from distagg.types import Floats

DIGITS = 4  # of weights


class FusionLearner(Learner):
    """The learner of ``Fusion``."""

    name: ClassVar[str] = "fusion"

    def fit(self, model: Fusion, data: Training) -> Params:
        datasets = [data.train] if data.judged == data.train else [data.train, data.judged]
        for dataset in datasets:
            check_whole(model, dataset)
        sums, experts = judged_together(datasets, data.goal, data.runner), len(data.train.experts)

        def means(asks: Sequence[Ask]) -> Floats:
            total = np.concatenate(sums(asks))[:, :, 0]
            if not total[:, 1].any():
                raise UsageError(f"no labelled query to tune {model.rule} on")
            return np.asarray(total[:, 0] / np.maximum(total[:, 1], 1.0))

        alone = means([Ask(model.plain, tuple(np.eye(1, experts, expert)[0].tolist())) for expert in range(experts)])
        share = np.maximum(alone, 0.0) / max(float(alone.max()), np.finfo(float).tiny)
        weights = {power: tuple(np.round(share**power, DIGITS).tolist()) for power in POWERS}
        axes = model.axes(max(longest_list(dataset, data.runner) for dataset in datasets))
        rule, power = _climb(model.plain, axes, lambda tried: means([Ask(rule, weights[at]) for rule, at in tried]))
        return model.as_params(rule, weights[power])


Tried = tuple[Model, float]  # a rule and the power of its weights


def _climb(rule: Model, axes: dict[str, tuple[object, ...]], values: Callable[[Sequence[Tried]], Floats]) -> Tried:
    best: Tried = (rule, 0.0)
    reached = float(values([best])[0])
    for _ in range(SWEEPS):
        before = reached
        for axis in ("power", *axes):
            tried: list[Tried] = [(best[0], power) for power in POWERS]
            if axis != "power":
                changes = [{axis: value} for value in axes[axis]]
                tried = [(dataclasses.replace(best[0], **change), best[1]) for change in changes]  # type: ignore[arg-type]
            found = values(tried)
            if found.max() > reached + GAIN:
                best, reached = tried[int(np.argmax(found))], float(found.max())
        if reached <= before + GAIN:
            break
    return best
