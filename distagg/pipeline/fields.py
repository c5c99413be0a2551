"""Every field of a job file: its kind, default and help text; and the checks of fields that depend on each other.

Reading, checking and the JSON schema all use these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from distagg.dataset.dataset import CHUNK_ENTRIES, Dataset
from distagg.engine.fitting.fit import check_fits
from distagg.engine.fitting.folds import make_folds
from distagg.engine.fitting.search import variants
from distagg.engine.fitting.tune import rule_named
from distagg.engine.importing import OWNERS
from distagg.engine.leaderboard import board_model
from distagg.errors import DistaggError, UsageError, unknown
from distagg.models import Model, completion_named, is_model, model_named
from distagg.pipeline.step_options import KINDS, OPTIONS, REQUIRED, Field, with_shortcuts
from distagg.storage.paths import is_found

if TYPE_CHECKING:
    from distagg.pipeline.spec import Step


TOP = {
    "name": Field("name", "the name of the job: letters, digits, dots, dashes"),
    "runs": Field("text", "the folder for run directories", "runs"),
    "keep": Field("whole", "the number of finished runs to keep, newest first (default: all)", None, least=1),
    "seed": Field("whole", "seed of all random numbers", 0, least=0),
    "place": Field("table", "where to run: workers or scheduler", {}),
    "checkpoints": Field("table", "how often to save the state of training", {}),
    "steps": Field("table", "the steps, in order"),
}
PLACE = {
    "workers": Field("whole", "local worker processes; 0 runs in the driver", 0, least=0),
    "scheduler": Field("text", "address of a Dask cluster, instead of workers", None),
    "memory": Field("size", "memory of each local worker, such as 4GB (default: no limit)", None),
}
CHECKPOINTS = {
    "rounds": Field("whole", "save after this many rounds", 10, least=1),
    "seconds": Field("number", "or after this many seconds, whichever comes first", 30.0, least=0),
}
_DATASET = Field("dataset", "a dataset: the name of an earlier step, or a path")
_OWN: dict[str, dict[str, Field]] = {  # fields that are arguments of the command, or that only jobs have
    "import": {
        "source": Field("choice", "the format of the files", choices=KINDS),
        "files": Field("paths", "files, directories of files, or patterns such as runs/*.run.gz"),
    },
    "expand": {"dataset": _DATASET},
    "fit": {"model": Field("model", "a model's name"), "dataset": _DATASET},
    "tune": {"dataset": _DATASET},
    "rank": {
        "model": Field("ranker", "a model's name, an earlier fit or tune step, or the path of a fitted model"),
        "dataset": _DATASET,
        "chunk_entries": Field("whole", "approximate number of entries in a part", CHUNK_ENTRIES, least=1),
    },
    "evaluate": {
        "rankings": Field("rankings", "an earlier rank step, or the path of rankings"),
        "dataset": _DATASET,
    },
    "compare": {"dataset": _DATASET},
    "board": {"dataset": _DATASET},
}
STEPS: dict[str, dict[str, Field]] = {
    do: own | {name: field for name, field in OPTIONS[do].items() if (do, name) != ("import", "kind")}  # it is source
    for do, own in _OWN.items()
}
STEPS["scale"] = {
    "dataset": Field("dataset", "the data to measure on (default: synthetic data shaped like MQ2008-agg)", None),
    "queries": Field("whole", "number of synthetic queries", 800, least=1),
    "model": Field("model", "the model to run; one that needs no fit", "rrf"),
    "workers": Field("counts", "numbers of local workers; must include 2", [1, 2, 4]),
    "grow": Field("whole", "replicate each expert this many times when workers or chunks vary", 40, least=1),
    "times": Field("counts", "replicate experts, and items, this many times, on 2 workers", [1, 2, 4, 8]),
    "chunks": Field("counts", "entries per chunk, on 2 workers", [1 << 14, 1 << 16, 1 << 18, 1 << 20]),
    "repeats": Field("whole", "repeats of every pass and simulated round", 5, least=1),
    "simulated": Field("counts", "numbers of simulated workers", [10, 30, 100]),
    "simulated_entries": Field("whole", "entries of a simulated round", 10**9, least=1),
    "simulated_chunks": Field("counts", "entries per chunk of a simulated round", [1 << 17, 1 << 20, 1 << 23]),
}
MAKES = {"import": "dataset", "expand": "dataset", "fit": "model", "tune": "model", "rank": "rankings"}

_JSON: dict[str, dict[str, Any]] = {
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "table": {"type": "object"},
    "settings": {"type": "object"},
    "columns": {"type": "object"},
    "interval": {"type": ["string", "array"]},
    "paths": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "metrics": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "models": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "folds": {"type": ["string", "integer"]},
    "counts": {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1},
}


def json_schema() -> dict[str, Any]:
    """The JSON schema of job files, for editors.

    >>> json_schema()["required"]
    ['name', 'steps']
    """
    kinds = [
        {**_object({"do": Field("choice", "what the step does", choices=(kind,)), **fields}), "title": kind}
        for kind, fields in STEPS.items()
    ]
    top = _object(TOP)
    top["properties"] |= {"place": _object(PLACE), "checkpoints": _object(CHECKPOINTS)}
    top["properties"]["steps"] = {"type": "object", "minProperties": 1, "additionalProperties": {"oneOf": kinds}}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "distagg job", **top}


def _object(fields: dict[str, Field]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name, field in fields.items() if field.default is REQUIRED],
        "properties": {name: _property(field) for name, field in fields.items()},
    }


def _property(field: Field) -> dict[str, Any]:
    schema: dict[str, Any] = {**_JSON.get(field.kind, {"type": "string"}), "description": field.help}
    if field.choices:
        schema["enum"] = list(field.choices)
    if field.least is not None:
        schema["minimum"] = field.least
    if field.default is not REQUIRED and field.default is not None:
        schema["default"] = field.default
    return schema


def check_step(step: Step, where: str, before: Sequence[Step], seed: int) -> None:
    """Refuse settings that the model does not have, fields that exclude each other, and unsuitable data."""
    checks = {
        "import": _import,
        "fit": _fit,
        "tune": _tune,
        "rank": _rank,
        "compare": _compare,
        "evaluate": _evaluate,
        "board": _board,
        "scale": _scale,
    }
    if step.do in checks:
        checks[step.do](step.values, where, seed)


def _import(values: dict[str, Any], where: str, seed: int) -> None:
    for key, kinds in OWNERS.items():
        if key in values and values["source"] not in kinds:
            raise UsageError(
                f"{where}.{key}: applies to source {' or '.join(kinds)}, but the source is {values['source']}"
            )


def _fit(values: dict[str, Any], where: str, seed: int) -> None:
    models = _at(
        f"{where}.settings", lambda: variants(values["model"], values["settings"], tries=values.get("tries"), seed=seed)
    )
    chosen_on = [key for key in ("valid", "folds") if key in values]
    if len(models) > 1 and len(chosen_on) != 1:
        raise UsageError(f"{where}.settings: to choose from several, give either valid or folds")
    if "folds" in values and len(models) == 1:
        raise UsageError(f"{where}.folds: folds choose among several settings, but there is only one; omit folds")
    dataset = _opened(values["dataset"])
    if dataset is not None:
        _fits(f"{where}.dataset", models[0], dataset)
        _check_folds(values, where, dataset)
        if models[0].needs_labels and not dataset.manifest.labels:
            raise UsageError(f"{where}.dataset: has no labels, and {values['model']} learns from them")


def _tune(values: dict[str, Any], where: str, seed: int) -> None:
    _evaluate(values, where, seed)
    dataset = _opened(values["dataset"])
    for name in values["models"]:
        model = _at(f"{where}.models", lambda name=name: rule_named(name))  # type: ignore[misc]
        if dataset is not None:
            _fits(f"{where}.models", model, dataset)
    if dataset is not None:
        _check_folds(values, where, dataset)


def _rank(values: dict[str, Any], where: str, seed: int) -> None:
    _completion(values, where, seed)
    if values["bootstrap"] and values["chunk_entries"] != CHUNK_ENTRIES:
        raise UsageError(f"{where}.chunk_entries: bootstrap draws are made by chunks of the usual size; omit it")
    if not is_model(values["model"]):
        if values["settings"]:
            raise UsageError(f"{where}.settings: a fitted model has its parameters already; set them in its fit step")
        return
    model = _at(f"{where}.settings", lambda: model_named(values["model"], values["settings"], seed=seed))
    if model.needs_labels:
        raise UsageError(f'{where}.model: {model.name} must be fitted first, by a step with do = "fit"')
    dataset = _opened(values["dataset"])
    if dataset is not None:
        _at(where, lambda: viewed(dataset, values))
        _fits(f"{where}.dataset", model, dataset)


def viewed(dataset: Dataset, values: dict[str, Any]) -> Dataset:
    """The experts and pairs of a dataset that a step selects by ``where``, ``since`` and ``until``."""
    if values.get("where"):
        dataset = dataset.select(audience=values["where"])
    if values.get("since") or values.get("until"):
        dataset = dataset.select(since=values.get("since"), until=values.get("until"))
    return dataset


def _completion(values: dict[str, Any], where: str, seed: int) -> None:
    if "complete" in values:
        _at(f"{where}.complete", lambda: completion_named(values["complete"], values["completion"], seed=seed))
    elif values["completion"]:
        raise UsageError(f"{where}.completion: has no effect without complete")


def _evaluate(values: dict[str, Any], where: str, seed: int) -> None:
    if "rankings" in values:
        _completion(values, where, seed)
        if "where" in values and "complete" not in values:
            raise UsageError(f"{where}.where: needs complete; labels do not depend on the user")
    dataset = _opened(values["dataset"])
    if dataset is not None and not dataset.manifest.labels and "complete" not in values:
        raise UsageError(f"{where}.dataset: has no labels to evaluate against")


def _board(values: dict[str, Any], where: str, seed: int) -> None:
    given = _at(where, lambda: board_settings(values))
    model = _at(f"{where}.model", lambda: board_model(values["model"], given, seed))
    dataset = _opened(values["dataset"])
    if dataset is not None:
        _at(where, lambda: viewed(dataset, values))
        _fits(f"{where}.dataset", model, dataset)


def board_settings(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a board's model, with the fields that are short for some."""
    return with_shortcuts(values["settings"], **{name: values.get(name) for name in ("scale", "anchor", "level")})


