"""plackett_luce against choix: one big query of lists, to the same gradient norm, and how time grows.

    python jobs/bench/luce.py --peers-python PYTHON [--quick] [--json FILE]

Both sides start from the same array of rankings in memory: ours builds a chunk from it, choix its lists of lists.
Ours fits without a prior to a gradient no larger than the one choix ends with (each side's largest entry for each
choice is computed by the same code); turns alternate. Growth doubles lists, items and list length. Small queries are
shaped like MQ2008-agg and MQ2007-agg.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from contest import Spread
from goals import print_table

from distagg.dataset.chunk import Chunk, chunk_from_tables
from distagg.models import model_named
from distagg.models.plackett_luce.kernels import count_choices, expect, gather_choices
from distagg.sources.synthetic import SyntheticSource

GOAL = 200.0
BIG = {"lists": 5000, "items": 2000, "long": 50}
QUICK = {"lists": 300, "items": 200, "long": 20}
ALGORITHMS = ("ilsr_rankings", "mm_rankings")
SETTINGS = {"prior": "none", "unlisted": "ignore"}
PEER = """
import json, sys, time
import numpy as np, choix
array, algorithm, out = np.load(sys.argv[1]), sys.argv[2], sys.argv[3]
start = time.perf_counter()
found = getattr(choix, algorithm)(int(sys.argv[4]), array.tolist())
print(json.dumps(time.perf_counter() - start))
np.save(out, found)
"""


def draw_rankings(shape: dict[str, int], seed: int) -> np.ndarray:
    """(lists, long) items, best first, drawn from the model."""
    draw = np.random.default_rng(seed)
    truth = draw.normal(size=shape["items"])
    shown = draw.random((shape["lists"], shape["items"])).argpartition(shape["long"], axis=1)[:, : shape["long"]]
    order = np.argsort(-(truth[shown] + draw.gumbel(size=shown.shape)), axis=1)
    return np.take_along_axis(shown, order, axis=1)


def build(rankings: np.ndarray, items: int) -> Chunk:
    """The chunk of one query that holds these rankings."""
    lists, long = rankings.shape
    offsets = pa.array(np.arange(lists + 1, dtype=np.int32) * long)
    ranks = np.tile(np.arange(1.0, long + 1), lists)
    labels = pa.ListArray.from_arrays(pa.array([0, items], pa.int32()), pa.nulls(items, pa.int32()))
    missed = pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), pa.nulls(0, pa.int32()))
    return chunk_from_tables(
        pa.table({"query": ["q"], "part": [""], "label": labels, "missed": missed}),
        pa.table(
            {
                "query": np.zeros(lists, np.int64),
                "expert": np.arange(lists, dtype=np.int32),
                "item": pa.ListArray.from_arrays(offsets, pa.array(rankings.ravel().astype(np.int32))),
                "rank": pa.ListArray.from_arrays(offsets, pa.array(ranks)),
            }
        ),
        None,
        n_experts=lists,
    )


def gradient_norm(chunk: Chunk, theta: np.ndarray) -> float:
    """Largest gradient entry for each choice."""
    choices = gather_choices(
        False, chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.entry_item, chunk.entry_rank,
        chunk.pair_offsets, chunk.pair_winner, chunk.pair_loser, chunk.pair_weight, chunk.pair_tie,
    )  # fmt: skip
    wins, number = count_choices(choices, chunk.item_offsets)
    expected = np.empty(len(theta))
    expect(choices, 0, 0.0, np.ascontiguousarray(theta), np.empty(len(theta)), expected)
    return float(np.abs(wins - expected).max() / number[0])


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def against_choix(python: str, shape: dict[str, int], *, rounds: int, seed: int) -> list[dict[str, Any]]:
    rankings, items = draw_rankings(shape, seed), shape["items"]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "rankings.npy", Path(folder) / "found.npy"
        np.save(data, rankings)
        for algorithm in ALGORITHMS:
            theirs: list[float] = []
            ours: dict[str, list[float]] = {"lbfgs": [], "mm": [], "ilsr": []}
            for _ in range(rounds):
                command = [python, "-c", PEER, str(data), algorithm, str(out), str(items)]
                theirs.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
                peer = np.load(out)
                wanted = gradient_norm(build(rankings, items), peer)
                for solver, taken in ours.items():
                    model = model_named("plackett_luce", SETTINGS | {"solver": solver, "tolerance": wanted})
                    model.score(build(rankings[: 2 * items], items), {})  # compiled
                    for _ in range(3):
                        seconds, found = timed(lambda model=model: model.score(build(rankings, items), {}))
                        taken.append(seconds)
            close = float(np.abs(found - (peer - peer.mean())).max())
            for solver, taken in ours.items():
                rows.append(
                    {"peer": algorithm, "solver": solver, "gradient": wanted, "difference": close,
                     "ours": Spread.of(taken), "theirs": Spread.of(theirs)}
                )  # fmt: skip
    return rows


def growth(base: dict[str, int], *, rounds: int, seed: int) -> list[dict[str, Any]]:
    rows = []
    for axis in base:
        medians = []
        for times in (1, 2, 4):
            shape = base | {axis: base[axis] * times}
            rankings = draw_rankings(shape, seed)
            model = model_named("plackett_luce", {"unlisted": "ignore"})
            seconds = [timed(lambda: model.score(build(rankings, shape["items"]), {}))[0] for _ in range(rounds)]  # noqa: B023
            medians.append(Spread.of(seconds).median)
        rows.append({"doubled": axis, "seconds": medians})
    return rows


def small_queries(*, queries: int, rounds: int, seed: int) -> list[dict[str, Any]]:
    from distagg.dataset import Dataset, write_dataset

    rows = []
    for shape in ("mq2008", "mq2007"):
        with tempfile.TemporaryDirectory() as folder:
            write_dataset(SyntheticSource(queries=queries, shape=shape, seed=seed), Path(folder) / "data")
            chunks = list(Dataset.open(Path(folder) / "data").chunks())
        for settings in ({}, {"unlisted": "ignore"}, {"errors": "standard"}, {"solver": "bayes"}):
            model = model_named("plackett_luce", settings)
            model.score(chunks[0].select(np.arange(chunks[0].n_queries) == 0), {})
            seconds = [timed(lambda: [model.score(chunk, {}) for chunk in chunks])[0] for _ in range(rounds)]  # noqa: B023
            words = " ".join(f"{key}={value}" for key, value in settings.items()) or "default"
            rows.append({"shape": shape, "settings": words, "each": Spread.of([s / queries for s in seconds])})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-python", help="an interpreter that has choix; without it choix is left out")
    parser.add_argument("--quick", action="store_true", help="small data: does it run, do the answers agree")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    told = parser.parse_args()
    shape = QUICK if told.quick else BIG
    result: dict[str, Any] = {"shape": shape}
    print(", ".join(f"{number:,} {name}" for name, number in shape.items()), "of a query")
    if told.peers_python:
        rows = against_choix(told.peers_python, shape, rounds=told.rounds, seed=told.seed)
        rows.sort(key=lambda row: row["theirs"].median / row["ours"].median)
        cells = []
        for row in rows:
            ratio = row["theirs"].median / row["ours"].median
            verdict = "LOST" if ratio < 1 else "met" if ratio >= GOAL else "MISSED"
            cells.append(
                [verdict, f"{ratio:,.0f}x", f"{GOAL:g}x", f"ours {row['solver']}", f"choix {row['peer']}",
                 _ms(row["ours"]), _ms(row["theirs"]), f"{row['gradient']:.1e}", f"{row['difference']:.1e}"]
            )  # fmt: skip
        print_table(
            [
                "",
                "ratio",
                "goal",
                "ours",
                "peer",
                "ours ms",
                "peer ms",
                "gradient for each choice",
                "largest difference",
            ],
            cells,
        )
        result["choix"] = [{**row, "ours": vars(row["ours"]), "theirs": vars(row["theirs"])} for row in rows]
    base = {"lists": 500, "items": 500, "long": 20} if told.quick else {"lists": 5000, "items": 1000, "long": 25}
    result["growth"] = growth(base, rounds=3 * told.rounds, seed=told.seed)
    print(f"\nGrowth from {base}: milliseconds at 1, 2 and 4 times")
    print_table(
        ["doubled", "1x", "2x", "4x"],
        [[row["doubled"], *(f"{s * 1e3:.3g}" for s in row["seconds"])] for row in result["growth"]],
    )
    small = small_queries(queries=100 if told.quick else 800, rounds=told.rounds, seed=told.seed)
    print("\nMany small queries: milliseconds for each query, median (least-most)")
    print_table(["shape", "settings", "each"], [[row["shape"], row["settings"], _ms(row["each"])] for row in small])
    result["small"] = [{**row, "each": vars(row["each"])} for row in small]
    if told.json:
        told.json.write_text(json.dumps(result, indent=1))
    return 0


def _ms(spread: Spread) -> str:
    return f"{spread.median * 1e3:.3g} ({spread.least * 1e3:.3g}-{spread.most * 1e3:.3g})"


if __name__ == "__main__":
    sys.exit(main())
