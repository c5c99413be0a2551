"""``distagg demo``: synthetic data with a planted truth, imported, compared, ranked and reported."""

from __future__ import annotations

import shutil
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
from distagg.sources.synthetic import SyntheticSource
from distagg.storage.paths import local

METRICS = ("ndcg@5", "ndcg@10", "p@5", "map", "err", "tau")
SHOWN = (  # one model of each family; --all compares all
    "bestinput",
    "borda",
    "median",
    "rrf",
    "combsum",
    "mc4",
    "plackett_luce",
    "theta_mpm",
    "crf",
    "blend",
)
SMALL = {"blend": {"crf": 1, "lambdamart": 1, "lambdarank": 0}}  # instead of 12, 12 and 4, to keep the demo short
PAGES = {
    "models.html": "Models side by side, as the papers print them",
    "experts.html": "Expert quality: the weights of a CRF, as the papers draw them",
}
OURS = ("synthetic", "rankings", "report.html", *PAGES)


@command(
    "demo",
    option("-o", "--output", metavar="FOLDER", default="out/demo", help="folder for the results (default out/demo)"),
    option("--queries", type=int, default=400, metavar="N", help="number of synthetic queries (default 400)"),
    flag("--all", "every", help="compare all models instead of ten"),
    examples=("distagg demo", "distagg demo --all", "distagg demo --queries 100 -o out/small"),
)
def demo_command(call: Call, output: str, queries: int, every: bool) -> None:
    """Write the dataset, the rankings of the best model, report.html and PAGES to the output folder."""
    began, seed = time.perf_counter(), call.seed or 0
    folder = local(output, "the demo's folder")
    _clear(folder)
    say(f"1. synthetic data: {queries} queries, 25 experts, some good, some random, some adversarial")
    write_dataset(SyntheticSource(queries=queries, shape="mq2008", seed=seed), folder / "synthetic")
    dataset = Dataset.open(folder / "synthetic")
    size = dataset.manifest
    say(f"   {size.entries:,} ranks of {size.items:,} items, {size.missing:.0%} missing")
    with call.runner() as runner:
        models = [name for name in all_models(dataset, "letor5") if every or name in SHOWN]
        say(
            f"2. {len(models)} models, five folds"
            + ("; blend with 2 of its 28 trained members" if "blend" in models else "")
        )
        result = compare(
            dataset,
            models,
            settings=SMALL,
            folds="letor5",
            metrics=METRICS,
            seed=seed,
            runner=runner,
            watch=_tell,
        )
        ready = [name for name in result["models"] if not MODELS[name]().learns]
        best = max(ready, key=lambda name: result["means"][name]["ndcg@5"])
        say(f"3. rankings by {best}: {folder / 'rankings'}")
        rank_to(folder / "rankings", model_named(best, seed=seed), {}, dataset, runner=runner)
        say(f"4. pages like those of the papers: {', '.join(PAGES)}")
        _pages(folder, dataset, result, runner, seed)
    result["pages"] = PAGES
    everything = " --all" if every else ""
    result["command"] = f"distagg demo{everything} --queries {queries} --seed {seed}"
    show_comparison(call, result, dataset, str(folder / "report.html"))
    say(f"done in {time.perf_counter() - began:.1f} s; open {folder / 'report.html'} in a browser")


def _pages(folder: Path, dataset: Dataset, result: dict[str, Any], runner: Runner, seed: int) -> None:
    labelled = [name for name in result["models"] if MODELS[name]().needs_labels]
    write_report(paper_page(comparison_finding(result, labelled)), folder / "models.html")
    fold, model = make_folds(dataset, "letor5")[0], model_named("crf", seed=seed)
    fitted = Fitted(model, fit(model, fold.train, valid=fold.valid, runner=runner), dataset.experts)
    judged = as_rows(judge_experts(fitted, fold.train, runner=runner))
    seen = {"model": "crf", "data": "the training queries of fold 1", "goal": "map", "experts": judged}
    write_report(experts_report({**seen, "weights": weight_rows(fitted)}), folder / "experts.html")


def _tell(name: str, means: np.ndarray, seconds: float) -> None:
    say(f"   {name:<14} {METRICS[0]} {100 * means[0]:5.1f}   {seconds:5.1f} s")


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
