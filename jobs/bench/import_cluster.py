"""Import on workers: seconds, memory and bytes, inline and on one and two workers, beside pyarrow's bare CSV parse.

    python jobs/bench/import_cluster.py FOLDER [--millions 1 10 100] [--repeat 1] [--p2p] [--paper] [--json]

For each size, generates TREC runs in FOLDER (5 GB of text for 100 million rows) if they are not there yet. Then, by
turns and each in processes of its own: pyarrow.csv reads the files one after the other (parsing only); the import in
one process; the import pinned to one core; the import on one and on two workers, without the start of the cluster.
All datasets must have the same bytes. ``--p2p`` also groups the rows by query with Dask's P2P shuffle instead, without
the items' numbering and the sorting of lists. Beside the imports on workers stands what ``distagg plan`` says about
them beforehand; ``--paper`` adds its plan for 1e11 rows on 1,000 workers, which are simulated.

The goal: two workers at least 1.6 times as fast as one process on one core, for the largest size.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from import_trec import generate

GOAL = 1.6
DEPTH, RUNS = 1000, 126
SHAPES = {1: (10, 100), 10: (63, 160), 100: (126, 794)}  # millions of rows: runs, topics
WORKERS, ROWS, SIMULATED = 1000, 10**11, (10, 100, 1000)

USED = """
def used():
    import resource
    mine = resource.getrusage(resource.RUSAGE_SELF)
    return mine.ru_maxrss / 1024, mine.ru_utime + mine.ru_stime
"""
SETUP = """
import json, os, pathlib, sys, time
"""
PARSE = """
import pyarrow.csv as csv
began = time.perf_counter()
for file in sorted(pathlib.Path(sys.argv[1]).glob("input.*")):
    csv.read_csv(file, read_options=csv.ReadOptions(column_names=["query", "q0", "item", "rank", "score", "tag"]),
                 parse_options=csv.ParseOptions(delimiter=" ", quote_char=False))
print(json.dumps({"seconds": time.perf_counter() - began, "driver": used()}))
"""
IMPORT = """
import distagg
from distagg.cli.commands import run_in
folder, target, workers = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def peak(dask_worker=None):
    return used()
if __name__ == "__main__":
    with run_in(workers or None, None) as runner:
        before = runner.client.run(peak) if workers else {}
        began, own = time.perf_counter(), used()
        distagg.import_dataset("trec", folder / "input.*", target, qrels=folder / "qrels.txt", runner=runner)
        seconds = time.perf_counter() - began
        after = runner.client.run(peak) if workers else {}
        cpu = used()[1] - own[1] + sum(after[w][1] - before[w][1] for w in after)
    print(json.dumps({"seconds": seconds, "driver": (used()[0], cpu), "workers": [peak for peak, _ in after.values()]}))
"""
P2P = """
import dask, dask.dataframe as dd, pyarrow.csv as csv
from distagg.engine.dask import local_cluster
folder, target, workers = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def peak(dask_worker=None):
    return used()
def read(file):
    options = csv.ReadOptions(column_names=["query", "q0", "item", "rank", "score", "tag"], use_threads=False)
    parse = csv.ParseOptions(delimiter=" ", quote_char=False)
    kept = csv.ConvertOptions(include_columns=["query", "item", "score", "tag"], column_types={"query": "string"})
    import pandas
    table = csv.read_csv(file, options, parse, kept)
    return table.to_pandas(types_mapper=pandas.ArrowDtype)
