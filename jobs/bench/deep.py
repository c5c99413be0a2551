"""Models on planted retrieval runs: figures, processor seconds and peak memory, and how they grow.

``python jobs/bench/deep.py depths [--queries N]`` prints the models guide's table of every unsupervised model over the
depth and the overlap of lists. Lists of 10 to 10,000 items come from ``distagg.sources.deep``; the overlap (the mean
share of a list's items that another list has too) is set by how many documents there are and how many of them a run
does not know.

``python jobs/bench/deep.py large [--queries N] [--models a,b]`` compares every model on 50 queries of 11,000 items in
126 lists of 1,000, by ``distagg compare --protocol trec --folds 5``, each model in a process of its own.

``python jobs/bench/deep.py growth [--queries N] [--models a,b]`` doubles the items, the lists and the depth of such
data and prints by how much the processor seconds grow.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from distagg import compare, evaluate, rank
from distagg.dataset import Dataset
from distagg.dataset.build.writer import write_dataset
from distagg.models import MODELS
from distagg.sources.deep import DeepSource

SETTINGS = (  # depth, documents, share that a run does not know, queries for one of --queries, experts
    (10, 10, 0.0, 4.0, 20),
    (10, 200, 0.0, 4.0, 20),
    (100, 100, 0.0, 2.0, 20),
    (100, 2_000, 0.0, 2.0, 20),
    (100, 20_000, 0.8, 1.0, 20),
    (1_000, 1_000, 0.0, 1.0, 20),
    (1_000, 11_000, 0.0, 1.0, 20),
    (1_000, 11_000, 0.7, 1.0, 20),
    (10_000, 60_000, 0.0, 0.25, 10),
)
LARGE = {"items": 11_000, "experts": 126, "depth": 1_000}
GROWTH = {  # the base, then one number doubled
    "base": {"items": 5_500, "experts": 63, "depth": 500},
    "items": {"items": 11_000, "experts": 63, "depth": 500},
    "lists": {"items": 5_500, "experts": 126, "depth": 500},
    "depth": {"items": 5_500, "experts": 63, "depth": 1_000},
}
METRICS = ("ndcg@10", "map")


def overlap(dataset: Dataset) -> float:
    """The mean share of a list's items that another list of the query has too."""
    shares = []
    for chunk in dataset.chunks():
        held = np.bincount(chunk.entry_row(), minlength=chunk.n_items)
        for q in range(chunk.n_queries):
            lists = chunk.list_offsets[q + 1] - chunk.list_offsets[q]
            counts = held[chunk.item_offsets[q] : chunk.item_offsets[q + 1]]
            shares.append((counts * (counts - 1)).sum() / max((lists - 1) * counts.sum(), 1))
    return float(np.mean(shares))


def measure(model: str, dataset: Dataset) -> tuple[float, float]:
    """NDCG@10 in percent, and processor seconds."""
    began = time.process_time()
    ranking: pa.Table = rank(model, dataset)
    spent = time.process_time() - began
    return 100.0 * evaluate(ranking, dataset, ["ndcg@10"], protocol="trec").means["ndcg@10"], spent


def depths(arguments: argparse.Namespace) -> None:
    columns, datasets = [], []
    for depth, items, missing, share, experts in SETTINGS:
        target = f"{arguments.folder}/{depth}-{items}-{missing}"
        queries = max(3, round(arguments.queries * share))
        write_dataset(DeepSource(queries, items, experts, depth=depth, missing=missing), target)
        datasets.append(Dataset.open(target))
        columns.append(f"{depth:,} ({100 * overlap(datasets[-1]):.0f}%)")
    print("| model |", " | ".join(columns), "| seconds |")
    print("|---|" + "---|" * (len(columns) + 1))
    for name in arguments.models:
        if MODELS[name]().needs_labels:
            continue
        rows = [measure(name, dataset) for dataset in datasets]
        print(
            f"| `{name}` |",
            " | ".join(f"{row[0]:.1f}" for row in rows),
            f"| {sum(row[1] for row in rows):.1f} |",
            flush=True,
        )


