"""The engine: one loop, any place. These are the functions people call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from distagg.dataset.reader import Dataset
from distagg.engine.compare import DEFAULT_METRICS, compare
from distagg.engine.fit import Goal
from distagg.engine.fit import fit as fit_params
from distagg.engine.importing import import_dataset
from distagg.engine.rank import rank_table
from distagg.engine.runner import Runner
from distagg.engine.saved import Fitted, load_model, save_model
from distagg.errors import UsageError
from distagg.metrics import Evaluation, evaluate_rankings
from distagg.models import Model, model_named


def fit(
    model: str | Model, dataset: Dataset, *, valid: Dataset | None = None, goal: str = "map", protocol: str = "letor",
    runner: Runner | None = None, **settings: Any,
) -> Fitted:  # fmt: skip
    """Learn a model's shared parameters; models that learn nothing are returned ready to rank."""
    chosen = model if isinstance(model, Model) else model_named(model, settings)
    params = fit_params(chosen, dataset, valid=valid, goal=Goal(goal, protocol), runner=runner)
    return Fitted(chosen, params, dataset.experts)


def rank(model: str | Model | Fitted, dataset: Dataset, *, runner: Runner | None = None, **settings: Any) -> pa.Table:
    """Rankings as an Arrow table with columns query, item, rank, score.

    >>> import pyarrow as pa
    >>> lists = pa.table({"expert": ["a", "a", "b", "b"], "item": ["x", "y", "y", "z"], "rank": [1, 2, 1, 2]})
    >>> rank("rrf", Dataset.from_arrow(lists))["item"].to_pylist()
    ['y', 'x', 'z']
    """
    if not isinstance(model, Fitted):
        chosen = model if isinstance(model, Model) else model_named(model, settings)
        if chosen.learns:
            raise UsageError(f"{chosen.name} must be fitted first: rank(fit({chosen.name!r}, dataset), dataset)")
        model = Fitted(chosen, {}, dataset.experts)
    return rank_table(model.model, model.params_for(dataset.experts), dataset, runner)


def evaluate(
    rankings: pa.Table, dataset: Dataset, metrics: Sequence[str] = DEFAULT_METRICS, *, protocol: str = "letor"
) -> Evaluation:
    """Every metric for every query, and their means, of a rankings table."""
    return evaluate_rankings(rankings, dataset, metrics, protocol=protocol)  # type: ignore[arg-type]


__all__ = [
    "Fitted", "compare", "evaluate", "fit", "import_dataset", "load_model", "rank", "save_model",
]  # fmt: skip