if __name__ == "__main__":
    with local_cluster(workers) as runner, runner.client.as_current():
        files = sorted(folder.glob("input.*"))
        began, before = time.perf_counter(), runner.client.run(peak)
        frame = dd.from_map(read, files)
        with dask.config.set({"dataframe.shuffle.method": "p2p"}):
            shuffled = frame.shuffle("query", npartitions=max(2, len(files) // 10))
            shuffled.to_parquet(target, write_index=False, compute=True)
        seconds = time.perf_counter() - began
        after = runner.client.run(peak)
        cpu = sum(after[w][1] - before[w][1] for w in after)
    print(json.dumps({"seconds": seconds, "driver": (used()[0], cpu), "workers": [peak for peak, _ in after.values()]}))
"""


def measure(program: str, *arguments: str, one_core: bool = False) -> dict[str, Any]:
    """What a program takes, in processes of its own."""
    file = Path(arguments[0]).parent / "program.py"  # workers import it
    file.write_text(SETUP + USED + program)
    command = [*(["taskset", "-c", "0"] if one_core else []), sys.executable, str(file), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    peak, cpu = found.pop("driver")
    workers = [round(worker) for worker in found.get("workers", [])]
    return {
        "seconds": round(found["seconds"], 2),
        "cpu": round(cpu, 2),
        "driver_mb": round(peak),
        "workers_mb": workers,
    }


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def run(folder: Path, millions: int, repeat: int, p2p: bool) -> list[dict[str, Any]]:
    runs, topics = SHAPES.get(millions, (RUNS, max(1, round(millions * 1e6 / RUNS / DEPTH))))
    data = folder / f"trec-{runs}x{topics}x{DEPTH}"
    if not (data / "qrels.txt").exists():
        shutil.rmtree(data, ignore_errors=True)
        generate(data, runs, topics, DEPTH)
    cases: dict[str, tuple[str, list[str], bool]] = {
        "pyarrow.csv": (PARSE, [], False),
        "inline": (IMPORT, ["0"], False),
        "inline, one core": (IMPORT, ["0"], True),
        "1 worker": (IMPORT, ["1"], False),
        "2 workers": (IMPORT, ["2"], False),
    }
    if p2p:
        cases["P2P shuffle, 2 workers"] = (P2P, ["2"], False)
    best: dict[str, dict[str, Any]] = {}
    whole: dict[str, bytes] = {}
    for _ in range(repeat):
        for name, (program, more, one_core) in cases.items():
            target = folder / "imported"
            shutil.rmtree(target, ignore_errors=True)
            found = measure(program, str(data), str(target), *more, one_core=one_core)
            if program is IMPORT:
                whole = whole or contents(target)
                found["same_bytes"] = contents(target) == whole
            if name not in best or found["seconds"] < best[name]["seconds"]:
                best[name] = found
        for workers in (1, 2):
            case = best[f"{workers} worker{'s'[: workers - 1]}"]
            case |= on_paper(data, workers)
    shutil.rmtree(folder / "imported", ignore_errors=True)
    rows = runs * topics * DEPTH
    text = sum(file.stat().st_size for file in data.iterdir())
    return [
        {"rows": rows, "text_mb": round(text / 2**20), "case": name, "rows_s": round(rows / found["seconds"]), **found}
        for name, found in best.items()
    ]


def on_paper(data: Path, workers: int) -> dict[str, Any]:
    """What ``distagg plan`` says beforehand about the import of these runs."""
    from distagg.engine.import_plan import plan_import, rehearse

    files = sorted(data.glob("input.*"))
    plan = plan_import(rehearse("trec", files), text=sum(file.stat().st_size for file in files), workers=workers)
    return {
        "planned_seconds": round(plan["seconds"], 2),
        "planned_cpu": round(sum(row["tasks"] * row["seconds_of_a_task"] for row in plan["rounds"]), 2),
        "planned_mb": round(plan["memory_of_a_worker"] / 2**20),
        "planned_rows": plan["rows"],
    }


def largest() -> dict[str, Any]:
    """1e11 rows on 1,000 workers, which are simulated."""
    from distagg.engine.import_plan import plan_import, rehearse_made_up, simulated_task_seconds

    each = {workers: simulated_task_seconds(workers) for workers in SIMULATED}
    plan = plan_import(rehearse_made_up(), text=0.0, rows=ROWS, workers=WORKERS, seconds_of_task=each[WORKERS])
    return {**plan, "task_milliseconds": {workers: round(1e3 * value, 2) for workers, value in each.items()}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--millions", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--p2p", action="store_true")
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = [row for size in options.millions for row in run(options.folder, size, options.repeat, options.p2p)]
    last = {row["case"]: row for row in rows if row["rows"] == rows[-1]["rows"]}
    times = {
        name: round(last[name]["seconds"] / last["2 workers"]["seconds"], 2) for name in last if name != "2 workers"
    }
    same = all(row.get("same_bytes", True) for row in rows)
    result = {"rows": rows, "two workers are faster by": times, "same bytes": same}
    if options.paper:
        result["on paper"] = largest()
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        for row in rows:
            print("  ".join(f"{name} {value}" for name, value in row.items()))
        for name in list(result)[1:]:
            print(f"{name}: {result[name]}")
    return 0 if same and times["inline, one core"] >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
