"""The loop, and where it runs: learning, ranking, evaluating, comparing, in one process or on a cluster.

Names are loaded when they are first used, so that ranking does not import the modules that compare models. Modules of
this package are also named ``rank``, ``compare`` and ``evaluate_runs``; import the functions from ``distagg``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distagg.engine.api import evaluate, fit, solve
    from distagg.engine.complete import evaluate_users, fit_completion
    from distagg.engine.evaluate_runs import RunsEvaluation, rbo
    from distagg.engine.importing import import_dataset
    from distagg.engine.inspect.attribution import explain
    from distagg.engine.inspect.describe import features
    from distagg.engine.inspect.quality import judge_experts
    from distagg.engine.rank import Result
    from distagg.engine.rank_options import Shown
    from distagg.engine.saved import Fitted, load_model, save_model

_HOME = {
    "Fitted": "saved",
    "Result": "rank",
    "RunsEvaluation": "evaluate_runs",
    "Shown": "rank_options",
    "evaluate": "api",
    "evaluate_users": "complete",
    "explain": "inspect.attribution",
    "features": "inspect.describe",
    "fit": "api",
    "fit_completion": "complete",
    "import_dataset": "importing",
    "judge_experts": "inspect.quality",
    "load_model": "saved",
    "rbo": "evaluate_runs",
    "save_model": "saved",
    "solve": "api",
}

__all__ = [
    "Fitted",
    "Result",
    "RunsEvaluation",
    "Shown",
    "evaluate",
    "evaluate_users",
    "explain",
    "features",
    "fit",
    "fit_completion",
    "import_dataset",
    "judge_experts",
    "load_model",
    "rbo",
    "save_model",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"distagg.engine.{_HOME[name]}"), name)
    raise AttributeError(f"module 'distagg.engine' has no attribute {name!r}")
