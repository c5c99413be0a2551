"""``distagg demo``: synthetic data with a planted truth, imported, compared, ranked and reported."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from distagg.cli.commands import Call, command, flag, option, say
from distagg.cli.evaluating import all_models, show_comparison
from distagg.dataset import Dataset, write_dataset
from distagg.engine.compare import compare
from distagg.engine.fitting.fit import fit
from distagg.engine.fitting.folds import make_folds
from distagg.engine.inspect.quality import as_rows, judge_experts, weight_rows
from distagg.engine.rank import rank_to
from distagg.engine.runner import Runner
from distagg.engine.saved import Fitted
from distagg.errors import UsageError
from distagg.models import MODELS, model_named
from distagg.reports import write_report
from distagg.reports.experts_page import experts_report
from distagg.reports.paper_page import comparison_finding, paper_page
from distagg.reports.terminal import comparison_table
from distagg.sources.synthetic import SyntheticSource
from distagg.storage.paths import local

METRICS = ("ndcg@5", "ndcg@10", "map")
QUICK = ("bestinput", "borda", "rrf", "combsum")  # nothing to compile: their table comes within seconds
SHOWN = (*QUICK, "theta_mpm", "ssra", "crf")  # --all compares all
SMALL: dict[str, dict[str, Any]] = {  # to keep the demo short
    "blend": {"crf": 1, "lambdamart": 1, "lambdarank": 0},  # members, instead of 12, 12 and 4
    "crf": {"validation": "given"},  # instead of cross-validation, which suits few labels
}
PAGES = {
    "models.html": "Models side by side, as the papers print them",
    "experts.html": "Expert quality: the weights of a CRF, as the papers draw them",
}
OURS = ("synthetic", "rankings", "report.html", *PAGES)
NEXT = """  distagg example metasearch        files of four search engines, and a guide to them
  distagg rank rrf YOURS.csv        your own lists: columns query, expert, item, rank
  distagg models                    all models, by kind of data; 'distagg --help' lists the commands"""


@command(
    "demo",
    option("-o", "--output", metavar="FOLDER", default="out/demo", help="folder for the results (default out/demo)"),
    option("--queries", type=int, default=400, metavar="N", help="number of synthetic queries (default 400)"),
    flag("--all", "every", help=f"compare all models instead of {len(SHOWN)}; takes minutes"),
    examples=("distagg demo", "distagg demo --all", "distagg demo --queries 100 -o out/small"),
)
def demo_command(call: Call, output: str, queries: int, every: bool) -> None:
    """Write the dataset, the rankings of the best plain rule, report.html and PAGES to the output folder."""
    began, seed = time.perf_counter(), call.seed or 0
    folder = local(output, "the demo's folder")
    _clear(folder)
    write_dataset(SyntheticSource(queries=queries, shape="mq2008", seed=seed), folder / "synthetic")
    dataset = Dataset.open(folder / "synthetic")
    asked: dict[str, Any] = {"folds": "letor5", "metrics": METRICS, "protocol": "trec", "seed": seed}
    with call.runner() as runner:
        quick = compare(dataset, QUICK, runner=runner, **asked)
        say(f"{len(QUICK)} simple rules on {queries} made-up queries:\n{comparison_table(quick)}\n")
        models = [name for name in all_models(dataset, "letor5") if every or name in SHOWN]
        say(f"now {len(models) - len(QUICK)} models that learn whom to trust; the first use compiles them:")
        result = compare(dataset, models, settings=SMALL, runner=runner, watch=_tell, **asked)
        ready = [name for name in result["models"] if not MODELS[name]().learns]
        best = max(ready, key=lambda name: result["means"][name][METRICS[0]])
        rank_to(folder / "rankings", model_named(best, seed=seed), {}, dataset, runner=runner)
        _pages(folder, dataset, result, runner, seed)
    result["pages"] = PAGES
    everything = " --all" if every else ""
    result["command"] = f"distagg demo{everything} --queries {queries} --seed {seed}"
    show_comparison(call, result, dataset, str(folder / "report.html"), tested=False)
    say(_told(dataset, result, best, folder, time.perf_counter() - began))


def _told(dataset: Dataset, result: dict[str, Any], best: str, folder: Path, seconds: float) -> str:
    """What the demo did, in eight lines, and what to type next."""
    size = dataset.manifest
    value = {name: f"{100 * means[METRICS[0]]:.1f}" for name, means in result["means"].items()}
    lines = [
        f"{size.queries:,} made-up queries; {size.experts} experts order some items, and leave out {size.missing:.0%}",
        "some experts are good, some order at random, some the wrong way round; labels say which items are good",
        "ndcg and map compare a ranking with the labels; 100 is perfect, and ndcg@5 looks at the first five items",
        f"rrf trusts all experts alike: {value['rrf']} (ndcg@5); the best expert alone has {value['bestinput']}",
        f"theta_mpm learns whom to trust from the lists alone: {value['theta_mpm']}; crf from labels: {value['crf']}",
        "each model is measured on queries that it did not learn from, in five folds",
        f"rankings of all queries by {best}: {folder / 'rankings'}",
        f"tests, charts and the experts' weights, for a browser: {folder / 'report.html'} ({seconds:.0f} s)",
    ]
    return "\n  ".join(["\nwhat this was:", *lines]) + f"\nwhat to type next:\n{_found()}{NEXT}"


def _found() -> str:
    """How to put the command on the path, if it is not there: ``make demo`` calls it by its place in .venv."""
    activate = Path(sys.executable).parent / "activate"
    return f"  source {activate}\n" if shutil.which("distagg") is None and activate.is_file() else ""


def _pages(folder: Path, dataset: Dataset, result: dict[str, Any], runner: Runner, seed: int) -> None:
    labelled = [name for name in result["models"] if MODELS[name]().needs_labels]
    write_report(paper_page(comparison_finding(result, labelled)), folder / "models.html")
    fold, model = make_folds(dataset, "letor5")[0], model_named("crf", SMALL["crf"], seed=seed)
    fitted = Fitted(model, fit(model, fold.train, valid=fold.valid, runner=runner), dataset.experts)
    judged = as_rows(judge_experts(fitted, fold.train, runner=runner))
    seen = {"model": "crf", "data": "the training queries of fold 1", "goal": "map", "experts": judged}
    write_report(experts_report({**seen, "weights": weight_rows(fitted)}), folder / "experts.html")


def _tell(name: str, means: np.ndarray, seconds: float) -> None:
    if name not in QUICK:
        say(f"  {name:<14} {METRICS[0]} {100 * means[0]:5.1f}   {seconds:5.1f} s")


def _clear(folder: Path) -> None:
    """Remove the output of an earlier demo; refuse a folder with any other files."""
    if not folder.exists():
        return
    other = [] if not folder.is_dir() else [entry.name for entry in folder.iterdir() if entry.name not in OURS]
    if other or not folder.is_dir():
        raise UsageError(
            f"output {folder} holds other files than an earlier demo ({', '.join(other[:3])}); choose another folder"
        )
    shutil.rmtree(folder)
