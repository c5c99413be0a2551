"""The engine's public functions: fit, rank, solve, evaluate and compare, in one process or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from distagg.dataset.dataset import Dataset
from distagg.engine.compare import DEFAULT_METRICS, compare
from distagg.engine.complete import evaluate_users, fit_completion
from distagg.engine.evaluate_runs import RunsEvaluation, evaluate_runs
from distagg.engine.fitting.fit import Goal, Through
from distagg.engine.fitting.fit import fit as fit_params
from distagg.engine.importing import import_dataset
from distagg.engine.inspect.attribution import explain
from distagg.engine.inspect.describe import features
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
    """Learn the parameters that a model shares between queries; a model that learns nothing is ready to rank.

    Parameters
    ----------
    model
        A model's name (a key of ``distagg.MODELS``), or a model object.
    dataset
        The training data; supervised models need labels in it.
    valid
        Labelled validation data that decide when training stops (rounds, trees); default ``dataset`` itself. Models
        without early stopping (``bestinput``, ``rrf`` with ``c="auto"``, ``theta_sup_mpm``) learn from both.
    goal
        The metric to optimise on the validation data, such as ``map`` or ``ndcg@5``.
    protocol
        How metrics are computed: ``letor`` or ``trec``; by default ``letor`` for LETOR files, else ``trec``.
    seed
        Seed of random draws: default 0 for a model given by name; a model object keeps its own seed unless this
        replaces it.
    runner
        Where to run: None runs in this process; the context managers ``local_cluster(workers)`` and
        ``remote_cluster(address)`` of ``distagg.engine.dask`` give a runner on a cluster.
    **settings
        The parameters of a model given by name: ``rounds=50``.

    Returns
    -------
    Fitted
        The model, ``params`` (arrays by name) and ``experts``: an argument for ``rank``, ``solve`` and ``explain``.

    >>> import pyarrow as pa
    >>> lists = pa.table({"expert": ["a", "a", "b", "b"], "item": ["x", "y", "y", "x"], "rank": [1, 2, 1, 2]})
    >>> labels = pa.table({"item": ["x", "y"], "label": [1, 0]})
    >>> fitted = fit("bestinput", Dataset.from_arrow(lists, judgements=labels))
    >>> fitted.model.name, fitted.experts
    ('bestinput', ('a', 'b'))
    """
    chosen = _as_model(model, settings, seed)
    params = fit_params(chosen, dataset, valid=valid, goal=Goal(goal, protocol), runner=runner)
    return Fitted(chosen, params, dataset.experts)


def _as_model(model: str | Model, settings: dict[str, Any], seed: int | None) -> Model:
    """The model object of a name and settings, or the model object given, which must come without settings."""
    if not isinstance(model, Model):
        return model_named(model, settings, seed=seed or 0)
    if settings:
        raise UsageError(
            f"found settings ({', '.join(sorted(settings))}) for a {model.name} object, which has its own; "
            f"pass the name '{model.name}' to set parameters here, or set them when you construct the model"
        )
    return reseeded(model, seed)


def solve(
    model: str | Model | Fitted, dataset: Dataset, *, trace: bool = False, top: int = 0, shown: Shown = NOTHING_MORE,
    through: Through | None = None, allow_unseen: bool = False, seed: int | None = None,
    runner: Runner | None = None, **settings: Any,
) -> Result:  # fmt: skip
    """Rank every query and return all that the model reports: uncertainty, item status, convergence of each fit.

    Models that learn without labels learn from the dataset itself; supervised models must be fitted first.

    Parameters
    ----------
    model
        A model's name (a key of ``distagg.MODELS``), a model object, or the result of ``fit``.
    dataset
        The data to rank.
    trace
        Record the log likelihood after every step, in ``fits``.
    top
        The number of items to keep of each ranking, its first ones; 0 keeps all.
    shown
        Additional columns: support, titles, a minimum support, the bootstrap over experts.
    through
        The result of ``fit_completion``: every user's ratings are completed first, then ranked.
    allow_unseen
        Continue even if more than half of the entries come from experts that the fitted model has not seen.
    seed
        Seed of random draws: default 0 for a model given by name; a model object keeps its own seed unless this
        replaces it.
    runner
        Where to run: None runs in this process; the context managers ``local_cluster(workers)`` and
        ``remote_cluster(address)`` of ``distagg.engine.dask`` give a runner on a cluster.
    **settings
        The parameters of a model given by name: ``errors="standard"``.

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
        model = replace(model, model=_as_model(model.model, settings, seed))
    else:
        chosen = _as_model(model, settings, seed)
        if chosen.needs_labels:
            raise UsageError(f"{chosen.name} must be fitted first: rank(fit({chosen.name!r}, dataset), dataset)")
        model = fit(chosen, dataset, runner=runner)
    return solve_chunks(
        model.model,
        model.params_on(dataset, runner, allow_unseen=allow_unseen),
        dataset,
        runner,
        trace=trace,
        shown=replace(shown, top=top) if top else shown,
        through=through,
    )


