"""distagg: python ours.py TASK FOLDER ANSWER, what a user's script does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import distagg

FUSION = {
    "fusion by reciprocal ranks": ("rrf", {}),
    "fusion by Condorcet": ("condorcet", {}),
    "fusion by a Markov chain (MC4)": ("mc4", {}),
    "a consensus order (Kemeny)": ("kemeny", {}),
}


def fuse(folder: Path, name: str) -> pa.Table:
    """From the TREC files to a ranking, with nothing kept between."""
    return distagg.rank(name, distagg.import_dataset("trec", sorted(folder.glob("run*.txt"))))


def battles(folder: Path) -> pa.Table:
    dataset = distagg.Dataset.from_arrow(pq.read_table(folder / "battles.parquet"))
    return distagg.solve("bradley_terry", dataset, prior="none", tolerance=1e-6).ranking


def orders(folder: Path) -> pa.Table:
    table = pq.read_table(folder / "orders.parquet").rename_columns(["expert", "item", "rank"])
    columns: dict[str, Any] = {"query": pa.array(["all"] * len(table))}
    columns |= {name: table[name].cast(pa.string()) for name in ("expert", "item")}
    dataset = distagg.Dataset.from_arrow(pa.table({**columns, "rank": table["rank"]}))
    return distagg.solve("plackett_luce", dataset, prior="none", unlisted="ignore").ranking


def labelled(folder: Path) -> pa.Table:
    dataset = distagg.Dataset.open(folder / "dataset")
    fitted = distagg.fit("crf", dataset.select(fold=(5, {1, 2, 3})), valid=dataset.select(fold=(5, {4})))
    return distagg.rank(fitted, dataset.select(fold=(5, {0})))


def main() -> None:
    task, folder, answer = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if task in FUSION:
        found = fuse(folder, FUSION[task][0])
    elif task.startswith("battles"):
        found = battles(folder)
    elif task.startswith("lists"):
        found = orders(folder)
    else:
        found = labelled(folder)
    pq.write_table(found, answer)


if __name__ == "__main__":
    main()
