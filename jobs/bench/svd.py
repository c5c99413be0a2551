"""SVD features: time for a list as its length doubles, against numpy's dense SVD; lambdarank's inference beside crf.

    python jobs/bench/svd.py [--quick] [--json FILE]

Short lists are timed by the chunk, as they come. Dense: numpy builds and decomposes the pair matrix, both count; ours
counts everything from the list's ranks on. Inference is from a chunk in memory to scores, features included, on data
shaped like MQ2008-agg with 1 to 10 times the experts, and 1 to 10 times the items. Medians, least and most in brackets;
losses stand first.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from contest import Spread
from goals import print_table
from lists import make_dataset

from distagg.dataset.chunk import Chunk, chunk_from_tables
from distagg.models import model_named
from distagg.models.lists import PAIR_FUNCTIONS
from distagg.models.scorers.features import FeatureSettings, chunk_features
from distagg.sources.synthetic import SyntheticSource
from distagg.types import LISTS_TABLE, PAIRS_TABLE, QUERIES_TABLE

LONGEST, LONGEST_DENSE = 1_000_000, 2_000
QUICK = (2_000, 200)
TOGETHER = 50_000  # short lists come in chunks of so many entries
TIMES = (1, 2, 4, 10)
GOAL_BESIDE_CRF = 10.0


def lengths(longest: int) -> list[int]:
    """10, 20, 40, ... and the longest."""
    doubled = [10 * 2**n for n in range(30) if 10 * 2**n < longest]
    return sorted({*doubled, 2_000, longest})


def same_lists(length: int, count: int) -> Chunk:
    """A chunk of queries with one list of ranks 1, 2, 3, ... each."""
    unknown = pa.array([[None] * length] * count, pa.list_(pa.int32()))
    ids = pa.array([[""] * length] * count)
    queries = {"query": ["q"] * count, "part": [""] * count, "item": ids, "label": unknown, "missed": [[]] * count}
    order = np.random.default_rng(0).permutation(length)
    lists = {
        "query": range(count),
        "expert": pa.array([0] * count, pa.int32()),
        "item": pa.array([order] * count, pa.list_(pa.int32())),
        "rank": [np.arange(1.0, length + 1)] * count,
        "score": pa.nulls(count, pa.list_(pa.float64())),
    }
    return chunk_from_tables(
        pa.table(queries, schema=QUERIES_TABLE),
        pa.table(lists, schema=LISTS_TABLE).drop(["score"]),
        pa.Table.from_pylist([], PAIRS_TABLE),
        n_experts=1,
    )


def dense(rank: np.ndarray, function: str) -> None:
    value = {
        "binary": np.zeros_like(rank),
        "difference": rank,
        "normalised": rank / rank.max(),
        "log": np.log(rank) / np.log(rank.max()),
    }[function]
    over = rank[:, None] < rank[None, :]
    np.linalg.svd(np.where(over, 1.0 if function == "binary" else value[None, :] - value[:, None], 0.0))


def timed(call: Callable[[], object], rounds: int, count: int = 1) -> Spread:
    """Seconds of each of the ``count`` lists that a call does."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        seconds.append((time.perf_counter() - start) / count)
    return Spread.of(seconds)


def text(spread: Spread) -> str:
    return f"{1e6 * spread.median:,.1f} ({1e6 * spread.least:,.1f}-{1e6 * spread.most:,.1f})"


def measure_lists(rounds: int, longest: int, longest_dense: int) -> list[dict[str, Any]]:
    rows = []
    for function in PAIR_FUNCTIONS:
        settings, before = FeatureSettings(pairs=function), 0.0
        for length in lengths(longest):
            count = max(TOGETHER // length, 1)
            chunk = same_lists(length, count)
            chunk_features(chunk, settings)
            ours = timed(lambda chunk=chunk, settings=settings: chunk_features(chunk, settings), rounds, count)
            row: dict[str, Any] = {"function": function, "length": length, "ours": ours, "growth": None, "dense": None}
            row["growth"] = ours.median / before if before else None
            before = ours.median
            if length <= longest_dense:
                rank = np.arange(1.0, length + 1)
                row["dense"] = timed(lambda rank=rank, function=function: dense(rank, function), min(rounds, 3))
            rows.append(row)
    return rows


def measure_inference(folder: Path, rounds: int, queries: int) -> list[dict[str, Any]]:
    """lambdarank and crf on the same chunks, by turns; a chunk is copied so that nothing prepared is kept."""
    rows = []
    for axis in ("experts", "items"):
        for times in TIMES:
            shape = {"experts": 25, "items": 20} | {axis: {"experts": 25, "items": 20}[axis] * times}
            source = SyntheticSource(queries, shape["items"], shape["experts"], shape="mq2008", seed=1)
            (chunk,) = (ref.load() for ref in make_dataset(folder / f"{axis}-{times}", source).plan(1 << 40))
            seconds: dict[str, list[float]] = {}
            for name in ("lambdarank", "crf"):
                model = model_named(name)
                params = model.start(chunk.n_experts)  # type: ignore[attr-defined]
                model.score(replace(chunk), params)
                for _ in range(rounds):
                    fresh, start = replace(chunk), time.perf_counter()
                    model.score(fresh, params)
                    seconds.setdefault(name, []).append((time.perf_counter() - start) / chunk.n_queries)
            ours, crf = Spread.of(seconds["lambdarank"]), Spread.of(seconds["crf"])
            entries = chunk.n_entries / chunk.n_queries
            rows.append({"expanded": axis, "times": times, "entries": entries, "lambdarank": ours, "crf": crf})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short lists, few rounds")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds = 3 if options.quick else 9
    lists = measure_lists(rounds, *(QUICK if options.quick else (LONGEST, LONGEST_DENSE)))
    with TemporaryDirectory() as folder:
        inference = measure_inference(Path(folder), rounds, 40 if options.quick else 400)

    def ahead(row: dict[str, Any]) -> float:
        return row["dense"].median / row["ours"].median if row["dense"] else np.inf

    lists.sort(key=ahead)
    lost = sum(ahead(row) < 1.0 for row in lists)
    print(f"\none list, rank 1, microseconds; {lost} of {sum(row['dense'] is not None for row in lists)} lost to numpy")
    head = ["pairs", "items", "ours", "from the length before", "numpy dense", "ratio"]
    cells = [
        [
            row["function"],
            f"{row['length']:,}",
            text(row["ours"]),
            f"{row['growth']:.2f}x" if row["growth"] else "",
            text(row["dense"]) if row["dense"] else "not tried",
            f"{ahead(row):,.1f}x" if row["dense"] else "",
        ]
        for row in lists
    ]
    print_table(head, cells)
    inference.sort(key=lambda row: row["crf"].median / row["lambdarank"].median)
    print(f"\ninference, microseconds a query; goal: at most {GOAL_BESIDE_CRF:g} times crf")
    head = ["expanded", "times", "entries a query", "lambdarank", "crf", "lambdarank / crf"]
    cells = [
        [
            row["expanded"],
            str(row["times"]),
            f"{row['entries']:,.0f}",
            text(row["lambdarank"]),
            text(row["crf"]),
            f"{row['lambdarank'].median / row['crf'].median:.1f}x",
        ]
        for row in inference
    ]
    print_table(head, cells)
    if options.json:
        plain = {"lists": lists, "inference": inference}
        options.json.write_text(json.dumps(plain, default=lambda spread: spread.__dict__, indent=1) + "\n")


if __name__ == "__main__":
    main()
