"""000 figure 10: seconds to rank a query as experts or items are repeated 1 to 10 times, CRF beside SVD features.

    python jobs/reproduce/figure10.py [--mq2008 DATASET] [--report FILE.html] [--repeats 5] [--json FILE]

As in the paper: both models are fitted on fold 1 of MQ2008-agg (synthetic data of its shape without --mq2008), and rank
its test queries with every expert, or every item, t times over. Copies of an expert have its weights. Scores are from a
chunk in memory, SVD features included; medians over repeats, which take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.chunk import Chunk
from distagg.dataset.expand import expand_chunk
from distagg.engine.fit import fit
from distagg.engine.folds import make_folds
from distagg.errors import DistaggError
from distagg.models import Params, model_named
from distagg.reports.lines import Axis, lines
from distagg.reports.page import figure, figures, page, section, table, write_report
from distagg.reports.terminal import render_table
from distagg.sources.synthetic import SyntheticSource

MODELS = ("crf", "lambdarank")
TIMES = tuple(range(1, 11))
PAPER = {"experts": 80.0, "items": 3.5}  # times the CRF's, at ten-fold
GOAL = 10.0


def measure(dataset: Dataset, repeats: int) -> dict[str, Any]:
    """Microseconds a query, by model, axis and factor: every repeat; and the entries of the chunks."""
    fold = make_folds(dataset, "letor5")[0]
    models = {name: model_named(name) for name in MODELS}
    learned = {name: fit(model, fold.train, valid=fold.valid) for name, model in models.items()}
    (ref,) = fold.test.plan(1 << 40)
    chunk = ref.load(ids=False)
    taken: dict[str, dict[str, list[list[float]]]] = {name: {} for name in MODELS}
    entries = {}
    for axis in PAPER:
        for name in MODELS:
            taken[name][axis] = [[] for _ in TIMES]
        entries[axis] = [chunk.n_entries * t for t in TIMES]
        for n, t in enumerate(TIMES):
            grown = expand_chunk(chunk, **{axis: t})
            for _ in range(repeats + 1):
                for name, model in models.items():
                    params = repeated(learned[name], t if axis == "experts" else 1)
                    taken[name][axis][n].append(1e6 * seconds(model, grown, params) / chunk.n_queries)
        for name in MODELS:
            taken[name][axis] = [runs[1:] for runs in taken[name][axis]]  # the first of all compiles
    return {"queries": chunk.n_queries, "entries": entries, "microseconds": taken}


def seconds(model: Any, chunk: Chunk, params: Params) -> float:
    """Of the processor: others may be at work on it."""
    fresh = replace(chunk)  # what a model keeps of a chunk it has seen must not help
    began = time.process_time()
    model.score(fresh, params)
    return time.process_time() - began


def repeated(params: Params, times: int) -> Params:
    """Weights of experts for all their copies."""
    return {
        name: np.tile(value, (times, *[1] * (value.ndim - 1))) if name.startswith("expert_") else value
        for name, value in params.items()
    }


def growth(runs: list[list[float]]) -> float:
    """The exponent of a power of the size, by least squares on logarithms."""
    return float(np.polyfit(np.log(TIMES), np.log([statistics.median(r) for r in runs]), 1)[0])


def rows(found: dict[str, Any]) -> list[list[str]]:
    made = []
    for axis in PAPER:
        crf, svd = (found["microseconds"][name][axis] for name in MODELS)
        ratio = [statistics.median(s) / statistics.median(c) for s, c in zip(svd, crf, strict=True)]
        for name, runs in zip(MODELS, (crf, svd), strict=True):
            first, last = (f"{statistics.median(r):.1f} ({min(r):.1f} to {max(r):.1f})" for r in (runs[0], runs[-1]))
            made.append([axis, name, first, last, f"{growth(runs):.2f}"])
        made.append(
            [axis, "ratio", f"{ratio[0]:.1f}", f"{ratio[-1]:.1f} (paper {PAPER[axis]:g})", f"most {max(ratio):.1f}"]
        )
    return made


HEAD = ["repeated", "model", "once, us a query", "ten times", "grows as size to the"]


def html(found: dict[str, Any], source: str) -> str:
    drawn = []
    for axis in PAPER:
        medians = {
            name: [(t, statistics.median(r)) for t, r in zip(TIMES, by_axis[axis], strict=True)]
            for name, by_axis in found["microseconds"].items()
        }
        y = Axis("microseconds a query", log=True)
        drawn.append(figure(f"{axis} repeated", lines(medians, x=Axis("times"), y=y, title=f"time against {axis}")))
    return page(
        "Time to rank a query", f"{source}, {found['queries']} queries",
        [
            section("As experts or items are repeated", figures(drawn)),
            section("Figures", table(HEAD, rows(found), label="figures", left=(0, 1))),
        ],
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mq2008", metavar="DATASET", help="the imported MQ2008-agg (default: synthetic data)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--report", metavar="FILE.html", help="draw the curves")
    parser.add_argument("--json", metavar="FILE", help="write every figure there as well")
    given = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as folder:
            source = given.mq2008 or str(Path(folder) / "synthetic")
            if not given.mq2008:
                write_dataset(SyntheticSource(queries=400, shape="mq2008", seed=0), Path(source))
            found = measure(Dataset.open(source), max(given.repeats, 1))
    except DistaggError as error:
        print(f"figure10: {error}", file=sys.stderr)
        return error.exit_code
    print(render_table(HEAD, rows(found), "llrrr"))
    if given.report:
        write_report(html(found, "MQ2008-agg" if given.mq2008 else "synthetic data"), given.report, overwrite=True)
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
