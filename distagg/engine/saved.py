"""Fitted models: match their experts to a dataset by name, save them, load them.

A model on disk is a committed directory of JSON and Parquet, never a pickle. ``manifest.json`` has the version of the
format, the model's name and settings; ``params.parquet`` every array with its shape; ``experts.parquet`` the experts in
the order of the rows of the arrays named expert_*.
"""

from __future__ import annotations

import dataclasses
import io
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import distagg
from distagg.arrow import as_lists, as_words
from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.runner import Runner, Work, as_runner
from distagg.errors import InputError, UsageError
from distagg.models import MODELS, Model, Params, is_model, model_named
from distagg.rankings.files import written_whole
from distagg.storage.atomic import staged_directory
from distagg.storage.parquet import CHECKSUMS
from distagg.storage.paths import Place, place
from distagg.storage.sealed import MANIFEST, read_committed_json, sealed
from distagg.storage.verified import read_whole

MODEL_FORMAT = "distagg-model"
MODEL_VERSION = 1
BY_PAIRS = ("mpm", "svp", "theta_mpm", "theta_sup_mpm")
DISCOUNTED = ("borda", "mean", "combsum", "combmnz", "stagg_bc", "stagg_rrf", "lambdamart", "blend", *BY_PAIRS)
FIT_AGAIN = "fit the model again"
PARAMS = pa.schema([("name", pa.string()), ("shape", pa.list_(pa.int64())), ("values", pa.list_(pa.float64()))])
SHOWN = 12  # names in a message
WARN_SHARE, REFUSE_SHARE = 0.1, 0.5  # of entries by unseen experts

log = logging.getLogger("distagg")


def align_experts(model: Model, params: Params, trained: tuple[str, ...], present: tuple[str, ...]) -> Params:
    """Reorder per-expert parameters (named expert_*) to a dataset's experts; unseen experts get ``model.unseen``.

    A dataset with unseen experts only is refused, unless the model has parameters for them (named shared_*) or no
    per-expert parameters. Experts that the dataset does not have are treated as missing in every query.
    """
    if trained == present:
        return params
    known = {name: index for index, name in enumerate(trained)}
    unseen = _unseen(params, trained, present)
    if unseen and len(unseen) == len(present):
        raise _mismatch(f"the model knows none of the dataset's experts: {_named(unseen)}", trained, present)
    where = np.array([known.get(name, -1) for name in present], dtype=np.int64)
    return {
        key: _rows(value, where, model.unseen) if key.startswith("expert_") else value for key, value in params.items()
    }


def check_unseen(
    params: Params, trained: tuple[str, ...], dataset: Dataset, runner: Runner | None = None, *, allow: bool = False
) -> None:
    """Report how many of the dataset's experts the model has not seen, and their share of the entries.

    A share above WARN_SHARE is a warning; above REFUSE_SHARE it is an error unless ``allow``. If all experts are known,
    or the model has parameters for unseen ones (named shared_*), the function does not read the data.
    """
    unseen = _unseen(params, trained, dataset.experts)
    if not unseen:
        return
    entries = as_runner(runner).map_reduce(Work(_count_task, None), dataset.plan(), np.add)
    if entries is None or not entries.sum():
        return
    names = set(unseen)
    share = float(entries[[name in names for name in dataset.experts]].sum() / entries.sum())
    summary = (
        f"{len(unseen)} of the dataset's {len(dataset.experts)} experts, with {share:.0%} of its entries, are unknown "
        f"to the model: {_named(unseen)}"
    )
    if share > REFUSE_SHARE and not allow:
        raise _mismatch(summary, trained, dataset.experts, "; or continue anyway with --allow-unseen (allow_unseen)")
    if share > WARN_SHARE:
        log.warning(f"warning: {summary}; it has learned nothing about them")
    else:
        log.info(f"{summary}; it has learned nothing about them")


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


