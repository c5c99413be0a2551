"""Results for trackers: a callback for Python, and a log of JSON lines for everything.

``compare``, ``tune`` and ``fit`` call ``on_result`` with a row for each model that is done. If ``DISTAGG_LOG`` names a
file, these functions and the commands ``fit``, ``tune``, ``compare``, ``evaluate`` and ``run`` append the same rows to
it, a JSON object on each line. A row has ``what`` was done, the ``model``, its ``settings`` (those that differ from
the defaults), ``metrics`` (fractions; on held-out queries where there are folds), and more, such as ``seconds``.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from distagg.engine.saved import Fitted
from distagg.errors import InfrastructureError
from distagg.metrics import Evaluation
from distagg.models import Model

OnResult = Callable[[dict[str, Any]], None]
LOG = "DISTAGG_LOG"


def no_result(row: dict[str, Any]) -> None:
    """Ignore results."""


def tell_result(row: Mapping[str, Any], on_result: OnResult = no_result) -> None:
    """Give a row to the callback, and append it to the log that ``DISTAGG_LOG`` names.

    >>> rows = []
    >>> tell_result({"what": "compare", "model": "rrf", "metrics": {"map": 0.5}}, rows.append)
    >>> rows[0]["metrics"], sorted(rows[0])
    ({'map': 0.5}, ['at', 'metrics', 'model', 'what'])
    """
    told = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **row}
    on_result(told)
    if name := os.environ.get(LOG):
        try:
            with open(name, "a", encoding="utf-8") as file:
                file.write(json.dumps(told, default=str) + "\n")  # one write, so that lines of processes do not mix
        except OSError as error:
            raise InfrastructureError(f"{LOG}: {error}; name a file that can be written, or unset {LOG}") from error


def changed_settings(model: Model) -> dict[str, Any]:
    """The settings of a model that differ from the defaults.

    >>> from distagg.models import model_named
    >>> changed_settings(model_named("rrf", {"c": 10.0}))
    {'c': 10.0}
    """
    fields = dataclasses.fields(model)
    return {field.name: value for field in fields if (value := getattr(model, field.name)) != field.default}


def tell_fit(fitted: Fitted, goal: str, seconds: float, data: str, on_result: OnResult = no_result) -> None:
    """Tell of a fitted model: where it was trained in rounds, the value on validation queries after each."""
    row: dict[str, Any] = {"what": "fit", "model": fitted.model.name, "settings": changed_settings(fitted.model)}
    curve = learning_curve(fitted)
    if curve:
        reached = curve["values"][curve["kept"] - 1] if curve["kept"] else curve.get("start")
        row |= {"metrics": {goal: reached}, "curve": curve["values"], "round": curve["kept"]}
    tell_result({**row, "seconds": seconds, "data": data}, on_result)


def tell_evaluation(name: str, evaluation: Evaluation, data: str) -> None:
    """Tell of evaluated rankings."""
    about = {"protocol": evaluation.protocol, "queries": len(evaluation.query_ids), "data": data}
    tell_result({"what": "evaluate", "model": name, "metrics": evaluation.means, **about})


def learning_curve(fitted: Fitted) -> dict[str, Any]:
    """The metric on validation queries after each round (or tree), and the one that is kept; empty without rounds.

    ``start`` is the value before the first round, if training starts from the quality of experts.
    """
    params = fitted.params
    if "curve" not in params or not params["curve"].size:
        return {}
    curve = params["curve"]
    kept = int(params["round"][0]) if "round" in params else int(curve.argmax()) + 1  # trees keep the best
    start = {"start": float(params["start"][0])} if "start" in params else {}
    return {"values": curve.tolist(), "kept": kept, **start}
