"""``distagg demo``: synthetic data with a planted truth, imported, compared, ranked and reported."""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import numpy as np

from distagg.cli.commands import all_models, run_in, say, show_comparison
from distagg.dataset import Dataset, write_dataset
from distagg.dataset.place import local
from distagg.engine.compare import compare
from distagg.engine.rank import rank_to
from distagg.errors import UsageError
from distagg.models import MODELS, model_named
from distagg.sources.synthetic import SyntheticSource

METRICS = ("ndcg@5", "ndcg@10", "p@5", "map", "err", "tau")
OURS = ("synthetic", "rankings", "report.html")


def demo(arguments: argparse.Namespace) -> None:
    """Leaves the dataset, the rankings of the best model and report.html in the output folder."""
    began = time.perf_counter()
    folder = local(arguments.output, "the demo's folder")
    _clear(folder)
    say(f"1. synthetic data: {arguments.queries} queries, 25 experts, some good, some random, some adversarial")
    write_dataset(SyntheticSource(queries=arguments.queries, shape="mq2008", seed=arguments.seed), folder / "synthetic")
    dataset = Dataset.open(folder / "synthetic")
    found = dataset.manifest
    say(f"   {found.entries:,} ranks of {found.items:,} items, {found.missing:.0%} missing")
    with run_in(arguments) as runner:
        models = all_models(dataset, "letor5")
        say(f"2. {len(models)} models, five folds")
        result = compare(
            dataset, models, folds="letor5", metrics=METRICS, seed=arguments.seed, runner=runner, watch=_tell
        )
        ready = [name for name in result["models"] if not MODELS[name]().learns]
        best = max(ready, key=lambda name: result["means"][name]["ndcg@5"])
        say(f"3. rankings by {best}: {folder / 'rankings'}")
        rank_to(folder / "rankings", model_named(best), {}, dataset, runner=runner)
    result["command"] = f"distagg demo --queries {arguments.queries} --seed {arguments.seed}"
    show_comparison(result, dataset, str(folder / "report.html"), as_json=arguments.json)
    say(f"done in {time.perf_counter() - began:.1f} s; open {folder / 'report.html'} in a browser")


def _tell(name: str, means: np.ndarray, seconds: float) -> None:
    say(f"   {name:<14} {METRICS[0]} {100 * means[0]:5.1f}   {seconds:5.1f} s")


def _clear(folder: Path) -> None:
    """Remove what an earlier demo left; refuse a folder that holds anything else."""
    if not folder.exists():
        return
    strange = [] if not folder.is_dir() else [entry.name for entry in folder.iterdir() if entry.name not in OURS]
    if strange or not folder.is_dir():
        raise UsageError(
            f"output {folder} holds more than an earlier demo ({', '.join(strange[:3])}); name another folder"
        )
    shutil.rmtree(folder)