def _mismatch(found: str, trained: tuple[str, ...], present: tuple[str, ...], more: str = "") -> UsageError:
    """The error for experts that do not match, with both sets of names."""
    absent = [name for name in trained if name not in set(present)]
    lacking = f"; the data lack {_named(absent)}" if absent and len(absent) < len(trained) else ""
    return UsageError(
        f"{found}; it was fitted on {_named(trained)}{lacking}; fit a model on these experts, or crf with "
        f"sharing=mixed, which allows unseen experts{more}"
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _rows(value: np.ndarray, where: np.ndarray, unseen: float) -> np.ndarray:
    seen = (where >= 0).reshape(-1, *[1] * (value.ndim - 1))
    return np.where(seen, value[where], unseen)


def expert_table(model: Model, params: Params, experts: tuple[str, ...]) -> pa.Table:
    """What the model says about the worth of each expert (``distagg.models.reliability``); no rows if it says nothing.

    The most reliable expert comes first, and experts that the model has not seen last.
    """
    columns = model.reliabilities(params)
    if not columns:
        return pa.table({"expert": as_words([])})
    order = np.argsort(-columns["reliability"], kind="stable")  # nan last
    values = {
        name: pa.array(column[order], mask=np.isnan(column[order])) if column.dtype.kind == "f" else column[order]
        for name, column in columns.items()
    }
    return pa.table({"expert": as_words([experts[row] for row in order]), **values})


@dataclass(frozen=True, slots=True)
class Fitted:
    """A model with the parameters it learned and the experts it learned them from."""

    model: Model
    params: Params
    experts: tuple[str, ...]

    def params_for(self, experts: tuple[str, ...]) -> Params:
        """Parameters in the order of these experts; it is an error if the model has seen none of them."""
        return align_experts(self.model, self.params, self.experts, experts)

    @property
    def reliabilities(self) -> pa.Table:
        """What the model learned about the worth of each expert; no rows if it learned nothing of the kind."""
        return expert_table(self.model, self.params, self.experts)

    def params_on(self, dataset: Dataset, runner: Runner | None = None, *, allow_unseen: bool = False) -> Params:
        """Parameters in the order of the dataset's experts.

        Logs which experts the model has not seen. If they made most of the entries, it is an error unless
        ``allow_unseen``.
        """
        params = self.params_for(dataset.experts)
        check_unseen(self.params, self.experts, dataset, runner, allow=allow_unseen)
        return params


def save_model(target: str | Place, fitted: Fitted, about: dict[str, Any] | None = None) -> None:
    """Write a fitted model, all or nothing."""
    experts = pa.table({"expert": as_words(fitted.experts)})
    with staged_directory(place(target)) as folder:
        files = [
            _write(folder / "experts.parquet", experts),
            _write(folder / "params.parquet", params_table(fitted.params)),
        ]
        body = {
            "format": MODEL_FORMAT,
            "schema": MODEL_VERSION,
            "version": distagg.__version__,
            "model": fitted.model.name,
            "settings": dataclasses.asdict(fitted.model),
            "about": about or {},
            "files": files,
        }
        (folder / MANIFEST).write_bytes(sealed(body))


def _write(file: Place, table: pa.Table) -> dict[str, Any]:
    sink = io.BytesIO()
    pq.write_table(table, sink, **CHECKSUMS)
    return written_whole(file, sink.getvalue())


def load_model(where: str | Place) -> Fitted:
    """Read a fitted model; inconsistent files are an InputError that names the file."""
    path, body = read_committed_json(place(where), MODEL_FORMAT, "a model made by 'distagg fit'", MODEL_VERSION)
    name, settings = str(body.get("model")), body.get("settings")
    if not is_model(name):
        raise _damaged(path / MANIFEST, f"model '{name}'", f"one of {', '.join(MODELS)}")
    if not isinstance(settings, dict):
        raise _damaged(path / MANIFEST, f"settings {settings!r}", f"those of {name}, by name")
    try:
        model = model_named(name, settings)
    except UsageError as error:
        raise _damaged(path / MANIFEST, f"settings that do not fit ({error})", f"those of {name}") from error
    if "version" not in body and _scores_changed(name, settings):
        expected = "one fitted by 0.2 or later, which scores lists differently"
        raise _damaged(path / MANIFEST, f"a {name} fitted by distagg 0.1", expected)
    hashes = {entry["path"]: entry["sha256"] for entry in body["files"]}
    absent = [file for file in ("params.parquet", "experts.parquet") if file not in hashes]
    if absent:
        raise _damaged(path / MANIFEST, f"no {absent[0]}", "the files of a model")
    table = read_whole(path / "params.parquet", hashes["params.parquet"], remedy=FIT_AGAIN)
    try:
        table.validate(full=True)  # text is UTF-8
    except pa.ArrowInvalid as error:
        raise _damaged(path / "params.parquet", str(error), "names in UTF-8") from error
    if not table.schema.equals(PARAMS):
        raise _damaged(path / "params.parquet", f"columns {_columns(table)}", f"{_columns(PARAMS.empty_table())}")
    rows = table.to_pylist()
    names = read_whole(path / "experts.parquet", hashes["experts.parquet"], ["expert"], remedy=FIT_AGAIN)
    experts = names["expert"].to_pylist()
    for row in rows:
        values, shape = row["values"] or [], tuple(row["shape"] or ())
        if None in (*values, *shape) or row["name"] is None or len(values) != math.prod(shape):
            raise _damaged(path / "params.parquet", f"{len(values)} numbers in {row['name']}", f"the shape {shape}")
        if row["name"].startswith("expert_") and shape[:1] != (len(experts),):
            raise _damaged(path / "params.parquet", f"{row['name']} of shape {shape}", f"{len(experts)} experts' rows")
    params = params_of(table)
    missing = [key for key in model.weight_names if key not in params]
    if missing:
        raise _damaged(path / "params.parquet", f"no {', '.join(missing)}", f"the weights of {name}")
    return Fitted(model, params, tuple(experts))


def _columns(table: pa.Table) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in table.schema)


def _scores_changed(name: str, settings: dict[str, Any]) -> bool:
    """Whether a model scores lists differently than in distagg 0.1, whose manifests tell no version.

    Its points discount places by default since, or the scores of another model that it takes as a feature do.
    """
    return name in DISCOUNTED and not (name in BY_PAIRS and settings.get("pairs", "auto") != "auto")


def _damaged(file: Place, found: str, expected: str) -> InputError:
    return InputError(str(file), found=found, expected=expected, remedy=FIT_AGAIN)


def params_table(params: Params) -> pa.Table:
    """Arrays as a table, a row with name, shape and values for each."""
    names = sorted(params)
    arrays = [np.asarray(params[name], dtype=np.float64) for name in names]
    return pa.table(
        {
            "name": as_words(names),
            "shape": as_lists([np.array(array.shape, dtype=np.int64) for array in arrays], np.int64),
            "values": as_lists([array.ravel() for array in arrays], np.float64),
        }
    )


def params_of(table: pa.Table) -> Params:
    """The arrays of a table written by ``params_table``."""
    rows = table.to_pylist()
    return {row["name"]: np.array(row["values"], dtype=np.float64).reshape(row["shape"]) for row in rows}
