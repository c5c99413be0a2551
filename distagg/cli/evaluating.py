"""The commands that measure: evaluate, compare."""

from __future__ import annotations

import json
import math
import os
import sys
from importlib.util import find_spec
from typing import Any

from distagg.cli.commands import Argument, Call, command, option, say
from distagg.cli.options import (
    DATA,
    GOAL,
    METRICS,
    PROTOCOL,
    REPORT,
    RESULT,
    WHERE,
    Completion,
    Data,
    completion_options,
    matching,
    search_options,
)
from distagg.dataset import Dataset
from distagg.engine.compare import DEFAULT_METRICS
from distagg.engine.fitting.fit import Goal
from distagg.engine.progress import metered
from distagg.errors import UsageError
from distagg.models import MODELS
from distagg.reports.terminal import comparison_table, counted_by, render_table
from distagg.storage.atomic import refuse_existing, staged_file
from distagg.storage.paths import place

USER_METRICS = ("ndcg@1", "ndcg@5", "ndcg@10")


@command(
    "evaluate",
    Argument(
        "rankings",
        metavar="RANKINGS",
        help="output of 'distagg rank', or a TREC run, CSV (.gz too) or Parquet file",
    ),
    DATA,
    METRICS,
    PROTOCOL,
    RESULT,
    WHERE,
    completion_options("complete every user's missing ratings, and print the mean ndcg@k over users"),
    examples=(
        "distagg evaluate rankings mq -m ndcg@5 -m map",
        "distagg evaluate dense.run runs -m ndcg@10",
    ),
)
def evaluate_command(
    call: Call,
    rankings: str,
    data: Data,
    metrics: tuple[str, ...],
    protocol: Any,
    output: str | None,
    where: str | None,
    completion: Completion,
) -> None:
    from distagg.engine.read_rankings import read_rankings
    from distagg.metrics import evaluate_rankings

    _refuse_result(output)
    dataset = matching(data.open(), where)
    if completion.complete:
        body = _evaluate_users(call, rankings, dataset, metrics or USER_METRICS, completion)
    elif where or completion.completion:
        raise UsageError("--where and -c need --complete: labels do not depend on the user")
    elif not dataset.manifest.labels:
        raise UsageError(f"{data.dataset} has no labels to evaluate against; import it with them")
    else:
        table = read_rankings(place(rankings))
        result = evaluate_rankings(table, dataset, metrics or DEFAULT_METRICS, protocol=protocol, source=rankings)
        body = {"means": result.means, "protocol": result.protocol, "queries": len(result.query_ids)}
    _write_result(output, body)
    rows = [[name, f"{100 * value:.2f}"] for name, value in body["means"].items()]
    counted = f"\n{counted_by(body['protocol'])}" if "protocol" in body else ""
    call.show(body, render_table(["metric", "mean, %"], rows, "lr") + counted)


def _evaluate_users(
    call: Call, rankings: str, dataset: Dataset, metrics: tuple[str, ...], completion: Completion
) -> dict[str, Any]:
    """The mean metrics of a ranking over all users."""
    from distagg.engine.complete import evaluate_users
    from distagg.engine.read_rankings import read_rankings

    table = read_rankings(place(rankings))
    with call.runner() as runner, metered("evaluate", len(dataset.plan())) as progress:
        through = completion.fit(dataset, call.seed, runner)
        assert through is not None
        found = evaluate_users({rankings: table}, dataset, through, metrics, runner=runner, progress=progress)
    return {"means": found.means[rankings], "complete": completion.complete, "users": len(found.values[rankings])}


@command(
    "compare",
    DATA,
    option("--models", metavar="a,b,...", help="models to compare (default: all that can use the data)"),
    option(
        "--folds",
        metavar="letor5|K",
        help="cross-validate: letor5 (five files), or K folds; required for supervised models",
    ),
    option("--baseline", metavar="MODEL", help="model to test the others against (default: the best)"),
    METRICS,
    *search_options("MODEL.key=value"),
    GOAL,
    REPORT,
    RESULT,
    examples=(
        "distagg compare mq --models rrf,borda,crf --folds letor5 -m ndcg@5 --report report.html",
        "distagg compare mq --models rrf,crf --folds 5 -p rrf.c=5,20,60 --baseline rrf",
    ),
)
def compare_command(
    call: Call,
    data: Data,
    models: str | None,
    folds: str | None,
    baseline: str | None,
    metrics: tuple[str, ...],
    settings: dict[str, str],
    tries: int | None,
    goal: Goal,
    report: str | None,
    output: str | None,
) -> None:
    from distagg.engine.compare import compare
    from distagg.engine.fitting.folds import count_folds

    _refuse_result(output)
    dataset = data.open()
    names = models.split(",") if models else all_models(dataset, folds)
    by_model: dict[str, dict[str, str]] = {}
    for key, value in settings.items():
        model, dot, name = key.partition(".")
        if not dot or model not in names:
            raise UsageError(f"-p {key}={value}: expected MODEL.key=value with one of the compared models")
        by_model.setdefault(model, {})[name] = value
    with call.runner() as runner, metered("compare", len(names) * count_folds(folds)) as progress:
        result = compare(
            dataset,
            names,
            settings=by_model,
            folds=folds,
            metrics=metrics or DEFAULT_METRICS,
            protocol=goal.protocol,
            goal=goal.metric,
            baseline=baseline,
            tries=tries,
            seed=call.seed or 0,
            runner=runner,
            progress=progress,
        )
    result["command"] = "distagg " + " ".join(sys.argv[1:])
    _write_result(output, result)
    show_comparison(call, result, dataset, report)


def show_comparison(call: Call, result: dict[str, Any], dataset: Dataset, report: str | None) -> None:
    """Print the table (or JSON) on stdout, and write the page to a file."""
    if report:
        from distagg.engine.inspect.describe import describe
        from distagg.reports import compare_report, write_report

        write_report(compare_report({**result, "dataset": describe(dataset)}), report, overwrite=True)
        say(f"report: {report}")
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    call.show(_without_queries(result), comparison_table(result, colour=colour))


def _without_queries(result: dict[str, Any]) -> dict[str, Any]:
    """A comparison without its values of every query."""
    return {key: value for key, value in result.items() if key not in ("queries", "per_query")}


def all_models(dataset: Dataset, folds: str | None) -> list[str]:
    """The models that can use a dataset; those whose package is not installed are skipped, which is said."""
    kind, positive = dataset.manifest.kind, dataset.manifest.positive
    fits = [m for m in MODELS.values() if kind in m.inputs and (positive or not m.positive)]
    fits = [m for m in fits if folds or not m().needs_labels]
    uninstalled = [m for m in fits if m.package and find_spec(m.package) is None]
    for model in uninstalled:
        say(f"{model.name} is skipped: {model.package} is not installed (pip install 'distagg[{model.package}]')")
    return [m.name for m in fits if m not in uninstalled]


def _refuse_result(output: str | None) -> None:
    """Refuse a result file that exists already, before any work is done."""
    if output:
        refuse_existing(place(output))


def _write_result(output: str | None, value: Any) -> None:
    """Write a result to a file, if one is given, with its values of every query; NaN becomes null."""
    if output:
        with staged_file(place(output)) as file:
            file.write_bytes((json.dumps(_strict(value), indent=1, allow_nan=False) + "\n").encode())
        say(f"wrote: {output}")


def _strict(value: Any) -> Any:
    """Lists and dictionaries with None in place of NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _strict(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_strict(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
