"""Experts by name: per-expert parameters in the order of another dataset."""

from __future__ import annotations

import numpy as np

from distagg.errors import UsageError
from distagg.models import Params


def align_experts(params: Params, trained: tuple[str, ...], present: tuple[str, ...]) -> Params:
    """Per-expert parameters (named expert_*) in the order of another dataset's experts; unseen ones get -inf.

    A dataset of strangers is refused, unless the model has parameters for them (named shared_*) or none by expert.
    """
    if trained == present:
        return params
    known = {name: index for index, name in enumerate(trained)}
    by_expert = any(key.startswith("expert_") for key in params)
    shared = any(key.startswith("shared_") for key in params)
    if by_expert and not shared and not any(name in known for name in present):
        raise UsageError(
            f"the model knows none of the dataset's experts ({', '.join(present[:5])}, ...); "
            f"it was fitted on {', '.join(trained[:5])}, ..."
        )
    where = np.array([known.get(name, -1) for name in present], dtype=np.int64)
    return {key: _rows(value, where) if key.startswith("expert_") else value for key, value in params.items()}


def _rows(value: np.ndarray, where: np.ndarray) -> np.ndarray:
    seen = (where >= 0).reshape(-1, *[1] * (value.ndim - 1))
    return np.where(seen, value[where], -np.inf)
