"""The commands that measure: evaluate, compare."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal

import click
import pyarrow.compute as pc

from distagg.cli.commands import Argument, Call, command, option, say
from distagg.cli.options import (
    DATA,
    EXPANSION,
    REPORT,
    RESULT,
    Completion,
    Data,
    completion_options,
    goal_options,
    is_dataset,
    matching,
    names_of,
    refuse_unlabelled,
    step_options,
)
from distagg.dataset import Dataset
from distagg.engine.compare import DEFAULT_METRICS, paired_test_rows
from distagg.engine.evaluate_runs import evaluate_runs, rbo, run_names
from distagg.engine.fitting.fit import Goal
from distagg.engine.progress import metered
from distagg.engine.read_rankings import read_rankings
from distagg.engine.tracking import tell_evaluation
from distagg.errors import InputError, UsageError, install, unknown
from distagg.metrics import Evaluation, evaluate_rankings
from distagg.models import MODELS, known_name
from distagg.reports.terminal import comparison_table, counted_by, render_table, significance_table
from distagg.sources.detect import QRELS, kind_of_file
from distagg.sources.published import is_reference
from distagg.storage.atomic import refuse_existing, staged_file
from distagg.storage.paths import local, place

OVERLAP = re.compile(r"rbo(?:\((0?\.\d+)\))?")  # a metric of two rankings


@command(
    "evaluate",
    Argument(
        "words",
        metavar="RANKINGS... QRELS|DATASET",
        nargs=-1,
        required=True,
        help="outputs of 'distagg rank', TREC runs, CSV (.gz too) or Parquet files; then the judgements: a file with "
        "lines 'QUERY 0 ITEM LABEL', or a dataset with labels",
    ),
    option("--qrels", metavar="FILE", help="the judgements; all arguments are then rankings"),
    *step_options("evaluate", "metrics", "protocol"),
    option("--baseline", metavar="NAME", help="rankings to test the others against (default: the best)"),
    option(
        "--missing",
        type=click.Choice(("zero", "skip")),
        default="zero",
        help="judged queries that a run lacks count as 0 (default), or are left out of its means",
    ),
    RESULT,
    *step_options("evaluate", "where"),
    completion_options("evaluate"),
    *EXPANSION,
    examples=(
        "distagg evaluate bm25.run dense.run fused.run qrels.txt -m ndcg@10 -m recall@100",
        "distagg evaluate bm25.run dense.run -m rbo",
        "distagg evaluate rankings mq -m ndcg@5 -m map",
        "distagg evaluate dense.run runs -m ndcg@10",
    ),
)
def evaluate_command(
    call: Call,
    words: tuple[str, ...],
    qrels: str | None,
    metrics: tuple[str, ...],
    protocol: str | None,
    baseline: str | None,
    missing: Literal["zero", "skip"],
    output: str | None,
    where: str | None,
    completion: Completion,
    **expansion: Any,
) -> None:
    _refuse_result(output)
    if metrics and all(OVERLAP.fullmatch(name.lower()) for name in metrics):
        body = _compare_two(words, metrics)
        _write_result(output, body)
        call.show(body, _evaluation_text(body))
        return
    runs, labels = (words, qrels) if qrels else (words[:-1], words[-1])
    _refuse_labels(runs, labels, told=qrels is not None)
    if not is_dataset(labels) and (completion.complete or any(times != 1 for times in expansion.values())):
        raise UsageError(f"--complete and --expand need a dataset, found the judgements {labels}")
    if completion.complete:
        body = _evaluate_users(call, runs, matching(Data((labels,), **expansion).open(), where), metrics, completion)
    elif where or completion.completion:
        raise UsageError("--where and -c need --complete: labels do not depend on the user")
    else:
        asked: dict[str, Any] = {"protocol": protocol, "baseline": baseline, "seed": call.seed or 0}
        if is_dataset(labels):
            body = _evaluate_on(Data((labels,), **expansion), runs, metrics or DEFAULT_METRICS, **asked)
        else:
            found = evaluate_runs(runs, labels, metrics or DEFAULT_METRICS, missing=missing, **asked)
            for note in found.notes():
                say(note)
            body = _body({name: run.evaluation for name, run in found.runs.items()}, found.baseline, found.tests)
    _write_result(output, body)
    call.show(_without_queries(body), _evaluation_text(body))


def _compare_two(words: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
    """The rank-biased overlap of two rankings: the mean over queries."""
    if len(words) != 2:
        raise UsageError(f"rbo: found {len(words)} rankings, expected two, and no judgements")
    means, queries = {}, 0
    for name in metrics:
        persistence = OVERLAP.fullmatch(name.lower())
        assert persistence is not None
        values = rbo(words[0], words[1], float(persistence[1] or 0.9))["rbo"]
        means[name.lower()], queries = pc.mean(values).as_py(), len(values)
    return {"means": means, "queries": queries}


def _refuse_labels(runs: Sequence[str], labels: str, *, told: bool) -> None:
    """Refuse a call without rankings, or whose last word is neither judgements nor a dataset.

    The content is not checked if the user says that it is judgements (``told``), nor in a pipe, which can be read once.
    """
    if is_dataset(labels):
        if not runs:
            raise UsageError(f"found only the dataset {labels}, expected RANKINGS... DATASET")
        return
    if is_reference(labels) and runs:
        return
    file = local(labels, "judgements")
    if not file.exists():
        raise InputError(labels, found="no such file", expected="judgements (qrels), or a dataset with labels")
    if file.is_dir():
        kind = "a directory that is no dataset"
    else:
        kind = QRELS if told or not file.is_file() else kind_of_file(file)
    if kind != QRELS:
        raise UsageError(
            f"{labels}: found {kind}, expected judgements (lines 'QUERY 0 ITEM LABEL') or a dataset; name them last, "
            "or by --qrels FILE"
        )
    if not runs:
        raise UsageError(f"found only the judgements {labels}, expected RANKINGS... QRELS")


def _evaluate_on(
    data: Data,
    runs: Sequence[str],
    metrics: Sequence[str],
    *,
    protocol: str | None,
    baseline: str | None,
    seed: int,
) -> dict[str, Any]:
    """Evaluate rankings against the labels of a dataset."""
    dataset = data.open()
    refuse_unlabelled(data, dataset)
    found = {
        name: evaluate_rankings(read_rankings(place(str(path))), dataset, metrics, protocol=protocol, source=str(path))
        for name, path in run_names(runs).items()
    }
    if baseline is not None and baseline not in found:
        raise unknown("baseline", baseline, found)
    means = {name: evaluation.means for name, evaluation in found.items()}
    first = next(iter(found.values()))
    names = [str(metric) for metric in first.metrics]
    reference = baseline or max(means, key=lambda name: means[name][names[0]])
    tests = paired_test_rows({name: each.values for name, each in found.items()}, names, reference, seed)
    return _body(found, reference, tests)


def _body(found: Mapping[str, Evaluation], baseline: str, tests: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of an evaluation as plain values: without names and tests where there is only one ranking.

    Trackers are told of each ranking.
    """
    for name, each in found.items():
        tell_evaluation(name, each, "")
    first = next(iter(found.values()))
    names = [str(metric) for metric in first.metrics]
    means = {name: each.means for name, each in found.items()}
    values = {name: dict(zip(names, each.values.T.tolist(), strict=True)) for name, each in found.items()}
    counted = {"protocol": first.protocol, "queries": len(first.query_ids), "query_ids": first.query_ids.to_pylist()}
    if len(found) == 1:
        return {"means": next(iter(means.values())), **counted, "per_query": next(iter(values.values()))}
    rows = [{"run": run, "metric": metric, "value": v} for run, row in means.items() for metric, v in row.items()]
    return {"means": means, "results": rows, "tests": tests, "baseline": baseline, **counted, "per_query": values}


