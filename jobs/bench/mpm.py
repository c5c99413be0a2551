"""What an mpm iteration costs as items, lists and queries double; what a query costs, beside the papers' figure.

    python jobs/bench/mpm.py [--quick] [--json]

An iteration is a step of the solver: its time is that of a fit over its steps. Reading is not counted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from goals import print_table
from lists import make_dataset

from distagg.dataset import Chunk
from distagg.models import Model, model_named
from distagg.sources.synthetic import SyntheticSource

PAPER = 0.005  # seconds a query, Volkovs & Zemel 2012, section 5.1, MATLAB, MQ2008 fold 1
TIMES = (1, 2, 4)
BASE = {"items": 200, "lists": 25, "queries": 200}
SPREAD_BASE = {"items": 100, "lists": 25, "queries": 40}


def load(folder: Path, source: SyntheticSource) -> Chunk:
    dataset = make_dataset(folder, source)
    (chunk,) = (ref.load() for ref in dataset.plan(1 << 34))
    return chunk


def one_fit(model: Model, chunk: Chunk) -> tuple[float, float]:
    """Seconds of the pass over the lists, and of one iteration of all queries."""
    start = time.perf_counter()
    tally = model._tally(chunk, None)  # type: ignore[attr-defined]
    between = time.perf_counter()
    margins = model._margins(chunk, None) if model.variance else iter(())  # type: ignore[attr-defined]
    outcome = model._fitted(chunk, tally, None, margins, trace=False)  # type: ignore[attr-defined]
    taken = float(outcome.queries["iterations"].mean())
    return between - start, (time.perf_counter() - between) / max(taken, 1.0)


def growth(folder: Path, name: str, model: Model, base: dict[str, int], rounds: int) -> list[list[str]]:
    rows = []
    for axis in base:
        chunks = []
        for times in TIMES:
            size = base | {axis: base[axis] * times}
            source = SyntheticSource(size["queries"], size["items"], size["lists"], missing=0.3)
            chunks.append(load(folder / f"{name.replace(' ', '-')}-{axis}-{times}", source))
        one_fit(model, chunks[0])
        found = [[one_fit(model, chunk) for _ in range(rounds)] for chunk in chunks]
        for part, what in enumerate(("pass over lists", "iteration")):
            middle = [statistics.median(run[part] for run in runs) for runs in found]
            ratios = [f"{b / a:.2f}" for a, b in itertools.pairwise(middle)]
            rows.append([name, what, axis, *(f"{m * 1e3:.3g}" for m in middle), *ratios])
    return rows


def per_query(folder: Path, shape: str, queries: int, rounds: int) -> list[list[str]]:
    chunk = load(folder / shape, SyntheticSource(queries, shape=shape))
    rows = []
    for settings in ({}, {"variance": True}, {"solver": "gradient", "steps": 100}):
        model = model_named("mpm", settings)
        model.fit_chunk(chunk, {}, trace=False)  # type: ignore[attr-defined]
        seconds = []
        for _ in range(rounds):
            start = time.perf_counter()
            model.fit_chunk(chunk, {}, trace=False)  # type: ignore[attr-defined]
            seconds.append((time.perf_counter() - start) / chunk.n_queries)
        middle = statistics.median(seconds)
        shown = " ".join(f"{key}={value}" for key, value in settings.items()) or "default"
        spread = f"{min(seconds) * 1e6:.1f}-{max(seconds) * 1e6:.1f}"
        rows.append([f"{shape}-like", shown, f"{middle * 1e6:.1f}", spread, f"{PAPER / middle:,.0f}"])
    return rows


def measure(quick: bool) -> dict[str, Any]:
    rounds = 3 if quick else 7
    small = {"queries": 40}
    with tempfile.TemporaryDirectory(prefix="distagg-bench-") as name:
        folder = Path(name)
        grown = growth(folder, "mpm", model_named("mpm"), BASE | (small if quick else {}), rounds)
        spread = model_named("mpm", {"variance": True})
        grown += growth(folder, "mpm variance=true", spread, SPREAD_BASE | ({"queries": 5} if quick else {}), rounds)
        queries = {"mq2008": 80, "mq2007": 80} if quick else {"mq2008": 784, "mq2007": 1692}
        each = [row for shape, count in queries.items() for row in per_query(folder, shape, count, rounds)]
    return {"growth": grown, "per_query": each}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small data, few repetitions: does it run")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    result = measure(options.quick)
    if options.json:
        print(json.dumps(result, indent=1))
        return
    print(f"Growth, milliseconds at 1, 2 and 4 times; from {BASE}, with variances from {SPREAD_BASE}")
    print_table(["model", "what", "doubled", "1x", "2x", "4x", "ratio", "ratio"], result["growth"])
    print(f"\nMicroseconds a query; times as fast as the papers' {PAPER} s (MATLAB, on another machine)")
    print_table(["data", "settings", "median", "least-most", "times"], result["per_query"])


if __name__ == "__main__":
    main()
