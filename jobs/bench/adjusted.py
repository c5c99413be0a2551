"""bradley_terry with covariates against scikit-learn's sparse logistic regression: seconds, memory, answers.

    python jobs/bench/adjusted.py --peers-python .venv-peers/bin/python [--battles 10000000] [--turns 2] [--json]

The same battles in one Parquet file: planted strengths of 100 items and 20 numeric covariates, no prior, no ties. Ours
imports the file into a dataset, then fits in one process, and on one and two workers (the bits of rankings and
coefficients are compared). scikit-learn reads the file, builds a sparse matrix (two cells for the items, 20 for the
covariates) and fits by L-BFGS until no entry of the mean gradient is above TOLERANCE. Every fit is a process (with its
workers) of its own; contestants take turns. Seconds are user and system time of all processes, and by the clock with
the start of processes and workers (which says something on a quiet machine only); the peak is the largest
sum of their resident memory. Goal: 5 times as fast as scikit-learn, in less memory, to the same gradient or a smaller
one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ITEMS, COVARIATES, BLOCK = 100, 20, 500_000
TOLERANCE = 1e-6
GOAL = 5.0
NAMES = [f"x{k}" for k in range(COVARIATES)]


def make(file: Path, battles: int, seed: int = 0) -> None:
    """Battles with strengths N(0, 1) and coefficients between -0.2 and 0.2 of standard normal columns."""
    draw = np.random.default_rng(seed)
    strength, by = draw.normal(size=ITEMS), np.linspace(-0.2, 0.2, COVARIATES)
    names = pa.array([f"m{i}" for i in range(ITEMS)])
    writer = None
    for first in range(0, battles, BLOCK):
        size = min(BLOCK, battles - first)
        a = draw.integers(0, ITEMS, size, dtype=np.int32)
        b = (a + draw.integers(1, ITEMS, size, dtype=np.int32)) % np.int32(ITEMS)
        x = draw.normal(size=(COVARIATES, size))
        won = draw.random(size) < 1 / (1 + np.exp(-(strength[a] - strength[b] + by @ x)))
        sides = {
            "model_a": pa.DictionaryArray.from_arrays(a, names),
            "model_b": pa.DictionaryArray.from_arrays(b, names),
        }
        table = pa.table({**sides, "winner": np.where(won, "model_a", "model_b"), **dict(zip(NAMES, x, strict=True))})
        writer = writer or pq.ParquetWriter(file, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def read(file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sides (P,), covariates (K, P) and whether side a won, in the order of the file."""
    table = pq.read_table(file)
    items = [int(name[1:]) for name in table["model_a"].combine_chunks().dictionary.to_pylist()]
    a, b = (np.array(items)[table[name].combine_chunks().indices.to_numpy()] for name in ("model_a", "model_b"))
    x = np.stack([table[name].to_numpy() for name in NAMES])
    return a, b, x, table["winner"].to_numpy(zero_copy_only=False) == "model_a"


def gradient(file: Path, strength: np.ndarray, by: np.ndarray) -> float:
    """The largest entry of the mean gradient."""
    total, count = np.zeros(ITEMS + COVARIATES), 0
    for batch in pq.ParquetFile(file).iter_batches(BLOCK):
        names = [int(name[1:]) for name in batch["model_a"].dictionary.to_pylist()]
        a, b = (np.array(names)[batch[name].indices.to_numpy()] for name in ("model_a", "model_b"))
        x = np.stack([batch[name].to_numpy() for name in NAMES])
        won = batch["winner"].to_numpy(zero_copy_only=False) == "model_a"
        along = 1 / (1 + np.exp(-(strength[a] - strength[b] + by @ x))) - won
        total[:ITEMS] += np.bincount(a, along, ITEMS) - np.bincount(b, along, ITEMS)
        total[ITEMS:] += x @ along
        count += len(along)
    return float(np.abs(total).max() / count)


def fit_sklearn(file: Path, out: Path) -> None:
    """The contestant: read, build, fit."""
    import scipy.sparse
    from sklearn.linear_model import LogisticRegression

    a, b, x, won = read(file)
    count = len(a)
    width = 2 + COVARIATES
    columns = np.empty((count, width), dtype=np.int32)
    values = np.empty((count, width))
    columns[:, 0], columns[:, 1], columns[:, 2:] = a, b, np.arange(ITEMS, ITEMS + COVARIATES)
    values[:, 0], values[:, 1], values[:, 2:] = 1.0, -1.0, x.T
    del a, b, x
    offsets = np.arange(0, count * width + 1, width, dtype=np.int64 if count * width >= 2**31 else np.int32)
    matrix = scipy.sparse.csr_matrix((values.ravel(), columns.ravel(), offsets), shape=(count, ITEMS + COVARIATES))
    began = time.process_time()
    model = LogisticRegression(C=np.inf, fit_intercept=False, tol=TOLERANCE, max_iter=1000).fit(matrix, won)
    print(json.dumps({"fit": time.process_time() - began, "steps": int(model.n_iter_[0])}))
    np.save(out, model.coef_[0])


def measured(command: list[str]) -> dict[str, Any]:
    """Run a process; user and system seconds of it and its children, and the largest sum of their memory."""
    import psutil

    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak, done = [0], threading.Event()

    def watch() -> None:
        root = psutil.Process(process.pid)
        while not done.wait(0.05):
            try:
                family = [root, *root.children(recursive=True)]
                peak[0] = max(peak[0], sum(each.memory_info().rss for each in family))
            except psutil.Error:
                continue

    thread = threading.Thread(target=watch)
    thread.start()
    output, errors = process.communicate()
    clock = time.perf_counter() - began
    done.set()
    thread.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}\n{errors}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 1), "clock": round(clock, 1), "peak_mb": round(peak[0] / 2**20), "output": output}