def compared(models: str, dataset: str) -> tuple[dict[str, dict[str, float]], float, int]:
    """Means of ``distagg compare``, its processor seconds (user and system) and its peak memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-m", "distagg", "compare", dataset, "--models", models, "--protocol", "trec"]
        command += ["--folds", "5", *(part for metric in METRICS for part in ("-m", metric)), "-o", str(result)]
        with open(Path(folder) / "talk", "w+") as talk:
            child = subprocess.Popen(command, stdout=talk, stderr=subprocess.STDOUT)
            _, status, used = os.wait4(child.pid, 0)
            talk.seek(0)
            if status or not result.exists():
                raise RuntimeError(f"{' '.join(command)} failed:\n{talk.read()}")
        means = json.loads(result.read_text())["means"]
    return means, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024


def planted(target: Path, queries: int, shape: dict[str, int]) -> str:
    """The path of a dataset of this shape, which is drawn unless it is there."""
    if not target.exists():
        source = DeepSource(queries, shape["items"], shape["experts"], depth=shape["depth"])
        write_dataset(source, str(target))
    return str(target)


def large(arguments: argparse.Namespace) -> None:
    dataset = planted(Path(arguments.folder) / f"large-{arguments.queries}", arguments.queries, LARGE)
    if arguments.together:
        means, seconds, memory = compared(",".join(arguments.models), dataset)
        print(f"all {len(means)} models in one process: {seconds:.0f} processor seconds, {memory:,} MB")
        print("| model | NDCG@10 | MAP |\n|---|---|---|")
        for name, values in means.items():
            print(f"| `{name}` | {' | '.join(f'{100 * values[metric]:.1f}' for metric in METRICS)} |")
        return
    print("| model | NDCG@10 | MAP | seconds | MB |")
    print("|---|---|---|---|---|")
    for name in arguments.models:
        means, seconds, memory = compared(name, dataset)
        figures = " | ".join(f"{100 * means[name][metric]:.1f}" for metric in METRICS)
        print(f"| `{name}` | {figures} | {seconds:.1f} | {memory:,} |", flush=True)


def spent(model: str, dataset: str) -> float:
    """Processor seconds of a comparison, once its kernels are loaded."""
    began = time.process_time()
    compare(Dataset.open(dataset), [model], folds="5", metrics=METRICS, protocol="trec")
    return time.process_time() - began


def growth(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.folder)
    warm = planted(folder / "growth-warm", 5, {"items": 1_500, "experts": 5, "depth": 300})
    datasets = {
        name: planted(folder / f"growth-{arguments.queries}-{name}", arguments.queries, shape)
        for name, shape in GROWTH.items()
    }
    print("| model | seconds | items x 2 | lists x 2 | depth x 2 |")
    print("|---|---|---|---|---|")
    for name in arguments.models:
        spent(name, warm)
        seconds = {shape: max(spent(name, dataset), 0.001) for shape, dataset in datasets.items()}
        base = seconds.pop("base")
        ratios = " | ".join(f"{grown / base:.1f}" for grown in seconds.values())
        print(f"| `{name}` | {base:.2f} | {ratios} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("depths", "large", "growth"))
    parser.add_argument("--queries", type=int, help="queries of deep settings (default 20; large 50; growth 10)")
    parser.add_argument("--folder", default="out/deep", help="folder for the datasets (default out/deep)")
    parser.add_argument("--models", help="models to measure (default all that take lists)")
    parser.add_argument("--together", action="store_true", help="large: all models by one command, in one process")
    arguments = parser.parse_args()
    every = [name for name, model in MODELS.items() if "lists" in model.inputs]
    arguments.models = arguments.models.split(",") if arguments.models else every
    tables = {"depths": (depths, 20), "large": (large, 50), "growth": (growth, 10)}
    print_table, queries = tables[arguments.table]
    arguments.queries = arguments.queries or queries
    print_table(arguments)


if __name__ == "__main__":
    main()
