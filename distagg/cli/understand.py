"""The commands ``experts``, ``explain`` and ``features``: how a model uses its experts, and its input features."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

from distagg.cli.commands import run_in, say
from distagg.dataset import Dataset
from distagg.engine import fit
from distagg.engine.compare import evaluate_model
from distagg.engine.fitting.fit import Goal
from distagg.engine.inspect.attribution import explain
from distagg.engine.inspect.features import features_to
from distagg.engine.inspect.quality import Quality, as_rows, drop_experts, judge_experts, retrain, weight_rows
from distagg.engine.progress import Meter
from distagg.engine.runner import Runner
from distagg.engine.saved import Fitted, load_model, save_model
from distagg.errors import UsageError
from distagg.metrics import paired_tests
from distagg.models import is_model, model_named, reseeded
from distagg.models.scorers.features import FeatureSettings
from distagg.reports import write_report
from distagg.reports.experts import experts_report, explanation_report, explanation_text, quality_text
from distagg.reports.terminal import render_table
from distagg.reports.text import p_value, percent
from distagg.storage.atomic import refuse_existing
from distagg.storage.paths import local, place


def run_experts(arguments: argparse.Namespace) -> None:
    fitted = _loaded(arguments)
    if arguments.retrain:
        if not arguments.data:
            raise UsageError("--retrain needs the training data: give --data DATASET")
        refuse_existing(place(arguments.retrain))
    dataset = Dataset.open(arguments.data) if arguments.data else None
    valid = Dataset.open(arguments.valid) if arguments.valid else None
    goal, plan = Goal(arguments.goal, arguments.protocol), len(dataset.plan()) if dataset else 1
    with run_in(arguments) as runner, closing(Meter("experts", plan)) as progress:
        qualities = judge_experts(
            fitted, dataset, goal=goal, allow_unseen=arguments.allow_unseen, runner=runner, progress=progress
        )
        result: dict[str, Any] = {
            "model": fitted.model.name, "data": arguments.data, "goal": arguments.goal, "experts": as_rows(qualities),
            "weights": weight_rows(fitted),
        }  # fmt: skip
        if arguments.retrain and dataset is not None:
            result["retrained"] = _retrain(arguments, fitted, qualities, dataset, valid, goal, runner)
    if arguments.report:
        write_report(experts_report(result), arguments.report, overwrite=True)
        say(f"report: {arguments.report}")
    if arguments.json:
        _print_json(result)
        return
    print(quality_text(result))
    if "retrained" in result:
        print(_retrained_text(result["retrained"], arguments.goal))


def _loaded(arguments: argparse.Namespace) -> Fitted:
    fitted = load_model(arguments.model)
    return replace(fitted, model=reseeded(fitted.model, arguments.seed))


def _retrain(
    arguments: argparse.Namespace, fitted: Fitted, qualities: list[Quality], train: Dataset, valid: Dataset | None,
    goal: Goal, runner: Runner,
) -> dict[str, Any]:  # fmt: skip
    """Fit without the unused experts, save the new model, and compare both on the validation queries."""
    unused = [candidate.expert for candidate in qualities if candidate.verdict == "unused"]
    if not unused:
        raise UsageError("all experts are used; --retrain has nothing to leave out")
    fewer = retrain(fitted, unused, train, valid=valid, goal=goal, runner=runner)
    save_model(arguments.retrain, fewer, {"goal": arguments.goal, "without": unused})
    say(f"saved: {arguments.retrain}")
    judged = valid if valid is not None else train
    values = [
        evaluate_model(
            candidate.model, candidate.params_for(data.experts), data, [goal.metric], protocol=goal.protocol
        )[1][:, 0]
        for candidate, data in ((fitted, judged), (fewer, drop_experts(judged, unused)))
    ]
    test = paired_tests(values[1], values[0], arguments.seed or 0)
    return {
        "without": unused, "output": arguments.retrain, "on": arguments.valid or arguments.data,
        "before": float(values[0].mean()), "after": float(values[1].mean()),
        "difference": test.difference, "low": test.low, "high": test.high, "p_t": test.t_test,
    }  # fmt: skip


def _retrained_text(retrained: dict[str, Any], metric: str) -> str:
    interval = f"{percent(retrained['low'], signed=True)} to {percent(retrained['high'], signed=True)}"
    rows = [
        ["all experts", percent(retrained["before"]), "", "", ""],
        [f"without {', '.join(retrained['without'])}", percent(retrained["after"]),
         percent(retrained["difference"], signed=True), interval, p_value(retrained["p_t"])],
    ]  # fmt: skip
    return f"\non {retrained['on']}:\n" + render_table(["", f"{metric}, %", "difference", "95%", "p"], rows, "lrrrr")


def run_explain(arguments: argparse.Namespace) -> None:
    dataset = Dataset.open(arguments.dataset)
    if not is_model(arguments.model) and place(arguments.model).exists():
        fitted = _loaded(arguments)
    else:
        model = model_named(arguments.model, seed=arguments.seed or 0)
        if model.needs_labels:
            raise UsageError(f"{model.name} must be fitted first: distagg fit {model.name} DATASET -o MODELDIR")
        fitted = fit(model, dataset)
    results = [explain(fitted, dataset, query, allow_unseen=arguments.allow_unseen) for query in arguments.queries]
    if arguments.report:
        write_report(explanation_report(results), arguments.report, overwrite=True)
        say(f"report: {arguments.report}")
    if arguments.json:
        _print_json(results)
    else:
        print("\n\n".join(explanation_text(result) for result in results))


def run_features(arguments: argparse.Namespace) -> None:
    dataset = Dataset.open(arguments.dataset)
    settings = FeatureSettings(arguments.kind, arguments.pairs, arguments.rank, arguments.combined)
    with run_in(arguments) as runner, closing(Meter("features", len(dataset.plan()))) as progress:
        rows = features_to(local(arguments.output, "features"), dataset, settings, runner, progress)
    if arguments.json:
        _print_json({"output": arguments.output, "rows": rows, **asdict(settings)})
    else:
        say(f"wrote the features of {rows:,} items: {arguments.output}")


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1))