def fit_ours(folder: Path, workers: int) -> dict[str, Any]:
    """`distagg rank` on the dataset."""
    out = folder / f"board-{workers}"
    subprocess.run(["rm", "-rf", str(out)], check=True)
    command = [sys.executable, "-m", "distagg", "rank", "bradley_terry", str(folder / "dataset"), "-o", str(out)]
    command += ["-p", f"covariates={','.join(NAMES)}", "-p", "prior=none", "--json"]
    return measured([*command, *(["--workers", str(workers)] if workers else [])])


def board(folder: Path, workers: int) -> tuple[np.ndarray, np.ndarray, bytes]:
    """Strengths by item, coefficients, and both in one string of bytes."""
    out = folder / f"board-{workers}"
    ranking = pq.read_table(next(out.glob("part-*.parquet")))
    fits = pq.read_table(next((out / "_fits").glob("*.parquet")))
    strength = np.empty(ITEMS)
    strength[[int(name[1:]) for name in ranking["item"].to_pylist()]] = ranking["score"].to_numpy()
    by = np.array(fits["coefficient"][0].as_py())
    return strength, by, strength.tobytes() + by.tobytes()


def compare(folder: Path, battles: int, turns: int, python: str) -> dict[str, Any]:
    file = folder / "battles.parquet"
    make(file, battles)
    names = ",".join(NAMES)
    command = [sys.executable, "-m", "distagg", "import", "pairs", str(file), "--covariates", names]
    results: dict[str, Any] = {"battles": battles, "import": measured([*command, "-o", str(folder / "dataset")])}
    runs: dict[str, list[dict[str, Any]]] = {
        "scikit-learn": [],
        "ours": [],
        "ours, 1 worker": [],
        "ours, 2 workers": [],
    }
    for _ in range(turns):
        for workers, name in enumerate(("ours", "ours, 1 worker", "ours, 2 workers")):
            runs[name].append(fit_ours(folder, workers))
        peer = [python, str(Path(__file__).resolve()), "--sklearn", str(file), str(folder / "sklearn.npy")]
        runs["scikit-learn"].append(measured(peer))
    boards = [board(folder, workers) for workers in range(3)]
    results["same bits"] = len({bits for _, _, bits in boards}) == 1
    peer_answer = np.load(folder / "sklearn.npy")
    results["scikit-learn steps"] = json.loads(runs["scikit-learn"][0]["output"].splitlines()[-1])["steps"]
    results["gradient"] = {
        "ours": gradient(file, boards[0][0], boards[0][1]),
        "scikit-learn": gradient(file, peer_answer[:ITEMS], peer_answer[ITEMS:]),
    }
    gap = peer_answer[:ITEMS] - peer_answer[:ITEMS].mean() - (boards[0][0] - boards[0][0].mean())
    results["largest difference"] = float(max(np.abs(gap).max(), np.abs(peer_answer[ITEMS:] - boards[0][1]).max()))
    results["runs"] = {
        name: {key: sorted(run[key] for run in some)[len(some) // 2] for key in ("seconds", "clock", "peak_mb")}
        for name, some in runs.items()
    }
    results["import"].pop("output")
    return results


def show(results: dict[str, Any]) -> None:
    peer = results["runs"]["scikit-learn"]
    print(f"{results['battles']:,} battles, {ITEMS} items, {COVARIATES} covariates")
    print(f"import: {results['import']['seconds']} s, {results['import']['peak_mb']:,} MB")
    for name, run in results["runs"].items():
        times = [peer[key] / run[key] for key in ("seconds", "clock")]
        ratio = (
            ""
            if name == "scikit-learn"
            else "{:.1f} times as fast by the processor, {:.1f} by the clock".format(*times)
        )
        print(f"{name:16} {run['seconds']:8.1f} s, {run['clock']:8.1f} by the clock, {run['peak_mb']:8,} MB; {ratio}")
    print(f"largest entry of the mean gradient: {results['gradient']}; largest difference of answers:", end=" ")
    print(f"{results['largest difference']:.1e}; steps of scikit-learn: {results['scikit-learn steps']}")
    print(f"same bits in one process, on one worker and on two: {results['same bits']}")
    two = results["runs"]["ours, 2 workers"]
    small = two["peak_mb"] < peer["peak_mb"]
    for key, how in (("seconds", "by the processor"), ("clock", "by the clock")):
        print(f"goal of {GOAL:g} times as fast {how}: {'reached' if peer[key] / two[key] >= GOAL else 'MISSED'}")
    print(f"in less memory: {'yes' if small else 'NO'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--battles", type=int, default=10_000_000)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--peers-python", default=os.environ.get("DISTAGG_PEERS_PYTHON", sys.executable))
    parser.add_argument("--folder", type=Path, help="where the data go (default: a temporary folder)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sklearn", nargs=2, type=Path, metavar=("FILE", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sklearn:
        fit_sklearn(*options.sklearn)
        return
    with tempfile.TemporaryDirectory(prefix="distagg-adjusted-", dir=options.folder) as folder:
        results = compare(Path(folder), options.battles, options.turns, options.peers_python)
    print(json.dumps(results, indent=1)) if options.json else show(results)


if __name__ == "__main__":
    main()
