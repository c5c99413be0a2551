"""Stochastic aggregation: time for a list as its length doubles, against the paper's recursion; training by query.

    python jobs/bench/stagg.py [--quick] [--json FILE]

One list of all items, from its ranks to scores, everything compiled. The recursion is Niu et al. 2013's, compiled too:
O(length^2) for every item; it is timed as far as it goes, and its answers are compared. Training: one query's
objective and gradient, exact and with the paper's normal ranks, on data shaped like MQ2008-agg and MQ2007-agg; and
the cp features of a query as its items double. Medians, least and most in brackets; growth is
that of the least; what misses a goal stands first.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numba
import numpy as np
from goals import print_table
from svd import TOGETHER, same_lists, text, timed

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.chunk import Chunk
from distagg.models import model_named
from distagg.models.scorers.features import FeatureSettings, chunk_features
from distagg.models.scorers.scorer import Stagg
from distagg.sources.synthetic import SyntheticSource

LONGEST, LONGEST_RECURSION = 100_000, 1_280
QUICK = (1_000, 80)
LINEAR = 2.5  # a doubled list takes at most so many times as long, from the shortest to the longest; terms grow, too
SURE = 1e-11  # relative difference from the recursion


@numba.njit
def recursion(size: int, c: float, score: np.ndarray) -> None:
    """Equations 10, 11 and 13 of the paper for one list of all items in order; scores by place."""
    known = np.empty(size)
    for place in range(size):
        known[:] = 0.0
        known[0] = 1.0
        for other in range(size):
            if other == place:
                continue
            gap = abs(place - other) / size
            chance = max(gap, 1.0 - gap) if other < place else min(gap, 1.0 - gap)
            for r in range(size - 1, 0, -1):
                known[r] = known[r - 1] * chance + known[r] * (1.0 - chance)
            known[0] *= 1.0 - chance
        score[place] = 0.0
        for r in range(size):
            score[place] += known[r] / (r + c)


def doubled(longest: int) -> list[int]:
    return [10 * 2**n for n in range(30) if 10 * 2**n < longest] + [longest]


def measure_lists(rounds: int, longest: int, longest_recursion: int) -> list[dict[str, Any]]:
    rows = []
    for name, settings in (("stagg_bc", {}), ("stagg_rrf", {"c": 60.0})):
        model, before = model_named(name, {"contest": "paper", **settings}), (0, 0.0)
        for length in doubled(longest):
            count = max(TOGETHER // length, 1)
            chunk = same_lists(length, count)
            found = model.score(chunk, {})[:length]
            ours = timed(lambda model=model, chunk=chunk: model.score(chunk, {}), rounds, count)
            row: dict[str, Any] = {"model": name, "length": length, "ours": ours, "growth": None, "recursion": None}
            if before[0]:  # for a doubling, whatever the step was
                row["growth"] = (ours.least / before[1]) ** (np.log(2.0) / np.log(length / before[0]))
            before = (length, ours.least)
            if name == "stagg_rrf" and length <= longest_recursion:
                score = np.empty(length)
                recursion(length, 60.0, score)
                row["difference"] = float(np.abs(np.sort(found) / np.sort(score) - 1.0).max())
                row["recursion"] = timed(lambda n=length, score=score: recursion(n, 60.0, score), 3)
            rows.append(row)
    return rows


def whole_chunk(folder: Path, source: SyntheticSource) -> Chunk:
    """All queries in one chunk, with their labels."""
    write_dataset(source, folder)
    (chunk,) = (ref.load() for ref in Dataset.open(folder).plan(1 << 40))
    return chunk


def measure_training(folder: Path, rounds: int, queries: int) -> list[dict[str, Any]]:
    rows = []
    for shape in ("mq2008", "mq2007"):
        chunk = whole_chunk(folder / shape, SyntheticSource(queries, shape=shape, seed=1))
        for objective in ("ndcg", "err", "rbp"):
            for ranks in ("exact", "normal"):
                model = Stagg(objective=objective, ranks=ranks)
                state = model.first(chunk.n_experts, 2.0)
                taught = model.learn(chunk, state)[1]
                step: Callable[[], object] = lambda m=model, s=state, c=chunk: m.learn(c, s)  # noqa: E731
                items = chunk.n_items / chunk.n_queries
                row = {"data": shape, "items": items, "objective": objective, "ranks": ranks}
                rows.append(row | {"seconds": timed(step, rounds, taught)})
    return rows


def measure_cp(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """cp features of queries of 25 experts, all items listed by most."""
    rows, before = [], 0.0
    for items in (50, 100, 200, 400):
        chunk = whole_chunk(folder / f"cp-{items}", SyntheticSource(8, items, 25, shape="mq2007", seed=2))
        settings = FeatureSettings("cp", rank=2)
        chunk_features(chunk, settings)
        spread = timed(lambda c=chunk, s=settings: chunk_features(c, s), rounds, chunk.n_queries)
        rows.append({"items": items, "seconds": spread, "growth": spread.least / before if before else None})
        before = spread.least
    return rows


def overall(rows: list[dict[str, Any]]) -> float:
    """How many times as long a doubled list takes, from the shortest to the longest."""
    first, last = rows[0], rows[-1]
    return float((last["ours"].least / first["ours"].least) ** (np.log(2.0) / np.log(last["length"] / first["length"])))


def growth(row: dict[str, Any]) -> str:
    return f"{row['growth']:.2f}x" if row["growth"] else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short lists, few rounds")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds = 3 if options.quick else 9
    lists = measure_lists(rounds, *(QUICK if options.quick else (LONGEST, LONGEST_RECURSION)))
    with TemporaryDirectory() as folder:
        training = measure_training(Path(folder), rounds, 40 if options.quick else 400)
        cp = measure_cp(Path(folder), rounds)
    whole = {name: overall([row for row in lists if row["model"] == name]) for name in ("stagg_bc", "stagg_rrf")}
    missed = [f"growth of {name}" for name, times in whole.items() if times > LINEAR]
    missed += [f"answers at {row['length']:,}" for row in lists if row.get("difference", 0.0) > SURE]
    print(f"missed: {', '.join(missed) or 'nothing'}")
    print(", ".join(f"{name}: {times:.2f} times as long for a doubling" for name, times in whole.items()))
    print("\none list, microseconds")
    head = ["model", "items", "ours", "for a doubling", "recursion", "times", "largest difference"]
    cells = [
        [
            row["model"],
            f"{row['length']:,}",
            text(row["ours"]),
            growth(row),
            text(row["recursion"]) if row["recursion"] else "",
            f"{row['recursion'].median / row['ours'].median:,.0f}" if row["recursion"] else "",
            f"{row['difference']:.0e}" if row["recursion"] else "",
        ]
        for row in lists
    ]
    print_table(head, cells)
    print("\na training step of stagg, microseconds a query")
    keys = ("data", "objective", "ranks")
    steps = [[*(row[k] for k in keys), f"{row['items']:.0f}", text(row["seconds"])] for row in training]
    print_table([*keys, "items", "step"], steps)
    print("\ncp features, two components, 25 experts, microseconds a query")
    print_table(
        ["items", "ours", "from the row before"], [[str(r["items"]), text(r["seconds"]), growth(r)] for r in cp]
    )
    if options.json:
        plain = {"lists": lists, "training": training, "cp": cp}
        options.json.write_text(json.dumps(plain, default=vars, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
