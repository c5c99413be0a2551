"""The commands that learn and apply a model: fit, rank."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distagg.cli.commands import Argument, Call, command, option, say
from distagg.cli.options import (
    ALLOW_UNSEEN,
    DATA,
    GOAL,
    MODEL_OR_FITTED,
    SAFE_CSV,
    Completion,
    Data,
    complete_model,
    completion_options,
    matching,
    refuse_unlabelled,
    step_options,
    within,
)
from distagg.dataset import Dataset
from distagg.engine.fitting.fit import Goal, fit, most_steps, tell_pool
from distagg.engine.progress import metered
from distagg.engine.rank import rank_by_chunks, rank_to
from distagg.engine.rank_options import Shown
from distagg.engine.runner import Runner
from distagg.engine.saved import Fitted, expert_table, load_model, save_model
from distagg.engine.tracking import tell_fit
from distagg.errors import UsageError
from distagg.models import Model, Params, is_model, model_named, reseeded
from distagg.pipeline.step_options import with_shortcuts
from distagg.rankings.files import SUFFIXES, Format, as_csv, as_parquet, as_trec, safe_format
from distagg.reports.terminal import coefficients_table, ranking_table, reliability_text, render_table
from distagg.storage.atomic import refuse_existing, staged_file
from distagg.storage.paths import Place, place

SHOWN_QUERIES, SHOWN_ITEMS = 3, 10  # of a ranking on a terminal
ENDS = 10  # items at the top and at the bottom of a ranking in its report


@command(
    "fit",
    Argument(
        "model",
        metavar="MODEL",
        shell_complete=complete_model,
        help="a model's name; 'distagg models' lists them",
    ),
    DATA,
    option(
        "-o",
        "--output",
        required=True,
        metavar="MODELDIR",
        help="the directory to create, for 'distagg rank', 'experts' and 'explain'",
    ),
    *step_options("fit", "valid", "folds", "settings", "tries", "depth", "weights"),
    GOAL,
    examples=(
        "distagg fit crf runs/ --qrels qrels.txt -o model",
        "distagg fit rrf mq -p c=10,30,60 --folds letor5 --goal ndcg@5 -o chosen",
    ),
)
def fit_command(
    call: Call,
    model: str,
    data: Data,
    output: str,
    valid: str | None,
    folds: str | None,
    settings: dict[str, str],
    tries: int | None,
    depth: int | None,
    weights: str | None,
    goal: Goal,
) -> None:
    from distagg.engine.fitting.folds import count_folds
    from distagg.engine.fitting.search import differing, search, variants
    from distagg.reports.terminal import learned_text

    settings = with_shortcuts(settings, depth=depth, weights=weights)
    models = variants(model, settings, tries=tries, seed=call.seed or 0)
    best, tried = models[0], []
    refuse_existing(place(output))
    dataset = data.open()
    if best.needs_labels or len(models) > 1:
        refuse_unlabelled(data, dataset)
    validation = data.beside(valid) if valid else None
    with call.runner() as runner:
        if len(models) > 1:
            with metered(f"search {best.name}, fits", len(models) * count_folds(folds)) as progress:
                values = search(
                    models, dataset, valid=validation, folds=folds, goal=goal, runner=runner, progress=progress
                )
            best = models[int(values.argmax())]
            tried = [{**row, goal.metric: float(v)} for row, v in zip(differing(models), values, strict=True)]
        tell_pool(best, dataset)
        with metered(f"fit {best.name}", most_steps(best, dataset), at_most=True) as progress:
            began = time.perf_counter()
            params = fit(best, dataset, valid=validation, goal=goal, runner=runner, progress=progress)
    fitted = Fitted(best, params, dataset.experts)
    tell_fit(fitted, goal.metric, time.perf_counter() - began, str(dataset.path or ""))
    save_model(output, fitted, {"goal": goal.metric, "tried": tried})
    learned = {name: value.tolist() for name, value in params.items()}
    experts = expert_table(best, params, dataset.experts).to_pylist()
    text = _learned_reliabilities(best.name, params, experts) if experts else ""
    text = text or learned_text(best.name, params, dataset.experts, best.weight_columns)
    about = {"model": best.name, "settings": dataclasses.asdict(best), "params": learned, "tried": tried}
    call.show(
        about | ({"experts": experts} if experts else {}),
        _tried_table(tried, goal.metric) + text,
        note=f"saved: {output}",
    )


def _learned_reliabilities(model: str, params: Params, experts: list[dict[str, Any]]) -> str:
    """The reliabilities of experts as a table, below what else was learned."""
    from distagg.reports.terminal import learned_text

    others = {name: value for name, value in params.items() if not name.startswith("expert_")}
    return learned_text(model, others, (), ()) + "\n" + reliability_text(experts)


def _tried_table(tried: list[dict[str, Any]], metric: str) -> str:
    """The settings that a search tried, each with its score; nothing without a search."""
    if not tried:
        return ""
    rows = [[*map(str, list(row.values())[:-1]), f"{100 * row[metric]:.2f}"] for row in tried]
    return render_table([*list(tried[0])[:-1], f"{metric}, %"], rows, "l" * (len(tried[0]) - 1) + "r") + "\n"


@command(
    "rank",
    MODEL_OR_FITTED,
    DATA,
    option(
        "-o",
        "--output",
        metavar="RANKINGS",
        help="the directory to create, or a file: .csv, .parquet, .run (TREC); default: print on stdout, on a "
        "terminal only the top of the first queries",
    ),
    *step_options("rank", "format", "top", "settings", "depth", "weights", "where", "since", "until"),
    completion_options("rank"),
    *step_options("rank", "support", "min_support", "titles", "bootstrap"),
    option(
        "--experts",
        metavar="FILE",
        help="write how reliable each expert is (.csv or .parquet), with standard errors and votes, for models that "
        "learn it: crowd_bt, noisy_bt, theta_mpm. A directory of rankings has it as _experts.parquet",
    ),
    option(
        "--report",
        metavar="FILE.html",
        help="write a page with the top and bottom of the first query's ranking, its uncertainty, and the reliability "
        "of experts",
    ),
    SAFE_CSV,
    ALLOW_UNSEEN,
    examples=(
        "distagg rank rrf bm25.run dense.run --weights dense:2 --top 100 > fused.run",
        "distagg rank rrf 'runs/*.run.gz' --depth 1000 -o fused.run",
        "distagg rank rrf lists.csv",
        "distagg rank bradley_terry battles.csv",
        "distagg rank rrf mq -o rankings",
        "distagg rank model mq -o tonight.run",
        "distagg rank mpm movies -o top.csv --support --titles --min-support 10 --report top.html",
        "distagg rank bradley_terry battles -o board.csv -p errors=standard",
        "distagg rank crowd_bt votes.csv -o board.csv --experts annotators.csv",
        "distagg rank bradley_terry battles.csv -p covariates=length_a-length_b,position --since 2026-01-01",
    ),
)
def rank_command(
    call: Call,
    model: str,
    data: Data,
    output: str | None,
    format: Any,
    settings: dict[str, str],
    depth: int | None,
    weights: str | None,
    where: str | None,
    since: str | None,
    until: str | None,
    completion: Completion,
    experts: str | None,
    report: str | None,
    safe_csv: bool,
    allow_unseen: bool,
    **columns: Any,
) -> None:
    target, fmt = place(output) if output else None, format
    _refuse_formats(target, fmt, report)
    if experts:
        refuse_existing(place(experts))
        if place(experts).suffix not in (".csv", ".parquet"):
            raise UsageError(f"--experts {experts}: found no known ending, expected .csv or .parquet")
    shown = Shown(
        support=columns["support"],
        least=columns["min_support"],
        top=columns["top"],
        titles=columns["titles"],
        resamples=columns["bootstrap"],
        seed=call.seed or 0,
    )
    settings = with_shortcuts(settings, depth=depth, weights=weights)
    dataset = within(matching(data.with_covariates(settings).open(), where), since, until)
    learned: list[pa.Table] = []
    with call.runner() as runner, metered("rank", len(dataset.plan())) as progress:
        ready, params = ready_model(call, model, settings, data, dataset, runner, allow_unseen=allow_unseen)
        worth = _reliabilities(ready, params, dataset, experts, safe_csv=safe_csv)
        through = completion.fit(dataset, call.seed, runner)
        options: dict[str, Any] = {"shown": shown, "through": through, "runner": runner, "progress": progress}
        options["learned"] = learned
        if target is None:
            tables = rank_by_chunks(ready, params, dataset, **options)
            if call.json:
                print(json.dumps(pa.concat_tables(tables).to_pylist(), indent=1))
            elif sys.stdout.isatty() and not fmt:
                _print_top(tables, dataset.manifest.queries)
                if len(worth):
                    print("\n" + reliability_text(worth.to_pylist()))
            else:
                _print_lines(tables, safe_format(fmt or _format_of_pipe(dataset, shown), safe_csv), ready.name)
            say_coefficients(learned)
            return
        fmt = fmt or SUFFIXES.get(target.suffix, "parquet")
        rows = rank_to(target, ready, params, dataset, fmt=safe_format(fmt, safe_csv), **options)
    coefficients = say_coefficients(learned)
    if report:
        _report_ranking(target, ready.name, report, worth, coefficients)
    about = {"model": ready.name, "rows": rows, "output": str(target), "format": fmt}
    about |= {"experts": worth.to_pylist()} if len(worth) else {}
    about |= {"coefficients": coefficients} if coefficients else {}
    call.show(about, note=f"ranked {rows:,} items with {ready.name}: {target}")


def _reliabilities(model: Model, params: Params, dataset: Dataset, target: str | None, *, safe_csv: bool) -> pa.Table:
    """The table about experts, written to a file if one is named; refuses that for models that learn no reliability."""
    worth = expert_table(model, params, dataset.experts)
    if target is None:
        return worth
    if not len(worth):
        raise UsageError(
            f"--experts: {model.name} does not learn how reliable experts are; crowd_bt, noisy_bt and theta_mpm do"
        )
    file = place(target)
    with staged_file(file) as staging:
        is_csv = file.suffix == ".csv"
        staging.write_bytes(as_csv(worth, header=True, safe=safe_csv) if is_csv else as_parquet(worth))
    say(f"wrote the reliability of {len(worth):,} experts: {file}")
    return worth


def say_coefficients(learned: list[pa.Table]) -> list[dict[str, Any]]:
    """Print the coefficients of covariates, if there are any, and return their rows."""
    rows: list[dict[str, Any]] = pa.concat_tables(learned).to_pylist() if learned else []
    if rows:
        say(coefficients_table(rows))
    return rows


def _refuse_formats(target: Place | None, fmt: Format | None, report: str | None) -> None:
    """Refuse what cannot be written, before any work is done."""
    if target is None:
        if fmt == "parquet":
            raise UsageError("--format parquet cannot be printed; give -o RANKINGS, or --format csv or trec")
        if report:
            raise UsageError("--report needs a ranking on disk; give -o RANKINGS")
        return
    if target.suffix == ".gz":
        raise UsageError(f"-o {target}: rankings cannot be written gzipped; write {target.stem} and gzip it afterwards")
    if report and (fmt or SUFFIXES.get(target.suffix)) == "trec":
        raise UsageError("--report needs columns that TREC runs do not have; write parquet or csv")


def _format_of_pipe(dataset: Dataset, shown: Shown) -> Format:
    """The format on stdout: TREC runs if the data are runs; CSV for other data, and for columns that runs lack."""
    return "trec" if dataset.manifest.source == "trec" and not shown.columns else "csv"


def _print_lines(tables: Iterator[pa.Table], fmt: Format, tag: str) -> None:
    """Print all lines, chunk by chunk."""
    for number, table in enumerate(tables):
        lines = as_trec(table, tag) if fmt == "trec" else as_csv(table, header=number == 0, safe=fmt == "safe-csv")
        sys.stdout.write(lines.decode())


def _print_top(tables: Iterator[pa.Table], queries: int) -> None:
    """Print the top of the first queries, and say how to get the rest; chunks that are not shown are not ranked."""
    table = next(tables)
    for more in tables:
        table = pa.concat_tables([table, more])
        if pc.count_distinct(table["query"]).as_py() > SHOWN_QUERIES:
            break
    items = SHOWN_ITEMS if queries > 1 else SHOWN_QUERIES * SHOWN_ITEMS
    print(ranking_table(table, SHOWN_QUERIES, items))
    longest = pc.max(table["rank"]).as_py() or 0
    first = [f"{SHOWN_QUERIES} of {queries:,} queries"] if queries > SHOWN_QUERIES else []
    first += [f"{items} items of a query"] if longest > items else []
    if first:
        say(f"the first {', '.join(first)}; for all: '-o FILE' or '| cat'")


def refuse_settings(settings: dict[str, str]) -> None:
    """Refuse settings for a saved model, which has its own."""
    if settings:
        raise UsageError("-p has no effect on a fitted model; set parameters with 'distagg fit'")


def ready_model(
    call: Call,
    name: str,
    settings: dict[str, str],
    data: Data,
    dataset: Dataset,
    runner: Runner,
    *,
    allow_unseen: bool,
) -> tuple[Model, Params]:
    """A saved model with its params, or a model by its name, which must not need labels."""
    if not is_model(name) and place(name).exists():
        refuse_settings(settings)
        fitted = load_model(name)
        return reseeded(fitted.model, call.seed), fitted.params_on(dataset, runner, allow_unseen=allow_unseen)
    model = without_labels(model_named(name, settings, seed=call.seed or 0), data)
    return model, fit(model, dataset, runner=runner)


def without_labels(model: Model, data: Data) -> Model:
    """The model itself; refuses one that learns from labels and so has to be fitted first."""
    if model.needs_labels:
        raise UsageError(f"{model.name} must be fitted first: distagg fit {model.name} {data} -o MODELDIR")
    return model


def _report_ranking(
    target: Place, model: str, report: str, experts: pa.Table, coefficients: list[dict[str, Any]]
) -> None:
    """Write a page with the top and bottom of the first query's ranking, and its uncertainty if there is any."""
    from distagg.engine.read_rankings import read_rankings
    from distagg.reports import consensus_report, write_report

    table = read_rankings(target)
    table = table.filter(pc.equal(table["query"], table["query"][0])) if len(table) else table
    rows = table.to_pylist()
    cut = max(len(rows) - ENDS, ENDS)
    contents: dict[str, Any] = {"title": str(target), "ends": {model: {"top": rows[:ENDS], "bottom": rows[cut:]}}}
    if "uncertainty" in table.column_names:
        contents["variance"] = {name: table[name].to_pylist() for name in ("rank", "uncertainty")}
        for unit in {"experts", "comparisons"}.intersection(table.column_names):
            contents["variance"] |= {"support": table[unit].to_pylist(), "unit": unit}
    contents |= {"experts": experts.to_pylist(), "coefficients": coefficients}
    write_report(consensus_report(contents), report, overwrite=True)
    say(f"report: {report}")
