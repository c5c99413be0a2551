"""Time the metrics against pytrec_eval on the same rankings, side by side in one process.

    python jobs/bench/metrics.py [--queries 10000] [--items 40] [--repeat 9] [--rows 1000000] [--json]

ndcg@1..10, p@1..10 and map; repetitions alternate between the programs, so that both meet the same machine. The values
are compared before anything is timed. Both start from scores in memory: arrays here, dictionaries there; building
those dictionaries is a line of its own, because a user of pytrec_eval pays for it too.

Then ndcg@10, map and recall@100 of one run of ``--rows`` rows, 1,000 for each query, and its judgements: tables of
query, item, score and label here, joined by ``evaluate_runs``, the same dictionaries there. CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

CUTOFFS = range(1, 11)
OURS = [f"{name}@{k}" for name in ("ndcg", "p") for k in CUTOFFS] + ["map"]
THEIRS = [f"{name}_{k}" for name in ("ndcg_cut", "P") for k in CUTOFFS] + ["map"]
MEASURES = {f"{name}.{','.join(map(str, CUTOFFS))}" for name in ("ndcg_cut", "P")} | {"map"}

RATIOS = [
    ("pytrec_eval evaluate", "distagg trec"),
    ("pytrec_eval evaluate, tied scores", "distagg trec, tied scores"),
    ("pytrec_eval with its dictionaries", "distagg trec"),
]


def seconds(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    work()
    return clock() - start


def start_numba() -> None:
    """Compile something trivial: what the first kernel of any process pays, whichever it is."""
    from distagg.jit import kernel

    def add(values: np.ndarray) -> float:
        total = 0.0
        for i in range(len(values)):
            total += values[i]
        return total

    kernel(add)(np.zeros(2))


def import_seconds() -> float:
    """Import of the metrics in a fresh interpreter, beyond the interpreter's own start and numpy and pyarrow."""
    base, whole = (
        min(seconds(lambda code=code: subprocess.run([sys.executable, "-c", code], check=True)) for _ in range(3))
        for code in ("import numpy, pyarrow.compute", "import numpy, pyarrow.compute, distagg.metrics")
    )
    return whole - base


def make_problem(queries: int, items: int, seed: int) -> tuple[Any, np.ndarray]:
    from distagg.dataset.chunk import chunk_from_tables
    from distagg.types import QUERIES_TABLE

    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size=(queries, items), p=[0.8, 0.13, 0.07])
    rows = {
        "query": [f"q{q}" for q in range(queries)],
        "part": [""] * queries,
        "item": [[f"doc-{q:06d}-{i:03d}" for i in range(items)] for q in range(queries)],
        "label": labels.tolist(),
        "missed": [[]] * queries,
    }
    chunk = chunk_from_tables(pa.table(rows, schema=QUERIES_TABLE), None, None, n_experts=0)
    return chunk, rng.normal(size=queries * items)


def as_dictionaries(chunk: Any, values: np.ndarray) -> dict[str, dict[str, Any]]:
    ids, flat, offsets = chunk.item_ids.to_pylist(), values.tolist(), chunk.item_offsets.tolist()
    return {
        query: dict(zip(ids[offsets[q] : offsets[q + 1]], flat[offsets[q] : offsets[q + 1]], strict=True))
        for q, query in enumerate(chunk.query_ids.to_pylist())
    }


