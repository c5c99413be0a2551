"""``distagg warm``: compile the models' kernels ahead of time, by running the models on small data of every kind.

Use it in container images and on the machines of workers (``cluster/warm.py``). Each model runs with its defaults and
once with every other choice of a parameter, on whole queries, on a query split over experts, and on pairs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from distagg import jit_cache as cache
from distagg.dataset import Dataset, write_dataset
from distagg.engine.api import evaluate, fit, rank
from distagg.engine.complete import fit_completion
from distagg.engine.identity import installed
from distagg.errors import DistaggError, InfrastructureError
from distagg.models import COMPLETIONS, MODELS, Model, NotConvergedWarning, model_named
from distagg.sources.synthetic import SyntheticSource

FEW = {"rounds": 2, "steps": 5, "resamples": 2, "draws": 8, "trees": 2}  # small values for slow parameters
METRICS = ("ndcg@5", "p@3", "map", "mrr", "err", "rbp(0.95)", "tau")


def warm(names: Sequence[str] = (), tell: Callable[[str, float], None] = lambda name, seconds: None) -> Path:
    """Fill the cache for these models, or for all with metrics and completions; returns its folder.

    ``tell`` is called for each finished model with its name and the seconds it took.
    """
    models = [model_named(name) for name in names or MODELS]
    opened = cache.store()
    if opened is None:
        reason = "DISTAGG_CACHE=0" if cache.is_off() else "see above"
        raise InfrastructureError(
            f"no usable cache of compiled kernels ({reason}); set DISTAGG_CACHE_DIR to a private folder"
        )
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        data = _data(Path(folder))
        for model in models:
            began = time.perf_counter()
            if not model.package or installed(model.package) is not None:
                for variant in _variants(model):
                    _run(variant, data)
            tell(model.name, time.perf_counter() - began)
        if not names:
            began = time.perf_counter()
            _measure(data)
            tell("metrics and completions", time.perf_counter() - began)
    if opened.full:
        raise InfrastructureError(f"the cache could not be filled: {opened.full}")
    return opened.folder


def _data(folder: Path) -> list[Dataset]:
    """Datasets of whole queries with labels, of a query split over experts (both on disk), and of pairs."""
    write_dataset(SyntheticSource(queries=12, items=8, shape="mq2008", seed=1), folder / "queries")
    write_dataset(SyntheticSource(queries=1, items=12, experts=40, shape="movielens", seed=1), folder / "crowd")
    won = pa.table({"winner": list("abcadb"), "loser": list("bcadbc"), "tie": [False] * 5 + [True]})
    return [*(Dataset.open(folder / name) for name in ("queries", "crowd")), Dataset.from_arrow(won)]


def _variants(model: Model) -> Iterator[Model]:
    """The model with its defaults, then with each choice of each parameter."""
    fields = {field.name: field for field in dataclasses.fields(model)}
    few = {name: value for name, value in FEW.items() if name in fields}
    yield dataclasses.replace(model, **few)
    for name, field in fields.items():
        choices: tuple[Any, ...] = field.metadata["choices"]
        for choice in (not field.default,) if isinstance(field.default, bool) else choices:
            with contextlib.suppress(DistaggError):  # choices that conflict with the defaults of other parameters
                yield dataclasses.replace(model, **{**few, name: choice})


def _run(model: Model, data: Sequence[Dataset]) -> None:
    """Fit and rank all datasets; those that the model refuses need no kernels."""
    for dataset in data:
        with contextlib.suppress(DistaggError):
            fitted = fit(model, dataset, valid=dataset if model.needs_labels else None)
            rank(fitted, dataset)


def _measure(data: Sequence[Dataset]) -> None:
    queries, crowd, _ = data
    for protocol in ("letor", "trec"):
        evaluate(rank("rrf", queries), queries, METRICS, protocol=protocol)
    for name in COMPLETIONS:
        with contextlib.suppress(DistaggError):
            fit_completion(name, crowd)