def rank(
    model: str | Model | Fitted, dataset: Dataset, *, top: int = 0, shown: Shown = NOTHING_MORE,
    allow_unseen: bool = False, seed: int | None = None,
    runner: Runner | None = None, **settings: Any,
) -> pa.Table:  # fmt: skip
    """Rankings, best item of each query first.

    Parameters
    ----------
    model
        A model's name (a key of ``distagg.MODELS``), a model object, or the result of ``fit``.
    dataset
        The data to rank.
    top
        The number of items to keep of each ranking, its first ones; 0 keeps all.
    shown
        Additional columns, see ``solve``.
    allow_unseen
        Continue even if more than half of the entries come from experts that the fitted model has not seen.
    seed
        Seed of random draws: default 0 for a model given by name; a model object keeps its own seed unless this
        replaces it.
    runner
        Where to run: None runs in this process; the context managers ``local_cluster(workers)`` and
        ``remote_cluster(address)`` of ``distagg.engine.dask`` give a runner on a cluster.
    **settings
        The parameters of a model given by name: ``c=30``, ``depth=100``, ``weights={"dense": 2}``.

    Returns
    -------
    pyarrow.Table
        Columns query, item, rank (from 1), score, and those of the model; ``.to_pandas()`` converts it to a frame.

    >>> import pyarrow as pa
    >>> lists = pa.table({"expert": ["a", "a", "b", "b"], "item": ["x", "y", "y", "z"], "rank": [1, 2, 1, 2]})
    >>> rank("rrf", Dataset.from_arrow(lists))["item"].to_pylist()
    ['y', 'x', 'z']
    >>> rank("rrf", Dataset.from_arrow(lists), weights={"b": 3}, top=2)["item"].to_pylist()
    ['y', 'z']
    """
    return solve(
        model, dataset, top=top, shown=shown, allow_unseen=allow_unseen, seed=seed, runner=runner, **settings
    ).ranking


def evaluate(
    rankings: pa.Table, dataset: Dataset, metrics: Sequence[str] = DEFAULT_METRICS, *, protocol: str | None = None
) -> Evaluation:
    """Evaluate a table of rankings: every metric for every query, and the means.

    Parameters
    ----------
    rankings
        A table with the columns query, item, and score or rank, such as the result of ``rank``.
    dataset
        The dataset that holds the labels.
    metrics
        ``ndcg@5``, ``p@3``, ``map``, ``mrr``, ``err``, ``rbp(0.95)``, ``tau``.
    protocol
        ``letor`` computes metrics as the LETOR scripts do, ``trec`` as trec_eval does; by default the dataset's:
        ``letor`` for LETOR files, else ``trec``.

    Returns
    -------
    Evaluation
        ``means`` (a fraction per metric), ``values`` (a row per query), ``protocol``, ``table()``.

    >>> import pyarrow as pa
    >>> lists = pa.table({"expert": ["a", "a", "b"], "item": ["x", "y", "y"], "rank": [1, 2, 1], "label": [0, 1, 1]})
    >>> data = Dataset.from_arrow(lists)
    >>> evaluate(rank("rrf", data), data, ["map"]).means
    {'map': 1.0}
    """
    return evaluate_rankings(rankings, dataset, metrics, protocol=protocol)


__all__ = [
    "Fitted", "Result", "RunsEvaluation", "Shown", "compare", "evaluate", "evaluate_runs", "evaluate_users", "explain",
    "features", "fit", "fit_completion", "import_dataset", "judge_experts", "load_model", "rank", "save_model", "solve",
]  # fmt: skip