def measure(queries: int, items: int, repeat: int, seed: int) -> dict[str, Any]:
    import pytrec_eval

    from distagg.metrics import parse_metrics, score_chunk

    chunk, scores = make_problem(queries, items, seed)
    metrics = parse_metrics(OURS)
    tiny, tiny_scores = make_problem(2, 3, seed)
    start_time = seconds(start_numba, time.process_time)
    compile_time = seconds(lambda: score_chunk(tiny, tiny_scores, metrics, protocol="trec"), time.process_time)

    evaluator = pytrec_eval.RelevanceEvaluator(as_dictionaries(chunk, chunk.labels), MEASURES)
    run = as_dictionaries(chunk, scores)
    expected = evaluator.evaluate(run)
    wanted = np.array([[expected[q][name] for name in THEIRS] for q in chunk.query_ids.to_pylist()])
    np.testing.assert_allclose(score_chunk(chunk, scores, metrics, protocol="trec"), wanted, rtol=0, atol=1e-9)

    tied = np.round(scores * 2) / 2  # ties cost a sort of item ids
    tied_run = as_dictionaries(chunk, tied)

    def with_dictionaries() -> None:
        pytrec_eval.RelevanceEvaluator(as_dictionaries(chunk, chunk.labels), MEASURES).evaluate(
            as_dictionaries(chunk, scores)
        )

    programs: dict[str, Callable[[], Any]] = {
        "distagg trec": lambda: score_chunk(chunk, scores, metrics, protocol="trec"),
        "distagg letor": lambda: score_chunk(chunk, scores, metrics, protocol="letor"),
        "distagg trec, tied scores": lambda: score_chunk(chunk, tied, metrics, protocol="trec"),
        "pytrec_eval evaluate": lambda: evaluator.evaluate(run),
        "pytrec_eval evaluate, tied scores": lambda: evaluator.evaluate(tied_run),
        "pytrec_eval with its dictionaries": with_dictionaries,
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(repeat):
        for name, work in programs.items():
            times[name].append(seconds(work))
    medians = {name: statistics.median(own) for name, own in times.items()}
    return {
        "queries": queries,
        "items": items,
        "repeat": repeat,
        "seed": seed,
        "import_seconds": import_seconds(),
        "numba_start_cpu_seconds": start_time,
        "compile_cpu_seconds": compile_time,
        "seconds": {n: {"median": medians[n], "min": min(own), "max": max(own)} for n, own in times.items()},
        "ratio": {f"{a} / {b}": medians[a] / medians[b] for a, b in RATIOS},
    }


def measure_run(rows: int, repeat: int, seed: int) -> dict[str, Any]:
    """CPU seconds of one run against its judgements; 50 of the 1,000 items of a query are judged, 5 more are missed."""
    import pytrec_eval

    from distagg import evaluate_runs

    rng = np.random.default_rng(seed)
    queries, depth = max(rows // 1000, 1), 1000
    items = [[f"doc_{d}" for d in rng.choice(8_000_000, depth, replace=False)] for _ in range(queries)]
    names = [f"q{q}" for q in range(queries)]
    run = {q: dict(zip(own, rng.normal(size=depth).tolist(), strict=True)) for q, own in zip(names, items, strict=True)}
    qrels = {
        q: dict(zip([*own[:50], *(f"missed_{i}" for i in range(5))], rng.integers(0, 4, 55).tolist(), strict=True))
        for q, own in zip(names, items, strict=True)
    }
    tables = {"label": as_table(qrels, "label"), "score": as_table(run, "score")}
    measures = {"ndcg_cut.10", "map", "recall.100"}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, measures)

    def ours() -> Any:
        return evaluate_runs({"run": tables["score"]}, tables["label"], ["ndcg@10", "map", "recall@100"])

    def with_dictionaries() -> Any:
        known, ranked = (from_table(tables[name], name) for name in ("label", "score"))
        return pytrec_eval.RelevanceEvaluator(known, measures).evaluate(ranked)

    expected, found = evaluator.evaluate(run), ours()
    wanted = [[expected[q][name] for name in ("ndcg_cut_10", "map", "recall_100")] for q in found.query_ids]
    np.testing.assert_allclose(found.runs["run"].evaluation.values, wanted, rtol=0, atol=1e-9)
    programs = {
        "distagg evaluate_runs": ours,
        "pytrec_eval evaluate, run": lambda: evaluator.evaluate(run),
        "pytrec_eval with dictionaries, run": with_dictionaries,
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(repeat):
        for name, work in programs.items():
            times[name].append(seconds(work, time.process_time))
    return {n: {"median": statistics.median(own), "min": min(own), "max": max(own)} for n, own in times.items()}


def as_table(values: dict[str, dict[str, Any]], column: str) -> pa.Table:
    rows = [(query, item, value) for query, own in values.items() for item, value in own.items()]
    return pa.table(dict(zip(("query", "item", column), zip(*rows, strict=True), strict=True)))


def from_table(table: pa.Table, column: str) -> dict[str, dict[str, Any]]:
    values: dict[str, dict[str, Any]] = {}
    for query, item, value in zip(*(table[name].to_pylist() for name in ("query", "item", column)), strict=True):
        values.setdefault(query, {})[item] = value
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = measure(arguments.queries, arguments.items, arguments.repeat, arguments.seed)
    result |= {"rows": arguments.rows, "run_cpu_seconds": measure_run(arguments.rows, arguments.repeat, arguments.seed)}
    if arguments.json:
        print(json.dumps(result, indent=1))
        return
    print(f"{result['queries']} queries x {result['items']} items, {len(OURS)} metrics, {result['repeat']} repetitions")
    print(f"{'':36}{'median ms':>12}{'min':>10}{'max':>10}")
    for name, row in result["seconds"].items():
        print(f"{name:36}{row['median'] * 1e3:12.1f}{row['min'] * 1e3:10.1f}{row['max'] * 1e3:10.1f}")
    for name, ratio in result["ratio"].items():
        print(f"{name:62}{ratio:6.1f}")
    print(f"a run of {result['rows']:,} rows, CPU ms")
    for name, row in result["run_cpu_seconds"].items():
        print(f"{name:36}{row['median'] * 1e3:12.1f}{row['min'] * 1e3:10.1f}{row['max'] * 1e3:10.1f}")
    print(f"{'start of numba, CPU ms':36}{result['numba_start_cpu_seconds'] * 1e3:12.1f}")
    print(f"{'compile of our kernels, CPU ms':36}{result['compile_cpu_seconds'] * 1e3:12.1f}")
    print(f"{'import beyond numpy and pyarrow, ms':36}{result['import_seconds'] * 1e3:12.1f}")


if __name__ == "__main__":
    main()
