"""A billion entries: a labelled dataset repeated until it has so many, ranked by workers, beside merely scanning it.

    python jobs/bench/billion.py --data mq2008 --folder FOLDER [--sizes 1e7,1e8,1e9] [--workers 2] [--json FILE]

Every size is the dataset with experts and items repeated, kept in FOLDER (1e9 entries of MQ2008-agg take 0.3 GB: what
is repeated packs well). The crf is fitted on the dataset itself with sharing=mixed, so that copies of experts, which
it has never seen, count as the consensus does. A scan reads the same columns of the same row groups with pyarrow in
the same workers, and drops them. Rankings are written. Times are of the wall, reading and writing included, starting
workers and compiling not: every worker has scanned or ranked the small dataset before. Peak memory is the largest
worker's, with all that Python and its libraries take.

Goals: rrf and crf within 2 times the scan, workers under 2 GB, time linear in entries.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distagg.dataset import Dataset
from distagg.dataset.chunk_ref import ChunkRef
from distagg.dataset.expand import expand_dataset
from distagg.engine.dask import local_cluster
from distagg.engine.fitting.fit import fit
from distagg.engine.progress import Meter
from distagg.engine.rank import NOTHING_MORE, rank_to, write_task
from distagg.engine.runner import InlineRunner, Work
from distagg.engine.saved import align_experts
from distagg.errors import DistaggError
from distagg.models import model_named
from distagg.reports.terminal import render_table
from distagg.storage.verified import read_groups

MODELS = {"rrf": {}, "borda": {}, "crf": {"sharing": "mixed"}}
COLUMNS = ["query", "expert", "item", "rank"]
GOAL_TIMES, GOAL_MEMORY = 2.0, 2e9


def grown(dataset: Dataset, folder: Path, entries: float) -> Dataset:
    """The dataset repeated to so many entries or a few more, items and experts alike; what is there is taken."""
    times = entries / dataset.manifest.entries
    items = max(1, round(times**0.5))
    target = folder / f"{entries:.0e}"
    if not target.exists():
        meter = Meter(f"expand to {entries:.0e} entries", int(entries))
        expand_dataset(dataset, target, experts=math.ceil(times / items), items=items, progress=meter)
        meter.close()
    return Dataset.open(target)


def scan(refs: Sequence[ChunkRef]) -> int:
    """Read what ranking reads, and drop it."""
    rows = 0
    for ref in refs:
        for block in ref.blocks:
            rows += len(read_groups(Path(ref.path) / f"lists-{block.file:05d}.parquet", [block.group], COLUMNS))
    return rows


def peak(_: Any = None) -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def warm(refs: Sequence[ChunkRef], model: Any, params: Any, folder: str) -> None:
    """Rank chunks in the worker that runs this, for what it compiles and loads on the way."""
    with tempfile.TemporaryDirectory(dir=folder) as room:
        work = Work(write_task, (model, params, NOTHING_MORE, room, "parquet"), ids=True)
        list(InlineRunner().map(work, refs))


def measure(dataset: Dataset, small: Dataset, learned: Any, folder: Path, workers: int) -> dict[str, Any]:
    """Seconds and peak bytes by contestant, each with workers of its own, all of which have done a little before."""
    found: dict[str, Any] = {"entries": dataset.manifest.entries, "rows": dataset.manifest.items}
    refs = dataset.plan()
    with local_cluster(workers) as runner:
        runner.client.run(scan, small.plan())
        began = time.perf_counter()
        list(runner.each(scan, [refs[n :: 4 * workers] for n in range(4 * workers)]))
        found["scan"] = {"seconds": time.perf_counter() - began, "peak": max(runner.client.run(peak).values())}
    for name, settings in MODELS.items():
        model, target = model_named(name, settings), folder / f"ranked-{name}"
        with local_cluster(workers) as runner:
            runner.client.run(warm, small.plan(), model, learned[name], str(folder.resolve()))
            params = align_experts(model, learned[name], small.experts, dataset.experts)
            meter = Meter(f"{name} on {dataset.manifest.entries:,} entries", len(refs))
            began = time.perf_counter()
            rank_to(target, model, params, dataset, runner=runner, progress=meter)
            seconds = time.perf_counter() - began
            meter.close()
            found[name] = {"seconds": seconds, "peak": max(runner.client.run(peak).values())}
        shutil.rmtree(target)
    return found


def table(results: list[dict[str, Any]]) -> str:
    rows = []
    for found in results:
        for name in ("scan", *MODELS):
            told = found[name]
            rows.append(
                [
                    f"{found['entries']:,}",
                    name,
                    f"{told['seconds']:.1f}",
                    f"{told['seconds'] / found['scan']['seconds']:.2f}",
                    f"{1e9 * told['seconds'] / found['entries']:.1f}",
                    f"{told['peak'] / 1e6:,.0f}",
                ]
            )
    return render_table(
        ["entries", "", "seconds", "times the scan", "ns an entry", "peak of a worker, MB"], rows, "llrrrr"
    )


def missed(results: list[dict[str, Any]]) -> list[str]:
    last = results[-1]
    late = [n for n in ("rrf", "crf") if last[n]["seconds"] > GOAL_TIMES * last["scan"]["seconds"]]
    large = [n for n in MODELS if last[n]["peak"] > GOAL_MEMORY]
    return [f"{n} takes more than {GOAL_TIMES:g} times the scan" for n in late] + [
        f"{n} needs more than 2 GB" for n in large
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DATASET", help="a labelled dataset of lists")
    parser.add_argument("--folder", required=True, type=Path, help="where the large datasets are made and kept")
    parser.add_argument("--sizes", default="1e7,1e8,1e9", help="entries, by commas (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="write every figure there as well")
    given = parser.parse_args(arguments)
    try:
        small = Dataset.open(given.data)
        learned = {name: fit(model_named(name, settings), small) for name, settings in MODELS.items()}
        given.folder.mkdir(parents=True, exist_ok=True)
        results = []
        for size in given.sizes.split(","):
            dataset = grown(small, given.folder, float(size))
            results.append(measure(dataset, small, learned, given.folder, given.workers))
            print(table(results[-1:]), flush=True)
    except DistaggError as error:
        print(f"billion: {error}", file=sys.stderr)
        return error.exit_code
    print("\nmissed: " + ("; ".join(missed(results)) or "nothing") + "\n" + table(results))
    if given.json:
        Path(given.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
