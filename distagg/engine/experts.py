"""Experts by name: per-expert parameters in the order of another dataset."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distagg.errors import UsageError
from distagg.models import Params

SHOWN = 12  # names in a message


def align_experts(
    params: Params, trained: tuple[str, ...], present: tuple[str, ...], *, strangers: bool = True
) -> Params:
    """Per-expert parameters (named expert_*) in the order of another dataset's experts; unseen ones get -inf.

    A dataset of strangers is refused, unless the model has parameters for them (named shared_*) or none by expert;
    without ``strangers`` (see ``Model.takes_strangers``) so is one that brings any. Experts that are not there any more
    are missing everywhere, which every model can take.
    """
    if trained == present:
        return params
    known = {name: index for index, name in enumerate(trained)}
    by_expert = any(key.startswith("expert_") for key in params)
    shared = any(key.startswith("shared_") for key in params)
    strange = [name for name in present if name not in known]
    if by_expert and not shared and strange and (len(strange) == len(present) or not strangers):
        raise _unfit(trained, present, strange)
    where = np.array([known.get(name, -1) for name in present], dtype=np.int64)
    return {key: _rows(value, where) if key.startswith("expert_") else value for key, value in params.items()}


def _unfit(trained: tuple[str, ...], present: tuple[str, ...], strange: list[str]) -> UsageError:
    """The error that names the difference."""
    absent = [name for name in trained if name not in set(present)]
    some = f"{len(strange)} of the dataset's {len(present)} experts are unknown to the model: {_named(strange)}"
    found = some if len(strange) < len(present) else f"the model knows none of the dataset's experts: {_named(strange)}"
    lacking = f"; in the data are missing {_named(absent)}" if absent and len(absent) < len(trained) else ""
    return UsageError(
        f"{found}; it was fitted on {_named(trained)}{lacking}; fit a model on these experts, or crf with "
        "sharing=mixed, which takes unknown ones"
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _rows(value: np.ndarray, where: np.ndarray) -> np.ndarray:
    seen = (where >= 0).reshape(-1, *[1] * (value.ndim - 1))
    return np.where(seen, value[where], -np.inf)
