"""Unsupervised models on planted lists of any depth and overlap: NDCG@10, and seconds.

``python jobs/bench/deep.py [--queries N]`` prints the table of the models guide. Lists of 10 to 10,000 items come from
``distagg.sources.deep``; the overlap (the mean share of a list's items that another list has too) is set by how many
documents there are and how many of them a run does not know.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa

from distagg import rank
from distagg.dataset import Dataset
from distagg.dataset.build.writer import write_dataset
from distagg.engine import evaluate
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=20, help="queries of the deep settings (default 20)")
    parser.add_argument("--folder", default="out/deep", help="folder for the datasets (default out/deep)")
    arguments = parser.parse_args()
    columns, datasets = [], []
    for depth, items, missing, share, experts in SETTINGS:
        target = f"{arguments.folder}/{depth}-{items}-{missing}"
        queries = max(3, round(arguments.queries * share))
        write_dataset(DeepSource(queries, items, experts, depth=depth, missing=missing), target)
        datasets.append(Dataset.open(target))
        columns.append(f"{depth:,} ({100 * overlap(datasets[-1]):.0f}%)")
    print("| model |", " | ".join(columns), "| seconds |")
    print("|---|" + "---|" * (len(columns) + 1))
    for name, model in MODELS.items():
        if "lists" not in model.inputs or model().needs_labels:
            continue
        rows = [measure(name, dataset) for dataset in datasets]
        print(
            f"| `{name}` |",
            " | ".join(f"{row[0]:.1f}" for row in rows),
            f"| {sum(row[1] for row in rows):.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
