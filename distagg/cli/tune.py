"""The command ``tune``: chooses a plain rule's settings and weights on labels, measures the gain, exports the rule."""

from __future__ import annotations

import json
from typing import Any

from distagg.cli.commands import Call, command, option, say
from distagg.cli.options import DATA, Data, names_of, step_options
from distagg.engine.export import PRODUCTS
from distagg.engine.fitting.folds import count_folds
from distagg.engine.fitting.tune import Tuned, tune
from distagg.engine.progress import metered
from distagg.engine.saved import save_model
from distagg.reports.terminal import counted_by, render_table
from distagg.storage.atomic import refuse_existing
from distagg.storage.paths import place

FEW = 8  # experts whose weights in every fold are shown


@command(
    "tune",
    DATA,
    *step_options("tune", "models", "folds", "metrics", "protocol", "beside", "product"),
    option("-o", "--output", metavar="MODELDIR", help="the directory to create, for 'distagg rank'"),
    examples=(
        "distagg tune runs -m ndcg@10 -o tuned",
        "distagg tune runs --models rrf --export elasticsearch",
        "distagg tune mq --folds letor5 -m ndcg@5 -m map --beside crf,blend",
    ),
)
def tune_command(
    call: Call,
    data: Data,
    models: str,
    folds: str,
    metrics: tuple[str, ...],
    protocol: str | None,
    beside: str | None,
    product: str | None,
    output: str | None,
) -> None:
    if output:
        refuse_existing(place(output))
    dataset = data.open()
    first, *more = metrics or ("ndcg@10",)
    rules, others = names_of(models, "--models"), [] if beside is None else names_of(beside, "--beside")
    fits = len(rules) + len(others) * count_folds(folds)
    with call.runner() as runner, metered("tune, rules and fits", fits) as progress:
        tuned = tune(
            dataset,
            rules,
            folds=folds,
            metric=first,
            metrics=more,
            protocol=protocol,
            beside=others,
            product=product,
            seed=call.seed or 0,
            runner=runner,
            progress=progress,
        )
    if output:
        save_model(output, tuned.fitted, {"goal": tuned.metrics[0], "tuned": tuned.as_dict()})
    body = tuned.as_dict()
    text = tuned_text(tuned)
    if product:
        value, notes = tuned.export(product)
        body["export"] = {"product": PRODUCTS[product].title, "value": value, "notes": list(notes)}
        if not call.json:
            say(text + "".join(f"\nnote: {note}" for note in notes))
        text = json.dumps(value, indent=1)
    call.show(body, text, note=f"saved: {output}" if output else "")


def tuned_text(tuned: Tuned) -> str:
    """The held-out figures and the settings that were found, for the terminal."""
    base = tuned.table[0]["rule"]
    rows = []
    for row in tuned.table:
        gain, low, high = (f"{100 * row[name]:+.2f}" for name in ("gain", "low", "high"))
        means = [f"{100 * row[name]:.2f}" for name in tuned.metrics]
        rows.append([row["rule"], *means, "" if row["rule"] == base else f"{gain} ({low} to {high})"])
    header = ["held out", *tuned.metrics, f"{tuned.metrics[0]} over {base}"]
    table = render_table(header, rows, "l" + "r" * len(tuned.metrics) + "l")
    chosen = _settings(tuned.as_dict()["settings"]) or "with its defaults: no tuning is better by more than noise"
    counts = f"{tuned.queries:,} labelled queries, {tuned.judged:,} settings tried"
    text = f"{table}\n{counted_by(tuned.protocol)}\n\n{tuned.model.name} {chosen}\n({counts})"
    if len(tuned.experts) > FEW:
        return f"{text}\n--json has the settings of every fold"
    folds = [row for row in tuned.folds if row["rule"] == tuned.model.name]
    return "\n".join([text, *(f"fold {row['fold']}: {_settings(row) or row['stage']}" for row in folds)])


def _settings(row: dict[str, Any]) -> str:
    """Settings as the user would type them."""
    own = {name: value for name, value in row.items() if name not in ("fold", "rule", "stage")}
    return " ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in own.items()
    )
