"""The commands about data and models: each opens its inputs, calls the engine and prints."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from distagg.dataset import Dataset, expanded
from distagg.engine.fitting.fit import Through
from distagg.engine.progress import metered
from distagg.engine.runner import InlineRunner, Runner
from distagg.errors import UsageError, unknown
from distagg.models import ALIASES, MODELS, completion_named, is_model, model_named, reseeded
from distagg.reports.learned import learned_text
from distagg.reports.terminal import comparison_table, counted_by, render_table
from distagg.storage.paths import Place, local, place

ENDS = 10  # items at the top and at the bottom of a ranking in its report


def run_import(arguments: argparse.Namespace) -> None:
    from distagg.engine.importing import import_dataset

    options: dict[str, Any] = {}
    if arguments.kind == "ratings":
        options = {"users": arguments.users, "items": arguments.items, "scale": _scale(arguments.scale)}
    if arguments.kind == "trec":
        options = {"expert": arguments.expert, "by": arguments.by}
        if arguments.qrels:
            options["qrels"] = Path(arguments.qrels)
    began = time.perf_counter()
    with metered("import, rows read and written", 0) as progress:
        dataset = import_dataset(arguments.kind, arguments.sources, arguments.output, progress=progress, **options)
    spent = time.perf_counter() - began
    if arguments.json:
        _print_json(dataset.info())
    else:
        say(f"imported {dataset.manifest.entries:,} entries in {spent:.1f} s")
        print(_info_table(dataset.info()))


def _scale(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = (float(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"--scale: found '{text}', expected two numbers such as 0.5,5") from None
    return low, high


def run_expand(arguments: argparse.Namespace) -> None:
    from distagg.dataset.expand import expand_dataset
    from distagg.storage.atomic import refuse_existing

    dataset = Dataset.open(arguments.dataset)
    refuse_existing(place(arguments.output))
    times = {"experts": arguments.experts, "items": arguments.items}
    with metered("expand, entries", dataset.manifest.entries * arguments.experts * arguments.items) as progress:
        expand_dataset(dataset, arguments.output, **times, progress=progress)
    larger = Dataset.open(arguments.output)
    if arguments.json:
        _print_json(larger.info())
    else:
        print(_info_table(larger.info()))


def run_info(arguments: argparse.Namespace) -> None:
    dataset = Dataset.open(arguments.dataset)
    info = dataset.info()
    if arguments.report:
        from distagg.engine.inspect.describe import describe
        from distagg.reports import dataset_report, write_report

        write_report(dataset_report(describe(dataset)), arguments.report, overwrite=True)
        say(f"report: {arguments.report}")
    if arguments.json:
        _print_json(info)
    else:
        print(_info_table(info))


def run_models(arguments: argparse.Namespace) -> None:
    name = ALIASES.get(arguments.name, arguments.name)
    if name and name not in MODELS:
        raise unknown("model", name, MODELS)
    chosen = [MODELS[name]] if name else list(MODELS.values())
    rows: list[dict[str, Any]] = [
        {
            "name": model.name, "kind": "supervised" if model.supervised else "unsupervised", "cost": model.cost,
            "takes": list(model.inputs), "summary": model.summary, "paper": model.paper,
            "aliases": [alias for alias, other in ALIASES.items() if other == model.name],
            "parameters": {
                f.name: {"default": f.default, "help": f.metadata["help"], "choices": list(f.metadata["choices"])}
                for f in dataclasses.fields(model)
            },
        }
        for model in chosen
    ]  # fmt: skip
    if arguments.json:
        _print_json(rows)
        return
    if arguments.name:
        print(_explain_model(arguments.name, rows[0]))
        return
    print(_models_table(rows))
    print("".join(f"\n{alias}: alias of {model}" for alias, model in ALIASES.items()))
    print("\n'distagg models MODEL' explains one, with its cost, paper and parameters")


def _models_table(rows: list[dict[str, Any]], width: int = 80) -> str:
    """Name, kind and summary of models, within the width of a terminal: long summaries go on in the next line."""
    taken = max(len(row["name"]) for row in rows) + max(len(row["kind"]) for row in rows) + 2 * len("  ")
    room = max(width - taken, width // 4)
    body = []
    for row in rows:
        first, *more = textwrap.wrap(row["summary"], room) or [""]
        body += [[row["name"], row["kind"], first], *(["", "", line] for line in more)]
    return render_table(["model", "kind", "summary"], body, "lll")


def _explain_model(name: str, row: dict[str, Any], width: int = 80) -> str:
    """Summary, kind, cost, paper and parameters of one model, within the width of a terminal."""
    alias = [f"{name}: alias of {row['name']}"] if name != row["name"] else []
    about = [f"{row['name']}: {row['summary']}", f"{row['kind']}; cost: {row['cost']}; paper: {row['paper']}"]
    lines = alias + [line for text in about for line in textwrap.wrap(text, width, subsequent_indent="  ")]
    for parameter, meaning in row["parameters"].items():
        lines.append(f"  {parameter} = {meaning['default']}")
        lines += textwrap.wrap(meaning["help"], width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)


def run_fit(arguments: argparse.Namespace) -> None:
    from distagg.engine.fitting.fit import Goal, fit
    from distagg.engine.fitting.folds import count_folds
    from distagg.engine.fitting.search import differing, search, variants
    from distagg.engine.saved import Fitted, save_model
    from distagg.storage.atomic import refuse_existing

    models = variants(arguments.model, _settings(arguments.settings), tries=arguments.tries, seed=arguments.seed or 0)
    model, goal, tried = models[0], Goal(arguments.goal, arguments.protocol), []
    refuse_existing(place(arguments.output))
    dataset = _open(arguments, arguments.dataset)
    valid = _open(arguments, arguments.valid) if arguments.valid else None
    with run_in(arguments) as runner:
        if len(models) > 1:
            folds = arguments.folds
            with metered(f"search {model.name}, fits", len(models) * count_folds(folds)) as progress:
                values = search(models, dataset, valid=valid, folds=folds, goal=goal, runner=runner, progress=progress)
            model = models[int(values.argmax())]
            tried = [{**row, goal.metric: float(v)} for row, v in zip(differing(models), values, strict=True)]
        with metered(f"fit {model.name}", len(dataset.plan())) as progress:
            params = fit(model, dataset, valid=valid, goal=goal, runner=runner, progress=progress)
    about = {"goal": arguments.goal, "tried": tried}
    save_model(arguments.output, Fitted(model, params, dataset.experts), about)
    learned = {name: value.tolist() for name, value in params.items()}
    if arguments.json:
        _print_json({"model": model.name, "settings": dataclasses.asdict(model), "params": learned, "tried": tried})
    else:
        if tried:
            rows = [[*map(str, list(row.values())[:-1]), f"{100 * row[goal.metric]:.2f}"] for row in tried]
            print(render_table([*list(tried[0])[:-1], f"{goal.metric}, %"], rows, "l" * (len(tried[0]) - 1) + "r"))
        print(learned_text(model.name, params, dataset.experts, model.weight_columns))
        say(f"saved: {arguments.output}")


def run_rank(arguments: argparse.Namespace) -> None:
    from distagg.dataset.rankings import SUFFIXES
    from distagg.engine.fitting.fit import fit
    from distagg.engine.rank import rank_to
    from distagg.engine.rank_options import Shown
    from distagg.engine.saved import load_model

    target = place(arguments.output)
    if target.suffix == ".gz":
        raise UsageError(f"-o {target}: rankings cannot be written gzipped; write {target.stem} and gzip it afterwards")
    fmt = arguments.format or SUFFIXES.get(target.suffix, "parquet")
    if arguments.report and fmt == "trec":
        raise UsageError("--report needs columns that TREC runs do not have; write parquet or csv")
    dataset = _matching(_open(arguments, arguments.dataset), arguments.where)
    shown = Shown(
        support=arguments.support, least=arguments.min_support, titles=arguments.titles,
        resamples=arguments.bootstrap, seed=arguments.seed or 0,
    )  # fmt: skip
    with run_in(arguments) as runner, metered("rank", len(dataset.plan())) as progress:
        if not is_model(arguments.model) and place(arguments.model).exists():
            if arguments.settings:
                raise UsageError("-p has no effect on a fitted model; set parameters with 'distagg fit'")
            fitted = load_model(arguments.model)
            model = reseeded(fitted.model, arguments.seed)
            params = fitted.params_on(dataset, runner, allow_unseen=arguments.allow_unseen)
        else:
            model = model_named(arguments.model, _settings(arguments.settings), seed=arguments.seed or 0)
            if model.needs_labels:
                raise UsageError(f"{model.name} must be fitted first: distagg fit {model.name} DATASET -o MODELDIR")
            params = fit(model, dataset, runner=runner)
        through = _fit_completion(arguments, dataset, runner)
        rows = rank_to(
            target, model, params, dataset, fmt=fmt, shown=shown, through=through, runner=runner, progress=progress
        )
    if arguments.report:
        _report_ranking(target, model.name, arguments.report)
    about = {"model": model.name, "rows": rows, "output": str(target), "format": fmt}
    if arguments.json:
        _print_json(about)
    else:
        say(f"ranked {rows:,} items with {model.name}: {target}")


def _report_ranking(target: Place, model: str, report: str) -> None:
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
    write_report(consensus_report(contents), report, overwrite=True)
    say(f"report: {report}")


def _open(arguments: argparse.Namespace, path: str) -> Dataset:
    """Open a dataset, with the expansion that the arguments ask for."""
    dataset = Dataset.open(path)
    times = {"experts": arguments.expand_experts, "items": arguments.expand_items}
    return expanded(dataset, **times) if times != {"experts": 1, "items": 1} else dataset


def _matching(dataset: Dataset, condition: str | None) -> Dataset:
    """Select the experts that match a condition, and print their number."""
    if condition is None:
        return dataset
    dataset = dataset.select(audience=condition)
    say(f"{dataset.audience_size:,} of {dataset.manifest.experts:,} experts: {condition}")
    return dataset


def run_evaluate(arguments: argparse.Namespace) -> None:
    from distagg.engine.compare import DEFAULT_METRICS
    from distagg.engine.read_rankings import read_rankings
    from distagg.metrics import evaluate_rankings

    _refuse_existing(arguments.output)
    dataset = _matching(_open(arguments, arguments.dataset), arguments.where)
    if arguments.complete:
        _evaluate_users(arguments, dataset)
        return
    if arguments.where or arguments.completion:
        raise UsageError("--where and -c need --complete: labels do not depend on the user")
    if not dataset.manifest.labels:
        raise UsageError(f"{arguments.dataset} has no labels to evaluate against; import it with them")
    table = read_rankings(place(arguments.rankings))
    metrics = arguments.metrics or list(DEFAULT_METRICS)
    result = evaluate_rankings(table, dataset, metrics, protocol=arguments.protocol, source=arguments.rankings)
    body = {"means": result.means, "protocol": result.protocol, "queries": len(result.query_ids)}
    _write_result(arguments.output, body)
    if arguments.json:
        _print_json(body)
    else:
        print(_means_table(result.means))
        print(counted_by(result.protocol))


def _means_table(means: dict[str, float]) -> str:
    return render_table(["metric", "mean, %"], [[name, f"{100 * value:.2f}"] for name, value in means.items()], "lr")


def _evaluate_users(arguments: argparse.Namespace, dataset: Dataset) -> None:
    """Print the mean metrics of a ranking over all users."""
    from distagg.engine.complete import evaluate_users
    from distagg.engine.read_rankings import read_rankings

    table = read_rankings(place(arguments.rankings))
    metrics = arguments.metrics or ["ndcg@1", "ndcg@5", "ndcg@10"]
    with run_in(arguments) as runner, metered("evaluate", len(dataset.plan())) as progress:
        through = _fit_completion(arguments, dataset, runner)
        assert through is not None
        evaluation = evaluate_users(
            {arguments.rankings: table}, dataset, through, metrics, runner=runner, progress=progress
        )
    means = evaluation.means[arguments.rankings]
    body = {"means": means, "complete": arguments.complete, "users": len(evaluation.values[arguments.rankings])}
    _write_result(arguments.output, body)
    if arguments.json:
        _print_json(body)
    else:
        print(
            render_table(["metric", "mean, %"], [[name, f"{100 * value:.2f}"] for name, value in means.items()], "lr")
        )


def _fit_completion(arguments: argparse.Namespace, dataset: Dataset, runner: Runner) -> Through | None:
    """Fit the completion that the arguments ask for, if any."""
    from distagg.engine.complete import fit_completion

    if not arguments.complete:
        if arguments.completion:
            raise UsageError("-c needs --complete")
        return None
    completion = completion_named(arguments.complete, _settings(arguments.completion), seed=arguments.seed or 0)
    return fit_completion(completion, dataset, runner=runner)


def run_compare(arguments: argparse.Namespace) -> None:
    from distagg.engine.compare import DEFAULT_METRICS, compare
    from distagg.engine.fitting.folds import count_folds

    _refuse_existing(arguments.output)
    dataset = _open(arguments, arguments.dataset)
    names = arguments.models.split(",") if arguments.models else all_models(dataset, arguments.folds)
    settings: dict[str, dict[str, str]] = {}
    for key, value in _settings(arguments.settings).items():
        model, dot, name = key.partition(".")
        if not dot or model not in names:
            raise UsageError(f"-p {key}={value}: expected MODEL.key=value with one of the compared models")
        settings.setdefault(model, {})[name] = value
    with run_in(arguments) as runner, metered("compare", len(names) * count_folds(arguments.folds)) as progress:
        result = compare(
            dataset, names, settings=settings, folds=arguments.folds, metrics=arguments.metrics or DEFAULT_METRICS,
            protocol=arguments.protocol, goal=arguments.goal, baseline=arguments.baseline, tries=arguments.tries,
            seed=arguments.seed or 0, runner=runner, progress=progress,
        )  # fmt: skip
    result["command"] = "distagg " + " ".join(sys.argv[1:])
    _write_result(arguments.output, {key: value for key, value in result.items() if key != "per_query"})
    show_comparison(result, dataset, arguments.report, as_json=arguments.json)


def run_certificates(arguments: argparse.Namespace) -> None:
    from distagg.engine.certificates import make_certificates

    hosts = [host for host in arguments.hosts.split(",") if host]
    make_certificates(local(arguments.folder, "certificates"), hosts, days=arguments.days, at=arguments.at)
    if arguments.json:
        _print_json({"folder": arguments.folder, "hosts": hosts, "days": arguments.days})
    else:
        say(f"created {arguments.folder}; copy it to every host and set: export DASK_CONFIG={arguments.folder}")


def run_demo(arguments: argparse.Namespace) -> None:
    from distagg.cli.demo import demo

    demo(arguments)


def show_comparison(result: dict[str, Any], dataset: Dataset, report: str | None, *, as_json: bool) -> None:
    """Print the table (or JSON) on stdout, and write the page to a file."""
    if report:
        from distagg.engine.inspect.describe import describe
        from distagg.reports import compare_report, write_report

        write_report(compare_report({**result, "dataset": describe(dataset)}), report, overwrite=True)
        say(f"report: {report}")
    if as_json:
        _print_json({key: value for key, value in result.items() if key != "per_query"})
    else:
        print(comparison_table(result, colour=_colour()))


def all_models(dataset: Dataset, folds: str | None) -> list[str]:
    kind, positive = dataset.manifest.kind, dataset.manifest.positive
    fits = [m for m in MODELS.values() if kind in m.inputs and (positive or not m.positive)]
    fits = [m for m in fits if folds or not m().needs_labels]
    uninstalled = [m for m in fits if m.package and find_spec(m.package) is None]
    for model in uninstalled:
        say(f"{model.name} is skipped: {model.package} is not installed (pip install 'distagg[{model.package}]')")
    return [m.name for m in fits if m not in uninstalled]


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"-p {pair}: found no '=', expected key=value")
        settings[key] = value
    return settings


@contextmanager
def run_in(arguments: argparse.Namespace) -> Iterator[Runner]:
    """The inline runner, or a cluster if the arguments ask for one; only then Dask is imported."""
    if arguments.workers is None and arguments.scheduler is None:
        yield InlineRunner()
        return
    from distagg.engine.dask import local_cluster, remote_cluster

    cluster = remote_cluster(arguments.scheduler) if arguments.scheduler else local_cluster(arguments.workers)
    with cluster as runner:
        yield runner


def _info_table(info: dict[str, Any]) -> str:
    def shown(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{k}: {v:,}" for k, v in value.items()) or "-"
        if isinstance(value, list):
            return ", ".join(map(str, value[:8])) + (", ..." if len(value) > 8 else "") or "-"
        if isinstance(value, float):
            return f"{value:.1%}"
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)

    return render_table(["", ""], [[key, shown(value)] for key, value in info.items()], "ll")


def _refuse_existing(output: str | None) -> None:
    """Refuse a result file that exists already, before any work is done."""
    if output:
        from distagg.storage.atomic import refuse_existing

        refuse_existing(place(output))


def _write_result(output: str | None, value: Any) -> None:
    """Write the output of ``--json`` to a file, if one is given."""
    if output:
        from distagg.storage.atomic import staged_file

        with staged_file(place(output)) as file:
            file.write_bytes((json.dumps(value, indent=1) + "\n").encode())
        say(f"wrote: {output}")


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1))


def say(text: str) -> None:
    print(text, file=sys.stderr)


def _colour() -> bool:
    import os

    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