def _compare(values: dict[str, Any], where: str, seed: int) -> None:
    _evaluate(values, where, seed)
    dataset = _opened(values["dataset"])
    for name in values["settings"]:
        if name not in values["models"]:
            raise UsageError(f"{where}.settings: {unknown('model', name, values['models'])}")
        if not isinstance(values["settings"][name], dict):
            raise UsageError(f"{where}.settings.{name}: expected a table of the model's parameters")
    for name in values["models"]:
        grid = values["settings"].get(name, {})
        group = _at(
            f"{where}.settings.{name}",
            lambda grid=grid, name=name: variants(  # type: ignore[misc]
                name, grid, tries=values.get("tries"), seed=seed
            ),
        )
        if "folds" not in values and (len(group) > 1 or group[0].needs_labels):
            raise UsageError(f"{where}.folds: is missing; {name} learns from labels or has several settings to try")
        if dataset is not None:
            _fits(f"{where}.models", group[0], dataset)
    if "baseline" in values and values["baseline"] not in values["models"]:
        raise UsageError(f"{where}.baseline: {unknown('baseline', values['baseline'], values['models'])}")
    if dataset is not None:
        _check_folds(values, where, dataset)


def _scale(values: dict[str, Any], where: str, seed: int) -> None:
    model = model_named(values["model"])
    if model.learns:
        raise UsageError(
            f"{where}.model: {model.name} must be fitted first, but scale measures models that need no fit; try rrf"
        )
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
    _at(where, lambda: model.resolved(dataset.experts))


def _opened(reference: str) -> Dataset | None:
    """The dataset at a path; None for the output of a step, which does not exist yet."""
    return Dataset.open(reference) if is_found(reference) else None


def _at(where: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except DistaggError as error:
        raise UsageError(f"{where}: {error}") from error
