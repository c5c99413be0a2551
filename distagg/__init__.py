"""distagg: many partial, noisy, conflicting preferences in, one ranking per query out.

``rank`` orders the items of every query, from data of any kind: frames, tables, dictionaries of runs, files. ``solve``
also returns uncertainty and convergence, ``fit`` and ``tune`` learn from labels, ``evaluate`` and ``compare`` measure,
``explain`` and ``judge_experts`` show how a model uses its experts, ``suggest`` says which pairs to compare next. A
``Dataset`` holds the experts' lists or pairs of items, query by query. ``MODELS`` has every model by name,
``model_named`` constructs one.

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
    from distagg.engine.api import evaluate, fit, rank, solve
    from distagg.engine.compare import compare
    from distagg.engine.complete import evaluate_users, fit_completion
    from distagg.engine.evaluate_runs import evaluate_runs, rbo
    from distagg.engine.fitting.tune import tune
    from distagg.engine.importing import import_dataset
    from distagg.engine.inspect.attribution import explain
    from distagg.engine.inspect.describe import features
    from distagg.engine.inspect.quality import judge_experts
    from distagg.engine.leaderboard import Board, board
    from distagg.engine.rank import Result
    from distagg.engine.rank_options import Shown
    from distagg.engine.suggest import suggest
    from distagg.models import MODELS, model_named

__version__ = "0.2.0"

_HOME = {
    "Dataset": "distagg.dataset",
    "MODELS": "distagg.models",
    "model_named": "distagg.models",
    "Board": "distagg.engine.leaderboard",
    "board": "distagg.engine.leaderboard",
    "compare": "distagg.engine.compare",
    "evaluate": "distagg.engine.api",
    "evaluate_runs": "distagg.engine.evaluate_runs",
    "explain": "distagg.engine.inspect.attribution",
    "evaluate_users": "distagg.engine.complete",
    "fit_completion": "distagg.engine.complete",
    "features": "distagg.engine.inspect.describe",
    "fit": "distagg.engine.api",
    "import_dataset": "distagg.engine.importing",
    "judge_experts": "distagg.engine.inspect.quality",
    "Result": "distagg.engine.rank",
    "Shown": "distagg.engine.rank_options",
    "rank": "distagg.engine.api",
    "rbo": "distagg.engine.evaluate_runs",
    "solve": "distagg.engine.api",
    "suggest": "distagg.engine.suggest",
    "tune": "distagg.engine.fitting.tune",
}

__all__ = [
    "MODELS", "Board", "Dataset", "Result", "Shown", "board", "compare", "evaluate", "evaluate_runs", "evaluate_users",
    "explain", "features", "fit", "fit_completion", "import_dataset", "judge_experts", "model_named", "rank", "rbo",
    "solve", "suggest", "tune",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load on first use, so that ``import distagg`` is instant and never imports Dask."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'distagg' has no attribute {name!r}")