def _evaluation_text(body: dict[str, Any]) -> str:
    if "tests" in body:
        return _comparison_text(body, "run")
    rows = [[name, f"{100 * value:.2f}"] for name, value in body["means"].items()]
    counted = f"\n{counted_by(body['protocol'])}" if "protocol" in body else ""
    return render_table(["metric", "mean, %"], rows, "lr") + counted


def _evaluate_users(
    call: Call, runs: Sequence[str], dataset: Dataset, metrics: tuple[str, ...], completion: Completion
) -> dict[str, Any]:
    """The mean metrics of a ranking over all users."""
    from distagg.engine.complete import USER_METRICS, evaluate_users

    if len(runs) > 1:
        raise UsageError(f"--complete: found {len(runs)} rankings, expected one")
    table = read_rankings(place(runs[0]))
    with call.runner() as runner, metered("evaluate", len(dataset.plan())) as progress:
        through = completion.fit(dataset, call.seed, runner)
        assert through is not None
        found = evaluate_users(
            {runs[0]: table}, dataset, through, metrics or USER_METRICS, runner=runner, progress=progress
        )
    return {"means": found.means[runs[0]], "complete": completion.complete, "users": len(found.values[runs[0]])}


@command(
    "compare",
    DATA,
    *step_options("compare", "models", "folds", "baseline", "metrics", "settings", "tries"),
    goal_options("compare"),
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
    refuse_unlabelled(data, dataset)
    names = (
        all_models(dataset, folds) if models is None else [known_name(name) for name in names_of(models, "--models")]
    )
    by_model: dict[str, dict[str, str]] = {}
    for key, value in settings.items():
        model, dot, name = key.partition(".")
        model = known_name(model)
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
            baseline=known_name(baseline) if baseline else None,
            tries=tries,
            seed=call.seed or 0,
            runner=runner,
            progress=progress,
        )
    result["command"] = "distagg " + " ".join(sys.argv[1:])
    _write_result(output, result)
    show_comparison(call, result, dataset, report)


def show_comparison(
    call: Call, result: dict[str, Any], dataset: Dataset, report: str | None, *, tested: bool = True
) -> None:
    """Print the table (or JSON) on stdout, with paired tests if ``tested``, and write the page to a file."""
    if report:
        from distagg.engine.inspect.describe import describe
        from distagg.reports import compare_report, write_report

        write_report(compare_report({**result, "dataset": describe(dataset)}), report, overwrite=True)
        say(f"report: {report}")
    call.show(_without_queries(result), _comparison_text(result if tested else {**result, "tests": []}, "model"))


def _comparison_text(result: dict[str, Any], what: str) -> str:
    """The means of models or runs, then the tests by the first metric, where there are several."""
    tests = f"\n\n{significance_table(result)}" if result["tests"] else ""
    return comparison_table(result, colour=_colour(), what=what) + tests


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _without_queries(result: dict[str, Any]) -> dict[str, Any]:
    """A result without its values of every query."""
    return {key: value for key, value in result.items() if key not in ("query_ids", "per_query")}


def all_models(dataset: Dataset, folds: str | None) -> list[str]:
    """The models that can use a dataset. A model whose package is not installed is skipped with a message."""
    kind, positive = dataset.manifest.kind, dataset.manifest.positive
    fits = [m for m in MODELS.values() if kind in m.inputs and (positive or not m.positive)]
    fits = [m for m in fits if folds or not m().needs_labels]
    uninstalled = [m for m in fits if m.package and find_spec(m.package) is None]
    for model in uninstalled:
        say(f"{model.name} is skipped: {model.package} is not installed ({install(model.package)})")
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
