"""What Python users call: fit, solve, rank and evaluate, on data of any kind, in one process or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.dataset.interchange import is_dask
from distagg.engine.compare import DEFAULT_METRICS
from distagg.engine.data import Columns, as_dataset, as_rankings, given, labelled
from distagg.engine.evaluate_runs import evaluate_runs
from distagg.engine.fitting.fit import Goal, Through, tell_pool
from distagg.engine.fitting.fit import fit as fit_params
from distagg.engine.rank import NOTHING_MORE, Result
from distagg.engine.rank import solve as solve_chunks
from distagg.engine.rank_options import Shown
from distagg.engine.runner import Runner, as_runner, runner_for
from distagg.engine.saved import Fitted
from distagg.engine.tracking import OnResult, no_result, tell_fit
from distagg.errors import UsageError
from distagg.metrics import Evaluation, evaluate_rankings
from distagg.models import Model, model_named, reseeded


def fit(
    model: str | Model,
    data: Any,
    *,
    labels: Any = None,
    valid: Any = None,
    columns: Columns = None,
    goal: str = "map",
    protocol: str | None = None,
    seed: int | None = None,
    runner: Runner | None = None,
    on_result: OnResult = no_result,
    **settings: Any,
) -> Fitted:
    """Learn the parameters that a model shares between queries; a model that learns nothing is ready to rank.

    Parameters
    ----------
    model
        A model's name (a key of ``distagg.MODELS``), or a model object.
    data
        The training data, of any kind that ``rank`` takes; supervised models need labels.
    labels
        Relevance judgements: a frame with the columns query, item and label, a dictionary ``{query: {item: label}}``,
        or the path of qrels.
    valid
        Labelled validation data that decide when training stops (rounds, trees), of the same kinds as ``data``, with
        its own labels in it or among ``labels``; default ``data`` itself. Models
        without early stopping (``bestinput``, ``rrf`` with ``c="auto"``, ``theta_sup_mpm``) learn from both.
    columns
        The meaning of columns with other names, ``{"site": "item"}``; the names that TREC, PyTerrier,
        ir_datasets, BEIR, MTEB and ranx use are understood.
    goal
        The metric to optimise on the validation data, such as ``map`` or ``ndcg@5``.
    protocol
        How metrics are computed: ``letor`` or ``trec``; by default ``letor`` for LETOR files, else ``trec``.
    seed
        Seed of random draws: default 0 for a model given by name; a model object keeps its own seed unless this
        replaces it.
    runner
        Where to run: None runs in this process (a Dask collection: on the cluster of the current client); a
        ``distributed.Client`` on its cluster; the context managers ``local_cluster(workers)`` and
        ``remote_cluster(address)`` of ``distagg.engine.dask`` give a runner on a cluster.
    on_result
        Called at the end with a row for trackers: ``model``, ``settings``, ``metrics`` on the validation data,
        ``curve`` (their values after each round), ``seconds``.
    **settings
        The parameters of a model given by name: ``rounds=50``.

    Returns
    -------
    Fitted
        The model, ``params`` (arrays by name) and ``experts``: an argument for ``rank``, ``solve`` and ``explain``.

    >>> import pyarrow as pa
    >>> lists = pa.table({"expert": ["a", "a", "b", "b"], "item": ["x", "y", "y", "x"], "rank": [1, 2, 1, 2]})
    >>> labels = pa.table({"item": ["x", "y"], "label": [1, 0]})
    >>> fitted = fit("bestinput", lists, labels=labels)
    >>> fitted.model.name, fitted.experts
    ('bestinput', ('a', 'b'))
    """
    chosen = _as_model(model, settings, seed)
    dataset = as_dataset(data, columns=columns, labels=labels, covariates=_covariates(chosen), client=_client(runner))
    if valid is not None:
        valid = as_dataset(
            valid, columns=columns, labels=None if isinstance(valid, Dataset) else labels, client=_client(runner)
        )
    tell_pool(chosen, dataset)
    began = time.perf_counter()
    params = fit_params(chosen, dataset, valid=valid, goal=Goal(goal, protocol), runner=runner_for(runner, dataset))
    fitted = Fitted(chosen, params, dataset.experts)
    tell_fit(fitted, goal, time.perf_counter() - began, str(dataset.path or ""), on_result)
    return fitted


def _client(runner: Any) -> Any:
    """The client of the cluster that the caller names, or None."""
    return None if runner is None else as_runner(runner).client


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


def _covariates(model: Model) -> str:
    """The covariates that a model fits, "" for models without them."""
    covariates: str = getattr(model, "covariates", "")
    return covariates


def solve(
    model: str | Model | Fitted,
    data: Any,
    *,
    labels: Any = None,
    columns: Columns = None,
    trace: bool = False,
    top: int = 0,
    shown: Shown = NOTHING_MORE,
    through: Through | None = None,
    allow_unseen: bool = False,
    seed: int | None = None,
    runner: Runner | None = None,
    **settings: Any,
) -> Result:
    """Rank every query and return all that the model reports: uncertainty, item status, convergence of each fit.

    Models that learn without labels learn from the dataset itself; supervised models must be fitted first.

    Parameters
    ----------
    model
        A model's name (a key of ``distagg.MODELS``), a model object, or the result of ``fit``.
    data
        The data to rank, of any kind that ``rank`` takes.
    labels
        Labels, for models with a setting that is learned from them; the kinds are those of ``fit``.
    columns
        The meaning of columns with other names, ``{"site": "item"}``; the names that TREC, PyTerrier,
        ir_datasets, BEIR, MTEB and ranx use are understood.
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
        Where to run: None runs in this process (a Dask collection: on the cluster of the current client); a
        ``distributed.Client`` on its cluster; the context managers ``local_cluster(workers)`` and
        ``remote_cluster(address)`` of ``distagg.engine.dask`` give a runner on a cluster.
    **settings
        The parameters of a model given by name: ``errors="standard"``.

    Returns
    -------
    Result
        ``ranking``, ``fits``, ``experts`` and ``coefficients`` (Arrow tables), ``converged``, ``criterion``.

    >>> import pyarrow as pa
    >>> battles = pa.table({"winner": ["x", "x", "y", "z"], "loser": ["y", "z", "z", "x"]})
    >>> result = solve("mpm", battles)
    >>> result.ranking["item"].to_pylist(), result.converged
    (['x', 'y', 'z'], True)
    """
    dataset = as_dataset(
        data, columns=columns, labels=labels, covariates=_covariates_of(model, settings), client=_client(runner)
    )
    runner = runner_for(runner, dataset)
    model = _fitted(model, dataset, settings, seed, runner)
    return solve_chunks(
        model.model,
        model.params_on(dataset, runner, allow_unseen=allow_unseen),
        dataset,
        runner,
        trace=trace,
        shown=replace(shown, top=top) if top else shown,
        through=through,
    )


def _covariates_of(model: str | Model | Fitted, settings: dict[str, Any]) -> str:
    """The covariates that a model fits, by its object or its settings."""
    own = model.model if isinstance(model, Fitted) else model
    return _covariates(own) if isinstance(own, Model) else str(settings.get("covariates", ""))


def _fitted(
    model: str | Model | Fitted, dataset: Dataset, settings: dict[str, Any], seed: int | None, runner: Runner
) -> Fitted:
    """The model as it ranks: fitted already, or on the dataset if it learns without labels."""
    if isinstance(model, Fitted):
        return replace(model, model=_as_model(model.model, settings, seed))
    chosen = _as_model(model, settings, seed)
    if chosen.needs_labels:
        raise UsageError(f"{chosen.name} must be fitted first: rank(fit({chosen.name!r}, dataset), dataset)")
    return fit(chosen, dataset, runner=runner)


def rank(
    model: str | Model | Fitted,
    data: Any,
    *,
    top: int = 0,
    labels: Any = None,
    columns: Columns = None,
    shown: Shown = NOTHING_MORE,
    allow_unseen: bool = False,
    seed: int | None = None,
    runner: Runner | None = None,
    **settings: Any,
) -> Any:
    """Rankings, best item of each query first, in the kind of frame that the data came in.

    Parameters
    ----------
    model
        A model's name (a key of ``distagg.MODELS``), a model object, or the result of ``fit``.
    data
        The data to rank: a ``Dataset``, a pandas or polars frame, an Arrow table, dataset or stream, anything with
        ``__arrow_c_stream__`` (a DuckDB relation), a dictionary of runs ``{expert: {query: {item: score}}}`` or of
        frames ``{expert: frame}``, or the path of a dataset or of files.
    top
        The number of items to keep of each ranking, its first ones; 0 keeps all.
    labels
        Labels, for models with a setting that is learned from them; the kinds are those of ``fit``.
    columns
        The meaning of columns with other names, ``{"site": "item"}``; the names that TREC, PyTerrier,
        ir_datasets, BEIR, MTEB and ranx use are understood.
    shown
        Additional columns, see ``solve``.
    allow_unseen
        Continue even if more than half of the entries come from experts that the fitted model has not seen.
    seed
        Seed of random draws: default 0 for a model given by name; a model object keeps its own seed unless this
        replaces it.
    runner
        Where to run: None runs in this process (a Dask collection: on the cluster of the current client); a
        ``distributed.Client`` on its cluster; the context managers ``local_cluster(workers)`` and
        ``remote_cluster(address)`` of ``distagg.engine.dask`` give a runner on a cluster.
    **settings
        The parameters of a model given by name: ``c=30``, ``depth=100``, ``weights={"dense": 2}``.

    Returns
    -------
    table, frame or dictionary
        Columns query, item, rank (from 1), score, and those of the model: a pandas frame for pandas, a polars frame for
        polars and its lazy frames, a lazy Dask frame for a Dask frame on a cluster (pandas without a cluster), an Arrow
        table for everything else. For a dictionary of runs one run,
        ``{query: {item: score}}``, best item first. Ids that were whole numbers stay numbers.

    >>> runs = {"bm25": {"cats": {"x": 9.1, "y": 7.5}}, "dense": {"cats": {"y": 0.8, "z": 0.6}}}
    >>> list(rank("rrf", runs)["cats"])
    ['y', 'x', 'z']
    >>> import pyarrow as pa
    >>> lists = pa.table({"expert": ["a", "a", "b", "b"], "item": ["x", "y", "y", "z"], "rank": [1, 2, 1, 2]})
    >>> rank("rrf", lists)["item"].to_pylist()
    ['y', 'x', 'z']
    >>> rank("rrf", lists, weights={"b": 3}, top=2)["item"].to_pylist()
    ['y', 'z']
    """
    what = given(data, columns, labels, _covariates_of(model, settings), _client(runner))
    if is_dask(data) and not isinstance(what.dataset.held[0], Chunk):
        from distagg.engine.collections import rank_on_workers

        place = runner_for(runner, what.dataset)
        known = _fitted(model, what.dataset, settings, seed, place)
        params = known.params_on(what.dataset, place, allow_unseen=allow_unseen)
        shown = replace(shown, top=top) if top else shown
        return rank_on_workers(known.model, params, what.dataset, place, shown, what.kinds)
    result = solve(
        model, what.dataset, top=top, shown=shown, allow_unseen=allow_unseen, seed=seed, runner=runner, **settings
    )
    return what.answer(result.ranking)


def evaluate(
    rankings: Any,
    data: Any,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    columns: Columns = None,
    protocol: str | None = None,
) -> Evaluation:
    """Evaluate rankings: every metric for every query, and the means.

    Parameters
    ----------
    rankings
        The result of ``rank``; any frame or table with the columns query, item, and score or rank; a run
        ``{query: {item: score}}``; or the path of a run or of rankings.
    data
        The labels: a frame with the columns query, item and label, a dictionary ``{query: {item: label}}``, or the path
        of qrels, whose queries all count, ranked or not; or labelled data of any kind that ``rank`` takes.
    metrics
        ``ndcg@10``, ``ndcg(exp)@10``, ``p@3``, ``recall@100``, ``success@1``, ``map``, ``mrr``, ``rprec``, ``bpref``,
        ``infap``, ``f1@5``, ``dcg@10``, ``err``, ``rbp(0.95)``, ``judged@10``, ``tau``; names of trec_eval and
        ir-measures are understood.
    columns
        The meaning of columns with other names, ``{"site": "item"}``; the names that TREC, PyTerrier,
        ir_datasets, BEIR, MTEB and ranx use are understood.
    protocol
        ``letor`` computes metrics as the LETOR scripts do, ``trec`` as trec_eval does; by default the dataset's:
        ``letor`` for LETOR files, else ``trec``.

    Returns
    -------
    Evaluation
        ``means`` (a fraction per metric), ``values`` (a row per query), ``protocol``, ``table()``.

    >>> run, qrels = {"cats": {"x": 0.9, "y": 0.7}}, {"cats": {"x": 0, "y": 1}}
    >>> evaluate(run, qrels, ["map"]).means
    {'map': 0.5}
    """
    truth = labelled(data, columns)
    if isinstance(truth, Dataset) and truth.held and not isinstance(truth.held[0], Chunk):
        from distagg.engine.collections import evaluate_on_workers

        return evaluate_on_workers(rankings, truth, metrics, columns, protocol)
    table = as_rankings(rankings, columns)
    if isinstance(truth, Dataset):
        return evaluate_rankings(table, truth, metrics, protocol=protocol)
    return evaluate_runs({"rankings": table}, truth, metrics, protocol=protocol).runs["rankings"].evaluation
