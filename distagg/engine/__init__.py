"""The engine: one loop, any place. These are the functions people call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from distagg.dataset.dataset import Dataset
from distagg.engine.compare import DEFAULT_METRICS, compare
from distagg.engine.complete import evaluate_users, fit_completion
from distagg.engine.fitting.fit import Goal, Through
from distagg.engine.fitting.fit import fit as fit_params
from distagg.engine.importing import import_dataset
from distagg.engine.inspect.attribution import explain
from distagg.engine.inspect.features import features
from distagg.engine.inspect.quality import judge_experts
from distagg.engine.rank import NOTHING_MORE, Result
from distagg.engine.rank import solve as solve_chunks
from distagg.engine.rank_options import Shown
from distagg.engine.runner import Runner
from distagg.engine.saved import Fitted, load_model, save_model
from distagg.errors import UsageError
from distagg.metrics import Evaluation, evaluate_rankings
from distagg.models import Model, model_named, reseeded


def fit(
    model: str | Model, dataset: Dataset, *, valid: Dataset | None = None, goal: str = "map",
    protocol: str | None = None, seed: int | None = None, runner: Runner | None = None, **settings: Any,
) -> Fitted:  # fmt: skip
    """Learn a model's shared parameters; models that learn nothing are returned ready to rank.

    Parameters
    ----------
    model
        A model's name (``distagg.MODELS``), or a model.
    dataset
        What to learn from; supervised models need its labels.
    valid
        Labelled data that rounds, trees and such are chosen on; without it, ``dataset`` itself. Models that choose
        nothing of the kind (``bestinput``, ``rrf`` with ``c="auto"``, ``theta_sup_mpm``) learn from both.
    goal
        The metric to choose by, such as ``map`` or ``ndcg@5``.
    protocol
        How metrics are counted: ``letor`` or ``trec``; by default ``letor`` for LETOR files, else ``trec``.
    seed
        Where random draws start from: 0 for a model that is named; a model given as one has a seed of its own, which
        this replaces.
    runner
        Where to run: None is here; ``distagg.engine.dask`` has ``local_cluster(workers)`` and
        ``remote_cluster(address)``, context managers that give one.
    **settings
        The model's parameters, where it is named: ``rounds=50``.

    Returns
    -------
    Fitted
        The model, ``params`` (arrays by name) and ``experts``; ``rank``, ``solve`` and ``explain`` take it.

    >>> import pyarrow as pa
    >>> lists = pa.table({"expert": ["a", "a", "b", "b"], "item": ["x", "y", "y", "x"], "rank": [1, 2, 1, 2]})
    >>> labels = pa.table({"item": ["x", "y"], "label": [1, 0]})
    >>> fitted = fit("bestinput", Dataset.from_arrow(lists, judgements=labels))
    >>> fitted.model.name, fitted.experts
    ('bestinput', ('a', 'b'))
    """
    chosen = _asked_for(model, settings, seed)
    params = fit_params(chosen, dataset, valid=valid, goal=Goal(goal, protocol), runner=runner)
    return Fitted(chosen, params, dataset.experts)


def _asked_for(model: str | Model, settings: dict[str, Any], seed: int | None) -> Model:
    """A model by its name and settings, or a given one, which has settings already."""
    if not isinstance(model, Model):
        return model_named(model, settings, seed=seed or 0)
    if settings:
        raise UsageError(
            f"found settings ({', '.join(sorted(settings))}) for a {model.name} that has its own; "
            f"name the model ('{model.name}') to set its parameters here, or set them where it is made"
        )
    return reseeded(model, seed)


def solve(
    model: str | Model | Fitted, dataset: Dataset, *, trace: bool = False, shown: Shown = NOTHING_MORE,
    through: Through | None = None, allow_unseen: bool = False, seed: int | None = None,
    runner: Runner | None = None, **settings: Any,
) -> Result:  # fmt: skip
    """Rankings with all that the model knows beside them: uncertainty, status, how every query's fit ended.

    Models that learn without labels learn from the dataset itself; others must be fitted first.

    Parameters
    ----------
    model
        A model's name (``distagg.MODELS``), a model, or what ``fit`` gave.
    dataset
        What to rank.
    trace
        Keep the log likelihood after every step, in ``fits``.
    shown
        Asks for more columns: support, titles, a least support, the bootstrap over experts.
    through
        What ``fit_completion`` gives: every user's ratings are completed, and those are ranked.
    allow_unseen
        Go on where more than half of the entries are by experts that a fitted model does not know.
    seed
        Where random draws start from: 0 for a model that is named; a model given as one has a seed of its own, which
        this replaces.
    runner
        Where to run: None is here; ``distagg.engine.dask`` has ``local_cluster(workers)`` and
        ``remote_cluster(address)``, context managers that give one.
    **settings
        The model's parameters, where it is named: ``errors="standard"``.

    Returns
    -------
    Result
        ``ranking`` and ``fits`` (Arrow tables), ``converged``, ``criterion``.

    >>> import pyarrow as pa
    >>> battles = pa.table({"winner": ["x", "x", "y", "z"], "loser": ["y", "z", "z", "x"]})
    >>> result = solve("mpm", Dataset.from_arrow(battles))
    >>> result.ranking["item"].to_pylist(), result.converged
    (['x', 'y', 'z'], True)
    """
    if isinstance(model, Fitted):
        model = replace(model, model=_asked_for(model.model, settings, seed))
    else:
        chosen = _asked_for(model, settings, seed)
        if chosen.needs_labels:
            raise UsageError(f"{chosen.name} must be fitted first: rank(fit({chosen.name!r}, dataset), dataset)")
        model = fit(chosen, dataset, runner=runner)
    return solve_chunks(
        model.model,
        model.params_on(dataset, runner, allow_unseen=allow_unseen),
        dataset,
        runner,
        trace=trace,
        shown=shown,
        through=through,
    )


def rank(
    model: str | Model | Fitted, dataset: Dataset, *, shown: Shown = NOTHING_MORE, allow_unseen: bool = False,
    seed: int | None = None,
    runner: Runner | None = None, **settings: Any,
) -> pa.Table:  # fmt: skip
    """Rankings, best item of each query first.

    Parameters
    ----------
    model
        A model's name (``distagg.MODELS``), a model, or what ``fit`` gave.
    dataset
        What to rank.
    shown
        Asks for more columns, see ``solve``.
    allow_unseen
        Go on where more than half of the entries are by experts that a fitted model does not know.
    seed
        Where random draws start from: 0 for a model that is named; a model given as one has a seed of its own, which
        this replaces.
    runner
        Where to run: None is here; ``distagg.engine.dask`` has ``local_cluster(workers)`` and
        ``remote_cluster(address)``, context managers that give one.
    **settings
        The model's parameters, where it is named: ``c=30``.

    Returns
    -------
    pyarrow.Table
        Columns query, item, rank (from 1), score, and the model's own; ``.to_pandas()`` makes a frame of it.

    >>> import pyarrow as pa
    >>> lists = pa.table({"expert": ["a", "a", "b", "b"], "item": ["x", "y", "y", "z"], "rank": [1, 2, 1, 2]})
    >>> rank("rrf", Dataset.from_arrow(lists))["item"].to_pylist()
    ['y', 'x', 'z']
    """
    return solve(model, dataset, shown=shown, allow_unseen=allow_unseen, seed=seed, runner=runner, **settings).ranking


def evaluate(
    rankings: pa.Table, dataset: Dataset, metrics: Sequence[str] = DEFAULT_METRICS, *, protocol: str | None = None
) -> Evaluation:
    """Every metric for every query, and their means, of a rankings table.

    Parameters
    ----------
    rankings
        Columns query, item and score or rank, such as ``rank`` gives.
    dataset
        Whose labels are the truth.
    metrics
        ``ndcg@5``, ``p@3``, ``map``, ``mrr``, ``err``, ``rbp(0.95)``, ``tau``.
    protocol
        ``letor`` counts as the LETOR scripts, ``trec`` as trec_eval; by default that of the dataset:
        ``letor`` for LETOR files, else ``trec``.

    Returns
    -------
    Evaluation
        ``means`` (a fraction for each metric), ``values`` (a row for each query), ``protocol``, ``table()``.

    >>> import pyarrow as pa
    >>> lists = pa.table({"expert": ["a", "a", "b"], "item": ["x", "y", "y"], "rank": [1, 2, 1], "label": [0, 1, 1]})
    >>> data = Dataset.from_arrow(lists)
    >>> evaluate(rank("rrf", data), data, ["map"]).means
    {'map': 1.0}
    """
    return evaluate_rankings(rankings, dataset, metrics, protocol=protocol)


__all__ = [
    "Fitted", "Result", "Shown", "compare", "evaluate", "evaluate_users", "explain", "features", "fit",
    "fit_completion", "import_dataset", "judge_experts", "load_model", "rank", "save_model", "solve",
]  # fmt: skip
