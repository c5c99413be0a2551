"""Experts by name: per-expert parameters in the order of another dataset, and how many of its experts are unknown."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.reader import Dataset
from distagg.engine.runner import InlineRunner, Runner, Work
from distagg.errors import UsageError
from distagg.models import Model, Params

SHOWN = 12  # names in a message
MANY, MOST = 0.1, 0.5  # share of entries by unknown experts: more is a warning, is refused

log = logging.getLogger("distagg")


def align_experts(model: Model, params: Params, trained: tuple[str, ...], present: tuple[str, ...]) -> Params:
    """Per-expert parameters (named expert_*) in the order of another dataset's experts; unseen ones get model.unseen.

    A dataset all of whose experts are unseen is refused, unless the model has parameters for them (named shared_*) or
    none by expert. Experts that are not there any more are missing everywhere, which every model can take.
    """
    if trained == present:
        return params
    known = {name: index for index, name in enumerate(trained)}
    unseen = _unseen(params, trained, present)
    if unseen and len(unseen) == len(present):
        raise _unfit(f"the model knows none of the dataset's experts: {_named(unseen)}", trained, present)
    where = np.array([known.get(name, -1) for name in present], dtype=np.int64)
    return {
        key: _rows(value, where, model.unseen) if key.startswith("expert_") else value for key, value in params.items()
    }


def check_unseen(
    params: Params, trained: tuple[str, ...], dataset: Dataset, runner: Runner | None = None, *, allow: bool = False
) -> None:
    """Say how many of the dataset's experts the model does not know and what share of entries is theirs.

    More than MANY is a warning; more than MOST is refused, unless that is allowed. Where all experts are known, or the
    model has parameters for others (named shared_*), nothing is said and the data are not read.
    """
    unseen = _unseen(params, trained, dataset.experts)
    if not unseen:
        return
    entries = (runner or InlineRunner()).map_reduce(Work(_count_task, None), dataset.plan(), np.add)
    if entries is None or not entries.sum():
        return
    names = set(unseen)
    share = float(entries[[name in names for name in dataset.experts]].sum() / entries.sum())
    found = (
        f"{len(unseen)} of the dataset's {len(dataset.experts)} experts, with {share:.0%} of its entries, are unknown "
        f"to the model: {_named(unseen)}"
    )
    if share > MOST and not allow:
        raise _unfit(found, trained, dataset.experts, "; or go on all the same with --allow-unseen (allow_unseen)")
    if share > MANY:
        log.warning(f"warning: {found}; it has learned nothing of them")
    else:
        log.info(f"{found}; it has learned nothing of them")


def _count_task(chunk: Chunk, index: int, payload: None) -> np.ndarray:
    """Entries and pairs of every expert."""
    listed = np.bincount(chunk.list_expert, np.diff(chunk.entry_offsets), chunk.n_experts)
    return listed + np.bincount(chunk.pair_expert, minlength=chunk.n_experts)


def _unseen(params: Params, trained: tuple[str, ...], present: tuple[str, ...]) -> list[str]:
    """The experts for whom the model has no parameters."""
    if not any(key.startswith("expert_") for key in params) or any(key.startswith("shared_") for key in params):
        return []
    known = set(trained)
    return [name for name in present if name not in known]


def _unfit(found: str, trained: tuple[str, ...], present: tuple[str, ...], more: str = "") -> UsageError:
    """The error that names the difference."""
    absent = [name for name in trained if name not in set(present)]
    lacking = f"; in the data are missing {_named(absent)}" if absent and len(absent) < len(trained) else ""
    return UsageError(
        f"{found}; it was fitted on {_named(trained)}{lacking}; fit a model on these experts, or crf with "
        f"sharing=mixed, which takes unknown ones{more}"
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _rows(value: np.ndarray, where: np.ndarray, unseen: float) -> np.ndarray:
    seen = (where >= 0).reshape(-1, *[1] * (value.ndim - 1))
    return np.where(seen, value[where], unseen)
