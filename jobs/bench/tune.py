"""tune against ranx's optimize_fusion on the same runs and the same grid: seconds and what is found.

    python jobs/bench/tune.py --peers-python .venv-peers/bin/python [--quick] [--json]

Runs of three retrievers with planted qualities, 100 items deep. Both search all weights of a sum of min-max scores in
steps of 0.1 that add up to 1 (66 settings) for NDCG@10. Ours counts from a dataset in memory, theirs from its runs in
memory; both are compiled; turns alternate. Seconds are the processor's, of the user: ranx uses all cores, ours one. The
whole of ``tune`` stands beside: two rules, their settings and weights, five folds, each pair of folds left out once.
Goal: 100 times as fast, and the same best value.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.dataset import Dataset
from distagg.engine.fitting.learner import Goal
from distagg.engine.fitting.tune import tune
from distagg.engine.fitting.tune.judge import Ask, Folds, Judge
from distagg.models import model_named

GOAL = 100.0
PEER = Path(__file__).parent / "peers" / "tune_ranx.py"
METRIC, STEP, FOLDS = "ndcg@10", 0.1, 5
DEVIATIONS = {"dense": 1.0, "bm25": 1.4, "links": 3.0}
DEPTH, POOL = 100, 300
Runs = dict[str, dict[str, dict[str, float]]]


def made(queries: int, seed: int = 0) -> tuple[Runs, dict[str, dict[str, int]]]:
    """Runs and judgements: about five relevant items of 300, which the retrievers see through noise."""
    random = np.random.default_rng(seed)
    runs: Runs = {name: {} for name in DEVIATIONS}
    qrels = {}
    for q in range(queries):
        truth = np.zeros(POOL)
        truth[:5] = random.choice([1.0, 2.0], 5)
        qrels[f"q{q}"] = {f"d{i}": int(label) for i, label in enumerate(truth) if label}
        for name, deviation in DEVIATIONS.items():
            seen = 2.0 * truth + random.normal(0.0, deviation, POOL)
            runs[name][f"q{q}"] = {f"d{i}": float(seen[i]) for i in np.argsort(-seen)[:DEPTH]}
    return runs, qrels


def dataset_of(runs: Runs, qrels: dict[str, dict[str, int]]) -> Dataset:
    rows = [(q, name, i, s) for name, run in runs.items() for q, items in run.items() for i, s in items.items()]
    judged = [(q, item, label) for q, items in qrels.items() for item, label in items.items()]
    lists = pa.table(dict(zip(("query", "expert", "item", "score"), map(list, zip(*rows, strict=True)), strict=True)))
    labels = pa.table(dict(zip(("query", "item", "label"), map(list, zip(*judged, strict=True)), strict=True)))
    return Dataset.from_arrow(lists, judgements=labels)


def grid(count: int) -> list[tuple[float, ...]]:
    """All weights in steps that add up to 1."""
    steps = round(1 / STEP)
    return [
        tuple(k / steps for k in row) for row in itertools.product(range(steps + 1), repeat=count) if sum(row) == steps
    ]


def ours(data: Dataset) -> tuple[tuple[float, ...], float]:
    """The best weights of the grid, and their metric."""
    judge = Judge(data, Folds(FOLDS), Goal(METRIC, "trec"))
    rows = grid(len(data.experts))
    sums = np.concatenate(judge.sums([Ask(model_named("combsum", {"norm": "minmax"}), row) for row in rows]))
    total = sums.sum(axis=2)
    values = total[:, 0] / total[:, 1]
    return rows[int(values.argmax())], float(values.max())


def user_seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    result = call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime - before, result


def contest(python: str, queries: int, turns: int) -> dict[str, Any]:
    runs, qrels = made(queries)
    ours(dataset_of(*made(5)))  # compiles
    with tempfile.TemporaryDirectory(prefix="distagg-tune-") as folder:
        file = Path(folder) / "data.json"
        file.write_text(json.dumps({"runs": runs, "qrels": qrels, "metric": METRIC, "step": STEP}))
        with subprocess.Popen(
            [python, str(PEER), str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as peer:
            assert peer.stdin is not None
            assert peer.stdout is not None
            mine, theirs = [], []
            for _ in range(turns):
                print("again", file=peer.stdin, flush=True)
                line = peer.stdout.readline()
                if not line:
                    raise SystemExit("ranx ended; its message is above")
                answer = json.loads(line)
                theirs.append(answer["user"])
                data = dataset_of(runs, qrels)  # nothing is known of it yet
                seconds, (weights, value) = user_seconds(lambda data=data: ours(data))  # type: ignore[misc]
                mine.append(seconds)
            peer.stdin.close()
    whole, tuned = user_seconds(lambda: tune(data, metric=METRIC, folds=FOLDS))
    named = dict(zip(data.experts, weights, strict=True))
    return {
        "queries": queries, "settings": len(grid(len(data.experts))), "ours": statistics.median(mine),
        "ranx": statistics.median(theirs), "times": statistics.median(theirs) / statistics.median(mine),
        "weights": [named[name] for name in runs], "value": value,
        "ranx weights": answer["weights"], "ranx value": answer["value"],
        "whole tune": whole, "whole settings": tuned.judged,
        "held out": {row["rule"]: row[METRIC] for row in tuned.table},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers-python", required=True)
    parser.add_argument("--quick", action="store_true", help="small data: does it run, do the answers agree")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = contest(options.peers_python, 50 if options.quick else 1000, 1 if options.quick else 3)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        from goals import print_table

        percent = [f"{100 * found[name]:.2f}" for name in ("ranx value", "value")]
        rows = [
            ["ranx optimize_fusion", f"{found['ranx']:.3f}", f"{found['settings']}", percent[0]],
            ["ours, same grid", f"{found['ours']:.3f}", f"{found['settings']}", percent[1]],
            ["distagg tune, whole", f"{found['whole tune']:.3f}", f"{found['whole settings']:,}", "held out below"],
        ]
        print(f"{found['queries']:,} queries, 3 runs")
        print_table(["who", "user s", "settings", METRIC + ", %"], rows)
        print(f"{found['times']:.0f} times as fast as ranx on the same grid; goal {GOAL:.0f}")
        print("held out:", {name: round(100 * value, 2) for name, value in found["held out"].items()})
    same = abs(found["value"] - found["ranx value"]) < 1e-9
    sys.exit(0 if same and (found["times"] >= GOAL or options.quick) else 1)


if __name__ == "__main__":
    main()
