"""weights=auto: weights of experts by coordinate search on labelled queries.

All weights start at 1. A round tries several factors for each expert's weight, all in one pass over the data, then all
the experts' best factors together in a second pass, and keeps what scores best; rounds end when nothing gains.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distagg.errors import UsageError
from distagg.models import Model, Params
from distagg.types import Floats

FACTORS = (0.0, 0.25, 0.5, 0.8, 1.25, 2.0, 4.0)
MOST_ROUNDS = 8
MOST_EXPERTS = 500
GAIN = 1e-9  # of the metric: less is rounding


def weigh(model: Model, params: Params, names: tuple[str, ...], judge: Callable[[list[Params]], Floats]) -> Params:
    """The parameters with ``expert_weight``; ``judge`` gives the metric of each of several parameters."""
    experts = len(names)
    if experts > MOST_EXPERTS:
        raise UsageError(
            f"{model.name} with weights=auto tries a weight for every expert; {experts:,} experts are more than "
            f"{MOST_EXPERTS}; give the weights yourself"
        )

    def with_weights(rows: list[Floats]) -> list[Params]:
        return [{**params, "expert_weight": row} for row in rows]

    best = np.ones(experts)
    value = float(judge(with_weights([best]))[0])
    for _ in range(MOST_ROUNDS):
        rows = [_moved(best, expert, factor) for expert in range(experts) for factor in FACTORS]
        values = judge(with_weights(rows)).reshape(experts, len(FACTORS))
        factor = np.argmax(values, axis=1)
        gains = values.max(axis=1) > value + GAIN
        if not gains.any():
            break
        single = rows[int(values.argmax())]
        together = best.copy()
        for expert in np.flatnonzero(gains):
            together[expert] = _moved(best, int(expert), FACTORS[factor[expert]])[expert]
        joint = float(judge(with_weights([together]))[0]) if together.any() else -np.inf
        best, value = (together, joint) if joint > values.max() else (single, float(values.max()))
    return {**params, "expert_weight": best}


def _moved(weights: Floats, expert: int, factor: float) -> Floats:
    """Weights with one expert's multiplied; a weight of 0 becomes the factor itself."""
    moved = weights.copy()
    moved[expert] = factor * (weights[expert] or 1.0)
    return moved
