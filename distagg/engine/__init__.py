"""The engine: one loop, any place. These are the functions people call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from distagg.dataset.reader import Dataset
from distagg.engine.compare import DEFAULT_METRICS, compare
from distagg.engine.complete import evaluate_users, fit_completion
from distagg.engine.explain import explain
from distagg.engine.features import features
from distagg.engine.fit import Goal, Through
from distagg.engine.fit import fit as fit_params
from distagg.engine.importing import import_dataset
from distagg.engine.quality import judge_experts
from distagg.engine.rank import solve as solve_chunks
from distagg.engine.result import NOTHING_MORE, Result
from distagg.engine.runner import Runner
from distagg.engine.saved import Fitted, load_model, save_model
from distagg.engine.shown import Shown
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


def solve(
    model: str | Model | Fitted, dataset: Dataset, *, trace: bool = False, shown: Shown = NOTHING_MORE,
    through: Through | None = None, runner: Runner | None = None, **settings: Any,
) -> Result:  # fmt: skip
    """Rankings with all that the model knows beside them: uncertainty, status, how every query's fit ended.

    ``shown`` asks for more: support, titles, a least support, the bootstrap over experts. ``through`` is what
    ``fit_completion`` gives: every user's ratings are completed, and those are ranked.

    Models that learn without labels learn from the dataset itself; others must be fitted first.

    >>> import pyarrow as pa
    >>> battles = pa.table({"winner": ["x", "x", "y", "z"], "loser": ["y", "z", "z", "x"]})
    >>> result = solve("mpm", Dataset.from_arrow(battles))
    >>> result.ranking["item"].to_pylist(), result.converged
    (['x', 'y', 'z'], True)
    """
    if not isinstance(model, Fitted):
        chosen = model if isinstance(model, Model) else model_named(model, settings)
        if chosen.needs_labels:
            raise UsageError(f"{chosen.name} must be fitted first: rank(fit({chosen.name!r}, dataset), dataset)")
        model = fit(chosen, dataset, runner=runner)
    return solve_chunks(
        model.model, model.params_for(dataset.experts), dataset, runner, trace=trace, shown=shown, through=through
    )


def rank(
    model: str | Model | Fitted, dataset: Dataset, *, shown: Shown = NOTHING_MORE, runner: Runner | None = None,
    **settings: Any,
) -> pa.Table:  # fmt: skip
    """Rankings as an Arrow table with columns query, item, rank, score, and the model's own.

    >>> import pyarrow as pa
    >>> lists = pa.table({"expert": ["a", "a", "b", "b"], "item": ["x", "y", "y", "z"], "rank": [1, 2, 1, 2]})
    >>> rank("rrf", Dataset.from_arrow(lists))["item"].to_pylist()
    ['y', 'x', 'z']
    """
    return solve(model, dataset, shown=shown, runner=runner, **settings).ranking


def evaluate(
    rankings: pa.Table, dataset: Dataset, metrics: Sequence[str] = DEFAULT_METRICS, *, protocol: str = "letor"
) -> Evaluation:
    """Every metric for every query, and their means, of a rankings table."""
    return evaluate_rankings(rankings, dataset, metrics, protocol=protocol)  # type: ignore[arg-type]


__all__ = [
    "Fitted", "Result", "Shown", "compare", "evaluate", "evaluate_users", "explain", "features", "fit",
    "fit_completion", "import_dataset", "judge_experts", "load_model", "rank", "save_model", "solve",
]  # fmt: skip
