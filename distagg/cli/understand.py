"""The commands ``experts``, ``explain`` and ``features``: how a model uses its experts, and its input features."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

from distagg.cli.commands import Argument, Call, command, flag, option, say
from distagg.cli.options import (
    ALLOW_UNSEEN,
    DATASET,
    GOAL,
    MODEL_OR_FITTED,
    PLAIN_DATA,
    REPORT,
    SHORTCUTS,
    Data,
    settings_option,
)
from distagg.cli.ranking import refuse_settings, without_labels
from distagg.dataset import Dataset
from distagg.engine.api import fit
from distagg.engine.compare import evaluate_model
from distagg.engine.fitting.fit import Goal
from distagg.engine.inspect.attribution import explain
from distagg.engine.inspect.describe import features_to
from distagg.engine.inspect.quality import Quality, as_rows, drop_experts, judge_experts, weight_rows
from distagg.engine.inspect.quality import retrain as retrain_without
from distagg.engine.progress import Meter
from distagg.engine.runner import Runner
from distagg.engine.saved import Fitted, load_model, save_model
from distagg.engine.tracking import learning_curve
from distagg.errors import UsageError
from distagg.metrics import paired_tests
from distagg.models import is_model, model_named, reseeded
from distagg.models.scorers.features import FeatureSettings
from distagg.pipeline.step_options import with_shortcuts
from distagg.reports import write_report
from distagg.reports.experts_page import experts_report, explanation_report, explanation_text, quality_text
from distagg.reports.terminal import render_table
from distagg.reports.text import p_value, percent
from distagg.storage.atomic import refuse_existing
from distagg.storage.paths import local, place


@command(
    "experts",
    Argument("model", metavar="MODELDIR", help="a model fitted by 'distagg fit'"),
    option("--data", metavar="DATASET", help="data to test experts on (default: synthetic lists)"),
    option("--report", metavar="FILE.html", help="write weights and verdicts as a self-contained page"),
    option("--retrain", metavar="MODELDIR", help="fit again on --data without the unused experts, and compare"),
    option("--valid", metavar="DATASET", help="labelled validation data for --retrain and its comparison"),
    ALLOW_UNSEEN,
    GOAL,
    examples=("distagg experts model --data mq --report experts.html",),
)
def experts_command(
    call: Call,
    model: str,
    data: str | None,
    report: str | None,
    retrain: str | None,
    valid: str | None,
    allow_unseen: bool,
    goal: Goal,
) -> None:
    fitted = _loaded(call, model)
    if retrain:
        if not data:
            raise UsageError("--retrain needs the training data: give --data DATASET")
        refuse_existing(place(retrain))
    dataset = Dataset.open(data) if data else None
    validation = Dataset.open(valid) if valid else None
    with call.runner() as runner, closing(Meter("experts", len(dataset.plan()) if dataset else 1)) as progress:
        qualities = judge_experts(
            fitted, dataset, goal=goal, allow_unseen=allow_unseen, runner=runner, progress=progress
        )
        result: dict[str, Any] = {
            "model": fitted.model.name,
            "data": data,
            "goal": goal.metric,
            "experts": as_rows(qualities),
            "weights": weight_rows(fitted),
            "curve": learning_curve(fitted),
        }
        if retrain and dataset is not None:
            result["retrained"] = _retrain(call, fitted, qualities, dataset, validation, goal, runner, retrain)
            result["retrained"] |= {"output": retrain, "on": valid or data}
    if report:
        write_report(experts_report(result), report, overwrite=True)
        say(f"report: {report}")
    again = _retrained_text(result["retrained"], goal.metric) if "retrained" in result else ""
    call.show(result, quality_text(result) + again)


def _loaded(call: Call, model: str) -> Fitted:
    fitted = load_model(model)
    return replace(fitted, model=reseeded(fitted.model, call.seed))


def _retrain(
    call: Call,
    fitted: Fitted,
    qualities: list[Quality],
    train: Dataset,
    valid: Dataset | None,
    goal: Goal,
    runner: Runner,
    output: str,
) -> dict[str, Any]:
    """Fit without the unused experts, save the new model, and compare both on the validation queries."""
    unused = [candidate.expert for candidate in qualities if candidate.verdict == "unused"]
    if not unused:
        raise UsageError("all experts are used; --retrain has nothing to leave out")
    fewer = retrain_without(fitted, unused, train, valid=valid, goal=goal, runner=runner)
    save_model(output, fewer, {"goal": goal.metric, "without": unused})
    say(f"saved: {output}")
    judged = valid if valid is not None else train
    values = [
        evaluate_model(
            candidate.model, candidate.params_for(data.experts), data, [goal.metric], protocol=goal.protocol
        )[1][:, 0]
        for candidate, data in ((fitted, judged), (fewer, drop_experts(judged, unused)))
    ]
    test = paired_tests(values[1], values[0], call.seed or 0)
    return {
        "without": unused,
        "before": float(values[0].mean()),
        "after": float(values[1].mean()),
        "difference": test.difference,
        "low": test.low,
        "high": test.high,
        "p_t": test.t_test,
    }


def _retrained_text(retrained: dict[str, Any], metric: str) -> str:
    interval = f"{percent(retrained['low'], signed=True)} to {percent(retrained['high'], signed=True)}"
    rows = [
        ["all experts", percent(retrained["before"]), "", "", ""],
        [
            f"without {', '.join(retrained['without'])}",
            percent(retrained["after"]),
            percent(retrained["difference"], signed=True),
            interval,
            p_value(retrained["p_t"]),
        ],
    ]
    return f"\n\non {retrained['on']}:\n" + render_table(["", f"{metric}, %", "difference", "95%", "p"], rows, "lrrrr")


@command(
    "explain",
    MODEL_OR_FITTED,
    PLAIN_DATA,
    option("--query", "queries", many=True, required=True, metavar="QUERY", help="repeat for more"),
    settings_option("key=value", "set a parameter of a model given by name; repeat for more"),
    *SHORTCUTS,
    REPORT,
    ALLOW_UNSEEN,
    cluster=False,
    examples=("distagg explain model mq --query 10002", "distagg explain rrf bm25.run dense.run --query 10002"),
)
def explain_command(
    call: Call,
    model: str,
    data: Data,
    queries: tuple[str, ...],
    settings: dict[str, str],
    depth: int | None,
    weights: str | None,
    report: str | None,
    allow_unseen: bool,
) -> None:
    settings = with_shortcuts(settings, depth=depth, weights=weights)
    opened = data.open()
    if not is_model(model) and place(model).exists():
        refuse_settings(settings)
        fitted = _loaded(call, model)
    else:
        fitted = fit(without_labels(model_named(model, settings, seed=call.seed or 0), data), opened)
    results = [explain(fitted, opened, query, allow_unseen=allow_unseen) for query in queries]
    if report:
        write_report(explanation_report(results), report, overwrite=True)
        say(f"report: {report}")
    call.show(results, "\n\n".join(explanation_text(result) for result in results))


@command(
    "features",
    DATASET,
    option("-o", "--output", required=True, metavar="DIR", help="a directory of Parquet files"),
    option("--kind", default="svd", metavar="KIND", help="svd, borda, cp or sums, which pairs have too (default svd)"),
    option("--pairs", default="log", metavar="NAME", help="binary, difference, normalised, log or all (default log)"),
    option("--rank", type=int, default=1, metavar="N", help="number of singular triplets of svd (default 1)"),
    flag("--combined", help="one set of features for the sum of all experts"),
    examples=("distagg features mq -o features --rank 2",),
)
def features_command(call: Call, dataset: str, output: str, kind: str, pairs: str, rank: int, combined: bool) -> None:
    opened = Dataset.open(dataset)
    settings = FeatureSettings(kind, pairs, rank, combined)
    with call.runner() as runner, closing(Meter("features", len(opened.plan()))) as progress:
        rows = features_to(local(output, "features"), opened, settings, runner, progress)
    about = {"output": output, "rows": rows, **asdict(settings)}
    call.show(about, note=f"wrote the features of {rows:,} items: {output}")
