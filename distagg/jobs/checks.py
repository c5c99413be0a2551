"""What the fields of a step must be together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from distagg.dataset.place import is_found
from distagg.dataset.reader import Dataset
from distagg.engine.fit import check_fits
from distagg.engine.folds import make_folds
from distagg.engine.search import variants
from distagg.errors import DistaggError, UsageError, unknown
from distagg.models import Model, is_model, model_named

if TYPE_CHECKING:
    from distagg.jobs.spec import Step


def check_step(step: Step, where: str, before: Sequence[Step], seed: int) -> None:
    """Refuse settings that no model takes, fields that do not go together, and data that cannot do."""
    checks = {
        "import": _import,
        "fit": _fit,
        "rank": _rank,
        "compare": _compare,
        "evaluate": _evaluate,
        "scale": _scale,
    }
    if step.do in checks:
        checks[step.do](step.values, where, seed)


def _import(values: dict[str, Any], where: str, seed: int) -> None:
    for key in ("qrels", "expert", "by"):
        if key in values and values["source"] != "trec":
            raise UsageError(f'{where}.{key}: belongs to source = "trec", and the source is {values["source"]}')


def _fit(values: dict[str, Any], where: str, seed: int) -> None:
    models = _at(
        f"{where}.settings", lambda: variants(values["model"], values["settings"], tries=values.get("tries"), seed=seed)
    )
    chosen_on = [key for key in ("valid", "folds") if key in values]
    if len(models) > 1 and len(chosen_on) != 1:
        raise UsageError(f"{where}.settings: to choose from several, give either valid or folds")
    if "folds" in values and len(models) == 1:
        raise UsageError(f"{where}.folds: there is one setting only, and nothing to choose by folds")
    dataset = _opened(values["dataset"])
    if dataset is not None:
        _fits(f"{where}.dataset", models[0], dataset)
        _check_folds(values, where, dataset)
        if models[0].needs_labels and not dataset.manifest.labels:
            raise UsageError(f"{where}.dataset: has no labels, and {values['model']} learns from them")


def _rank(values: dict[str, Any], where: str, seed: int) -> None:
    if not is_model(values["model"]):
        if values["settings"]:
            raise UsageError(f"{where}.settings: a fitted model has its parameters already; they belong to its fit")
        return
    model = _at(f"{where}.settings", lambda: model_named(values["model"], values["settings"], seed=seed))
    if model.needs_labels:
        raise UsageError(f'{where}.model: {model.name} must be fitted first, by a step with do = "fit"')
    dataset = _opened(values["dataset"])
    if dataset is not None:
        _fits(f"{where}.dataset", model, dataset)


def _evaluate(values: dict[str, Any], where: str, seed: int) -> None:
    dataset = _opened(values["dataset"])
    if dataset is not None and not dataset.manifest.labels:
        raise UsageError(f"{where}.dataset: has no labels to evaluate against")


def _compare(values: dict[str, Any], where: str, seed: int) -> None:
    _evaluate(values, where, seed)
    dataset = _opened(values["dataset"])
    for name in values["settings"]:
        if name not in values["models"]:
            raise UsageError(f"{where}.settings: {unknown('model', name, values['models'])}")
        if not isinstance(values["settings"][name], dict):
            raise UsageError(f"{where}.settings.{name}: expected a table of the model's parameters")
    for name in values["models"]:
        made = values["settings"].get(name, {})
        group = _at(f"{where}.settings.{name}", lambda made=made, name=name: variants(  # type: ignore[misc]
            name, made, tries=values.get("tries"), seed=seed))  # fmt: skip
        if "folds" not in values and (len(group) > 1 or group[0].needs_labels):
            raise UsageError(f"{where}.folds: is missing, and {name} learns from labels or has settings to choose from")
        if dataset is not None:
            _fits(f"{where}.models", group[0], dataset)
    if "baseline" in values and values["baseline"] not in values["models"]:
        raise UsageError(f"{where}.baseline: {unknown('baseline', values['baseline'], values['models'])}")
    if dataset is not None:
        _check_folds(values, where, dataset)


def _scale(values: dict[str, Any], where: str, seed: int) -> None:
    model = model_named(values["model"])
    if model.learns:
        raise UsageError(f"{where}.model: {model.name} must be fitted, and what is measured is a pass without; try rrf")
    if 2 not in values["workers"]:
        raise UsageError(f"{where}.workers: found {values['workers']}, expected 2 among them")
    dataset = _opened(values["dataset"]) if "dataset" in values else None
    if dataset is not None:
        _fits(f"{where}.dataset", model, dataset)
        if dataset.manifest.partition != "query":
            raise UsageError(f"{where}.dataset: is partitioned by expert; scaling is measured on whole queries")


def _check_folds(values: dict[str, Any], where: str, dataset: Dataset) -> None:
    if "folds" in values:
        _at(f"{where}.folds", lambda: make_folds(dataset, values["folds"]))


def _fits(where: str, model: Model, dataset: Dataset) -> None:
    _at(where, lambda: check_fits(model, dataset))


def _opened(reference: str) -> Dataset | None:
    """The dataset at a path; those that steps make are not there yet."""
    return Dataset.open(reference) if is_found(reference) else None


def _at(where: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except DistaggError as error:
        raise UsageError(f"{where}: {error}") from error
