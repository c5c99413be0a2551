"""How fast and how lean is ``distagg import trec``? Twenty million run rows against pyarrow.csv alone.

    python jobs/bench/import_trec.py FOLDER [--runs 126] [--topics 160] [--depth 1000] [--repeat 3] [--json]

Generates the runs in FOLDER when they are not there yet (about 1.3 GB), then measures, each in its own process:
pyarrow.csv reading the same files one after the other (parsing only, default threads), and the whole import.
They take turns, and the best time of each counts, because other work on the machine only ever adds time.
The goal: a peak below 1,500 MB, and at most 3 times the time of the parsing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc_csv

POOL = 12_000  # documents that any run returns for a topic; a run returns its own noisy best
PEAK_GOAL_MB, RATIO_GOAL = 1500, 3.0


def generate(folder: Path, runs: int, topics: int, depth: int) -> None:
    """Write ``runs`` TREC runs and one qrels file, always the same bytes for the same arguments."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    pools = [_docids(rng) for _ in range(topics)]
    quality = [rng.standard_normal(POOL) for _ in range(topics)]
    options = pc_csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    for run in range(runs):
        picked, scores = [], []
        for topic in range(topics):
            noisy = quality[topic] + rng.standard_normal(POOL)
            best = np.argpartition(-noisy, depth)[:depth]
            best = best[np.argsort(-noisy[best], kind="stable")]
            picked.append(pools[topic].take(pa.array(best)))
            scores.append(np.round(20 + noisy[best], 4))
        rows = topics * depth
        table = pa.table(
            {
                "query": pa.array(np.repeat(np.arange(1, topics + 1), depth)),
                "q0": pa.array(["Q0"]).take(pa.array(np.zeros(rows, np.int32))),
                "item": pa.concat_arrays(picked),
                "rank": np.tile(np.arange(1, depth + 1), topics),
                "score": np.concatenate(scores),
                "tag": pa.array([f"run{run:03d}"]).take(pa.array(np.zeros(rows, np.int32))),
            }
        )
        pc_csv.write_csv(table, folder / f"input.run{run:03d}", options)
    with (folder / "qrels.txt").open("w") as out:
        for topic in range(topics):
            top = np.argsort(-quality[topic])[:200]
            for place, doc in enumerate(pools[topic].take(pa.array(top)).to_pylist()):
                out.write(f"{topic + 1} 0 {doc} {2 if place < 20 else int(place < 80)}\n")


def _docids(rng: np.random.Generator) -> pa.Array:
    parts = rng.integers(0, [134, 100, 100_000], size=(3 * POOL, 3))
    ids = np.unique([f"clueweb09-en{a:04d}-{b:02d}-{c:05d}" for a, b, c in parts])
    return pa.array(rng.permutation(ids)[:POOL].tolist(), pa.string())


PARSE = """
import sys, pathlib, pyarrow.csv as csv
for file in sorted(pathlib.Path(sys.argv[1]).glob("input.*")):
    csv.read_csv(file, read_options=csv.ReadOptions(column_names=["query", "q0", "item", "rank", "score", "tag"]),
                 parse_options=csv.ParseOptions(delimiter=" ", quote_char=False))
"""

IMPORT = """
import sys, pathlib
from distagg.dataset.build.writer import write_dataset
from distagg.sources.trec import JudgedSource, TrecSource
folder, target = map(pathlib.Path, sys.argv[1:3])
source = JudgedSource(TrecSource(sorted(folder.glob("input.*"))), [folder / "qrels.txt"])
write_dataset(source, target)
"""

USAGE = """
import resource
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_maxrss, used.ru_utime + used.ru_stime)
"""


class Measured(NamedTuple):
    seconds: float  # wall
    cpu_seconds: float
    peak_mb: float


def measure(program: str, *arguments: str) -> Measured:
    """What a program takes in a process of its own."""
    start = time.perf_counter()
    command = [sys.executable, "-c", program + USAGE, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    peak, cpu = done.stdout.split()[-2:]
    return Measured(time.perf_counter() - start, float(cpu), int(peak) / 1024)


def run(folder: Path, runs: int, topics: int, depth: int, repeat: int) -> dict[str, Any]:
    data = folder / f"trec-{runs}x{topics}x{depth}"
    if not (data / "qrels.txt").exists():
        shutil.rmtree(data, ignore_errors=True)
        generate(data, runs, topics, depth)
    target = folder / "imported"
    parses, imports = [], []
    for _ in range(repeat):
        shutil.rmtree(target, ignore_errors=True)
        parses.append(measure(PARSE, str(data)))
        imports.append(measure(IMPORT, str(data), str(target)))
    written = sum(file.stat().st_size for file in target.iterdir())
    shutil.rmtree(target)
    parse, imported = min(parses), min(imports)
    peak = max(one.peak_mb for one in imports)
    ratio = imported.seconds / parse.seconds
    rows = runs * topics * depth
    return {
        "rows": rows,
        "text_mb": round(sum(file.stat().st_size for file in data.iterdir()) / 2**20),
        "dataset_mb": round(written / 2**20),
        "parse_seconds": round(parse.seconds, 2),
        "import_seconds": round(imported.seconds, 2),
        "rows_per_second": round(rows / imported.seconds),
        "peak_mb": round(peak),
        "ratio": round(ratio, 2),
        "cpu_ratio": round(min(i.cpu_seconds for i in imports) / min(p.cpu_seconds for p in parses), 2),
        "repeats": repeat,
        "goal": {"peak_mb": PEAK_GOAL_MB, "ratio": RATIO_GOAL},
        "met": peak < PEAK_GOAL_MB and ratio <= RATIO_GOAL,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=126)
    parser.add_argument("--topics", type=int, default=160)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = run(options.folder, options.runs, options.topics, options.depth, options.repeat)
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        for name, value in result.items():
            print(f"{name:>16}  {value}")
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
