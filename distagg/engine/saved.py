"""Fitted models on disk: a committed directory of JSON and Parquet, never a pickle.

``manifest.json`` has the version of the format, the model's name and settings; ``params.parquet`` every array with its
shape; ``experts.parquet`` the experts that the arrays named expert_* have a row for, in their order.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distagg.arrays import as_lists, as_words
from distagg.dataset.commit import staged_directory
from distagg.dataset.manifest import MANIFEST, read_committed_json
from distagg.dataset.place import Place, place
from distagg.dataset.reader import Dataset, read_groups
from distagg.engine.experts import align_experts, check_unseen
from distagg.engine.runner import Runner
from distagg.errors import InputError, UsageError
from distagg.models import MODELS, Model, Params, is_model, model_named
from distagg.models.trained import Trained

MODEL_FORMAT = "distagg-model"
MODEL_VERSION = 1


@dataclass(frozen=True, slots=True)
class Fitted:
    """A model with the parameters it learned and the experts it learned them from."""

    model: Model
    params: Params
    experts: tuple[str, ...]

    def params_for(self, experts: tuple[str, ...]) -> Params:
        """Params for a dataset with those experts; refused where the model knows none of them."""
        return align_experts(self.model, self.params, self.experts, experts)

    def params_on(self, dataset: Dataset, runner: Runner | None = None, *, allow_unseen: bool = False) -> Params:
        """Params for a dataset; experts that the model does not know are said, and refused where they are most."""
        params = self.params_for(dataset.experts)
        check_unseen(self.params, self.experts, dataset, runner, allow=allow_unseen)
        return params


def save_model(target: str | Place, fitted: Fitted, about: dict[str, Any] | None = None) -> None:
    """Write a fitted model, all or nothing."""
    experts = pa.table({"expert": as_words(fitted.experts)})
    with staged_directory(place(target)) as folder:
        files = [
            _write(folder / "experts.parquet", experts), _write(folder / "params.parquet", params_table(fitted.params))
        ]  # fmt: skip
        body = {
            "format": MODEL_FORMAT, "schema": MODEL_VERSION, "model": fitted.model.name,
            "settings": dataclasses.asdict(fitted.model), "about": about or {},
            "files": files,
        }  # fmt: skip
        (folder / MANIFEST).write_text(json.dumps(body, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _write(file: Place, table: pa.Table) -> dict[str, Any]:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    body = sink.getvalue()
    file.write_bytes(body)
    return {"path": file.name, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}


def load_model(where: str | Place) -> Fitted:
    """Read a fitted model; what does not fit together is an InputError that names the file."""
    path, body = read_committed_json(place(where), MODEL_FORMAT, "a model made by 'distagg fit'", MODEL_VERSION)
    name, settings = str(body.get("model")), body.get("settings")
    if not is_model(name):
        raise _damaged(path / MANIFEST, f"model '{name}'", f"one of {', '.join(MODELS)}")
    try:
        model = model_named(name, settings or {})
    except UsageError as error:
        raise _damaged(path / MANIFEST, f"settings that do not fit ({error})", f"those of {name}") from error
    table = read_groups(path / "params.parquet", None, None)
    rows = table.to_pylist()
    experts = read_groups(path / "experts.parquet", None, ["expert"])["expert"].to_pylist()
    for row in rows:
        values, shape = row["values"], tuple(row["shape"])
        if len(values) != math.prod(shape):
            raise _damaged(path / "params.parquet", f"{len(values)} numbers in {row['name']}", f"the shape {shape}")
        if row["name"].startswith("expert_") and shape[:1] != (len(experts),):
            raise _damaged(path / "params.parquet", f"{row['name']} of shape {shape}", f"{len(experts)} experts' rows")
    params = params_of(table)
    missing = [key for key in (model.weights if isinstance(model, Trained) else ()) if key not in params]
    if missing:
        raise _damaged(path / "params.parquet", f"no {', '.join(missing)}", f"the weights of {name}")
    return Fitted(model, params, tuple(experts))


def _damaged(file: Place, found: str, expected: str) -> InputError:
    return InputError(str(file), found=found, expected=expected, remedy="fit the model again")


def params_table(params: Params) -> pa.Table:
    """Arrays as a table: a row with name, shape and values for each."""
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
    """The arrays of such a table."""
    rows = table.to_pylist()
    return {row["name"]: np.array(row["values"], dtype=np.float64).reshape(row["shape"]) for row in rows}
