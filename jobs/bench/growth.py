"""How our compute time grows when queries, items of a query, or experts double, twice."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from goals import print_table
from lists import make_dataset

from distagg.dataset import Chunk
from distagg.models import Model, model_named
from distagg.rankings.ordering import order_items
from distagg.sources.synthetic import SyntheticSource

MODELS = ("rrf", "borda", "median", "condorcet", "mc4")
BASE = {"queries": 400, "items": 20, "experts": 25}
TIMES = (1, 2, 4)


def measure(folder: Path, *, rounds: int, seed: int, base: dict[str, int] | None = None) -> dict[str, Any]:
    """Medians in seconds, by model, axis and factor, and the ratios of each doubling."""
    sizes = base or BASE
    chunks: dict[tuple[str, int], Chunk] = {}
    for axis in sizes:
        for times in TIMES:
            shape = sizes | {axis: sizes[axis] * times}
            source = SyntheticSource(shape["queries"], shape["items"], shape["experts"], seed=seed)
            dataset = make_dataset(folder / f"{axis}-{times}", source)
            (chunks[axis, times],) = (ref.load() for ref in dataset.plan(1 << 30))
    taken: dict[tuple[str, str, int], list[float]] = {}
    for name in MODELS:
        model = model_named(name)
        _seconds(model, chunks["queries", 1])
        for _ in range(rounds):
            for (axis, times), chunk in chunks.items():
                taken.setdefault((name, axis, times), []).append(_seconds(model, chunk))
    medians = {key: statistics.median(seconds) for key, seconds in taken.items()}
    return {
        "base": sizes,
        "rows": [
            {
                "model": name,
                "doubled": axis,
                "seconds": [medians[name, axis, times] for times in TIMES],
                "entries": [chunks[axis, times].n_entries for times in TIMES],
                "ratios": [medians[name, axis, 2 * t] / medians[name, axis, t] for t in TIMES[:-1]],
            }
            for name in MODELS
            for axis in sizes
        ],
    }


def _seconds(model: Model, chunk: Chunk) -> float:
    start = time.perf_counter()
    order_items(chunk.item_offsets, model.score(chunk, {}))
    return time.perf_counter() - start


def print_growth(result: dict[str, Any]) -> None:
    base = ", ".join(f"{number} {name}" for name, number in result["base"].items())
    print(f"\nGrowth of our compute time, from {base}; milliseconds at 1, 2 and 4 times")
    cells = [
        [
            row["model"],
            row["doubled"],
            *(f"{seconds * 1e3:.3g}" for seconds in row["seconds"]),
            *(f"{ratio:.2f}" for ratio in row["ratios"]),
        ]
        for row in result["rows"]
    ]
    print_table(["model", "doubled", "1x", "2x", "4x", "first doubling", "second"], cells)
