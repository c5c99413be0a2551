"""Fitted models on disk: a committed directory of JSON and Parquet, never a pickle."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distagg.dataset.commit import staged_directory
from distagg.dataset.manifest import MANIFEST, read_committed_json
from distagg.dataset.reader import read_groups
from distagg.dataset.whole import digest
from distagg.engine.experts import align_experts
from distagg.errors import InputError
from distagg.models import MODELS, Model, Params, model_named
from distagg.types import SCHEMA_VERSION

MODEL_FORMAT = "distagg-model"


@dataclass(frozen=True, slots=True)
class Fitted:
    """A model with the parameters it learned and the experts it learned them from."""

    model: Model
    params: Params
    experts: tuple[str, ...]

    def params_for(self, experts: tuple[str, ...]) -> Params:
        return align_experts(self.params, self.experts, experts)


def save_model(target: Path, fitted: Fitted, about: dict[str, Any] | None = None) -> None:
    """Write a fitted model, all or nothing."""
    with staged_directory(target) as folder:
        pq.write_table(params_table(fitted.params), folder / "params.parquet")
        pq.write_table(pa.table({"expert": pa.array(fitted.experts, pa.string())}), folder / "experts.parquet")
        files = [{"path": f.name, "bytes": f.stat().st_size, "sha256": digest(f)} for f in sorted(folder.iterdir())]
        body = {
            "format": MODEL_FORMAT, "schema": SCHEMA_VERSION, "model": fitted.model.name,
            "settings": dataclasses.asdict(fitted.model), "about": about or {},
            "files": files,
        }  # fmt: skip
        (folder / MANIFEST).write_text(json.dumps(body, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def load_model(path: Path) -> Fitted:
    """Read a fitted model."""
    body = read_committed_json(path, MODEL_FORMAT, "a model made by 'distagg fit'")
    if body["model"] not in MODELS:
        raise InputError(str(path / MANIFEST), found=f"model '{body['model']}'", expected=f"one of {', '.join(MODELS)}")
    params = params_of(read_groups(path / "params.parquet", [0], None))
    experts = read_groups(path / "experts.parquet", [0], ["expert"])["expert"].to_pylist()
    return Fitted(model_named(body["model"], body["settings"]), params, tuple(experts))


def params_table(params: Params) -> pa.Table:
    """Arrays as a table: a row with name, shape and values for each."""
    names = sorted(params)
    arrays = [np.asarray(params[name], dtype=np.float64) for name in names]
    return pa.table(
        {
            "name": pa.array(names, pa.string()),
            "shape": pa.array([list(array.shape) for array in arrays], pa.list_(pa.int64())),
            "values": pa.array([array.ravel() for array in arrays], pa.list_(pa.float64())),
        }
    )


def params_of(table: pa.Table) -> Params:
    """The arrays of such a table."""
    rows = table.to_pylist()
    return {row["name"]: np.array(row["values"], dtype=np.float64).reshape(row["shape"]) for row in rows}
