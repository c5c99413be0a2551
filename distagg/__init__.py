"""distagg: many partial, noisy, conflicting preferences in, one ranking per query out.

``rank`` orders the items of every query, from data of any kind: frames, tables, dictionaries of runs, files. ``solve``
also returns uncertainty and convergence, ``fit`` and ``tune`` learn from labels, ``evaluate`` and ``compare`` measure,
``explain`` and ``judge_experts`` show how a model uses its experts. A ``Dataset`` holds the experts' lists or pairs of
items, query by query. ``MODELS`` has every model by name, ``model_named`` constructs one.

>>> import distagg, pyarrow as pa
>>> lists = pa.table({"expert": ["a", "a", "b"], "item": ["x", "y", "y"], "rank": [1, 2, 1]})
>>> distagg.rank("rrf", lists)["item"].to_pylist()
['y', 'x']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distagg.dataset import Dataset
    from distagg.engine import (
        Result,
        Shown,
        compare,
        evaluate,
        evaluate_runs,
        evaluate_users,
        explain,
        features,
        fit,
        fit_completion,
        import_dataset,
        judge_experts,
        rank,
        rbo,
        solve,
    )
    from distagg.engine.fitting.tune import tune
    from distagg.models import MODELS, model_named

__version__ = "0.1.0"

_HOME = {
    "Dataset": "distagg.dataset",
    "MODELS": "distagg.models",
    "model_named": "distagg.models",
    "compare": "distagg.engine",
    "evaluate": "distagg.engine",
    "evaluate_runs": "distagg.engine",
    "explain": "distagg.engine",
    "evaluate_users": "distagg.engine",
    "fit_completion": "distagg.engine",
    "features": "distagg.engine",
    "fit": "distagg.engine",
    "import_dataset": "distagg.engine",
    "judge_experts": "distagg.engine",
    "Result": "distagg.engine",
    "Shown": "distagg.engine",
    "rank": "distagg.engine",
    "rbo": "distagg.engine",
    "solve": "distagg.engine",
    "tune": "distagg.engine.fitting.tune",
}

__all__ = [
    "MODELS", "Dataset", "Result", "Shown", "compare", "evaluate", "evaluate_runs", "evaluate_users", "explain",
    "features", "fit", "fit_completion", "import_dataset", "judge_experts", "model_named", "rank", "rbo", "solve",
    "tune",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load on first use, so that ``import distagg`` is instant and never imports Dask."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'distagg' has no attribute {name!r}")
