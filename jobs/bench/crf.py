"""The CRF's training step, exactly, at growing sample sizes; and what a round of training costs on a cluster.

    python jobs/bench/crf.py [--quick] [--workers N] [--json FILE]

A step is everything that training does with one query: sampling, scores, the pass over subsets, the update. Beside it
stands the same gradient by enumeration of all rankings (vectorised numpy), where that ends. Data are synthetic, shaped
like MQ2008-agg. A round on a cluster is a map and reduce of training and one of validation; its overhead is what it
takes longer than the same work inline, which is nothing here but calls: every chunk is small.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from goals import print_table

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.chunk import Chunk
from distagg.engine.dask import local_cluster
from distagg.engine.fitting.fit import fit
from distagg.models.crf.model import Crf
from distagg.sources.synthetic import SyntheticSource

SIZES = (6, 8, 10, 12)
ENUMERATED = 8  # largest sample that is enumerated for comparison
GOAL = {6: 10.0, 12: 1000.0}  # microseconds a step


def dataset(queries: int, folder: Path) -> Dataset:
    write_dataset(SyntheticSource(queries=queries, shape="mq2008", seed=1), folder, block_entries=1 << 12)
    return Dataset.open(folder)


def timed(call: Callable[[], Any], turns: int) -> list[float]:
    """Seconds of each call, after a first one that compiles and loads."""
    call()
    seconds = []
    for _ in range(turns):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return seconds


def enumerated(size: int) -> Callable[[], np.ndarray]:
    """Gradient of the expected NDCG of one sample, ranking by ranking; the rankings themselves are given."""
    random = np.random.default_rng(size)
    score, grade = random.normal(size=size), random.integers(0, 3, size)
    rankings = np.array(list(permutations(range(size))))
    places = np.argsort(rankings, axis=1)
    weight, discount = 1.0 / np.log(np.arange(2.0, size + 2.0)), 1.0 / np.log2(np.arange(2.0, size + 2.0))
    gain = np.exp2(grade) - 1.0

    def gradient() -> np.ndarray:
        log = score[rankings] @ weight
        likely = np.exp(log - log.max())
        likely /= likely.sum()
        value = gain[rankings] @ discount
        return (likely * (value - likely @ value)) @ weight[places]

    return gradient


def steps(chunk: Chunk, turns: int, queries: int) -> list[dict[str, Any]]:
    rows = []
    for size in SIZES:
        model = Crf(sample=size)
        state = model.first(chunk.n_experts, 2.0)
        part = chunk.select(np.arange(chunk.n_queries) < max(queries >> (size - 6), 10))
        taught = model.learn(part, state)[1]
        ours = timed(lambda: model.learn(part, state), turns)  # noqa: B023
        row = {"sample": size, "queries": taught, "microseconds": [1e6 * s / taught for s in ours]}
        if size <= ENUMERATED:
            row["enumerated"] = [1e6 * s for s in timed(enumerated(size), turns)]
        rows.append(row)
    return rows


def rounds(data: Dataset, workers: int, count: int) -> list[dict[str, Any]]:
    """Seconds a round, inline and on a cluster, without the first fit, which compiles and loads."""
    found = []
    for mode in ("serial", "average", "gradient"):
        row: dict[str, Any] = {"mode": mode, "chunks": len(data.plan(1))}
        model = Crf(mode=mode, rounds=count, patience=count)
        row["inline"] = [s / count for s in timed(lambda: fit(model, data), 3)]  # noqa: B023
        if workers:
            with local_cluster(workers) as runner:
                seconds = timed(lambda: fit(model, data, runner=runner), 3)  # noqa: B023
            row["cluster"] = [s / count for s in seconds]
        found.append(row)
    return found


def times(row: dict[str, Any]) -> str:
    if "enumerated" not in row:
        return "-"
    return f"{statistics.median(row['enumerated']) / statistics.median(row['microseconds']):.0f}"


def shown(values: list[float], digits: int = 1) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=2, help="of the cluster; 0 leaves it out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    queries, turns = (100, 3) if options.quick else (800, 9)
    with tempfile.TemporaryDirectory() as folder:
        data = dataset(queries, Path(folder) / "data")
        chunk = next(iter(data.chunks(ids=False)))
        table = steps(chunk, turns, chunk.n_queries)
        turned = rounds(data, options.workers, 5 if options.quick else 20)
    missed = [r["sample"] for r in table if statistics.median(r["microseconds"]) > GOAL.get(r["sample"], np.inf)]
    print(f"missed: a step of {', '.join(map(str, missed))} items" if missed else "missed: nothing")
    print_table(
        ["items", "microseconds a step", "by enumeration", "times"],
        [
            [
                str(row["sample"]),
                shown(row["microseconds"]),
                shown(row.get("enumerated", [])),
                times(row),
            ]
            for row in table
        ],
    )
    print_table(
        ["mode", "chunks", "inline, ms a round", f"{options.workers} workers, ms a round"],
        [
            [
                row["mode"],
                str(row["chunks"]),
                shown([1e3 * s for s in row["inline"]]),
                shown([1e3 * s for s in row.get("cluster", [])]),
            ]
            for row in turned
        ],
    )
    if options.json:
        options.json.write_text(json.dumps({"steps": table, "rounds": turned}, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
