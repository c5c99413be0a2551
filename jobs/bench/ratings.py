"""Ratings by very many users: how time and memory grow, beside merely scanning the Parquet files.

    python jobs/bench/ratings.py --make FOLDER [--ratings 25e6]      one synthetic set, shaped like MovieLens 25M
    python jobs/bench/ratings.py [--quick] [--workers 2] [--folder FOLDER] [--json FILE]

Sets have 60,000 items and, for 25 million ratings, 162,000 users; smaller ones have fewer users. A scan reads the same
columns of the same row groups with pyarrow, one thread, and drops them. Every contestant is a process of its own, whose
kernels are compiled on a small set first; scans and fits take turns and find no chunk in memory, figures are medians.
Peak memory is the process's, with all that Python and its libraries take (some 250 MB); with workers, the largest
worker's.

Goals: mpm and borda within 2 times the scan, under 2 GB a worker, growth linear in ratings.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from goals import print_table

from distagg.dataset import Dataset, write_dataset
from distagg.engine import runner as place
from distagg.engine.dask import local_cluster
from distagg.engine.rank import solve
from distagg.engine.runner import InlineRunner
from distagg.models import model_named
from distagg.sources.synthetic import SyntheticSource
from distagg.storage.verified import read_groups

RATINGS, USERS, ITEMS = 25e6, 162_000, 60_000
SIZES = (6e6, 12e6, 25e6)
MODELS = ("mpm", "borda", "plackett_luce")
TURNS = 3


def make(folder: Path, ratings: float) -> Dataset:
    """A set of so many ratings; what is there already is taken."""
    if not folder.exists():
        users = max(1, round(USERS * ratings / RATINGS))
        source = SyntheticSource(1, ITEMS, users, shape="movielens", missing=1 - ratings / (users * ITEMS))
        write_dataset(source, folder)
    return Dataset.open(folder)


def scan(dataset: Dataset) -> int:
    """Read what a model reads, and drop it."""
    rows = 0
    for ref in dataset.plan():
        for block in ref.blocks:
            file = Path(dataset.path) / f"lists-{block.file:05d}.parquet"
            rows += read_groups(file, [block.group], ["query", "expert", "item", "rank"]).num_rows
    return rows


def seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def contest(path: str, small: str, name: str, workers: int, turns: int) -> dict[str, Any]:
    """One model on one set, in this process or on workers."""
    dataset, model = Dataset.open(path), model_named(name)
    warm = Dataset.open(small)

    def measured(runner: Any, everywhere: Callable[[Callable[[], None]], Any]) -> tuple[list[float], list[float]]:
        solve(model, {}, warm, runner)
        scans, fits = [], []
        for _ in range(turns):
            everywhere(_forget)
            scans.append(seconds(lambda: scan(dataset)))
            fits.append(seconds(lambda: solve(model, {}, dataset, runner)))
        return scans, fits

    if workers:
        with local_cluster(workers) as runner:
            scans, fits = measured(runner, runner.client.run)
            peak = max(runner.client.run(_peak).values())
    else:
        scans, fits = measured(InlineRunner(), lambda call: call())
        peak = _peak()
    return {
        "model": name,
        "workers": workers,
        "entries": dataset.manifest.entries,
        "scan": statistics.median(scans),
        "seconds": statistics.median(fits),
        "all": fits,
        "peak": peak,
    }


def _forget() -> None:
    """No chunk is in memory from an earlier turn."""
    place._cache = place.Cache()


def _peak() -> float:
    """Largest resident size of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def bench(folder: Path, sizes: tuple[float, ...], workers: int, turns: int) -> list[dict[str, Any]]:
    small = folder / "small"
    if not small.exists():  # two chunks, so that the rounds over chunks are compiled, too
        source = SyntheticSource(1, 2_000, 8_000, shape="movielens", missing=1 - 1.3e6 / (8_000 * 2_000))
        write_dataset(source, small)
    rows = []
    for size in sizes:
        began = time.perf_counter()
        data = folder / f"ratings-{size:.0f}"
        dataset = make(data, size)
        print(
            f"{data.name}: {dataset.manifest.entries:,} ratings, {time.perf_counter() - began:.0f} s", file=sys.stderr
        )
        for name in MODELS:
            for count in (0, workers) if size == sizes[-1] else (0,):
                command = [sys.executable, __file__, "--one", str(data), str(small), name, str(count), str(turns)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                rows.append(json.loads(done.stdout.splitlines()[-1]))
    return rows


def print_rows(rows: list[dict[str, Any]]) -> None:
    """What misses a goal first."""
    cells = []
    for row in rows:
        ratio = row["seconds"] / row["scan"]
        goal = "-"
        if row["model"] != "plackett_luce":
            goal = "met" if ratio <= 2 and row["peak"] < 2 else "SHORT"
        where = f"{row['workers']} workers" if row["workers"] else "inline"
        cells.append(
            [goal, row["model"], where, f"{row['entries'] / 1e6:.1f}", f"{row['scan']:.2f}", f"{row['seconds']:.2f}",
             f"{min(row['all']):.2f}-{max(row['all']):.2f}", f"{ratio:.1f}", f"{row['peak']:.2f}"]
        )  # fmt: skip
    cells.sort(key=lambda cell: cell[0] != "SHORT")
    heads = [
        "goal",
        "model",
        "where",
        "million ratings",
        "scan, s",
        "seconds",
        "least-most",
        "times the scan",
        "peak, GB",
    ]
    print_table(heads, cells)
    first, last = (min(rows, key=lambda r: r["entries"])["entries"], max(rows, key=lambda r: r["entries"])["entries"])
    for name in MODELS:
        mine = {row["entries"]: row["seconds"] for row in rows if row["model"] == name and not row["workers"]}
        if len(mine) > 1:
            print(f"{name}: ratings times {last / first:.2f}, time times {mine[last] / mine[first]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the ratings; proves no goal")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where sets are made and kept (default: a temporary folder)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--make", type=Path, metavar="FOLDER", help="make one set and stop")
    parser.add_argument("--ratings", type=float, default=RATINGS, help="of --make")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.make:
        print(json.dumps(make(chosen.make, chosen.ratings).info(), indent=1))
    elif chosen.one:
        path, small, name, workers, turns = chosen.one
        print(json.dumps(contest(path, small, name, int(workers), int(turns))))
    else:
        sizes = tuple(size / 10 for size in SIZES) if chosen.quick else SIZES
        with tempfile.TemporaryDirectory() as temporary:
            folder = chosen.folder or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            rows = bench(folder, sizes, chosen.workers, 1 if chosen.quick else TURNS)
        print_rows(rows)
        if chosen.json:
            chosen.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
